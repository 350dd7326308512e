"""Exceptions that nobody foresaw, told in one sentence: what, where in the program, what now. No raw traceback.

A traceback is for us, not for whoever runs the router; it is shown where the level of the log is `debug`. Only the
standard library is needed, so that each command can afford it.
"""

import contextlib
import logging
import os
import sys
import threading
import traceback
from collections.abc import Callable
from pathlib import Path
from types import TracebackType
from typing import Any, Final

from dlx_router.core.printable import printable_lines, redacted

ADVICE: Final = (
    "a fault of dlx-router, please report it with what was done before; with DLX_ROUTER_LOG_LEVEL=debug it shows the "
    "traceback"
)
_PACKAGE: Final = Path(__file__).parents[1]
_MAX_CHARS: Final = 1000
Tell = Callable[[str, BaseException], None]


def kind_and_text(error: BaseException) -> str:
    """What, in a line: the kind of an exception and its text."""
    text = " ".join(str(error).split())[:_MAX_CHARS]
    return f"{type(error).__name__}: {text}" if text else type(error).__name__


def place(error: BaseException) -> str | None:
    """The innermost line of ours that it came by, `service/dispatch/worker.py:120`; of another's where none is ours."""
    frames = traceback.extract_tb(error.__traceback__)
    ours = [frame for frame in frames if Path(frame.filename).is_relative_to(_PACKAGE)]
    if not frames:
        return None
    last = ours[-1] if ours else frames[-1]
    name = Path(last.filename)
    return f"{name.relative_to(_PACKAGE) if ours else name.name}:{last.lineno}"


def sentence(error: BaseException) -> str:
    """What, where and what now, for people."""
    if isinstance(error, OSError) and error.strerror:  # a disk that is full, a pipe that nobody reads: no fault of ours
        named = f"{error.filename}: " if error.filename else ""
        return f"{named}{error.strerror} ({place(error) or 'at the end'}); see to it, and try again"
    where = place(error)
    return f"{kind_and_text(error)}{f' ({where})' if where else ''}; {ADVICE}"


def debugging() -> bool:
    """Whether tracebacks are asked for."""
    said_level = os.environ.get("DLX_ROUTER_LOG_LEVEL", "").strip().lower() == "debug"
    return said_level or logging.getLogger().level in range(1, logging.DEBUG + 1)


def report(message: str, error: BaseException | None) -> str:
    """A line for stderr, or several where they are asked for."""
    text = f"dlx-router: {message}{': ' if message else ''}{sentence(error) if error else ''}"
    if error is not None and debugging():
        text += "\n" + "".join(traceback.format_exception(error)).rstrip()
    return printable_lines(redacted(text))


def tell(message: str, error: BaseException) -> None:
    """By the way that was installed last: to the log of a router, to stderr of a command."""
    _ways[-1](message, error)


def install(way: Tell | None = None) -> None:
    """From now on nothing prints a traceback by itself: no thread, no destructor, no library, no end of the process."""

    def ended(_kind: type[BaseException], error: BaseException, _trace: TracebackType | None) -> None:
        if not isinstance(error, KeyboardInterrupt):
            tell("ended", error)

    def of_thread(args: threading.ExceptHookArgs) -> None:
        if args.exc_value is not None and not isinstance(args.exc_value, SystemExit):
            tell("a thread ended", args.exc_value)

    def unraisable(args: Any) -> None:  # noqa: ANN401 - sys.UnraisableHookArgs is no type at run time
        tell("while something was taken away", args.exc_value)

    _ways[:] = [way or _print]
    sys.excepthook, threading.excepthook, sys.unraisablehook = ended, of_thread, unraisable
    handler = logging.StreamHandler()  # for commands, which configure no log
    handler.setLevel(logging.WARNING)
    handler.setFormatter(_Short())
    logging.lastResort = handler


class _Short(logging.Formatter):
    """A line of a library, without a traceback."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        return report(" ".join(record.getMessage().split())[:_MAX_CHARS], error)


def _print(message: str, error: BaseException) -> None:
    with contextlib.suppress(OSError, ValueError, AttributeError):  # nobody hears it: stderr is closed, or full
        sys.stderr.write(f"{report(message, error)}\n")
        sys.stderr.flush()


_ways: list[Tell] = [_print]
