"""Markdown as the tests read it: pages, headings, links, code, and what they mention.

A block of commands is fenced as `console`. What follows on that line says that it is run by the tests:

    ```console run              the commands, by bash in an empty folder; `policies` and `docs` are there
    ```console run broker       the same, with a RabbitMQ behind DLX_ROUTER_AMQP_URL and DLX_ROUTER_MANAGEMENT_URL
    ```console run exits=1      the block ends with 1
    ```console run eventually   again and again, until it ends and prints as it should
    ```console run background   goes on while the rest of the page runs, once /readyz says that it is ready
    ```console run … terminal   on a terminal of 80 columns, as a person sees it
    ```text output              directly behind: what the block printed; `…` is any text, a line of it any lines

All blocks of a page are run in one folder, from the top to the end.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
# Where Markdown of ours is; everything else was made or installed.
PAGES: Final = tuple(
    sorted(
        path
        for pattern in ("*.md", "docs/**/*.md", "charts/**/*.md", "deploy/**/*.md", "policies/**/*.md")
        for path in ROOT.glob(pattern)
    )
)
_FENCE: Final = re.compile(r"^(?P<indent> *)(?P<fence>`{3,}|~{3,})(?P<info>[^`\n]*)$")
_HEADING: Final = re.compile(r"^#{1,6} +(.*?)(?: +#+)? *$")
_LINK: Final = re.compile(r"!?\[(?:[^][]|\[[^][]*\])*\]\(<?([^)\s>]+)>?(?: \"[^\"]*\")?\)")
_SPAN: Final = re.compile(r"(?<!`)(`+)(?!`)(.+?)(?<!`)\1(?!`)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Block:
    """A fenced block: what its fence says, its text without the indentation, and the line of the fence."""

    info: tuple[str, ...]
    text: str
    line: int

    @property
    def commands(self) -> tuple[str, ...]:
        """The lines of a block of commands, continued ones put together, without comments."""
        if self.info[:1] != ("console",):
            return ()
        whole = re.sub(r"\\\n\s*", " ", re.sub(r"<<'(\w+)'\n.*?\n\1$", "", self.text, flags=re.DOTALL | re.MULTILINE))
        lines = (line.strip().removeprefix("$ ") for line in whole.splitlines())
        return tuple(line for line in lines if line and not line.startswith("#"))


@dataclass(frozen=True, slots=True)
class Page:
    """One file: `prose` is its text without fenced blocks."""

    path: Path
    text: str
    prose: str
    blocks: tuple[Block, ...]

    @property
    def name(self) -> str:
        """Its path in the tree."""
        return str(self.path.relative_to(ROOT))

    def anchors(self) -> set[str]:
        """What a link may name after #: headings, as hosting sites make anchors of them, and explicit ids."""
        names: set[str] = set(re.findall(r'<a (?:id|name)="([^"]+)"', self.prose))
        for line in self.prose.splitlines():
            if heading := _HEADING.match(line):
                names.add(_numbered(_slug(heading[1]), names))
        return names

    def links(self) -> list[str]:
        """Targets of links and pictures outside code."""
        plain = _SPAN.sub("", self.prose)
        return [*_LINK.findall(plain), *re.findall(r'(?:src|href)="([^"]+)"', plain)]

    def spans(self) -> list[str]:
        """Code inside prose."""
        return [" ".join(span[2].split()) for span in _SPAN.finditer(self.prose)]

    def commands(self) -> list[str]:
        """Every command that a reader might type: lines of blocks, and spans that begin as one."""
        lines = [line for block in self.blocks for line in block.commands]
        return [*lines, *self.spans()]


def read(path: Path) -> Page:
    """A page, taken apart."""
    text = path.read_text(encoding="utf-8")
    prose, blocks = [], []
    lines = iter(enumerate(text.splitlines(), 1))
    for number, line in lines:
        if opened := _FENCE.match(line):
            blocks.append(Block(tuple(opened["info"].split()), _body(lines, opened), number))
            prose.append("")
        else:
            prose.append(line)
    return Page(path, text, "\n".join(prose), tuple(blocks))


def _body(lines: Iterator[tuple[int, str]], opened: re.Match[str]) -> str:
    indent, fence = len(opened["indent"]), opened["fence"]
    inside: list[str] = []
    for _, line in lines:
        if line.strip().startswith(fence) and not line.strip().strip(fence[0]):
            return "".join(f"{line}\n" for line in inside)
        inside.append(line[min(indent, len(line) - len(line.lstrip())) :])
    raise AssertionError(f"a fence that nothing closes: {opened[0]}")


def _slug(heading: str) -> str:
    plain = re.sub(r"\[([^]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
    return re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")


def _numbered(slug: str, taken: set[str]) -> str:
    number = 0
    while (anchor := f"{slug}-{number}" if number else slug) in taken:
        number += 1
    return anchor
