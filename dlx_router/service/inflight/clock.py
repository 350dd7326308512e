"""The wall clock as the router uses it.

Ages and ends of waits have to survive restarts, so they are told by the wall clock; but that one may be set by days. A
jump counts only once it has lasted: what is wrong for a moment is nobody's age. Waits do not depend on it at all, see
core/waiting.py.
"""

import time
from typing import Final

TOLERANCE_S: Final = 1.0  # what is less is kept up with: NTP slews, and clocks drift
LASTS_S: Final = 60.0


class Clock:
    """The wall clock of this process, but that a jump counts only once it has lasted for a minute."""

    def __init__(self) -> None:
        self._off_s = self._next_s = time.time() - time.monotonic()  # `next`: what it would be after the jump
        self._since_s = 0.0
        self._jump_s = 0.0  # by how much, while it does not count yet

    def now_ms(self) -> int:
        """Epoch ms."""
        wall, steady = time.time(), time.monotonic()
        off = wall - steady
        if -TOLERANCE_S < off - self._off_s < TOLERANCE_S:
            self._off_s, self._jump_s = off, 0.0
            return int(wall * 1000)
        return int((steady + self._believed(off, steady)) * 1000)

    def _believed(self, off: float, steady: float) -> float:
        if not self._jump_s or not -TOLERANCE_S < off - self._next_s < TOLERANCE_S:
            self._jump_s, self._next_s, self._since_s = off - self._off_s, off, steady
        elif steady - self._since_s >= LASTS_S:
            self._off_s, self._jump_s = off, 0.0
        return self._off_s


CLOCK: Final = Clock()


def now_ms() -> int:
    """The wall clock in ms since the epoch; waits survive restarts, so a monotonic clock would not do."""
    return CLOCK.now_ms()


def steady_ms() -> int:
    """A clock that nobody sets, for what ends with this process."""
    return int(time.monotonic() * 1000)
