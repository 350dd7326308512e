"""Looking: when a look through a queue is over."""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final

AGAIN_S: Final = 0.1
QUIET_S: Final = 2.0  # what was delivered is here by then


class Over(Enum):
    """How far a look is."""

    NO = "no"
    ALL = "all"  # what was counted at its start was seen, and nothing is left that is meant
    FEWER = "fewer"  # nothing comes any more: some of what was counted went another way (expired, purged, consumed)


class ScanPass:
    """`expected`: letters in the queue as it began; `depth()`: how many are ready now."""

    def __init__(self, expected: int, depth: Callable[[], Awaitable[int]]) -> None:
        self._expected, self._depth = expected, depth
        self._seen = -1
        self._moved_s = self._asked_s = 0.0

    async def over(self, now: float, seen: int, *, busy: bool, later: bool) -> Over:
        """Asked often. `busy`: letters wait or are on their way; `later`: what comes now died after the cutoff."""
        if busy or seen != self._seen:
            self._seen, self._moved_s = seen, now
        is_all = seen >= self._expected
        if busy or now - self._asked_s < AGAIN_S or not (is_all or now - self._moved_s >= QUIET_S):
            return Over.NO
        self._asked_s = now
        if not (is_all and later) and await self._depth():
            return Over.NO
        return Over.ALL if is_all else Over.FEWER
