"""The wall clock as the router uses it, and what it says of one that is wrong.

Ages and ends of waits have to survive restarts, so they are told by the wall clock; but that one may be set by days. A
jump counts only once it has lasted: what is wrong for a moment is nobody's age. Waits do not depend on it at all, see
core/waiting.py; but what it would have made of them is evidence that another's clock differs.
"""

import time
from typing import Final

TOLERANCE_S: Final = 1.0  # what is less is kept up with: NTP slews, and clocks drift
LASTS_S: Final = 60.0
NOTED_S: Final = 600.0  # a disagreement is noted for so long after it was seen last


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
