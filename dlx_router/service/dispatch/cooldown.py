"""Cooldown: targets that were full or silent a moment ago, and rest; and what on a channel is answered too late.

A letter for a target that rests is held at once, so that others keep their rate and nothing stays unacked for long.
See docs/architecture.md ("Failures").
"""

import time
from collections import deque
from typing import Final

from dlx_router.service.inflight.job import Destination

SILENT_S: Final = 1.0, 15.0  # between two questions, doubling: each may take a whole confirm timeout itself
DOUBTED_S: Final = 1.0  # then one letter asks: a confirm may be lost, and its target well
MAX_RESTING: Final = 1000


class Cooldown(dict[Destination, float]):
    """Targets that nobody asks for some seconds, and until when."""  # a dict, because the hot path asks if it is empty

    def __init__(self, for_s: float) -> None:
        super().__init__()
        self._for_s = for_s

    def rest(self, target: Destination, for_s: float | None = None) -> None:
        """Nobody asks it from now on, for as long as it would rest anyway or longer."""
        if len(self) > MAX_RESTING:
            self.clear()
        until = time.monotonic() + (self._for_s if for_s is None else for_s)
        self[target] = max(until, self.get(target, 0.0))

    def has(self, target: Destination) -> bool:
        """Whether it rests now."""
        return self.get(target, 0.0) > time.monotonic()

    def is_over(self, target: Destination) -> bool:
        """Whether it has rested for long enough, and did not answer since."""
        return target in self and not self.has(target)

    def took(self, target: Destination) -> None:
        """It took a letter."""
        self.pop(target, None)

    def forget_over(self) -> None:
        """Those that have rested for long enough are asked as any other."""
        for target in [target for target in self if not self.has(target)]:
            del self[target]


class SilentTargets(Cooldown):
    """Destinations that did not confirm in time, and those of them that are asked just now, beside all others."""

    def __init__(self, first_s: float, most_s: float) -> None:
        super().__init__(first_s)
        self._most_s = most_s
        self._rested_s: dict[Destination, float] = {}
        self.asked: set[Destination] = set()

    def rest(self, target: Destination, for_s: float | None = None) -> None:
        """As of any other; without a time for twice as long as before, because it did not answer again."""
        if for_s is None:
            if len(self._rested_s) > MAX_RESTING:
                self._rested_s.clear()
            before_s = self._rested_s.get(target)
            for_s = self._for_s if before_s is None else min(2 * before_s, self._most_s)
            self._rested_s[target] = for_s
        super().rest(target, for_s)

    def has(self, target: Destination) -> bool:
        """Whether it rests now, or is being asked."""
        return target in self.asked or super().has(target)

    def took(self, target: Destination) -> None:
        """It took a letter."""
        super().took(target)
        self._rested_s.pop(target, None)


class LateConfirms:
    """Which publishes of a channel were sent so long ago that they should be answered; asked once a second."""

    def __init__(self) -> None:
        self._seen: deque[tuple[float, int]] = deque()

    def forget(self) -> None:
        """Another channel, or one that the broker does not read: time begins anew."""
        self._seen.clear()

    def before(self, next_number: int, timeout_s: float) -> int:
        """Publishes with a lower number than this were sent `timeout_s` ago or earlier."""
        now = time.monotonic()
        self._seen.append((now, next_number))
        while len(self._seen) > 1 and self._seen[1][0] <= now - timeout_s:
            self._seen.popleft()
        since, number = self._seen[0]
        return number if since <= now - timeout_s else 0
