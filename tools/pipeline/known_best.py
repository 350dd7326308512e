"""Weeks of which the best policy is known, as counts: what advice is checked against. No router, no journal, no Spark.

A letter of these weeks heals some time after its first death, and from then on each delivery succeeds with some
chance: poison never heals, what is flaky has healed at once, an outage ends for all at one moment. So what any policy
costs can be calculated, and the best of a grid is known.
"""

import heapq
import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from random import Random
from typing import Any, Final, NamedTuple

import numpy as np

from dlx_router.core.backoff import wait_ms
from dlx_router.core.breaker import QueueBreaker
from dlx_router.core.limits import Outage
from dlx_router.spark.advice.cost import Ladder, Prices, cost_of, schedule
from dlx_router.spark.advice.evidence import Calm, Episode, Evidence, Key, Tries, bucket

S: Final = 1000
M: Final = 60 * S
H: Final = 60 * M
WEEK: Final = 7 * 24 * H
GAP_MS: Final = 30 * M
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
    """`share` of a queue's letters. `heals`: quantile → ms that it lasts. `from_ms`, `to_ms`: when they fail."""

    share: float
    heals: Callable[[float], float]
    chance: float = 1.0
    from_ms: int = 0
    to_ms: int = WEEK
    trait: str = ""

    @property
    def ends_for_all(self) -> bool:
        """Whether it is an outage."""
        return self.to_ms < WEEK and self.chance < 1


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


def outage(length_ms: int, share: float, *, at_ms: int = 2 * 24 * H) -> Cause:
    """Everything fails until then; nine of ten deliveries succeed after."""
    return Cause(share, lambda quantile: quantile * length_ms, 0.9, at_ms, at_ms + length_ms)


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
    Week("outage", (outage(40 * M, 1.0),), Ladder(4, 1 * S, 5.0, 1 * M, 0.15)),
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
            first = chance.randrange(cause.from_ms, cause.to_ms)
            heals = cause.to_ms - first if cause.ends_for_all else cause.heals(chance.random())
            arrivals.append(Letter(first, heals, cause.chance, (cause.trait,) if cause.trait else ()))
    return sorted(arrivals)


def lives(week: Week, seed: int, ladder: Ladder | None = None, rule: Outage | None = None) -> list[Life]:
    """The week under a policy, in order of what happens, with the router's own waits and its own breaker."""
    ladder, chance = ladder or week.now, Random(f"{week.name}/{seed}/lives")
    breaker = None if rule is None else QueueBreaker(rule)
    own = letters(week, seed)
    steps: list[list[Delivery]] = [[] for _ in own]
    over = [0] * len(own)
    tries = [0] * len(own)
    todo = [(letter.first_ms, number, 1, True) for number, letter in enumerate(own)]
    heapq.heapify(todo)
    while todo:
        now, number, attempts, fresh = heapq.heappop(todo)
        letter = own[number]
        verdict = None if breaker is None else breaker.ask(
            str(number), now, deaths=int(fresh), tries=0 if fresh else tries[number]
        ).wait_ms  # fmt: skip
        if verdict is not None:
            tries[number] = 1 if fresh else tries[number] + 1
            heapq.heappush(todo, (now + verdict, number, attempts - fresh, False))  # a hold uses no attempt
            continue
        if fresh and attempts >= ladder.attempts:
            over[number] = now - letter.first_ms
            continue
        wait = wait_ms(ladder, attempts, chance.uniform(-1, 1)) if fresh else 0
        at = now + wait - letter.first_ms
        good = at >= letter.heals_ms and chance.random() < letter.chance
        since = steps[number][-1].at_ms + HANDLING_MS if steps[number] else 0
        steps[number].append(Delivery(len(steps[number]) + 1, since, at, at - since, good))
        if good:
            over[number] = at
        else:
            heapq.heappush(todo, (now + wait + HANDLING_MS, number, attempts + 1, True))
    return [Life(letter, tuple(made), ended) for letter, made, ended in zip(own, steps, over, strict=True)]


