"""Patience with a limit, instead of sleep."""

import time
from collections.abc import Callable
from typing import Final, TypeVar

T = TypeVar("T")

PATIENCE_S: Final = 60.0  # at least: a limit must not depend on the speed of the machine; only a failure takes so long
_EVERY_S: Final = 0.02
_SELDOM_S: Final = 0.1
_PART: Final = 20  # one in so many of the time that was waited already is the next pause


def eventually(look: Callable[[], T], within: float = 10, *, every: float | None = None) -> T:
    """The first truthy answer of `look`; AssertionError with its last answer after `patience(within)` seconds.

    A `look` that raises AssertionError is asked again; any other exception is the test's. Without `every` it is asked
    50 times a second, and 10 times after two seconds: tests that wait leave the processor to those beside them.
    """
    began = time.monotonic()
    deadline = began + patience(within)
    while True:
        try:
            last = look()
            why = f"last answer: {last!r}"
        except AssertionError as error:
            last, why = None, f"last failure: {error}"
        if last:
            return last
        if (now := time.monotonic()) > deadline:
            message = f"not within {patience(within):g} s; {why}"
            raise AssertionError(message)
        time.sleep(_pause(now - began) if every is None else every)


def patience(within: float) -> float:
    """How long to wait, at least, for what takes `within` seconds at most on a quiet machine."""
    return max(within, PATIENCE_S)


def _pause(waited: float) -> float:
    return min(max(waited / _PART, _EVERY_S), _SELDOM_S)


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
