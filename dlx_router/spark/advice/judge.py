"""Counts → advice: the cheapest way that the evidence carries, or to keep what there is, with the reason.

A way is advised where it is cheaper by every reading that the evidence does not refute, by a tenth at least, and surely
so: by the lower end of an interval that is wider the more queues are judged. Everything else is kept.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np

from dlx_router.core.limits import Outage
from dlx_router.spark.advice import texts
from dlx_router.spark.advice.cells import LETTERS, Cell, InForce
from dlx_router.spark.advice.cost import Array, Ladder, Prices
from dlx_router.spark.advice.evidence import Evidence, Key, letters_of, recovered_of
from dlx_router.spark.advice.hopeless import Hopeless, conditions_for, groups_without_condition
from dlx_router.spark.advice.outages import breaker_for
from dlx_router.spark.advice.spread import ALIKE, Spread

DOUBT: Final = 0.025  # of advice that is none, shared by all that are judged
Known = Callable[[Key], InForce | None]


class Interval(NamedTuple):
    """An estimate, and where 95 % of what it might be lie; the widest of all readings."""

    expected: float = 0.0
    low: float = 0.0
    high: float = 0.0


class Advice(NamedTuple):
    """About a queue's deaths of one reason. `advised`: waits and attempts; None: those of now.

    Of the letters that were recorded `saved` more would recover (negative: fewer), `spared` retries would not be made,
    and each would wait for `sooner_s` less until it recovers or is given up. Costs are in retries a letter.
    """

    key: Key
    verdict: str
    now: Ladder
    advised: Ladder | None = None
    conditions: tuple[str, ...] = ()
    known: tuple[str, ...] = ()  # conditions that are in force
    letters: int = 0
    retries: int = 0
    recovered: int = 0
    cost_now: float = 0.0
    cost_then: float = 0.0
    saved: Interval = Interval()
    spared: Interval = Interval()
    sooner_s: Interval = Interval()
    reasons: tuple[str, ...] = ()
    unknown: tuple[str, ...] = ()


class QueueAdvice(NamedTuple):
    """About a queue. `outage`: settings of the breaker that pay, where there are none."""

    vhost: str
    queue: str
    outage: Outage | None
    parts: tuple[Advice, ...]

    @property
    def changes(self) -> bool:
        """Whether anything but to keep is advised."""
        return any(part.verdict != texts.KEEP for part in self.parts)


def advise(
    evidence: Evidence, known: Known | None = None, prices: Prices | None = None, *, seed: int = 0
) -> list[QueueAdvice]:
    """Advice about every queue that has tries. `known`: what is in force (None: no policy); default: what was recorded.

    Equal evidence, in whatever order, gives equal advice.
    """
    keys = evidence.keys()
    judge = _Judge(prices or Prices(), DOUBT / max(len(keys), 1), seed)
    advice = []
    for (vhost, queue), own in groupby(keys, key=lambda key: key[:2]):
        cells = [Cell.of(key, evidence, None if known is None else known(key)) for key in own]
        if known is None:
            cells = [cell._replace(now=InForce.recorded(cell.every)) for cell in cells]
        peaks = {peak for peak in evidence.peaks if peak.key[:2] == (vhost, queue)}
        rule = breaker_for([episode for cell in cells for episode in cell.outages], sorted(peaks, key=repr))
        advice.append(judge.queue(vhost, queue, cells, rule))
    return advice


def changing(advice: Iterable[QueueAdvice]) -> list[QueueAdvice]:
    """Those that advise anything."""
    return [queue_advice for queue_advice in advice if queue_advice.changes]


class _Judge(NamedTuple):
    """`doubt`: how sure a way must be to be better, as a share of the draws that may say otherwise."""

    prices: Prices
    doubt: float
    seed: int

    def queue(self, vhost: str, queue: str, cells: Sequence[Cell], rule: Outage | None) -> QueueAdvice:
        """Without a breaker; with one where that is cheaper for the queue as a whole."""
        plain = tuple(self.cell(cell) for cell in cells)
        free = all(cell.now is not None and cell.now.outage is None and not cell.now.fifo for cell in cells)
        if rule is None or not free:
            return QueueAdvice(vhost, queue, None, plain)
        pairs = zip(cells, plain, strict=True)
        held = tuple(self.cell(cell, rule) if cell.outages else advice for cell, advice in pairs)
        without, with_it = (sum(advice.cost_then * advice.letters for advice in some) for some in (plain, held))
        if with_it < without * (1 - ALIKE) and any(advice.verdict != texts.KEEP for advice in held):
            return QueueAdvice(vhost, queue, rule, held)
        return QueueAdvice(vhost, queue, None, plain)

    def cell(self, cell: Cell, rule: Outage | None = None) -> Advice:
        """About one key."""
        if cell.now is None:
            return _kept(cell, texts.NO_POLICY, ())
        if (why := cell.too_little()) is not None:
            return _kept(cell, why, ())
        chosen = conditions_for(cell.rows, cell.now.conditions, self.prices)
        asked = {choice.condition for choice in chosen}
        rest = [row for row in cell.rows if not asked.intersection(row.traits)]
        spread = Spread(cell, rest, self.prices, rule, seed=self.seed)
        best = spread.best(cell.now, self.doubt)
        if (
            chosen and best is not None and best.attempts <= cell.first
        ):  # nothing is tried at all: no condition is needed
            chosen, spread = (), Spread(cell, cell.rows, self.prices, rule, seed=self.seed)
        if best is None and not chosen:
            return self._keep(cell, spread)
        return self._advice(cell, spread, best, chosen, rule)

    def _keep(self, cell: Cell, spread: Spread) -> Advice:
        assert cell.now is not None
        cost = spread.worst(cell.now.ladder, cell.now, held=False)
        share = spread.saving(spread.ranked(cell.now)[0][1], cell.now)
        why = texts.nothing_better(share, cell.now.ladder, cell.first)
        unknown = (*texts.unknown(cell.every, cell.now.ladder, is_plain=spread.is_plain), *self._untold(cell, ()))
        return _kept(cell, why, unknown)._replace(cost_now=cost, cost_then=cost)

    def _advice(
        self, cell: Cell, spread: Spread, best: Ladder | None, chosen: Sequence[Hopeless], rule: Outage | None
    ) -> Advice:
        """In words, and in numbers for the letters that were recorded."""
        assert cell.now is not None
        now, then = cell.now, best or cell.now.ladder
        old, new = spread.effect(now.ladder, now, held=False), spread.effect(then, now)
        out, tried = sum(choice.letters for choice in chosen), sum(choice.retries for choice in chosen)
        kept = sum(choice.recovered for choice in chosen)
        of_chosen = tried + (out - kept) * self.prices.redrive, out * self.prices.redrive
        total = spread.letters + out
        letters, retries, recovered = _counted(cell)
        return Advice(
            cell.key,
            texts.verdict(now.ladder, best, cell.first, some=bool(chosen), held=rule is not None),
            now.ladder,
            None if then == now.ladder else then,
            tuple(choice.condition for choice in chosen),
            now.conditions,
            letters,
            retries,
            recovered,
            (spread.worst(now.ladder, now, held=False) * spread.letters + of_chosen[0]) / total,
            (spread.worst(then, now) * spread.letters + of_chosen[1]) / total,
            _interval(old.lost, new.lost, spread.letters, -kept),
            _interval(old.retries, new.retries, spread.letters, tried),
            _interval(old.seconds, new.seconds, spread.letters / total, 0),
            texts.reasons(cell.every, cell.outages, chosen, then, cell.first, rule),
            (*texts.unknown(cell.every, then, is_plain=spread.is_plain), *self._untold(cell, chosen, then)),
        )

    def _untold(self, cell: Cell, chosen: Sequence[Hopeless], then: Ladder | None = None) -> tuple[str, ...]:
        """Groups that are tried in vain because no condition tells them from the others."""
        if then is not None and then.attempts <= cell.first:
            return ()
        groups = groups_without_condition(cell.rows, self.prices, chosen)
        return tuple(texts.untold(group, letters) for group, letters in groups)


def _counted(cell: Cell) -> tuple[int, int, int]:
    """Letters, retries, recovered."""
    return letters_of(cell.every), sum(row.tried for row in cell.every), recovered_of(cell.every)


def _kept(cell: Cell, why: str, unknown: tuple[str, ...]) -> Advice:
    now = Ladder(1) if cell.now is None else cell.now.ladder
    letters, retries, recovered = _counted(cell)
    shown = unknown if letters >= LETTERS else ()
    return Advice(
        cell.key, texts.KEEP, now, letters=letters, retries=retries, recovered=recovered, reasons=(why,), unknown=shown
    )


def _interval(old: Sequence[Array], new: Sequence[Array], times: float, plus: float) -> Interval:
    """Of what the new way makes less than the old: of all readings the least that is expected, and the widest ends."""
    draws = [(before - after) * times + plus for before, after in zip(old, new, strict=True)]
    ends = [np.quantile(draw, [0.025, 0.975]) for draw in draws]
    expected = min((float(draw[0]) for draw in draws), key=abs)
    low, high = float(min(end[0] for end in ends)), float(max(end[1] for end in ends))
    # Of few letters most draws may lie to one side of what is expected.
    return Interval(expected, min(low, expected), max(high, expected))
