"""On weeks whose best policy is known advice finds one that costs hardly more; on noise it advises nothing."""

from dataclasses import replace
from functools import cache, partial

import pytest

from dlx_router.core.breaker import QueueBreaker
from dlx_router.core.decision import decide, died
from dlx_router.core.letter import Arrival, Death, First, Letter
from dlx_router.core.limits import Outage
from dlx_router.core.outcome import Hold, Retry
from dlx_router.core.policy import Effective
from dlx_router.spark.advice import texts
from dlx_router.spark.advice.cells import InForce
from dlx_router.spark.advice.cost import Ladder
from dlx_router.spark.advice.evidence import Evidence
from dlx_router.spark.advice.judge import Advice, Known, QueueAdvice, advise, changing
from dlx_router.spark.backtest.replay import judge_of
from tests.support.thoroughness import THOROUGH
from tools.pipeline import known_best as weeks
from tools.pipeline.known_best import CURIOUS, WEEKS, Cause, H, M, S, Week

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


def cost_of(week: Week, seed: int, advice: QueueAdvice) -> float:
    """What the advice costs in truth: calculated, or with a breaker as it would have happened."""
    own = part(advice)
    ladder = own.advised or week.now
    if advice.outage is not None:
        return weeks.cost(weeks.lives(week, seed, ladder, advice.outage), week.prices)
    return weeks.expected(week, ladder, without=own.conditions)


@pytest.mark.parametrize("week", WEEKS, ids=lambda week: week.name)
@pytest.mark.parametrize("seeds", [SEEDS[:2], pytest.param(MORE, marks=pytest.mark.slow)], ids=["two", "more"])
def test_the_advice_costs_at_most_a_tenth_more_than_the_best(week: Week, seeds: range) -> None:
    best = weeks.best(week)
    far = {}
    for seed in seeds:
        least = min(best, weeks.best_held(week, seed)) if any(cause.ends_for_all for cause in week.causes) else best
        cost = cost_of(week, seed, advised(week, seed))
        if cost > WITHIN * least:
            far[seed] = (cost, least)
    assert far == {}


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
            for life in weeks.lives(then, seed + 100, None, first.outage)
            if not {*conditions}.intersection(life.letter.traits) and ladder.attempts > 1
        ]
        now = InForce(ladder, outage=first.outage, conditions=conditions)
        for advice in advise(weeks.evidence(then, lives), always(now), week.prices):
            again = part(advice)
            kept += again.verdict == texts.KEEP
            asked = (*conditions, *again.conditions)
            cost = weeks.expected(week, again.advised or ladder, without=asked)
            assert advice.outage is None
            assert cost <= 1.05 * weeks.expected(week, ladder, without=conditions)
    assert kept >= 3 or week.name == "poison"  # of which nothing is tried any more


def test_what_a_condition_can_tell_is_not_tried() -> None:
    week = next(candidate for candidate in WEEKS if candidate.name == "tellable")
    assert part(advised(week, 0)).conditions == (weeks.OLD,)


def test_an_outage_is_held_by_a_breaker_that_its_week_would_have_opened() -> None:
    week = next(candidate for candidate in WEEKS if candidate.name == "outage")
    advice = advised(week, 0)
    assert advice.outage is not None
    assert part(advice).saved.low > 0.9 * week.letters
    held = weeks.lives(week, 0, part(advice).advised or week.now, advice.outage)
    assert sum(life.saved for life in held) > 0.99 * week.letters


def test_where_a_breaker_is_set_already_an_outage_is_waited_for() -> None:
    week = next(candidate for candidate in WEEKS if candidate.name == "outage")
    evidence = weeks.evidence(week, weeks.lives(week, 1))
    [advice] = advise(evidence, lambda _: InForce(week.now, outage=Outage(50, M, 10 * S)), week.prices)
    assert advice.outage is None
    own = part(advice)
    assert (own.verdict, own.advised is None) == (texts.LONGER, False)
    assert weeks.expected(week, own.advised or week.now) < WITHIN * weeks.best(week)


