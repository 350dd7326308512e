"""The page: `ReportData` → one HTML document that needs nothing but a browser. Pure; what letters say is escaped."""

from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

from dlx_router.config.dialects.import_result import written
from dlx_router.spark.advice.judge import Advice, QueueAdvice
from dlx_router.spark.advice.proposal import definition_of, reasons_of
from dlx_router.spark.advice.texts import KEEP, VERDICTS
from dlx_router.spark.report import charts
from dlx_router.spark.report.data import ReportData
from dlx_router.spark.report.style import CSS
from dlx_router.spark.report.words import duration, moment, number, percent

Row = dict[str, Any]


def page(data: ReportData) -> str:
    """The document. Scripts and links are not in it: it can be mailed, and opened anywhere."""
    parts = [_head(data), _tiles(data), _advice(data), _over_time(data), _fates(data), _efficacy(data), _times(data)]
    parts += [_slo(data), _groups(data), _poison(data), _redrives(data), _foot(data)]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8">'
        '<meta name="viewport" content="width=device-width,initial-scale=1">'
        f"<title>{escape(data.title)}</title><style>{CSS}</style></head><body><main>{''.join(parts)}</main></body></html>\n"
    )


def _head(data: ReportData) -> str:
    period = f"{moment(data.first_ms, '%d %b %Y %H:%M')} to {moment(data.last_ms, '%d %b %Y %H:%M')} UTC"
    gaps = ""
    if data.gaps:
        where = "missing in the journal, or lost from the archive"
        gaps = f'<p class="note">{number(data.gaps)} events of this time are {where} (kind gap).</p>'
    return f'<h1>{escape(data.title)}</h1><p class="lead">{period}</p>{gaps}'


def _tiles(data: ReportData) -> str:
    letters, closed = data.total("letters"), max(data.total("letters") - data.total("open"), 1)
    by_retry = data.total("recovered") - data.total("by_redrive")
    retries, vain = data.total("tried"), data.total("tried") - data.total("helped")
    spared = sum(part.spared.expected for queue in data.advice for part in queue.parts)
    spares = f"; what is advised below spares {percent(spared / retries)}" if retries and spared > 0 else ""
    shown = (
        ("", number(letters), f"letters, {number(data.total('born'))} of them failed for the first time"),
        ("good", number(by_retry), f"recovered by a retry, {percent(by_retry / closed)}"),
        (
            "back",
            number(data.total("by_redrive")),
            f"recovered by a redrive, {percent(data.total('by_redrive') / closed)}",
        ),
        ("bad", number(data.total("lost")), f"not recovered, {percent(data.total('lost') / closed)}"),
        ("", number(data.total("open")), "still open"),
        ("", percent(vain / retries) if retries else "–", f"of {number(retries)} retries in vain{spares}"),
    )
    tiles = (f'<div class="tile {css}"><b>{value}</b><span>{label}</span></div>' for css, value, label in shown)
    return f'<div class="tiles">{"".join(tiles)}</div>'


def _section(title: str, why: str, *parts: str) -> str:
    return f'<section><h2>{title}</h2><p class="why">{why}</p>{"".join(parts)}</section>'


def _cut(data: ReportData, table: str, order: str) -> str:
    """A line where not all rows are shown; in what `order` they are."""
    shown, every = len(getattr(data, table)), data.count(table)
    return f'<p class="why">The first {number(shown)} of {number(every)}, {order}.</p>' if shown < every else ""


def _advice(data: ReportData) -> str:
    if not data.advice:
        return ""
    parts = [(queue, part) for queue in data.advice for part in queue.parts]
    parts.sort(key=lambda pair: ([*VERDICTS].index(pair[1].verdict), -pair[1].retries, pair[1].key))
    cards = "".join(_card(queue, part) for queue, part in parts)
    why = (
        "What the retries of this time say about the policies. <code>dlx-router pipeline advise</code> writes a policy "
    )
    why += "file of it, and tries that on the recorded letters."
    return _section("What to change", why, f'<div class="advice">{cards}</div>')


