"""The page's look: one sheet, light and dark by the reader's choice, also for print. No font or file from elsewhere."""

from typing import Final

# Categories c1…c6 are told apart by people who see few colours, and have contrast ≥ 3 to both backgrounds.
LIGHT: Final = {
    "bg": "#f6f7f9", "card": "#ffffff", "ink": "#1b2430", "soft": "#5a6675", "line": "#e3e7ec", "axis": "#a9b3bf",
    "good": "#1a8f6e", "back": "#3f78c9", "wait": "#b7c0cb", "bad": "#c8453b", "c1": "#3566c4", "c2": "#d9812a",
    "c3": "#1a8f86", "c4": "#b04a86", "c5": "#7a63c9", "c6": "#8a8d2c", "c0": "#98a2ae", "on": "#fffffe",
    "warn": "#8a5a00", "warnbg": "#fff4dc",
}  # fmt: skip
"""Colours by name, no two the same: charts are drawn in these, and the page puts its own in their place."""
DARK: Final = {
    "bg": "#11161d", "card": "#1a212b", "ink": "#e8edf3", "soft": "#9daab9", "line": "#2b3541", "axis": "#5b6876",
    "good": "#35b38c", "back": "#6a9ff0", "wait": "#566372", "bad": "#ef6f63", "c1": "#6c98f0", "c2": "#f0a050",
    "c3": "#3dbdb2", "c4": "#dd7fb6", "c5": "#a594f0", "c6": "#bdbf57", "c0": "#758291", "on": "#0e1319",
    "warn": "#f3c76a", "warnbg": "#33290f",
}  # fmt: skip


def _named(colours: dict[str, str]) -> str:
    return ";".join(f"--{name}:{value}" for name, value in colours.items())


CSS: Final = (
    f"""
:root{{color-scheme:light dark;{_named(LIGHT)}}}
@media(prefers-color-scheme:dark){{:root{{{_named(DARK)}}}}}
"""
    """\
*{box-sizing:border-box}
body{margin:0;background:var(--bg);color:var(--ink);font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,
"DejaVu Sans",sans-serif;font-variant-numeric:tabular-nums}
main{max-width:1160px;margin:0 auto;padding:40px 24px 64px}
h1{font-size:30px;line-height:1.2;margin:0;letter-spacing:-.02em}
h2{font-size:19px;margin:0 0 2px;letter-spacing:-.01em}
h3{font-size:15px;margin:0}
p{margin:0}
.lead{color:var(--soft);margin:6px 0 28px}
.why{color:var(--soft);margin:0 0 16px;max-width:76ch}
section{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:22px 24px;margin-top:20px}
.tiles{display:grid;grid-template-columns:repeat(auto-fit,minmax(165px,1fr));gap:14px}
.tile{background:var(--card);border:1px solid var(--line);border-radius:14px;padding:16px 18px}
.tile b{display:block;font-size:28px;line-height:1.15;letter-spacing:-.02em;font-weight:650}
.tile span{color:var(--soft);font-size:13px}
.tile.good b{color:var(--good)}.tile.bad b{color:var(--bad)}.tile.back b{color:var(--back)}
.advice{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(330px,100%),1fr));gap:14px}
.card{border:1px solid var(--line);border-radius:12px;padding:16px 18px;display:flex;flex-direction:column;gap:8px}
.card .head{display:flex;justify-content:space-between;gap:8px;align-items:baseline}
.card p{color:var(--soft);font-size:14px}
.tag{font-size:12px;font-weight:600;border-radius:99px;padding:2px 10px;white-space:nowrap;border:1px solid
currentColor} .tag.never,.tag.some,.tag.fewer{color:var(--bad)}.tag.keep{color:var(--good)}
.tag.longer,.tag.sooner,.tag.held{color:var(--back)}
pre{margin:auto 0 0;background:var(--bg);border-radius:8px;padding:10px 12px;font:12.5px/1.5
ui-monospace,Menlo,Consolas, "DejaVu Sans Mono",monospace;overflow-x:auto}
.legend{display:flex;flex-wrap:wrap;gap:6px 18px;margin:0 0
12px;padding:0;list-style:none;font-size:13px;color:var(--soft)} .legend
i{display:inline-block;width:11px;height:11px;border-radius:3px;margin-right:7px;vertical-align:-1px}
.small{display:grid;grid-template-columns:repeat(auto-fill,minmax(min(310px,100%),1fr));gap:22px 26px} .small
p{color:var(--soft);font-size:13px;margin-bottom:4px} svg{display:block;width:100%;height:auto}
svg text{font-family:inherit!important}
i.good{background:var(--good)}i.bad{background:var(--bad)}i.back{background:var(--back)}i.wait{background:var(--wait)}
.scroll{overflow-x:auto}.scroll svg{min-width:760px}
table{border-collapse:collapse;width:100%;font-size:13.5px}
th{font-weight:600;color:var(--soft);text-align:left;font-size:12.5px}
th,td{padding:8px 10px;border-bottom:1px solid var(--line);vertical-align:top}
tr:last-child td{border-bottom:0}
td.n,th.n{text-align:right;white-space:nowrap}
td code{font:12.5px ui-monospace,Menlo,Consolas,"DejaVu Sans Mono",monospace;word-break:break-word}
td small{color:var(--soft);display:block}
details{margin-top:12px;font-size:13.5px}
summary{color:var(--soft);cursor:pointer}
.note{background:var(--warnbg);color:var(--warn);border-radius:10px;padding:10px 14px;margin:0 0 18px}
footer{color:var(--soft);font-size:13px;margin-top:28px}
@media print{body{background:#fff}section,.tile,.card{break-inside:avoid}details{display:none}}
"""
)
