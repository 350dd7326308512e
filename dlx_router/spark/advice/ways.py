"""What each way of retrying costs a queue's letters, by every reading that the evidence does not refute."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dlx_router.spark.advice.cells import Cell, InForce
from dlx_router.spark.advice.cost import Ladder, Prices, candidates, cost_of, schedule
from dlx_router.spark.advice.evidence import Tries, letters_of, merged
from dlx_router.spark.advice.survival import Reading, held, successes, time_heals, tries_help

WORTH: Final = 0.1  # of what can be saved at all: what saves less is not worth a change
ALIKE: Final = 0.05  # of it, too: among ways that differ by less, the one that changes least
_ENDS: Final = (None, 0, 1)  # as it was seen, with as few and as many successes as the counts allow
_SHORTLIST: Final = 12
_CUTS: Final = 3


class Effect(NamedTuple):
    """Of a letter, by each reading and end: the chance to be lost, its retries, its seconds."""

    lost: list[float]
    retries: list[float]
    seconds: list[float]


class Ways:
    """The costs of a cell. `rows`: the deliveries that are judged."""

    def __init__(self, cell: Cell, rows: Sequence[Tries], prices: Prices) -> None:
        own = merged(rows)
        self.first, self._prices, self.letters = cell.first, prices, letters_of(own)
        stands = held(own)
        self.is_plain = not all(stands)
        """Whether only one reading stands: the evidence tells whether waits help or tries."""
        self._readings: list[list[Reading]] = []  # by reading and end
        goods = [successes(own, end) for end in _ENDS]
        if stands.time:
            self._readings.append([time_heals(own, good) for good in goods])
        if stands.tries:
            self._readings.append([tries_help(own, good) for good in goods])
        self._seen = max((row.attempts for row in cell.every), default=self.first) + 1 - self.first

    def _costs(self, ladder: Ladder, now: InForce, prices: Prices | None = None, *, ends: bool) -> list[list[float]]:
        """A letter's cost by each reading and end; without `ends` only as it was seen."""
        plan = schedule(ladder, self.first, now.most_ms)
        return [
            [
                cost_of(reading.alive(plan.waits_ms, self.first), plan.waits_ms, prices or self._prices)
                for reading in (every if ends else every[:1])
            ]
            for every in self._readings
        ]

    def worst(self, ladder: Ladder, now: InForce) -> float:
        """The estimate by the reading that speaks worst of it."""
        return max(cost for [cost] in self._costs(ladder, now, ends=False))

    def effect(self, ladder: Ladder, now: InForce) -> Effect:
        """What becomes of a letter."""
        lost, retries, seconds = (
            [cost for every in self._costs(ladder, now, Prices(*rates), ends=True) for cost in every]
            for rates in ((0, 1, 0), (0, 0, 1), (1, 0, 0))
        )
        return Effect(lost, retries, seconds)

    def ranked(self, now: InForce) -> list[tuple[float, Ladder]]:
        """Every way and its cost, the cheapest first; of those alike the one that changes least, and loses least."""
        ways = candidates(now.ladder, self.first, self._seen, waits=not now.fifo)
        rated = sorted((self.worst(way, now), way) for way in ways)
        cost, best = rated[0]
        alike = [pair for pair in rated if pair[0] <= cost + ALIKE * (cost - self._lost(best, now))]
        alike.sort(key=lambda pair: (_changed(pair[1], now.ladder), self._lost(pair[1], now), pair))
        return [*alike[:1], *rated]

    def best(self, now: InForce) -> Ladder | None:
        """The cheapest way that is surely better than that of now; None: there is none."""
        cost = self.worst(now.ladder, now)
        cuts = candidates(now.ladder, self.first, self._seen, waits=False)
        short = [*self.ranked(now)[:_SHORTLIST], *sorted((self.worst(way, now), way) for way in cuts)[:_CUTS]]
        ways = dict.fromkeys(way for then, way in short if then < cost)
        return next((way for way in ways if self.saving(way, now) >= WORTH and self._is_sure(way, now)), None)

    def saving(self, ladder: Ladder, now: InForce) -> float:
        """The share that it saves of all that could be saved, by the reading that speaks worst of it.

        The letters that it loses are lost anyhow, as far as anybody knows, and their cost with them.
        """
        old, new = self._costs(now.ladder, now, ends=False), self._costs(ladder, now, ends=False)
        each = zip(old, new, self._lost_anyhow(ladder, now), strict=True)
        return min((before - after) / max(before - lost, 1e-9) for [before], [after], [lost] in each)

    def _lost(self, ladder: Ladder, now: InForce) -> float:
        return min(cost for [cost] in self._lost_anyhow(ladder, now))

    def _lost_anyhow(self, ladder: Ladder, now: InForce) -> list[list[float]]:
        """The cost of the letters that it loses, by each reading."""
        return self._costs(ladder, now, Prices(0, self._prices.redrive, 0), ends=False)

    def _is_sure(self, ladder: Ladder, now: InForce) -> bool:
        """Whether it is cheaper by every reading, also where fewer or more had succeeded."""
        old, new = self._costs(now.ladder, now, ends=True), self._costs(ladder, now, ends=True)
        pairs = zip(old, new, strict=True)
        return all(after < before for both in pairs for before, after in zip(*both, strict=True))


def _changed(ladder: Ladder, now: Ladder) -> int:
    """How many keys differ."""
    return sum(left != right for left, right in zip(ladder, now, strict=True))
