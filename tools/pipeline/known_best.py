"""Weeks of which the best policy is known, as counts: what advice is checked against. No router, no journal, no Spark.

A letter of these weeks heals some time after its first death, and from then on each delivery succeeds with some
chance: poison never heals, what is flaky has healed at once. So what any policy costs can be calculated, and the best
of a grid is known.
"""

import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np

from dlx_router.core.backoff import wait_ms
from dlx_router.spark.advice.cost import Ladder, Prices, cost_of, schedule
from dlx_router.spark.advice.evidence import Evidence, Key, Tries, bucket

S: Final = 1000
M: Final = 60 * S
H: Final = 60 * M
WEEK: Final = 7 * 24 * H
HANDLING_MS: Final = 40
QUANTILES: Final = 200
REASON: Final = "rejected"


class Letter(NamedTuple):
    """`first_ms`: of its first death. It heals `heals_ms` later, and each delivery then succeeds with `chance`."""

    first_ms: int
    heals_ms: float
    chance: float
    traits: tuple[str, ...] = ()


@dataclass(frozen=True)
class Cause:
    """`share` of a queue's letters. `heals`: quantile → ms that it lasts."""

    share: float
    heals: Callable[[float], float]
    chance: float = 1.0
    trait: str = ""


@dataclass(frozen=True)
class Week:
    """A queue, what is wrong with it, and the policy in force. `counts`: letters."""

    name: str
    causes: tuple[Cause, ...]
    now: Ladder
    letters: int = 1500
    prices: Prices = field(default_factory=Prices)

    @property
    def key(self) -> Key:
        """Its queue."""
        return Key("/", self.name, REASON)


def never(_quantile: float) -> float:
    """Poison."""
    return math.inf


def at_once(_quantile: float) -> float:
    """What is flaky only."""
    return 0.0


def exponential(mean_ms: float) -> Callable[[float], float]:
    """As often in each second."""
    return lambda quantile: -mean_ms * math.log(1 - quantile)


CURIOUS: Final = Ladder(8, 2 * S, 3.0, 2 * H, 0.5)
"""A policy in force whose waits vary, so that its data tell much: 2 s, 6 s … 24 min, each by half of itself."""

OLD: Final = 'routing_key == "old"'
NEW: Final = 'routing_key == "new"'
WEEKS: Final = (
    Week("poison", (Cause(1.0, never),), CURIOUS),
    Week("locks", (Cause(1.0, exponential(60 * S)),), CURIOUS),
    Week("locks-and-poison", (Cause(0.6, exponential(20 * S)), Cause(0.4, never)), CURIOUS),
    Week("flaky", (Cause(1.0, at_once, 0.6),), Ladder(12, 20 * S, 1.0, 40 * S, 1.0), 6000, Prices(0.015, 100)),
    Week("flaky-in-vain", (Cause(0.3, at_once, 0.7), Cause(0.7, never)), Ladder(12, 5 * S, 2.0, 10 * M, 0.5)),
    Week("slow", (Cause(1.0, exponential(10 * M)),), CURIOUS),
    Week(
        "tellable",
        (Cause(0.5, exponential(30 * S), trait=NEW), Cause(0.5, never, trait=OLD)),
        CURIOUS,
    ),
)  # fmt: skip


# -- what happened --------------------------------------------------------------------------------------------------


class Delivery(NamedTuple):
    """A delivery after a wait. `retry`: how many came before it, from 1; `since_ms`, `at_ms`: from the first death."""

    retry: int
    since_ms: int
    at_ms: int
    wait_ms: int
    good: bool


class Life(NamedTuple):
    """What became of a letter: its deliveries, and when it was over, from its first death."""

    letter: Letter
    deliveries: tuple[Delivery, ...]
    over_ms: int

    @property
    def saved(self) -> bool:
        """Whether the last delivery succeeded."""
        return bool(self.deliveries) and self.deliveries[-1].good


def letters(week: Week, seed: int) -> list[Letter]:
    """The letters of a week, in order of time."""
    chance = Random(f"{week.name}/{seed}")
    arrivals = []
    for cause in week.causes:
        for _ in range(round(week.letters * cause.share)):
            first, heals = chance.randrange(WEEK), cause.heals(chance.random())
            arrivals.append(Letter(first, heals, cause.chance, (cause.trait,) if cause.trait else ()))
    return sorted(arrivals)


def lives(week: Week, seed: int, ladder: Ladder | None = None) -> list[Life]:
    """The week under a policy, with the router's own waits."""
    ladder, chance = ladder or week.now, Random(f"{week.name}/{seed}/lives")
    return [_life(letter, ladder, chance) for letter in letters(week, seed)]


