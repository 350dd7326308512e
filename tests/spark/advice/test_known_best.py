"""On weeks whose best policy is known advice finds one that costs hardly more; on noise it advises nothing."""

from dataclasses import replace
from functools import cache

import pytest

from dlx_router.spark.advice import texts
from dlx_router.spark.advice.cells import InForce
from dlx_router.spark.advice.cost import Ladder
from dlx_router.spark.advice.evidence import Evidence
from dlx_router.spark.advice.judge import Advice, Known, QueueAdvice, advise, changing
from tests.support.thoroughness import THOROUGH
from tools.pipeline import known_best as weeks
from tools.pipeline.known_best import CURIOUS, WEEKS, Cause, M, S, Week

SEEDS = range(20)
MORE = SEEDS[2:] if THOROUGH > 1 else SEEDS[2:9]
WITHIN = 1.1


@cache
def advised(week: Week, seed: int) -> QueueAdvice:
    evidence = weeks.evidence(week, weeks.lives(week, seed))
    [advice] = advise(evidence, lambda _: InForce(week.now), week.prices)
    return advice


def always(now: InForce) -> Known:
    """The same in force for every key."""
    return lambda _: now


def part(advice: QueueAdvice) -> Advice:
    [own] = advice.parts
    return own


def cost_of(week: Week, advice: QueueAdvice) -> float:
    """What the advice costs in truth."""
    own = part(advice)
    return weeks.expected(week, own.advised or week.now, without=own.conditions)


@pytest.mark.parametrize("week", WEEKS, ids=lambda week: week.name)
@pytest.mark.parametrize("seeds", [SEEDS[:2], pytest.param(MORE, marks=pytest.mark.slow)], ids=["two", "more"])
def test_the_advice_costs_at_most_a_tenth_more_than_the_best(week: Week, seeds: range) -> None:
    best = weeks.best(week)
    costs = {seed: cost_of(week, advised(week, seed)) for seed in seeds}
    assert {seed: cost for seed, cost in costs.items() if cost > WITHIN * best} == {}


@pytest.mark.parametrize("seed", [*SEEDS[:6], *(pytest.param(seed, marks=pytest.mark.slow) for seed in SEEDS[6:])])
def test_noise_is_left_alone(seed: int) -> None:
    advice = advise(weeks.noise(seed))
    assert len(advice) == 25
    assert changing(advice) == []


@pytest.mark.parametrize(
    ("name", "verdict"),
    [
        ("poison", texts.NEVER),
        ("locks-and-poison", texts.FEWER),
        ("slow", texts.LONGER),
        ("flaky-in-vain", texts.FEWER),
    ],
)
def test_each_cause_has_its_verdict(name: str, verdict: str) -> None:
    week = next(candidate for candidate in WEEKS if candidate.name == name)
    assert part(advised(week, 0)).verdict == verdict


@pytest.mark.parametrize("week", WEEKS, ids=lambda week: week.name)
def test_advice_that_was_followed_is_not_taken_back(week: Week) -> None:
    """The next week, under what was advised: what is then advised costs no more, and mostly it is to keep that."""
    kept = 0
    for seed in SEEDS[:5]:
        first = advised(week, seed)
        ladder, conditions = part(first).advised or week.now, part(first).conditions
        then = replace(week, now=ladder)
        lives = [
            life
            for life in weeks.lives(then, seed + 100)
            if not {*conditions}.intersection(life.letter.traits) and ladder.attempts > 1
        ]
        now = InForce(ladder, conditions=conditions)
        for advice in advise(weeks.evidence(then, lives), always(now), week.prices):
            again = part(advice)
            kept += again.verdict == texts.KEEP
            asked = (*conditions, *again.conditions)
            cost = weeks.expected(week, again.advised or ladder, without=asked)
            assert cost <= 1.05 * weeks.expected(week, ladder, without=conditions)
    assert kept >= 3 or week.name == "poison"  # of which nothing is tried any more


def test_what_a_condition_can_tell_is_not_tried() -> None:
    week = next(candidate for candidate in WEEKS if candidate.name == "tellable")
    assert part(advised(week, 0)).conditions == (weeks.OLD,)


def test_one_incident_changes_nothing() -> None:
    """Everything failed for forty minutes: its letters would say that no retry ever helps."""
    week = Week("burst", (Cause(1.0, weeks.never),), Ladder(4, S, 5.0, M))
    evidence = weeks.evidence(week, weeks.lives(week, 0))
    [advice] = advise(replace(evidence, busiest={week.key: 900}), always(InForce(week.now)))
    assert part(advice).verdict == texts.KEEP
    assert "900 of 1500 letters failed first within one hour" in part(advice).reasons[0]


@pytest.mark.slow
def test_what_the_data_cannot_tell_is_kept_and_said() -> None:
    """Waits that never overlap: whether the second delivery helped or the time until it, nobody knows."""
    week = Week("flaky", (Cause(1.0, weeks.at_once, 0.6),), CURIOUS)
    parts = [part(advised(week, seed)) for seed in SEEDS]
    assert {entry.verdict for entry in parts} == {texts.KEEP}
    assert any("one more may pay, but nobody tried" in sentence for sentence in parts[0].unknown)


def test_fixed_waits_tell_neither() -> None:
    week = Week("flaky", (Cause(1.0, weeks.at_once, 0.6),), Ladder(4, S, 5.0, M))
    own = part(advised(week, 0))
    assert own.verdict == texts.KEEP
    assert any("redelivery-collision-avoidance-factor: 0.5" in sentence for sentence in own.unknown)


@pytest.mark.parametrize("letters", [0, 1, 29])
def test_few_letters_prove_nothing(letters: int) -> None:
    week = Week("few", (Cause(1.0, weeks.never),), CURIOUS, letters=letters)
    advice = advise(weeks.evidence(week, weeks.lives(week, 0)), lambda _: InForce(week.now))
    assert changing(advice) == []


def test_nothing_known_nothing_said() -> None:
    assert advise(Evidence()) == []
