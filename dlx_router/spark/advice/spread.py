"""What each way of retrying costs a queue's letters, by every reading of the evidence, in draws of what is not sure."""

from collections.abc import Sequence
from functools import cached_property
from typing import Final, NamedTuple

import numpy as np

from dlx_router.core.limits import Outage
from dlx_router.spark.advice.cells import Cell, InForce
from dlx_router.spark.advice.cost import MOST_PROPOSED, Array, Ladder, Prices, Schedule, candidates, cost_of, schedule
from dlx_router.spark.advice.evidence import Tries, letters_of, merged
from dlx_router.spark.advice.outages import Ends, ends_of
from dlx_router.spark.advice.survival import DRAWS, Held, Reading, held, time_heals, tries_help

WORTH: Final = 0.1  # of what can be saved at all: what saves less is not worth a change
ALIKE: Final = 0.05  # of it, too: among ways that differ by less, the one that changes least
_SHORTLIST: Final = 12
_CUTS: Final = 3


class Effect(NamedTuple):
    """Of a letter, in draws, one array for each reading: the chance to be lost, its retries, its seconds."""

    lost: list[Array]
    retries: list[Array]
    seconds: list[Array]


class _Readings(NamedTuple):
    """`own`: of letters by themselves; `ends`: of those that fell into outages."""

    own: list[Reading]
    ends: Ends | None


