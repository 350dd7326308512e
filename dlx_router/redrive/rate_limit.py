"""Pacing: how many letters may go now. Pure: the clock comes in as seconds.

Never more than the rate over any stretch of time but for BURST_S of it: what was missed by waiting is not made up for,
because a consumer that just came back is who suffers from a crowd.
"""

from typing import Final

BURST_S: Final = 0.25


class Pace:
    """Hands out permissions. `rate` 0: without limit."""

    def __init__(self, rate: float) -> None:
        self._rate = rate
        self._last_s: float | None = None
        self._credit = 1.0

    def take(self, now_s: float, wanted: int) -> int:
        """How many of `wanted` may go now; they count as gone."""
        if not self._rate:
            return wanted
        passed_s = 0.0 if self._last_s is None else max(now_s - self._last_s, 0.0)
        self._last_s = now_s
        self._credit = min(self._credit + passed_s * self._rate, max(1.0, self._rate * BURST_S))
        taken = min(wanted, int(self._credit + 1e-9))
        self._credit -= taken
        return taken

    def wait_s(self) -> float:
        """How long until the next may go."""
        return max(1.0 - self._credit, 0.0) / self._rate if self._rate else 0.0