def _card(queue: QueueAdvice, part: Advice) -> str:
    tag = f'<span class="tag {part.verdict}">{VERDICTS[part.verdict]}</span>'
    head = f'<div class="head"><h3>{escape(queue.queue)}</h3>{tag}</div>'
    yaml = "\n".join(written(definition_of(queue._replace(parts=(part,)))[0])) if part.verdict != KEEP else ""
    shown = f"<pre>{escape(yaml)}</pre>" if yaml else ""
    _, *sentences = reasons_of(part)
    lines = "".join(f"<br>{escape(sentence.strip())}" for sentence in sentences)
    return f'<div class="card">{head}<p>{escape(part.key.reason)}{lines}</p>{shown}</div>'


def _over_time(data: ReportData) -> str:
    classes = charts.colours(data.recovery)
    drawn = charts.deaths_over_time(data.trends, classes, data.bucket_ms, data.first_ms, data.last_ms)
    why = (
        f"Each letter counts once, when it failed first. One bar is {duration(data.bucket_ms)}; strips have own scales."
    )
    return _section("When letters failed", why, _wide(drawn), _cut(data, "trends", "where most deaths were first"))


def _fates(data: ReportData) -> str:
    why = "Recovered: no event of the letter for at least an hour, or twice its longest wait, after it was given back."
    legend = _legend([(css, label) for _, css, label in charts.FATES])
    table = _table(
        ("queue", "reason", "#letters", "#recovered", "#of these by redrive", "#lost", "#open", "#share (95 %)"),
        (
            (row["failed_queue"], row["reason"], *(number(row[name]) for name in
             ("letters", "recovered", "by_redrive", "lost", "open")),
             f"{percent(row['recovered_share'])} ({percent(row['low'])} to {percent(row['high'])})")
            for row in data.recovery
        ),
    )  # fmt: skip
    cut = _cut(data, "recovery", "those with most letters first; the sums above are of all")
    return _section("What became of them", why, legend, _wide(charts.fates(data.recovery)), _more(table), cut)


def _efficacy(data: ReportData) -> str:
    if not data.efficacy:
        return ""
    small = "".join(
        f"<div><h3>{escape(queue)}</h3><p>{escape(reason)}</p>{drawn}</div>"
        for queue, reason, drawn in charts.efficacy(data.efficacy)
    )
    table = _table(
        ("queue", "reason", "#delivery", "#tried", "#succeeded", "#share", "#95 % interval", "#median wait"),
        (
            (row["failed_queue"], row["reason"], str(row["attempts"] + 1), number(row["tried"]),
             number(row["recovered"]), percent(row["recovered_share"]),
             f"{percent(row['low'])} to {percent(row['high'])}", duration(row["wait_p50_ms"]))
            for row in data.efficacy
        ),
    )  # fmt: skip
    why = "How often the 2nd, 3rd … delivery of a letter succeeds, of those that got so far. Whiskers: 95 % interval; "
    why += "below: median wait before it, and letters tried."
    cut = _cut(data, "efficacy", "queues with most retries first; the sum above is of all")
    return _section("Which attempt succeeds", why, f'<div class="small">{small}</div>', _more(table), cut)


def _times(data: ReportData) -> str:
    drawn = charts.times(data.recovery)
    why = "From the first death until the letter was given back for the last time: half of the recovered letters (full "
    why += "dot), 95 % (ring), 99 % (small ring)."
    cut = _cut(data, "recovery", "those with most letters first")
    return _section("How long recovery took", why, _wide(drawn), cut) if drawn else ""


def _slo(data: ReportData) -> str:
    target = f"{percent(data.objective.share)} of the letters recover within {duration(data.objective.within_ms)}"
    why = f"The objective: {target} of their first death. 1 × uses up what it allows to fail."
    cut = _cut(data, "slo", "those that used up most of it first")
    return _section("Error budgets", why, _wide(charts.burn(data.slo)), cut) if data.slo else ""


def _groups(data: ReportData) -> str:
    why = (
        "Letters that fail for one cause: queue, reason, type and place of the error, its message without what varies."
    )
    rows = (
        (
            _group(row), number(row["letters"]), number(row["deaths"]), percent(row["lost_share"]),
            moment(row["first_ms"]), moment(row["last_ms"]),
        )
        for row in data.groups
    )  # fmt: skip
    head = ("group", "#letters", "#deaths", "#lost", "first", "last")
    cut = _cut(data, "groups", "those with most letters first")
    return _section("Groups", why, _table(head, rows, is_html=True), cut)


