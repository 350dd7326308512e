"""Pacing: how many letters may go now. Pure: the clock comes in as seconds.

Never more than the rate over any stretch of time but for BURST_S of it: what was missed by waiting is not made up for,
because a consumer that just came back is who suffers from a crowd.
"""

from collections.abc import Sequence
from typing import Final

BURST_S: Final = 0.25


def rate_at(elapsed_s: float, rate: float, ramp: Sequence[float], step_s: float) -> float:
    """Letters a second after `elapsed_s` of sending; each step of the ramp lasts `step_s`, none is above the rate."""
    step = int(elapsed_s / step_s)
    if step >= len(ramp):
        return rate
    return min(ramp[step], rate) if rate else ramp[step]


class Pace:
    """Hands out permissions. `rate` 0: without limit."""

    def __init__(self, rate: float, ramp: Sequence[float] = (), step_s: float = 10.0) -> None:
        self._rate, self._ramp, self._step_s = rate, tuple(ramp), step_s
        self._began_s: float | None = None
        self._last_s = 0.0
        self._credit = 1.0

    def take(self, now_s: float, wanted: int) -> int:
        """How many of `wanted` may go now; they count as gone."""
        if self._began_s is None:
            self._began_s = self._last_s = now_s
        rate = rate_at(now_s - self._began_s, self._rate, self._ramp, self._step_s)
        if not rate:
            return wanted
        earned = self._credit + max(now_s - self._last_s, 0.0) * rate
        self._credit, self._last_s = min(earned, max(1.0, rate * BURST_S)), now_s
        taken = min(wanted, int(self._credit + 1e-9))
        self._credit -= taken
        return taken

    def wait_s(self, now_s: float) -> float:
        """How long until the next may go."""
        began = now_s if self._began_s is None else self._began_s
        rate = rate_at(now_s - began, self._rate, self._ramp, self._step_s)
        return 0.0 if not rate else max(1.0 - self._credit, 0.0) / rate
