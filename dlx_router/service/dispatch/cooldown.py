"""Cooldown: targets that were full or silent a moment ago, and get less; and what on a channel is answered too late.

A letter for a target that takes no more now is held at once, so that others keep their rate and nothing stays unacked
for long. See docs/architecture.md ("Failures").
"""

import random
import time
from collections import deque
from typing import Final, TypeVar

from dlx_router.service.inflight.job import Destination

SILENT_S: Final = 1.0, 15.0  # between two questions, doubling: each may take a whole confirm timeout itself
DOUBTED_S: Final = 1.0  # then one letter asks: a confirm may be lost, and its target well
MAX_RESTING: Final = 1000
FULL_RATE: Final = 500.0, 1.0, 20_000.0  # letters a second for a target that refuses: at first, at least, at most
BACK_RATE: Final = 500.0  # so many that were not sent come back in a second, or as many as it takes
BURST_S: Final = 0.1
CUT_S: Final = 0.2  # refusals within this time say one thing
PACED_S: Final = 30.0
WAIT_S: Final = 1.0, 60.0
REMEMBERED_S: Final = 600.0
Key = TypeVar("Key")


class Cooldown(dict[Key, float]):
    """Targets that nobody asks for some seconds, and until when."""  # a dict, because the hot path asks if it is empty

    def __init__(self, for_s: float) -> None:
        super().__init__()
        self._for_s = for_s

    def rest(self, target: Key, for_s: float | None = None) -> None:
        """Nobody asks it from now on, for as long as it would rest anyway or longer."""
        if len(self) > MAX_RESTING:
            self.clear()
        until = time.monotonic() + (self._for_s if for_s is None else for_s)
        self[target] = max(until, self.get(target, 0.0))

    def has(self, target: Key) -> bool:
        """Whether it rests now."""
        return self.get(target, 0.0) > time.monotonic()

    def is_over(self, target: Key) -> bool:
        """Whether it has rested for long enough, and did not answer since."""
        return target in self and not self.has(target)

    def took(self, target: Key) -> None:
        """It took a letter."""
        self.pop(target, None)


class Pace:
    """How fast letters go to a target that refuses some: half as fast after a refusal, two more a second per confirm.

    What is not sent waits on a rung, for the longer the more of it there is.
    """

    def __init__(self, now_s: float) -> None:
        self._rate = FULL_RATE[0]
        self._next_s = self._turn_s = self._cut_s = now_s
        self.refused_s = now_s

    def refused(self, now_s: float, pause_s: float = 0.0) -> None:
        """It did not take a letter, and gets none for `pause_s`."""
        self.refused_s = now_s
        if now_s >= self._cut_s:
            self._cut_s = now_s + CUT_S
            self._rate = max(self._rate / 2, FULL_RATE[1])
        self._next_s = max(self._next_s, now_s + max(pause_s, 1 / self._rate))

    def took(self, letters: int = 1) -> None:
        """It took letters."""
        self._rate = min(self._rate + 2 * letters, FULL_RATE[2])

    def rests(self, now_s: float) -> bool:
        """Whether it gets nothing now."""
        return self._next_s > now_s

    def admits(self, now_s: float) -> bool:
        """Whether a letter may be sent now; then it is."""
        if self._next_s > now_s:
            return False
        self._next_s = max(self._next_s, now_s - BURST_S) + 1 / self._rate
        return True

    def wait_s(self, now_s: float) -> float:
        """How long the next letter that is not sent waits."""
        self._turn_s = max(self._turn_s, now_s) + 1 / max(self._rate, BACK_RATE)
        least, most = WAIT_S
        return min(max(self._turn_s - now_s, least), most * random.uniform(0.5, 1.0))  # noqa: S311 - spread, no secret

    def is_over(self, now_s: float) -> bool:
        """Whether it has refused nothing for long enough."""
        return now_s - self.refused_s > PACED_S


class OverflowingQueues:
    """Queues that dead-letter a message that they refuse (`overflow: reject-publish-dlx`), as far as that was seen.

    Such a queue has nacked a copy, and a copy that was sent there came back, dead of `maxlen`. Known for ten minutes.
    """

    def __init__(self) -> None:
        self._nacked, self._returned = Cooldown[str](REMEMBERED_S), Cooldown[str](REMEMBERED_S)

    def nacked(self, queue: str) -> None:
        """It did not take a copy."""
        self._nacked.rest(queue)

    def returned(self, queue: str) -> None:
        """A copy that was sent there died there of `maxlen`."""
        self._returned.rest(queue)

    def __contains__(self, queue: str) -> bool:
        return self._nacked.has(queue) and self._returned.has(queue)


class SilentTargets(Cooldown[Destination]):
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
