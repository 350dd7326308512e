"""What mkdocs.yml needs besides settings: pages that lie elsewhere in the tree, and Markdown as code hosts read it.

Pages are written for whoever reads them in the tree. For the site: a link to a file that is no page is its text, what a
fence says behind its language is left out, and a list needs no empty line before it.
"""

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
