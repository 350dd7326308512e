"""What is told of an exception: its type, its message and where it was raised. Pure, bounded, and never raises.

A handler may be ended by any object that inherits from an exception: its text may be 10 MB, or raise in its turn. What
cannot be read is left out.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Callable, Iterator
from itertools import islice
from typing import Any, Final, cast

MAX_TYPE, MAX_MESSAGE, MAX_FRAME = 200, 1000, 500
_MAX_FRAMES: Final = 100_000  # a stack of Python has a thousand; what only looks like one may have no end
_MAX_ERRORS: Final = 1000
_MAX_DEPTH: Final = 50


def described(error: BaseException, traceback: object = None) -> dict[str, str]:
    """{type, message, frame} without what is not known, each cut to its length.

    Of a group its first error is told, and how many there are: TaskGroup wraps whatever ended a task, and letters are
    to be grouped by that. `traceback`: where the exception has lost its own, on its way from another process say.
    """
    leaves = list(islice(_leaves(error, 0), _MAX_ERRORS))
    first, count = leaves[0], len(leaves)
    message = _read(lambda: cut(str(first), MAX_MESSAGE))
    if count > 1:
        message = f"{cut(message, MAX_MESSAGE - 40)} (the first of {count} errors)".lstrip()
    members = {
        "type": _read(lambda: cut(_type(first), MAX_TYPE)) or "Exception",
        "message": message,
        "frame": _read(lambda: _frame(first.__traceback__))
        or _read(lambda: _frame(traceback) if first is error else ""),
    }
    return {name: text for name, text in members.items() if text}


def cut(text: str, limit: int) -> str:
    """As text that can be written, at most that long: halves of characters become question marks."""
    plain = _plain(text, limit + 1)
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def _plain(text: str, most: int) -> str:
    """By the methods of str itself: a subclass may have others. What is too long is cut before it is looked at."""
    return str.encode(str.__getitem__(text, slice(most)), "utf-8", "replace").decode()


def _read(part: Callable[[], str]) -> str:
    try:
        return part()
    except Exception:  # noqa: BLE001 - an exception may answer for its text, its class and its traceback
        return ""


def _type(error: BaseException) -> str:
    module, name = str(type(error).__module__), str(type(error).__qualname__)
    return name if module == "builtins" else f"{module}.{name}"


def _frame(traceback: Any) -> str:  # noqa: ANN401 - or what another process made of one
    """The last one, where it was raised; of a long path its end. Source files are not read for it."""
    for _ in range(_MAX_FRAMES):
        if traceback.tb_next is None:
            break
        traceback = traceback.tb_next
    code = traceback.tb_frame.f_code
    text = f"{code.co_filename}:{traceback.tb_lineno} in {code.co_name}"
    plain = _plain(text, len(text))
    return plain if len(plain) <= MAX_FRAME else "…" + plain[1 - MAX_FRAME :]


def _leaves(error: BaseException, depth: int) -> Iterator[BaseException]:
    """The errors of a group, of Python's own or of package exceptiongroup, which older Pythons have; or the error."""
    inner: list[BaseException] = []
    groups = [getattr(home, "BaseExceptionGroup", None) for home in (builtins, sys.modules.get("exceptiongroup"))]
    try:  # a subclass may answer for its class and its errors
        if depth < _MAX_DEPTH and isinstance(error, tuple(kind for kind in groups if isinstance(kind, type))):
            members = cast("Any", error).exceptions[:_MAX_ERRORS]
            inner = [member for member in members if isinstance(member, BaseException)]
    except Exception:  # noqa: BLE001 - as above
        inner = []
    if not inner:
        yield error
    for member in inner:
        yield from _leaves(member, depth + 1)
