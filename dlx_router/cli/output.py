"""Printing: tables and facts for people, a line for each row into pipes, JSON for programs.

Nothing of what is printed is taken for markup, or commands the terminal that shows it. An ID or the name of a queue is
never broken or cut, so that it can be copied.
"""

import sys
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
INTERRUPTED: Final = 130
GAP: Final = 2  # blanks between columns


class Id(str):
    """The title of a column of identifiers: never broken."""

    __slots__ = ()


class Number(str):
    """The title of a column of numbers, which end at the same place."""

    __slots__ = ()


def say(*lines: str) -> None:
    """Print lines of text; nothing if there are none."""
    if lines:
        _print(sys.stdout, "\n".join(lines))


def warn(message: object) -> None:
    """Print a text or an error to stderr, in its lines."""
    _print(sys.stderr, str(message))


def _print(stream: TextIO, text: str) -> None:
    print(*map(printable, text.split("\n")), sep="\n", file=stream, flush=True)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """Print a table; on a terminal texts are broken between words, as far as that makes it fit.

    `columns` are the titles: an Id is one of identifiers, a Number one of numbers, any other one of text.
    """
    cells = [["; ".join(map(printable, cell.splitlines())) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _grid(columns, cells)
        return
    widths = [max(map(len, column)) for column in zip(columns, *cells, strict=True)]
    for row in (columns, *cells):
        parts = zip(columns, row, widths, strict=True)
        padded = (cell.rjust(width) if isinstance(title, Number) else cell.ljust(width) for title, cell, width in parts)
        print((" " * GAP).join(padded).rstrip())


def _grid(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    from rich.cells import cell_len  # noqa: PLC0415 - only a terminal needs it
    from rich.console import Console, ConsoleDimensions  # noqa: PLC0415 - slow to import
    from rich.table import Table  # noqa: PLC0415 - slow to import
    from rich.text import Text  # noqa: PLC0415 - slow to import

    console = Console(file=sys.stdout, highlight=False)
    cells = [*zip(columns, *rows, strict=True)]
    widths = [max(map(cell_len, column)) for column in cells]
    words = [max(cell_len(word) for cell in column for word in cell.split() or [""]) for column in cells]
    least = [
        width if isinstance(title, Id | Number) else word
        for title, width, word in zip(columns, widths, words, strict=True)
    ]
    while (total := sum(widths) + GAP * (len(widths) - 1)) > console.width and widths != least:
        widest = max((at for at in range(len(widths)) if widths[at] > least[at]), key=widths.__getitem__)
        widths[widest] -= 1
    grid = Table(box=None, padding=(0, GAP, 0, 0), pad_edge=False)
    for title, width in zip(columns, widths, strict=True):
        grid.add_column(Text(title), width=width, justify="right" if isinstance(title, Number) else "left")
    for row in rows:
        grid.add_row(*map(Text, row))
    console.size = ConsoleDimensions(max(console.width, total), console.height)
    console.print(grid)


def facts(rows: Iterable[tuple[str, str]]) -> None:
    """Print names with their values, one below the other; those without a value are left out."""
    filled = [(name, value) for name, value in rows if value]
    width = max((len(name) for name, _ in filled), default=0)
    say(*(f"  {name:<{width}}  {printable(value)}" for name, value in filled))


def as_json(document: Any) -> None:  # noqa: ANN401 - what JSON can hold
    """Print a document, for programs."""
    print(in_lines(document, ensure_ascii=True))


def confirmed(question: str) -> bool:
    """Return whether a person says yes; without a terminal no, and a hint at --yes."""
    if not sys.stdin.isatty():
        warn(f"{question} Nobody can be asked here; --yes does it.")
        return False
    print(f"{printable(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def wrong_use(why: object) -> int:
    """Say it on stderr; return the exit code."""
    warn(why)
    return WRONG_USE


def refuse(errors: PolicyErrors) -> int:
    """Say on stderr what is wrong; return the exit code."""
    warn(errors)
    return WRONG_USE if errors.unreadable else FINDINGS