@pytest.mark.slow
def test_a_burst_of_bad_messages_is_no_outage() -> None:
    bad = Cause(1.0, weeks.never, 1.0, 10 * H, 10 * H + 20 * M)
    flaky = Cause(0.1, weeks.at_once, 0.6, 10 * H, 10 * H + 20 * M)
    for causes in ((bad,), (replace(bad, share=0.9), flaky)):
        week = Week("burst", causes, Ladder(4, S, 5.0, M))
        for seed in SEEDS:
            advice = advised(week, seed)
            assert advice.outage is None
            assert part(advice).verdict in {texts.NEVER, texts.FEWER, texts.KEEP}


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


@pytest.mark.parametrize("rule", [None, Outage(10, M, 5 * S)], ids=["plain", "held"])
def test_the_weeks_are_as_the_router_would_have_decided(rule: Outage | None) -> None:
    """Each step of a week, decided again by `decide()` and a breaker of its own."""
    week = replace(next(candidate for candidate in WEEKS if candidate.name == "outage"), letters=300)
    ladder = Ladder(4, S, 5.0, M)
    policy = replace(plain_policy(), max_attempts=4, delay_ms=S, multiplier=5.0, cap_ms=M, outage=rule)
    breaker = QueueBreaker(rule or Outage(1, 1, M))
    steps = {number: life.deliveries for number, life in enumerate(weeks.lives(week, 0, ladder, rule))}
    letters = weeks.letters(week, 0)
    todo = [(letter.first_ms, number, 0, True, 0) for number, letter in enumerate(letters)]
    made = dict.fromkeys(steps, 0)
    while todo:
        todo.sort()
        now, number, base, fresh, tries = todo.pop(0)
        letter = letter_of(number, base, tries, fresh=fresh)
        deaths = died(letter, policy)
        ask = partial(breaker.ask, letter.id, now, deaths=deaths, tries=tries)
        match decide(letter, policy, now, 0.0, ask):
            case Hold(due_ms=due, tries=held):
                todo.append((due, number, base, False, held))
            case Retry(due_ms=due, attempts=attempts):
                step = steps[number][made[number]]
                assert step.at_ms == due - letters[number].first_ms
                made[number] += 1
                if not step.good:
                    todo.append((due + weeks.HANDLING_MS, number, attempts, True, 0))
            case _:
                assert made[number] == len(steps[number])
    assert made == {number: len(some) for number, some in steps.items()}


def plain_policy() -> Effective:
    files = (("p.yaml", b"version: 1\npolicies: [{name: all, match: '#'}]"),)
    effective = judge_of(files, "dlx-router").effective("/", "q", "rejected")
    assert effective is not None
    return effective


def letter_of(number: int, base_attempts: int, tries: int, *, fresh: bool) -> Letter:
    death = Death("q", "rejected", 1, 0, "", ("q",))
    return Letter(
        id=str(number), vhost="/", source="dlx-router.inbox", arrival=Arrival.INBOX if fresh else Arrival.RELEASE,
        exchange="", routing_key="q", history=(death,), first=First("q", "", ("q",), "rejected"), failed_queue="q",
        reason="rejected", fresh=(death,) if fresh else (), base_attempts=base_attempts, redrives=0, tries=tries,
        state=None if fresh else "held", first_death_ms=0, last_death_ms=0, cause=None if fresh else "outage",
    )  # fmt: skip


@pytest.mark.parametrize("letters", [0, 1, 29])
def test_few_letters_prove_nothing(letters: int) -> None:
    week = Week("few", (Cause(1.0, weeks.never),), CURIOUS, letters=letters)
    advice = advise(weeks.evidence(week, weeks.lives(week, 0)), lambda _: InForce(week.now))
    assert changing(advice) == []


def test_nothing_known_nothing_said() -> None:
    assert advise(Evidence()) == []
