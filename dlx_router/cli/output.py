"""Printing: within the width of a terminal for people, a line for each row into pipes, and JSON for programs.

No word is broken or cut, so that an ID or the name of a queue can be copied. Nothing of what is printed is taken for
markup, or commands the terminal that shows it.
"""

import os
import sys
import textwrap
from collections.abc import Iterable, Sequence
from typing import Any, Final, TextIO

from dlx_router.config.findings import PolicyErrors
from dlx_router.config.units import number_of as number
from dlx_router.core.nested_json import in_lines
from dlx_router.core.printable import printable

__all__ = ["number"]
OK: Final = 0
FINDINGS: Final = 1
WRONG_USE: Final = 2
LEAST_WIDTH: Final = 40
GAP: Final = 2  # blanks between columns
NARROW: Final = 16  # a column of text gets that much, and its longest word, or each row is printed as a block
_WIDTH: Final = 80  # of a terminal that does not say
_EMPTY: Final = frozenset({"", "–"})


class Id(str):
    """The title of a column of identifiers: never broken."""

    __slots__ = ()


class Number(str):
    """The title of a column of numbers, which end at the same place."""

    __slots__ = ()


def width_of(stream: TextIO) -> int | None:
    """Cells in a line of the terminal behind the stream, or as COLUMNS says; None: it is none."""
    if not stream.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    try:
        width = (
            int(columns) if columns.isascii() and columns.isdigit() else os.get_terminal_size(stream.fileno()).columns
        )
    except (OSError, ValueError):
        width = 0
    return max(width or _WIDTH, LEAST_WIDTH)


def is_terminal() -> bool:
    """Whether somebody looks at what is printed."""
    return sys.stdout.isatty()


def wrapped(line: str, width: int | None, hang: int = 2) -> list[str]:
    """The line in lines of that width, broken between words; all but the first are indented by `hang` more."""
    if width is None or len(line) <= width:
        return [line]
    indent = len(line) - len(line.lstrip(" "))
    after = " " * min(indent + hang, width // 2)
    return textwrap.wrap(
        line, width, subsequent_indent=after, break_long_words=False, break_on_hyphens=False, replace_whitespace=False
    )


def say(*lines: str, hang: int = 2) -> None:
    """Print lines of text; what does not fit goes on below, `hang` deeper."""
    _print(sys.stdout, [line for text in lines for line in text.split("\n")], hang)


def warn(message: object) -> None:
    """Print a text or an error to stderr, in its lines."""
    _print(sys.stderr, str(message).split("\n"), 2)


def _print(stream: TextIO, lines: Iterable[str], hang: int) -> None:
    width = width_of(stream)
    for line in lines:
        for part in wrapped(printable(line), width, hang):
            print(part.rstrip() if width is not None else part, file=stream)
    stream.flush()


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; in a terminal too narrow for it each row as a block.

    `columns` are the titles: an Id is one of identifiers, a Number one of numbers, any other one of text.
    """
    width = width_of(sys.stdout)
    cells = [["; ".join(map(printable, cell.splitlines())) for cell in row] for row in rows]
    natural = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    least = [
        size
        if isinstance(title, Id | Number)
        else min(size, max(NARROW, *(len(word) for row in cells for word in row[at].split()), len(title)))
        for at, (title, size) in enumerate(zip(columns, natural, strict=True))
    ]
    if width is None:
        for row in (columns, *cells):
            parts = zip(columns, row, natural, strict=True)
            print((" " * GAP).join(_padded(*part) for part in parts).rstrip())
    elif sum(least) + GAP * (len(least) - 1) <= width:
        _grid(columns, cells, _shrunk(natural, least, width))
    else:
        for row in cells:
            say(row[0])
            say(*(f"  {title}: {cell}" for title, cell in zip(columns[1:], row[1:], strict=True) if cell not in _EMPTY))


def _padded(title: str, cell: str, width: int) -> str:
    return cell.rjust(width) if isinstance(title, Number) else cell.ljust(width)


def _shrunk(natural: Sequence[int], least: Sequence[int], width: int) -> list[int]:
    """The widths of columns: the widest of those that may shrink gives way, cell by cell."""
    widths = [*natural]
    while sum(widths) + GAP * (len(widths) - 1) > width:
        widths[max((at for at in range(len(widths)) if widths[at] > least[at]), key=widths.__getitem__)] -= 1
    return widths


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]], widths: Sequence[int]) -> None:
    from rich.console import Console  # noqa: PLC0415 - only a terminal needs it
    from rich.table import Table  # noqa: PLC0415 - slow to import
    from rich.text import Text  # noqa: PLC0415 - slow to import

    is_plain = "NO_COLOR" in os.environ or os.environ.get("TERM") == "dumb"
    grid = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False, header_style="" if is_plain else "bold")
    for title, width in zip(columns, widths, strict=True):
        grid.add_column(Text(title), width=width, justify="right" if isinstance(title, Number) else "left")
    for row in rows:
        grid.add_row(*map(Text, row))
    Console(file=sys.stdout, width=sum(widths) + GAP * len(widths), highlight=False).print(grid)


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Print names with their values, one below the other; those without a value are left out."""
    filled = [(name, value) for name, value in rows if value]
    least = max((len(name) for name, _ in filled), default=0)
    for name, value in filled:
        say(f"  {name:<{least}}  {printable(value)}", hang=least + 2)


def as_json(document: Any) -> None:  # noqa: ANN401 - what JSON can hold
    """Print a document, for programs."""
    print(in_lines(document, ensure_ascii=True))


def confirmed(question: str) -> bool:
    """Whether a person says yes. Where nobody can be asked: no, with a word about --yes."""
    if not sys.stdin.isatty():
        warn(f"{question} Nobody can be asked here; --yes does it.")
        return False
    *before, last = wrapped(f"{printable(question)} [y/N] ", width_of(sys.stderr))
    print(*before, f"{last.rstrip()} ", sep="\n", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def wrong_use(why: object) -> int:
    """Say it on stderr; the exit code."""
    warn(why)
    return WRONG_USE


def refuse(errors: PolicyErrors) -> int:
    """Say on stderr what is wrong; the exit code."""
    warn(errors)
    return WRONG_USE if errors.unreadable else FINDINGS
