"""What is told of an exception: its type, its message and where it was raised. Pure, bounded, and never raises.

A handler may be ended by any object that inherits from an exception: its text may be 10 MB, or raise in its turn.
Whoever declares a death has to be able to say why all the same.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from itertools import islice
from typing import Any, Final, cast

MAX_TYPE, MAX_MESSAGE, MAX_FRAME = 200, 1000, 500
_MOST_FRAMES: Final = 100_000  # a stack of Python has a thousand; what only looks like one may have no end
_MOST_ERRORS: Final = 1000
_DEEPEST: Final = 50


def described(error: BaseException, traceback: object = None) -> dict[str, str]:
    """{type, message, frame} without what is not known, each cut to its length.

    Of a group its first error is told, and how many there are: TaskGroup wraps whatever ended a task, and letters are
    to be grouped by that. `traceback`: where the exception has lost its own, on its way from another process say.
    """
    first, count = _first(error)
    message = _text(first, MAX_MESSAGE)
    if count > 1:
        message = f"{cut(message, MAX_MESSAGE - 40)} (the first of {count} errors)".lstrip()
    members = {
        "type": cut(_type(first), MAX_TYPE),
        "message": message,
        "frame": _frame(first) or (_frame_of(traceback) if first is error else ""),
    }
    return {name: text for name, text in members.items() if text}


def cut(text: str, limit: int) -> str:
    """As text that can be written, at most that long: halves of characters become question marks."""
    plain = _plain(text, limit + 1)
    return plain if len(plain) <= limit else plain[: limit - 1] + "…"


def _plain(text: str, most: int) -> str:
    """By the methods of str itself: a subclass may have others. What is too long is cut before it is looked at."""
    return str.encode(str.__getitem__(text, slice(most)), "utf-8", "replace").decode()


def _text(error: BaseException, limit: int) -> str:
    try:
        return cut(str(error), limit)
    except Exception as failure:  # noqa: BLE001 - whatever its __str__ does
        return f"(its text cannot be read: {cut(type(failure).__name__, 100)})"


def _type(error: BaseException) -> str:
    try:
        kind = type(error)
        module, name = str(kind.__module__), str(kind.__qualname__)
    except Exception:  # noqa: BLE001 - a metaclass may answer for its names
        return "Exception"
    return name if module == "builtins" else f"{module}.{name}"


def _frame(error: BaseException) -> str:
    try:
        return _frame_of(error.__traceback__)
    except Exception:  # noqa: BLE001 - a subclass may answer for its traceback
        return ""


def _frame_of(traceback: Any) -> str:  # noqa: ANN401 - or what another process made of one
    """The last one, where it was raised; of a long path its end. Source files are not read for it."""
    try:
        for _ in range(_MOST_FRAMES):
            if traceback is None or traceback.tb_next is None:
                break
            traceback = traceback.tb_next
        code = traceback.tb_frame.f_code
        text = f"{code.co_filename}:{traceback.tb_lineno} in {code.co_name}"
    except Exception:  # noqa: BLE001 - it only looks like one
        return ""
    plain = _plain(text, len(text))
    return plain if len(plain) <= MAX_FRAME else "…" + plain[1 - MAX_FRAME :]


def _first(error: BaseException) -> tuple[BaseException, int]:
    """What is told of a group, or the error itself; and how many errors there are."""
    leaves = list(islice(_leaves(error, 0), _MOST_ERRORS))
    return leaves[0], len(leaves)


def _leaves(error: BaseException, depth: int) -> Iterator[BaseException]:
    inner = _inside(error) if depth < _DEEPEST else ()
    if not inner:
        yield error
    for member in inner:
        yield from _leaves(member, depth + 1)


def _inside(error: BaseException) -> tuple[BaseException, ...]:
    """The errors of a group, of Python's own or of package exceptiongroup, which older Pythons have."""
    groups = [getattr(home, "BaseExceptionGroup", None) for home in (builtins, sys.modules.get("exceptiongroup"))]
    kinds = tuple(kind for kind in groups if isinstance(kind, type))
    try:
        inner = cast("Any", error).exceptions if isinstance(error, kinds) else ()
        return tuple(member for member in inner[:_MOST_ERRORS] if isinstance(member, BaseException))
    except Exception:  # noqa: BLE001 - a subclass may answer for its errors
        return ()
