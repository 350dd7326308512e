"""The wall clock as the router uses it, and what it says of one that is wrong.

Ages and ends of waits have to survive restarts, so they are told by the wall clock; but that one may be set by days. A
jump counts only once it has lasted: what is wrong for a moment is nobody's age. Waits do not depend on it at all, see
core/waiting.py; but what it would have made of them is evidence that another's clock differs.
"""

import asyncio
import time
from collections.abc import Callable
from typing import Final

from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness

TOLERANCE_S: Final = 1.0  # what is less is kept up with: NTP slews, and clocks drift
LASTS_S: Final = 60.0
NOTED_S: Final = 600.0  # a disagreement is noted for so long after it was seen last
DIFFERS_S: Final = 5.0  # from the broker's, which is told in whole seconds and with the answer to a question
NOTE: Final = "clock"
BROKERS: Final = "clock of the broker"


class Clock:
    """The wall clock of this process, but that a jump counts only once it has lasted for a minute."""

    def __init__(self) -> None:
        self._off_s = self._next_s = float("nan")  # from the monotonic clock; what it would be after the jump
        self._since_s = 0.0
        self._seen_s = float("-inf")
        self.jumps = 0
        self.jump_s = 0.0  # by how much, while it does not count yet
        self._cut_ms = 0

    def now_ms(self) -> int:
        """Epoch ms."""
        wall, steady = time.time(), time.monotonic()
        off = wall - steady
        if -TOLERANCE_S < off - self._off_s < TOLERANCE_S:
            self._off_s, self.jump_s = off, 0.0
            return int(wall * 1000)
        return int((steady + self._believed(off, steady)) * 1000)

    def _believed(self, off: float, steady: float) -> float:
        if self._off_s != self._off_s:
            self._off_s = off
        elif not self.jump_s or not -TOLERANCE_S < off - self._next_s < TOLERANCE_S:
            self.jumps, self.jump_s, self._next_s, self._since_s = self.jumps + 1, off - self._off_s, off, steady
        elif steady - self._since_s >= LASTS_S:
            self._off_s, self.jump_s = off, 0.0
        return self._off_s

    def differs(self, cut_ms: int) -> None:
        """By the clock a wait would last so much longer than is left: this one is off, or who told its end."""
        self._cut_ms, self._seen_s = cut_ms, time.monotonic()

    def why(self) -> str:
        """What is wrong with it; nothing where nothing is known to be."""
        if self.jump_s:
            return (
                f"the wall clock jumped by {self.jump_s:+.0f} s; it counts again once it has lasted for {LASTS_S:.0f} s"
            )
        if time.monotonic() - self._seen_s < NOTED_S:
            return (
                f"the wall clock is behind that of who wrote a letter's wait, by {self._cut_ms / 1000:.0f} s or more; "
                "waits are counted in rungs, but ages are not: set the clocks of all replicas by NTP"
            )
        return ""


CLOCK: Final = Clock()


def now_ms() -> int:
    """The wall clock in ms since the epoch; waits survive restarts, so a monotonic clock would not do."""
    return CLOCK.now_ms()


def steady_ms() -> int:
    """A clock that nobody sets, for what ends with this process."""
    return int(time.monotonic() * 1000)


def behind(ahead_s: float | None) -> str:
    """What is wrong where the broker's clock is so far ahead of this one; nothing where that is little or not told."""
    if ahead_s is None or abs(ahead_s) < DIFFERS_S:
        return ""
    return (
        f"the wall clock is {'behind' if ahead_s > 0 else 'ahead of'} the broker's, by {abs(ahead_s):.0f} s; "
        "waits are counted in rungs, but ages are not: set the clocks of brokers and replicas by NTP"
    )


async def watch(
    clock: Clock, metrics: Metrics, readiness: Readiness, ahead_s: Callable[[], float | None] = lambda: None
) -> None:
    """Look each second until cancelled: notes and log say what is wrong with the clock.

    `ahead_s`: how far the broker's is ahead of this one, where it tells.
    """
    once = Once()
    while True:
        clock.now_ms()
        metrics.clock_jumps, why = clock.jumps, clock.why()
        if differs := behind(ahead_s()):
            readiness.note(BROKERS, differs)
            once.warn(
                BROKERS, "clock.differs", error="it is not the broker's", fate="waits last as long as was decided"
            )
        else:
            readiness.drop_note(BROKERS)
            once.healed(BROKERS, "clock.agrees")
        if why:
            readiness.note(NOTE, why)
            once.warn(NOTE, "clock.differs", error=why, fate="waits last as long as was decided")
        else:
            readiness.drop_note(NOTE)
            once.healed(NOTE, "clock.agrees")
        await asyncio.sleep(1.0)
