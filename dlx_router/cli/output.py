"""Printing: tables for people on a terminal, aligned plain columns for pipes."""

import json
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final

from dlx_router.config.findings import PolicyErrors
from dlx_router.core.printable import printable, printable_lines

OK: Final = 0
FINDINGS: Final = 1
WRONG_USE: Final = 2


def table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    """A table; nothing of the cells is taken for markup, or commands the terminal that shows it."""
    if sys.stdout.isatty():
        _rich(columns, [["\n".join(map(printable, cell.splitlines())) for cell in row] for row in rows])
        return
    rows = [[printable("; ".join(cell.splitlines())) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        print("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def _rich(columns: Sequence[str], rows: Iterable[Sequence[str]]) -> None:
    from rich import box  # noqa: PLC0415 - only a terminal needs it
    from rich.console import Console  # noqa: PLC0415 - slow to import, and not wanted by each command
    from rich.table import Table  # noqa: PLC0415 - slow to import, and not wanted by each command
    from rich.text import Text  # noqa: PLC0415 - slow to import, and not wanted by each command

    shown = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for at, column in enumerate(columns):
        shown.add_column(column, no_wrap=at == 0, overflow="fold")  # wrapped, never cut: names are what people look for
    for row in rows:
        shown.add_row(*map(Text, row))
    Console().print(shown)


def as_json(document: Any) -> None:  # noqa: ANN401 - what JSON can hold
    """A document, for programs."""
    print(json.dumps(document, indent=2))


def number(count: int, one: str, many: str = "") -> str:
    """The count with its noun: `1 file`, `2 policies`."""
    return f"{count} {one if count == 1 else many or f'{one}s'}"


def confirmed(question: str) -> bool:
    """Whether a person says yes. Where nobody can be asked: no, with a word about --yes."""
    if not sys.stdin.isatty():
        print(f"{printable(question)} Nobody can be asked here; --yes does it.", file=sys.stderr)
        return False
    print(f"{printable(question)} [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in {"y", "yes"}


def warn(said: object) -> None:
    """A text or an error to stderr, in its lines."""
    print(printable_lines(str(said)), file=sys.stderr)


def wrong_use(why: object) -> int:
    """Say it on stderr; the exit code."""
    warn(why)
    return WRONG_USE


def refuse(errors: PolicyErrors) -> int:
    """Say on stderr what is wrong; the exit code."""
    warn(errors)
    return WRONG_USE if errors.unreadable else FINDINGS