def _life(letter: Letter, ladder: Ladder, chance: Random) -> Life:
    steps: list[Delivery] = []
    died_ms = 0
    for attempts in range(1, ladder.attempts):
        wait = wait_ms(ladder, attempts, chance.uniform(-1, 1))
        at = died_ms + wait
        good = at >= letter.heals_ms and chance.random() < letter.chance
        steps.append(Delivery(attempts, died_ms, at, wait, good))
        if good:
            return Life(letter, tuple(steps), at)
        died_ms = at + HANDLING_MS
    return Life(letter, tuple(steps), died_ms)


def cost(outcomes: Sequence[Life], prices: Prices) -> float:
    """What it cost, a letter."""
    spent = sum(len(life.deliveries) + prices.second * life.over_ms / 1000 for life in outcomes)
    return (spent + prices.redrive * sum(not life.saved for life in outcomes)) / len(outcomes)


# -- as evidence ----------------------------------------------------------------------------------------------------


def evidence(week: Week, outcomes: Sequence[Life]) -> Evidence:
    """The same counts that the archive would give."""
    rows: dict[tuple[Any, ...], list[int]] = {}
    for life in outcomes:
        for step in life.deliveries:
            place = (step.retry, bucket(step.since_ms), bucket(step.at_ms), life.letter.traits)
            entry = rows.setdefault(place, [0, 0, 0, 0])
            is_last = step is life.deliveries[-1]
            for at, count in enumerate((step.good, not step.good, is_last and not step.good, step.wait_ms)):
                entry[at] += count
    tries = [
        Tries(week.key, retry, since, at, good, failed, ended, waited, traits)
        for (retry, since, at, traits), (good, failed, ended, waited) in rows.items()
    ]
    hours = Counter(life.letter.first_ms // H for life in outcomes if life.deliveries)
    return Evidence(tuple(tries), {week.key: max(hours.values())} if hours else {})


# -- the best -------------------------------------------------------------------------------------------------------


def expected(week: Week, ladder: Ladder, *, without: Sequence[str] = ()) -> float:
    """What a ladder costs a letter, calculated. `without`: letters of these traits are not tried."""
    plan, total = schedule(ladder), 0.0
    for cause in week.causes:
        if cause.trait in without and cause.trait:
            total += cause.share * week.prices.redrive
            continue
        heals = np.array([cause.heals((at + 0.5) / QUANTILES) for at in range(QUANTILES)])
        over = plan.offsets_ms[:, None, :] >= heals[None, :, None]
        alive = (1 - cause.chance) ** np.cumsum(over, axis=2)
        alive = np.concatenate([np.ones((*alive.shape[:2], 1)), alive], axis=2).mean(axis=1)
        total += cause.share * cost_of(alive, plan.waits_ms, week.prices)
    return total


def ladders() -> Iterator[Ladder]:
    """A grid that is not the advice's own: other waits, other steps."""
    for tries in range(13):
        yield Ladder(1 + tries)
        for delay in (700, 3 * S, 7 * S, 20 * S, 40 * S, 55 * S, 80 * S, 110 * S, 4 * M, 8 * M, 12 * M, 25 * M, 45 * M):
            for multiplier in (1.0, 1.3, 1.7, 2.5, 4.0):
                cap = min(round(delay * multiplier ** max(tries - 1, 0)), 6 * H)
                yield Ladder(1 + tries, delay, multiplier, cap, 0.15)


@cache
def best(week: Week) -> float:
    """What the best of the grid costs; letters that a condition can tell apart are not tried where that is cheaper."""
    traits = [cause.trait for cause in week.causes if cause.trait]
    return min(
        expected(week, ladder, without=some) for ladder in ladders() for some in ((), *([trait] for trait in traits))
    )


# -- noise ----------------------------------------------------------------------------------------------------------


def noise(seed: int, queues: int = 25) -> Evidence:
    """Queues whose policies are good already, and queues of few letters: whatever stands out does so by chance."""
    chance, parts = Random(f"noise/{seed}"), []
    for number in range(queues):
        few = number % 2 == 1
        share = chance.uniform(0.75, 0.95) if not few else chance.uniform(0.2, 0.9)
        week = Week(
            f"q{number}", (Cause(1.0, at_once, share),), Ladder(chance.choice((4, 5)), S, 2.0, M, 0.15),
            letters=chance.randrange(3, 30) if few else chance.randrange(100, 600),
        )  # fmt: skip
        parts.append(evidence(week, lives(week, seed)))
    busiest = {key: count for part in parts for key, count in part.busiest.items()}
    return Evidence(tuple(row for part in parts for row in part.tries), busiest)
