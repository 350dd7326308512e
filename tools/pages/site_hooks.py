"""What mkdocs.yml needs besides settings: pages that lie elsewhere in the tree, and Markdown as code hosts read it.

Pages are written for whoever reads them in the tree. For the site: a link to a file that is no page is its text, what a
fence says behind its language is left out, a list needs no empty line before it, and a diagram is drawn here, so that
no page loads anything from elsewhere.
"""

import html
import posixpath
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[2]
# Pages outside docs/, and what they are called on the site.
OUTSIDE: Final = {
    "SECURITY.md": "project/security.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "charts/dlx-router/README.md": "project/helm-chart.md",
}
_SHOWN_AS: Final = {"console": "bash"}  # commands without prompts
_FENCE: Final = re.compile(r"^( *)(`{3,}|~{3,})(.*)$")
_LINK: Final = re.compile(r"(?P<picture>!?)\[(?P<text>(?:[^][]|\[[^][]*\])*)\]\((?P<target>[^)\s]+)\)")
_CODE: Final = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_ITEM: Final = re.compile(r"^( *)(?:[*+-]|[0-9]+[.)]) +\S")
# Where each box of the diagram in docs/concepts.md stands: left edge, row, width.
PLACES: Final = {
    "work": (0, 2, 100), "inbox": (150, 2, 150), "router": (360, 2, 70), "router2": (360, 0, 70),
    "release": (575, 0, 210), "rung": (575, 1, 210), "dlq": (575, 2, 210), "parking": (575, 3, 210),
    "quarantine": (575, 4, 210), "journal": (575, 5, 210),
}  # fmt: skip
_BOX: Final = re.compile(r"(\w+)(?:\[([^]]+)\]|\{([^}]+)\})")
_EDGE: Final = re.compile(r"(\w+) (?:--> |-- (.+?) --> |-\. (.+?) \.-> )(?=(\w+))")
_ROW: Final = 58
_HEIGHT: Final = 34


def on_files(files: Files, config: Any) -> Files:  # noqa: ANN401 - as mkdocs hands it over
    """The pages that lie elsewhere."""
    for path, name in OUTSIDE.items():
        files.append(File.generated(config, name, abs_src_path=str(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:  # noqa: ANN401 - as mkdocs hands it over
    """The page as the site's Markdown reads it."""
    return adapted(markdown, page.file.src_uri)


def adapted(markdown: str, name: str) -> str:
    """`name`: of the page on the site."""
    out: list[str] = []
    lines = iter(markdown.splitlines())
    for line in lines:
        fence = _FENCE.match(line)
        if fence is None:
            out += [*_gap(out, line), _linked(line, name)]
            continue
        language, inside = (fence[3].split() or [""])[0], _until_closed(lines, fence[2])
        if language == "mermaid":
            out += ["", drawn("\n".join(inside[:-1])), ""]
        else:
            out += [f"{fence[1]}{fence[2]}{_SHOWN_AS.get(language, language)}", *inside]
    return "\n".join(out) + "\n"


def _until_closed(lines: Iterator[str], fence: str) -> list[str]:
    """The rest of a fenced block, its last line closing it."""
    inside: list[str] = []
    for line in lines:
        inside.append(line)
        if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            break
    return inside


def _gap(out: list[str], line: str) -> list[str]:
    """An empty line where a list or a table begins right behind a paragraph."""
    before = out[-1] if out else ""
    begins = _ITEM.match(line) and not _ITEM.match(before) and not before.startswith(" ")
    return [""] if begins and before.strip() else []


def _linked(line: str, name: str) -> str:
    spans = [match.span() for match in _CODE.finditer(line)]

    def replaced(match: re.Match[str]) -> str:
        if any(start <= match.start() < stop for start, stop in spans):
            return match[0]
        target = _target(match["target"], name)
        return match["text"] if target is None else f"{match['picture']}[{match['text']}]({target})"

    return _LINK.sub(replaced, line)


def _target(link: str, name: str) -> str | None:
    """The link as the site has it; None where it leads to no page."""
    if re.match(r"[a-z]+:|#", link):
        return link
    path, mark, anchor = link.partition("#")
    outside = {page: source for source, page in OUTSIDE.items()}
    here = posixpath.dirname(outside.get(name, f"docs/{name}"))
    there = posixpath.normpath(posixpath.join(here, unquote(path)))
    if there in OUTSIDE:
        page = OUTSIDE[there]
    elif there.startswith("docs/") and (ROOT / there).is_file():
        page = there.removeprefix("docs/")
    else:
        return None
    return posixpath.relpath(page, posixpath.dirname(name) or ".") + mark + anchor


def drawn(diagram: str) -> str:
    """A flowchart as a picture; KeyError names a box that has no place in PLACES."""
    boxes = {match[1]: match[2] or match[3] for match in _BOX.finditer(diagram)}
    bare = _BOX.sub(r"\1", diagram)
    edges = [(match[1], match[4], match[2] or match[3] or "", bool(match[3])) for match in _EDGE.finditer(bare)]
    parts = [*(_edge(*edge) for edge in edges), *(_box(name, label) for name, label in boxes.items())]
    right = max(PLACES[name][0] + PLACES[name][2] for name in boxes)
    bottom = max(PLACES[name][1] for name in boxes) * _ROW + _HEIGHT
    arrow = '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    arrow += '<path d="M0 0 8 4 0 8z" fill="currentColor"/></marker>'
    names = html.escape(", ".join(boxes.values()))
    return (
        f'<svg viewBox="-2 -2 {right + 4} {bottom + 4}" role="img" aria-label="{names}" font-size="14" fill="none" '
        f'stroke="currentColor" style="max-width:100%"><defs>{arrow}</defs>{"".join(parts)}</svg>'
    )


def _box(name: str, label: str) -> str:
    x, row, width = PLACES[name]
    rect = f'<rect x="{x}" y="{row * _ROW}" width="{width}" height="{_HEIGHT}" rx="6"/>'
    return rect + _text(x + width // 2, row * _ROW + _HEIGHT // 2 + 5, label)


def _edge(start: str, end: str, label: str, is_dotted: bool) -> str:  # noqa: FBT001 - one of four parts of an edge
    way, at = _way(start, end)
    dots = ' stroke-dasharray="4 3"' if is_dotted else ""
    return f'<path d="{way}" marker-end="url(#tip)"{dots}/>' + (_text(*at, label) if label else "")


def _way(start: str, end: str) -> tuple[str, tuple[int, int]]:
    """The path of an edge, and where its label stands."""
    (x1, row1, width1), (x2, row2, width2) = PLACES[start], PLACES[end]
    y1, y2 = row1 * _ROW + _HEIGHT // 2, row2 * _ROW + _HEIGHT // 2
    if x1 == x2:  # up
        middle = x1 + width1 // 2
        return f"M{middle} {row1 * _ROW}V{row2 * _ROW + _HEIGHT}", (middle, y1)
    if x1 < x2:
        left, bend = x1 + width1, x1 + width1 + 14
        way = f"M{left} {y1}H{x2}" if y1 == y2 else f"M{left} {y1}H{bend}V{y2}H{x2}"
        return way, ((bend + x2) // 2, y2 - 5)
    if y1 == y2:  # back
        return f"M{x1} {y1}H{x2 + width2}", ((x1 + x2 + width2) // 2, y1 - 5)
    middle = x2 + width2 // 2  # back, and down
    return f"M{x1} {y1}H{middle}V{row2 * _ROW}", ((x1 + middle) // 2, y1 - 5)


def _text(x: int, y: int, label: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="middle" fill="currentColor" stroke="none">{html.escape(label)}</text>'
