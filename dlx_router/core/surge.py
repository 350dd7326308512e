"""Surges: whether a group dies far more often than it usually does. A state machine without a clock.

The usual rate is the mean of past minutes, each counting half as much after two hours; the last five minutes are not in
it. A group surges when these five have at least MIN_DEATHS and FACTOR times what is usual. It is told once, and again
only after the rate fell below CALM times the usual. Nothing is told of a group that was watched for less than KNOWN_MS.
"""

from collections import deque
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from dlx_router.core.bounded import MIB, Bounded

MINUTE_MS: Final = 60_000
RECENT: Final = 5  # minutes
KNOWN_MS: Final = 30 * MINUTE_MS
HALF_LIFE: Final = 120  # minutes
MIN_DEATHS: Final = 20
FACTOR: Final = 5.0
CALM: Final = 2.0
MAX_GROUPS: Final = 20_000
_SHARE: Final = 1 - 0.5 ** (1 / HALF_LIFE)
_BYTES: Final = 1024


class Surge(NamedTuple):
    """Deaths in the last five minutes, and how many are usual in five."""

    deaths: int
    usual: float


@dataclass(slots=True)
class _Watch:
    """`mean` is over past minutes as if there had always been some, `weight` the share of those that there were."""

    total: int
    since_ms: int
    minute: int
    mean: float = 0.0
    weight: float = 0.0
    recent: deque[int] = field(default_factory=lambda: deque([0]))  # the last is this minute
    surging: bool = False

    @property
    def usual(self) -> float:
        """Deaths in five minutes."""
        return RECENT * self.mean / self.weight if self.weight else 0.0


class Surges:
    """Of the groups of one vhost."""

    def __init__(self) -> None:
        self._watches: Bounded[str, _Watch] = Bounded(most=MAX_GROUPS, most_bytes=64 * MIB, weigh=lambda _: _BYTES)

    def seen(self, group: str, total: int, now_ms: int) -> Surge | None:
        """The group has had so many deaths in all; a surge where one begins now."""
        watch = self._watches.get(group)
        minute = now_ms // MINUTE_MS
        if watch is None or total < watch.total or minute < watch.minute:  # new; or index or clock began anew
            self._watches[group] = _Watch(total, now_ms, minute)
            return None
        _pass(watch, minute)
        watch.recent[-1] += total - watch.total
        watch.total = total
        return _judged(watch, now_ms)


def _pass(watch: _Watch, minute: int) -> None:
    """Minutes go by; one that is older than the recent ones becomes a part of what is usual."""
    passed, watch.minute = minute - watch.minute, minute
    for _ in range(min(passed, RECENT)):
        if len(watch.recent) == RECENT:
            deaths = watch.recent.popleft()
            watch.mean += (deaths - watch.mean) * _SHARE
            watch.weight += (1 - watch.weight) * _SHARE
        watch.recent.append(0)
    if passed > RECENT:
        left = (1 - _SHARE) ** (passed - RECENT)
        watch.mean *= left
        watch.weight = 1 - (1 - watch.weight) * left
    watch.surging = watch.surging and passed < RECENT


def _judged(watch: _Watch, now_ms: int) -> Surge | None:
    deaths, usual = sum(watch.recent), watch.usual
    if watch.surging:
        watch.surging = deaths >= max(CALM * usual, MIN_DEATHS / 2)
        return None
    if now_ms - watch.since_ms < KNOWN_MS or deaths < max(FACTOR * usual, MIN_DEATHS):
        return None
    watch.surging = True
    return Surge(deaths, usual)