def _group(row: Row) -> str:
    where = " · ".join(escape(row[name] or "–") for name in ("failed_queue", "reason", "fingerprint"))
    return f"<code>{escape(_error(row))}</code><small>{where}</small>"


def _error(row: Row) -> str:
    message = row["error_template"] or ""
    if row["error_type"] and not message.startswith(row["error_type"]):
        return f"{row['error_type']}: {message}" if message else row["error_type"]
    return message or f"{row['reason']} (nothing said)"


def _poison(data: ReportData) -> str:
    if not data.poison:
        return ""
    rows = (
        (row["message"][:16], row["failed_queue"], ", ".join(row["reasons"]), number(row["letters"]),
         number(row["deaths"]), moment(row["first_ms"]), moment(row["last_ms"]))
        for row in data.poison
    )  # fmt: skip
    why = "The same message (by its body) dies again and again, and has never recovered."
    head = ("message", "queue", "reasons", "#letters", "#deaths", "first", "last")
    cut = _cut(data, "poison", "those with most deaths first")
    return _section("Poison messages", why, _table(head, rows), cut)


def _redrives(data: ReportData) -> str:
    if not data.redrives:
        return ""
    rows = (
        (row["redrive_id"] or "–", row["failed_queue"], number(row["letters"]), number(row["recovered"]),
         number(row["at_once"]), number(row["lost"]), number(row["open"]),
         f"{percent(row['recovered_share'])} ({percent(row['low'])} to {percent(row['high'])})",
         moment(row["first_ms"]))
        for row in data.redrives
    )  # fmt: skip
    why = "Letters that were sent back, and whether they came to rest; at once: without dying again first."
    head = ("redrive", "queue", "#letters", "#recovered", "#at once", "#lost", "#open", "#share (95 %)", "began")
    return _section("Redrives", why, _table(head, rows), _cut(data, "redrives", "the newest first"))


def _foot(data: ReportData) -> str:
    kinds = ", ".join(f"{escape(kind)} {number(count)}" for kind, count in sorted(data.kinds.items()))
    signed = ", ".join(f"{escape(name)} {number(count)}" for name, count in sorted(data.signatures.items()))
    kinds += f". Signed by a router: {signed}" if {*data.signatures} - {"ok"} else ""
    complete = f" Complete until {moment(data.complete_ms, '%d %b %Y %H:%M')}." if data.complete_ms else ""
    made = f"Made {data.made_at:%d %b %Y %H:%M} UTC by dlx-router. Times are UTC."
    return f"<footer>Events: {kinds}.{complete} {made}</footer>"


def _legend(named: Sequence[tuple[str, str]]) -> str:
    return f'<ul class="legend">{"".join(f"<li><i class={css}></i>{escape(label)}</li>" for css, label in named)}</ul>'


def _wide(drawn: str) -> str:
    """A chart that is moved sideways where there is no room, so that its words stay large enough to read."""
    return (
        f'<div class="scroll" tabindex="0" role="group" aria-label="a chart, wider than the page may be">{drawn}</div>'
    )


def _more(table: str) -> str:
    return f"<details><summary>The numbers as a table</summary>{table}</details>"


def _table(head: Sequence[str], rows: Iterable[Sequence[str]], *, is_html: bool = False) -> str:
    """A # before a name: a column of numbers. `is_html`: the first cell of each row is HTML already."""
    css = [' class="n"' if name[:1] == "#" else "" for name in head]
    heads = "".join(
        f'<th scope="col"{attribute}>{escape(name.removeprefix("#"))}</th>'
        for attribute, name in zip(css, head, strict=True)
    )
    body = "".join(f"<tr>{_cells(row, css, is_html=is_html)}</tr>" for row in rows)
    return f'<div class="scroll"><table><thead><tr>{heads}</tr></thead><tbody>{body}</tbody></table></div>'


def _cells(row: Sequence[str], css: Sequence[str], *, is_html: bool) -> str:
    cells = (cell if is_html and at == 0 else escape(cell) for at, cell in enumerate(row))
    return "".join(f"<td{attribute}>{cell}</td>" for attribute, cell in zip(css, cells, strict=True))
