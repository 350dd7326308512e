"""Patience with a limit, instead of sleep."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

_EVERY_S: Final = 0.02


def eventually(look: Callable[[], T], within: float = 10, *, every: float = _EVERY_S) -> T:
    """The first truthy answer of `look`; AssertionError with its last answer after `within` seconds.

    A `look` that raises AssertionError is asked again; any other exception is the test's.
    """
    deadline = time.monotonic() + within
    while True:
        try:
            last = look()
            why = f"last answer: {last!r}"
        except AssertionError as error:
            last, why = None, f"last failure: {error}"
        if last:
            return last
        if time.monotonic() > deadline:
            message = f"not within {within} s; {why}"
            raise AssertionError(message)
        time.sleep(every)


def consistently(look: Callable[[], T], for_s: float = 0.5, *, every: float = _EVERY_S) -> T:
    """Passes if `look` is truthy each time it is asked during `for_s` seconds; gives its last answer."""
    deadline = time.monotonic() + for_s
    while True:
        last = look()
        if not last:
            message = f"was true, then {last!r}"
            raise AssertionError(message)
        if time.monotonic() > deadline:
            return last
        time.sleep(every)