def cost(outcomes: Sequence[Life], prices: Prices) -> float:
    """What it cost, a letter."""
    spent = sum(len(life.deliveries) + prices.second * life.over_ms / 1000 for life in outcomes)
    return (spent + prices.redrive * sum(not life.saved for life in outcomes)) / len(outcomes)


# -- as evidence ----------------------------------------------------------------------------------------------------


def evidence(week: Week, outcomes: Sequence[Life]) -> Evidence:
    """The same counts that the archive would give."""
    stretches = _stretches(outcomes)
    rows: dict[tuple[Any, ...], list[int]] = {}
    for life in outcomes:
        begun = next(first for first, last in reversed(stretches) if first <= life.letter.first_ms)
        for step in life.deliveries:
            place = (step.retry, bucket(step.since_ms), bucket(step.at_ms), life.letter.traits, begun)
            entry = rows.setdefault(place, [0, 0, 0, 0])
            is_last = step is life.deliveries[-1]
            for at, count in enumerate((step.good, not step.good, is_last and not step.good, step.wait_ms)):
                entry[at] += count
    tries = [
        Tries(week.key, retry, since, at, good, failed, ended, waited, traits, "", begun)
        for (retry, since, at, traits, begun), (good, failed, ended, waited) in rows.items()
    ]
    episodes, peaks = [], []
    for first, last in stretches:
        own = [life for life in outcomes if first <= life.letter.first_ms <= last]
        episodes.append(_episode(week, first, last, own))
        peaks.append(Calm(week.key, first, max(_minutes(own).values())))
    return Evidence(tuple(tries), tuple(episodes), tuple(peaks))


def _stretches(outcomes: Sequence[Life]) -> list[tuple[int, int]]:
    moments = sorted(life.letter.first_ms for life in outcomes)
    stretches: list[tuple[int, int]] = []
    for moment in moments:
        if stretches and moment - stretches[-1][1] <= GAP_MS:
            stretches[-1] = (stretches[-1][0], moment)
        else:
            stretches.append((moment, moment))
    return stretches


def _episode(week: Week, first: int, last: int, own: Sequence[Life]) -> Episode:
    before, after = [0, 0], [0, 0]
    remaining: dict[int, int] = {}
    for life in own:
        left = last - life.letter.first_ms
        remaining[left] = remaining.get(left, 0) + 1
        for step in life.deliveries:
            side = before if life.letter.first_ms + step.at_ms <= last else after
            side[0] += step.good
            side[1] += 1
    minutes = sorted(_minutes(own).values())
    typical = minutes[len(minutes) // 2]
    return Episode(
        week.key, first, last, (before[0], before[1]), (after[0], after[1]), tuple(sorted(remaining.items())), typical
    )


def _minutes(own: Sequence[Life]) -> dict[int, int]:
    """Deaths in each minute that has any."""
    counts: dict[int, int] = {}
    for life in own:
        deaths = [0, *(step.at_ms + HANDLING_MS for step in life.deliveries if not step.good)]
        for at in deaths:
            minute = (life.letter.first_ms + at) // M
            counts[minute] = counts.get(minute, 0) + 1
    return counts


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
        total += cause.share * float(cost_of(alive[None], plan.waits_ms, week.prices)[0])
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


def best_held(week: Week, seed: int) -> float:
    """What the best breaker of a grid costs, in the week as it was."""
    rules = [Outage(deaths, M, probe) for deaths in (5, 20) for probe in (5 * S, 30 * S)]
    ways = [Ladder(tries, 5 * S, 2.0, M, 0.15) for tries in (3, 4, 6)]
    return min(cost(lives(week, seed, way, rule), week.prices) for way in ways for rule in rules)


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
    return Evidence(
        tuple(row for part in parts for row in part.tries),
        tuple(row for part in parts for row in part.episodes),
        tuple(row for part in parts for row in part.peaks),
    )
