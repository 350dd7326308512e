"""Looking: when a look through a queue is over, and how long it may hold what it leaves alone."""

from collections.abc import Awaitable, Callable
from enum import Enum
from typing import Final

AGAIN_S: Final = 0.1
HOLD_S: Final = 50.0
MOST_S: Final = 1200.0  # RabbitMQ ends a consumer after 1,800, or after the queue's own time
QUIET_S: Final = 2.0  # what was delivered is here by then


class Over(Enum):
    """How far a look is."""

    NO = "no"
    ALL = "all"  # what was counted at its start was seen, and nothing is left that is meant
    FEWER = "fewer"  # nothing comes any more: some of what was counted went another way (expired, purged, consumed)


class ScanPass:
    """`expected`: letters in the queue as it began; `ready()`: how many wait now, None where that is not known."""

    def __init__(self, expected: int, ready: Callable[[], Awaitable[int | None]]) -> None:
        self._expected, self._ready = expected, ready
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
        if not (is_all and later) and await self._ready() != 0:
            return Over.NO
        return Over.ALL if is_all else Over.FEWER


class Others:
    """Whether others may hold letters that are about to come back: a consumer of the run before, maybe.

    The broker holds letters for a connection of ours that is dead until it misses its heartbeats; until then nothing
    else tells of them. Whoever has not gone by then is somebody else, who may be meant to take letters.
    """

    def __init__(self, began_s: float, patience_s: float) -> None:
        """`patience_s`: how long one of ours may stand; 0: there was none."""
        self._until_s = began_s + patience_s
        self._seen_s = began_s if patience_s else -QUIET_S
        self.count = 0

    def note(self, now: float, count: int) -> None:
        """So many stand there now, besides this task's look."""
        self.count = count
        if count:
            self._seen_s = now

    def are_awaited(self, now: float) -> bool:
        """Whether the look must go on: what they held would come within QUIET_S of their end."""
        return now < self._until_s if self.count else now - self._seen_s < QUIET_S


class HoldLimit:
    """How long a look may hold what stays: the time it works, and HOLD_S or as long again for letters' turns.

    What stays goes back to the front, and the next look has to pass all of it again: had a look always the same time,
    there would be a length of queue from which on no look comes further than the one before.
    """

    def __init__(self, expected: int, sent: int, now: float, *, paced: bool, most_s: float = MOST_S) -> None:
        """`expected`: letters in the queue as the look began; `paced`: a rate holds up what is sent."""
        self._expected, self._paced, self._began_s, self._most_s = expected, paced, now, most_s
        self._seen, self._sent, self._noted_s, self._worked_s = 0, sent, now, 0.0
        self._moved_s = now

    def note(self, now: float, seen: int, sent: int) -> None:
        """So many were read, and sent, by now; asked often."""
        reads = self._seen < seen and self._seen < self._expected
        if reads or (sent > self._sent and not self._paced):
            self._moved_s = now
        if now - self._moved_s < QUIET_S:  # letters and confirms come in bursts
            self._worked_s += now - self._noted_s
        self._seen, self._sent, self._noted_s = seen, sent, now

    def is_over(self, now: float) -> bool:
        """Whether what is held has to go back."""
        waited_s = now - self._began_s - self._worked_s
        return waited_s > max(HOLD_S, self._worked_s) or self.is_spent(now)

    def is_spent(self, now: float) -> bool:
        """Whether the broker would soon end the consumer."""
        return now - self._began_s > self._most_s
