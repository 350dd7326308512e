"""Waiting: what is left of a wait when a rung of it is over.

Rungs are the broker's, and every rung takes its time whatever a clock of ours says. So a wait is counted in rungs: what
is left is what was left before, less the rung. A wall clock, which jumps and differs from host to host, may only take
away from what is shorter than the lowest rung. See docs/decisions/0053-waits-are-counted-in-rungs.md.
"""

from bisect import bisect_right
from typing import Final, NamedTuple

from dlx_router.core.names import RUNGS, rung_for

TOLERANCE_MS: Final = 1_000  # clocks that are kept by NTP differ by less, and a second is no harm


class Left(NamedTuple):
    """What is left of a wait (ms), and how much more the clock would have made of it; 0 where both agree."""

    ms: int
    cut_ms: int = 0


def left(*, wait_ms: int | None, due_ms: int, rung_ms: int | None, now_ms: int) -> Left:
    """What is left after a rung.

    `wait_ms`: what was left before it, None where the record does not say; `due_ms`: when the wait ends, by the clock
    of whoever decided it; `rung_ms`: the rung as the broker tells it, None where it does not.

    Law: over any clocks the rungs of a wait add up to it, less than the lowest rung short and never over.
    """
    rest_ms = due_ms - now_ms
    least, most = _bounds(wait_ms, rung_ms)
    if most is None:
        return Left(max(rest_ms, 0))
    return Left(min(max(rest_ms, least), most), rest_ms - most if rest_ms > most + TOLERANCE_MS else 0)


def _bounds(wait_ms: int | None, rung_ms: int | None) -> tuple[int, int | None]:
    """At least and at most what is left, whatever a clock says."""
    if wait_ms is not None:
        rung = rung_for(wait_ms)
        if rung is not None and rung_ms in {None, rung}:
            rest = wait_ms - rung
            return (rest if rest >= RUNGS[0] else 0), rest
    if rung_ms is None:
        return 0, wait_ms
    return 0, _longest_rest(rung_ms)  # another version chose the rung, by the clock: as it did, so do we


def _longest_rest(rung_ms: int) -> int | None:
    """What can have been left at most by who takes the largest rung that is not too long."""
    at = bisect_right(RUNGS, rung_ms)
    return RUNGS[at] - rung_ms - 1 if at < len(RUNGS) else None
