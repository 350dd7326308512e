"""What a way of retrying costs, and the ways that there are.

A retry costs 1. The other two prices are in retries, and are the operator's to say: how many retries a second of
waiting is worth, and how many a letter that a person has to look at and send back.
"""

from collections.abc import Iterator
from functools import lru_cache
from typing import Any, Final, NamedTuple

import numpy as np

from dlx_router.core.backoff import wait_ms
from dlx_router.core.policy import Effective

Array = Any  # of numpy: of floats
MOST_TRIES: Final = 100  # of a policy without limit
_S, _M, _H = 1000, 60_000, 3_600_000
_DELAYS_MS: Final = (
    0, _S, 2 * _S, 5 * _S, 10 * _S, 15 * _S, 30 * _S, 45 * _S, _M, 90 * _S, 2 * _M, 3 * _M, 5 * _M, 10 * _M, 15 * _M,
    30 * _M, _H,
)  # fmt: skip
_MULTIPLIERS: Final = (1.0, 1.5, 2.0, 3.0, 5.0)
_LONGEST_MS: Final = 6 * _H  # no wait that is proposed is longer
_JITTER: Final = 0.15
MOST_PROPOSED: Final = 12
_EARLY: Final = 3  # of letters that come after more failed deliveries the first wait would be a multiple already
_PATTERNS: Final = 8


class Prices(NamedTuple):
    """In retries: a second that a letter waits, until it recovers or is given up; a letter that a person redrives."""

    second: float = 0.01
    redrive: float = 100.0
    retry: float = 1.0


class Ladder(NamedTuple):
    """The keys that say how often and after what wait a letter is tried again. As `core.backoff.Backoff`."""

    attempts: int
    delay_ms: int = 0
    multiplier: float = 1.0
    cap_ms: int = 0
    jitter: float = 0.0

    @staticmethod
    def of(policy: Effective) -> "Ladder":
        """What is in force."""
        attempts = MOST_TRIES if policy.max_attempts < 0 else policy.max_attempts
        return Ladder(attempts, policy.delay_ms, policy.multiplier, policy.cap_ms, policy.jitter)


class Schedule(NamedTuple):
    """Waits before each retry, in some turns of the jitter's dice. Rows: turns; columns: retries."""

    waits_ms: Array

    @property
    def tries(self) -> int:
        """Retries at most."""
        return int(self.waits_ms.shape[1])

    @property
    def offsets_ms(self) -> Array:
        """From the first death to each retry."""
        return np.cumsum(self.waits_ms, axis=1)

    @property
    def span_ms(self) -> int:
        """From the first death to the last retry, in the mean."""
        return int(self.waits_ms.sum(axis=1).mean())


@lru_cache(maxsize=20_000)
def schedule(ladder: Ladder, first: int = 1, most_ms: int | None = None) -> Schedule:
    """The waits of a ladder for letters that come after `first` failed deliveries; by the router's own formula.

    `most_ms`: redelivery-max-elapsed; what would end later is not made.
    """
    turns = 1 if ladder.jitter == 0 or not ladder.delay_ms else _PATTERNS
    tries = min(max(ladder.attempts - first, 0), MOST_TRIES)
    waits = np.array(
        [[wait_ms(ladder, first + at, _draw(turn, at, turns)) for at in range(tries)] for turn in range(turns)],
        dtype=float,
    ).reshape(turns, tries)
    if most_ms is not None:
        kept = int((np.cumsum(waits, axis=1).mean(axis=0) <= most_ms).sum())
        waits = waits[:, :kept]
    return Schedule(waits)


def _draw(turn: int, at: int, turns: int) -> float:
    """Spread evenly over turns and over attempts: chance without chance."""
    if turns == 1:
        return 0.0
    return 2 * (((turn + 0.5) / turns + at * 0.618033988749895) % 1) - 1


def cost_of(alive: Array, waits_ms: Array, prices: Prices) -> float:
    """The cost of a letter. `alive`: of letters, the share that needs retry 1, 2 … and, last, a person.

    Shapes: (turns, tries + 1) and (turns, tries).
    """
    each = prices.retry + prices.second * waits_ms / 1000
    return float((alive[:, :-1] * each).sum(axis=1).mean() + prices.redrive * alive[:, -1].mean())


def candidates(now: Ladder | None, first: int, most_tries: int, *, waits: bool = True) -> Iterator[Ladder]:
    """Every ladder that is looked at, those in force with fewer attempts first. At most `most_tries` retries each.

    `waits`: whether other waits may be proposed; not where letters must keep their order.
    """
    jitter = _JITTER if now is None else now.jitter
    most = min(most_tries, MOST_PROPOSED)
    if now is not None:
        for tries in range(most_tries + 1):
            if first + tries != now.attempts:
                yield now._replace(attempts=first + tries)
    else:
        yield Ladder(first)
    if not waits:
        return
    for delay in _DELAYS_MS:
        for multiplier in _MULTIPLIERS[: 1 if delay == 0 or first > _EARLY else None]:
            for tries in range(1, most + 1):
                longest = round(delay * multiplier ** (first + tries - 2))
                cap = min(longest, _LONGEST_MS)
                if tries > 2 and delay * multiplier ** (first + tries - 3) >= _LONGEST_MS:  # noqa: PLR2004 - the second wait is the first that grows
                    break
                for spread in {0.0} if not delay else {jitter, min(jitter, _JITTER)}:
                    yield Ladder(first + tries, delay, multiplier, cap if delay else 0, spread)