class Spread:
    """The costs of a cell. `rows`: the deliveries that are judged; `rule`: of a breaker that outages are held by."""

    def __init__(
        self, cell: Cell, rows: Sequence[Tries], prices: Prices, rule: Outage | None = None, *, seed: int = 0
    ) -> None:
        self._rows, self._cell, self._seed = merged(rows), cell, seed
        self.first, self._prices, self._rule = cell.first, prices, rule
        self._letters = letters_of(self._rows)
        self._stands = held(self._rows) if self._letters else Held(time=False, tries=False)
        self._estimate = self._read(1)
        self._seen = max((row.attempts for row in cell.every), default=self.first) + 1 - self.first
        if cell.outages:  # what comes of a delivery after the end does not depend on how many there were before
            self._seen = max(self._seen, MOST_PROPOSED)

    def _read(self, draws: int) -> "_Readings":
        chance = np.random.default_rng(self._seed)
        own: list[Reading] = []
        own += [time_heals(self._rows, chance, draws)] if self._stands.time else []
        own += [tries_help(self._rows, chance, draws)] if self._stands.tries else []
        return _Readings(own, ends_of(self._cell.outages, chance, draws))

    @cached_property
    def _drawn(self) -> "_Readings":
        """Made where the estimate alone does not decide: it takes a hundred times as long."""
        return self._read(DRAWS)

    @property
    def is_plain(self) -> bool:
        """Whether only one reading stands: the evidence tells whether waits help or tries."""
        return not all(self._stands)

    @property
    def letters(self) -> float:
        """All that are judged, those of outages included."""
        ends = self._estimate.ends
        return self._letters + (0.0 if ends is None else float(ends.letters.sum()))

    # -- what a ladder costs ----------------------------------------------------------------------------------------

    def costs(
        self, ladder: Ladder, now: InForce, *, prices: Prices | None = None, point: bool = False, held: bool = True
    ) -> list[Array]:
        """A letter's cost in draws, by each reading; draw 0 is the estimate. `point`: that alone.

        `held`: by the breaker, where there is a rule; False: as it is now.
        """
        plan, rates = schedule(ladder, self.first, now.most_ms), prices or self._prices
        readings = self._estimate if point else self._drawn
        own = [cost_of(reading.alive(plan.waits_ms, self.first), plan.waits_ms, rates) for reading in readings.own]
        if readings.ends is None:
            return own
        fell = self._of_ends(readings.ends, plan, rates, held=held)
        outside = self._letters / self.letters
        return [cost * outside + fell * (1 - outside) for cost in own] or [fell]

    def _of_ends(self, ends: Ends, plan: Schedule, prices: Prices, *, held: bool) -> Array:
        """Of letters that fell into outages; those that die before the breaker opens spend a retry more."""
        if self._rule is None or not held or not plan.tries:
            return cost_of(ends.alive(plan.waits_ms, self.first), plan.waits_ms, prices)
        waits = plan.waits_ms[:1].copy()
        waits[0, 0] = (ends.held() * ends.letters).sum() / ends.letters.sum()
        alive = ends.fails[:, None, None] ** np.arange(plan.tries + 1)[None, None, :]
        opening = min(1.0, self._rule.deaths * len(self._cell.outages) / float(ends.letters.sum()))
        return cost_of(alive, waits, prices) + opening * prices.retry

    def worst(self, ladder: Ladder, now: InForce, *, held: bool = True) -> float:
        """The estimate by the reading that speaks worst of it."""
        return max(float(cost[0]) for cost in self.costs(ladder, now, point=True, held=held))

    def effect(self, ladder: Ladder, now: InForce, *, held: bool = True) -> Effect:
        """What becomes of a letter."""
        lost, retries, seconds = (
            self.costs(ladder, now, prices=Prices(*rates), held=held) for rates in ((0, 1, 0), (0, 0, 1), (1, 0, 0))
        )
        return Effect(lost, retries, seconds)

    # -- which is better --------------------------------------------------------------------------------------------

    def ranked(self, now: InForce) -> list[tuple[float, Ladder]]:
        """Every way and its cost, the cheapest first; of those alike the one that changes least, and loses least."""
        ways = [*candidates(now.ladder, self.first, self._seen, waits=not now.fifo)]
        ways += [now.ladder] if self._rule is not None else []
        rated = sorted((self.worst(way, now), way) for way in ways)
        cost, best = rated[0]
        alike = [pair for pair in rated if pair[0] <= cost + ALIKE * (cost - self._lost(best, now))]
        alike.sort(key=lambda pair: (_changed(pair[1], now.ladder), self._lost(pair[1], now), pair))
        return [*alike[:1], *rated]

    def best(self, now: InForce, doubt: float) -> Ladder | None:
        """The cheapest way that is surely better than that of now; None: there is none."""
        cost = self.worst(now.ladder, now, held=False)
        cuts = candidates(now.ladder, self.first, self._seen, waits=False)
        short = [*self.ranked(now)[:_SHORTLIST], *sorted((self.worst(way, now), way) for way in cuts)[:_CUTS]]
        ways = dict.fromkeys(way for then, way in short if then < cost)
        return next((way for way in ways if self.saving(way, now) >= WORTH and self._is_sure(way, now, doubt)), None)

    def saving(self, ladder: Ladder, now: InForce) -> float:
        """The share that it saves of all that could be saved, by the reading that speaks worst of it.

        The letters that it loses are lost anyhow, as far as anybody knows, and their cost with them.
        """
        old, new = self.costs(now.ladder, now, point=True, held=False), self.costs(ladder, now, point=True)
        each = zip(old, new, self._lost_anyhow(ladder, now), strict=True)
        shares = [(before - after) / max(before - lost, 1e-9) for before, after, lost in each]
        return float(min(share[0] for share in shares))

    def _lost(self, ladder: Ladder, now: InForce) -> float:
        return min(float(cost[0]) for cost in self._lost_anyhow(ladder, now))

    def _lost_anyhow(self, ladder: Ladder, now: InForce) -> list[Array]:
        """The cost of the letters that it loses, by each reading."""
        return self.costs(ladder, now, prices=Prices(0, self._prices.redrive, 0), point=True)

    def _is_sure(self, ladder: Ladder, now: InForce, doubt: float) -> bool:
        """Whether it is cheaper by every reading, in all but `doubt` of the draws."""
        pairs = zip(self.costs(now.ladder, now, held=False), self.costs(ladder, now), strict=True)
        return all(np.quantile(old - then, doubt) > 0 for old, then in pairs)


def _changed(ladder: Ladder, now: Ladder) -> int:
    """How many keys differ."""
    return sum(left != right for left, right in zip(ladder, now, strict=True))
