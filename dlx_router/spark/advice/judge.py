"""Counts → advice: the cheapest way that the evidence carries, or to keep what there is, with the reason.

A way is advised where it is cheaper by every reading that the evidence does not refute, by a tenth at least, and also
where as few or as many deliveries had succeeded as the counts allow. Everything else is kept.
"""

from collections.abc import Callable, Iterable, Sequence
from itertools import groupby
from typing import NamedTuple

from dlx_router.spark.advice import texts
from dlx_router.spark.advice.cells import Cell, InForce
from dlx_router.spark.advice.cost import Ladder, Prices
from dlx_router.spark.advice.evidence import LETTERS, Evidence, Key, letters_of, recovered_of
from dlx_router.spark.advice.hopeless import Hopeless, conditions_for
from dlx_router.spark.advice.ways import Ways

Known = Callable[[Key], InForce | None]


class Interval(NamedTuple):
    """An estimate, and the least and the most that the counts allow, by any reading."""

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
    """About a queue."""

    vhost: str
    queue: str
    parts: tuple[Advice, ...]

    @property
    def changes(self) -> bool:
        """Whether anything but to keep is advised."""
        return any(part.verdict != texts.KEEP for part in self.parts)


def advise(evidence: Evidence, known: Known | None = None, prices: Prices | None = None) -> list[QueueAdvice]:
    """Advice about every queue that has tries. `known`: what is in force (None: no policy); default: what was recorded.

    Equal evidence, in whatever order, gives equal advice.
    """
    advice = []
    for (vhost, queue), own in groupby(evidence.keys(), key=lambda key: key[:2]):
        cells = [Cell.of(key, evidence, None if known is None else known(key)) for key in own]
        if known is None:
            cells = [cell._replace(now=InForce.recorded(cell.every)) for cell in cells]
        advice.append(QueueAdvice(vhost, queue, tuple(_judged(cell, prices or Prices()) for cell in cells)))
    return advice


def changing(advice: Iterable[QueueAdvice]) -> list[QueueAdvice]:
    """Those that advise anything."""
    return [queue_advice for queue_advice in advice if queue_advice.changes]


def _judged(cell: Cell, prices: Prices) -> Advice:
    """About one key."""
    now = cell.now
    if now is None:
        return _kept(cell, texts.NO_POLICY)
    if (why := cell.too_little()) is not None:
        return _kept(cell, why)
    chosen = conditions_for(cell.every, now.conditions, prices)
    asked = {choice.condition for choice in chosen}
    ways = Ways(cell, [row for row in cell.every if not asked.intersection(row.traits)], prices)
    best = ways.best(now)
    if chosen and best is not None and best.attempts <= cell.first:  # nothing is tried at all: no condition is needed
        chosen, ways = (), Ways(cell, cell.every, prices)
    if best is not None or chosen:
        return _changed(cell, now, ways, best, chosen, prices)
    cost, share = ways.worst(now.ladder, now), ways.saving(ways.ranked(now)[0][1], now)
    unknown = texts.unknown(cell.every, now.ladder, is_plain=ways.is_plain)
    kept = _kept(cell, texts.nothing_better(share, now.ladder, cell.first), unknown)
    return kept._replace(cost_now=cost, cost_then=cost)


def _changed(
    cell: Cell, now: InForce, ways: Ways, best: Ladder | None, chosen: Sequence[Hopeless], prices: Prices
) -> Advice:
    """In words, and in numbers for the letters that were recorded."""
    then = best or now.ladder
    old, new = ways.effect(now.ladder, now), ways.effect(then, now)
    out, tried = sum(choice.letters for choice in chosen), sum(choice.retries for choice in chosen)
    kept = sum(choice.recovered for choice in chosen)
    total = ways.letters + out
    letters, retries, recovered = _counted(cell)
    return Advice(
        cell.key,
        texts.verdict(now.ladder, best, cell.first, some=bool(chosen)),
        now.ladder,
        None if then == now.ladder else then,
        tuple(choice.condition for choice in chosen),
        now.conditions,
        letters,
        retries,
        recovered,
        (ways.worst(now.ladder, now) * ways.letters + tried + (out - kept) * prices.redrive) / total,
        (ways.worst(then, now) * ways.letters + out * prices.redrive) / total,
        _interval(old.lost, new.lost, ways.letters, -kept),
        _interval(old.retries, new.retries, ways.letters, tried),
        _interval(old.seconds, new.seconds, ways.letters / total, 0),
        texts.reasons(cell.every, chosen, then, cell.first),
        texts.unknown(cell.every, then, is_plain=ways.is_plain),
    )


def _counted(cell: Cell) -> tuple[int, int, int]:
    """Letters, retries, recovered."""
    return letters_of(cell.every), sum(row.tried for row in cell.every), recovered_of(cell.every)


def _kept(cell: Cell, why: str, unknown: tuple[str, ...] = ()) -> Advice:
    now = Ladder(1) if cell.now is None else cell.now.ladder
    letters, retries, recovered = _counted(cell)
    shown = unknown if letters >= LETTERS else ()
    return Advice(
        cell.key, texts.KEEP, now, letters=letters, retries=retries, recovered=recovered, reasons=(why,), unknown=shown
    )


def _interval(old: Sequence[float], new: Sequence[float], times: float, plus: float) -> Interval:
    """Of what the new way makes less than the old: of what was seen the least by any reading, and the widest ends."""
    differences = [(before - after) * times + plus for before, after in zip(old, new, strict=True)]
    return Interval(min(differences[::3], key=abs), min(differences), max(differences))
