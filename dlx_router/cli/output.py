"""Printing: within the width of a terminal for people, as it is for pipes, and JSON for programs.

Nothing of what is printed is taken for markup, or commands the terminal that shows it.
"""

import os
import sys
from collections.abc import Iterable, Sequence
from typing import Any, Final, TextIO

from dlx_router.cli import layout
from dlx_router.config.findings import PolicyErrors
from dlx_router.config.units import number_of as number
from dlx_router.core.nested_json import in_lines
from dlx_router.core.printable import printable

__all__ = ["number"]
OK: Final = 0
FINDINGS: Final = 1
WRONG_USE: Final = 2
LEAST_WIDTH: Final = 40
_WIDTH: Final = 80  # of a terminal that does not say
_BOLD: Final = "\x1b[1m{}\x1b[0m"


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


def say(*lines: str, ids: Sequence[str] = (), hang: int | None = 2) -> None:
    """Lines of text. `ids`: names in it that stay whole; `hang`: how much deeper goes on what does not fit.

    None: to where the value begins that stands behind a label.
    """
    _print(sys.stdout, [line for text in lines for line in text.split("\n")], ids, hang)


def warn(message: object, *, ids: Sequence[str] = ()) -> None:
    """A text or an error to stderr, in its lines."""
    _print(sys.stderr, str(message).split("\n"), ids, 2)


def _print(stream: TextIO, lines: Iterable[str], ids: Sequence[str], hang: int | None) -> None:
    width, shown = width_of(stream), [*map(printable, ids)]
    for line in lines:
        for part in layout.wrapped(printable(line), width, ids=shown, hang=hang):
            print(part.rstrip() if width is not None else part, file=stream)
    stream.flush()


def script(*lines: str) -> None:
    """Lines for a shell: what is pasted from a terminal does the same."""
    width = width_of(sys.stdout)
    for line in lines:
        for part in layout.command_lines(printable(line), width):
            print(part)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, ids: Sequence[str] = ()) -> None:
    """A table. `columns` are the titles: an Id is one of identifiers, a Number one of numbers, a Sentence one of those.

    `ids`: names in columns of text that stay whole.
    """
    width = width_of(sys.stdout)
    plain = [["\n".join(map(printable, cell.splitlines())) for cell in row] for row in rows]
    head, body = layout.table(columns, plain, width, ids=[*map(printable, ids)])
    is_bold = width is not None and "NO_COLOR" not in os.environ and os.environ.get("TERM") != "dumb"
    for line in head:
        print(_BOLD.format(line) if is_bold else line)
    for line in body:
        print(line)


def facts(rows: Iterable[tuple[str, str]], *, ids: Sequence[str] = ()) -> None:
    """Names with their values, one below the other; those without a value are left out."""
    filled = [(name, value) for name, value in rows if value]
    least = max((len(name) for name, _ in filled), default=0)
    for name, value in filled:
        say(f"  {name:<{least}}  {printable(value)}", ids=ids, hang=least + 2)


def as_json(document: Any) -> None:  # noqa: ANN401 - what JSON can hold
    """A document, for programs."""
    print(in_lines(document, ensure_ascii=True))


def confirmed(question: str) -> bool:
    """Whether a person says yes. Where nobody can be asked: no, with a word about --yes."""
    if not sys.stdin.isatty():
        warn(f"{printable(question)} Nobody can be asked here; --yes does it.")
        return False
    *before, last = layout.wrapped(f"{printable(question)} [y/N] ", width_of(sys.stderr))
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
