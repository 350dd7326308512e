"""What mkdocs.yml needs besides settings: pages that lie elsewhere in the tree, and Markdown as code hosts read it.

Pages are written for whoever reads them in the tree. For the site: a link to a file that is no page is its text, what a
fence says behind its language is left out, a list needs no empty line before it, and a diagram is drawn here, so that
no page loads anything from elsewhere.
"""

import html
import posixpath
import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import unquote

from mkdocs.structure.files import File, Files

ROOT: Final = Path(__file__).parents[1]
# Pages outside docs/, and what they are called on the site.
OUTSIDE: Final = {
    "SECURITY.md": "project/security.md",
    "CONTRIBUTING.md": "project/contributing.md",
    "CHANGELOG.md": "project/changelog.md",
    "charts/dlx-router/README.md": "project/helm-chart.md",
}
_FENCE: Final = re.compile(r"^( *)(`{3,}|~{3,})(.*)$")
_LINK: Final = re.compile(r"(?P<picture>!?)\[(?P<text>(?:[^][]|\[[^][]*\])*)\]\((?P<target>[^)\s]+)\)")
_CODE: Final = re.compile(r"(`+)(?!`).+?(?<!`)\1(?!`)")
_ITEM: Final = re.compile(r"^( *)(?:[*+-]|[0-9]+[.)]) +\S")
# Where each box of the diagram in docs/concepts.md stands: column, row.
PLACES: Final = {
    "work": (0, 2), "inbox": (1, 2), "router": (2, 2), "rung": (3, 0), "release": (2, 0), "router2": (1, 0),
    "dlq": (3, 1), "parking": (3, 2), "quarantine": (3, 3), "journal": (3, 4),
}  # fmt: skip
_BOX: Final = re.compile(r"(\w+)(?:\[([^]]+)\]|\{([^}]+)\})")
_EDGE: Final = re.compile(r"(\w+) (?:--> |-- (.+?) --> |-\. (.+?) \.-> )(?=(\w+))")
_COLUMN, _ROW, _WIDTH, _HEIGHT = 250, 80, 170, 40


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
    fence, drawing = "", None
    for line in markdown.splitlines():
        found = _FENCE.match(line)
        if fence:
            is_end = line.strip().startswith(fence) and not line.strip().strip(fence[0])
            if drawing is not None:
                drawing.append(line)
            else:
                out.append(line)
            if is_end:
                if drawing is not None:
                    out += ["", drawn("\n".join(drawing[:-1])), ""]
                fence, drawing = "", None
        elif found:
            language = (found[3].split() or [""])[0]
            fence = found[2]
            if language == "mermaid":
                drawing = []
            else:
                out += [*_gap(out, line), f"{found[1]}{fence}{language}"]
        else:
            out += [*_gap(out, line), _linked(line, name)]
    return "\n".join(out) + "\n"


def _gap(out: list[str], line: str) -> list[str]:
    """An empty line where a list or a table begins right behind a paragraph."""
    before = out[-1] if out else ""
    begins = _ITEM.match(line) and not _ITEM.match(before) and not before.startswith(" ")
    return [""] if begins and before.strip() else []


def _linked(line: str, name: str) -> str:
    spans = [found.span() for found in _CODE.finditer(line)]

    def replaced(found: re.Match[str]) -> str:
        if any(start <= found.start() < stop for start, stop in spans):
            return found[0]
        target = _target(found["target"], name)
        return found["text"] if target is None else f"{found['picture']}[{found['text']}]({target})"

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
    boxes = {found[1]: found[2] or found[3] for found in _BOX.finditer(diagram)}
    bare = _BOX.sub(r"\1", diagram)
    edges = [(one[1], one[4], one[2] or one[3] or "", bool(one[3])) for one in _EDGE.finditer(bare)]
    parts = [*(_edge(*edge) for edge in edges), *(_box(name, label) for name, label in boxes.items())]
    width, height = 3 * _COLUMN + _WIDTH + 4, 4 * _ROW + _HEIGHT + 4
    arrow = '<marker id="tip" viewBox="0 0 8 8" refX="8" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    arrow += '<path d="M0 0 8 4 0 8z" fill="currentColor"/></marker>'
    told = html.escape(", ".join(boxes.values()))
    return (
        f'<svg viewBox="-2 -2 {width} {height}" role="img" aria-label="{told}" font-size="13" fill="none" '
        f'stroke="currentColor" style="max-width:100%"><defs>{arrow}</defs>{"".join(parts)}</svg>'
    )


def _corner(name: str) -> tuple[int, int]:
    column, row = PLACES[name]
    return column * _COLUMN, row * _ROW


def _box(name: str, label: str) -> str:
    x, y = _corner(name)
    return (
        f'<rect x="{x}" y="{y}" width="{_WIDTH}" height="{_HEIGHT}" rx="6"/>'
        + _text(x + _WIDTH // 2, y + _HEIGHT // 2 + 4, label)
    )


def _edge(start: str, end: str, label: str, is_dotted: bool) -> str:  # noqa: FBT001 - one of four parts of an edge
    (x1, y1), (x2, y2) = _corner(start), _corner(end)
    if x1 == x2 or (x1 > x2 and y1 != y2):  # down, back to where it began
        a, b = (x1, y1 + _HEIGHT // 2), (x2 + _WIDTH // 2, y2)
        way, at = f"M{a[0]} {a[1]}H{b[0]}V{b[1]}", ((a[0] + b[0]) // 2, a[1] - 6)
    elif y1 == y2:
        a = (x1 + _WIDTH, y1 + _HEIGHT // 2) if x1 < x2 else (x1, y1 + _HEIGHT // 2)
        b = (x2, a[1]) if x1 < x2 else (x2 + _WIDTH, a[1])
        way, at = f"M{a[0]} {a[1]}H{b[0]}", ((a[0] + b[0]) // 2, a[1] - 6)
    else:
        a, b = (x1 + _WIDTH, y1 + _HEIGHT // 2), (x2, y2 + _HEIGHT // 2)
        middle = a[0] + 14
        way, at = f"M{a[0]} {a[1]}H{middle}V{b[1]}H{b[0]}", ((middle + b[0]) // 2, b[1] - 6)
    dots = ' stroke-dasharray="4 3"' if is_dotted else ""
    return f'<path d="{way}" marker-end="url(#tip)"{dots}/>' + (_text(*at, label) if label else "")


def _text(x: int, y: int, said: str) -> str:
    return f'<text x="{x}" y="{y}" text-anchor="middle" fill="currentColor" stroke="none">{html.escape(said)}</text>'
