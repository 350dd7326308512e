"""What a policy asks besides reason and attempts: conditions, the clock, the breaker; tables, then laws."""
# ruff: noqa: FBT001 - tables and laws pass flags

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.breaker import CLOSED, Breaker, Verdict
from dlx_router.core.condition import Condition, ConditionFailed, View, any_holds, view
from dlx_router.core.decision import decide
from dlx_router.core.letter import Arrival, Declared, Letter
from dlx_router.core.limits import Outage
from dlx_router.core.names import RUNGS
from dlx_router.core.outcome import DeadLetter, Decision, Discard, Hold, Park, Retry
from dlx_router.core.words import Cause
from tests.core.core_samples import NOW, death, effective, law, letter

OUTAGE = Outage(deaths=5, within_ms=1000, probe_ms=2000)
OPEN = Verdict(Breaker.OPEN, 7000)
ONE_DAY = 86_400_000


def condition(text: str, holds: Callable[[View], bool]) -> Condition:
    return Condition(text, holds)


def broken(text: str) -> Condition:
    def holds(_seen: View) -> bool:
        raise ConditionFailed("no number")

    return Condition(text, holds)


YES, NO, BROKEN = condition("yes", lambda _: True), condition("no", lambda _: False), broken("size > x")
BROKEN_TOO = broken("age > y")
TOLD, TOLD_TOO = "size > x: no number", "age > y: no number"


class Asked:
    """A breaker that says one thing and counts how often it is asked."""

    def __init__(self, verdict: Verdict = OPEN) -> None:
        self.verdict, self.times = verdict, 0

    def __call__(self) -> Verdict:
        self.times += 1
        return self.verdict


def decided(died: Letter | None = None, breaker: Callable[[], Verdict] = lambda: CLOSED, **definition: Any) -> Decision:
    died = died or letter(first_death_ms=NOW)
    return decide(died, effective(died.reason, **definition), NOW, 0.0, breaker)


def back(**fields: Any) -> Letter:
    """A letter back from a hold, without a new death."""
    plain: dict[str, Any] = {
        "state": "held",
        "cause": Cause.OUTAGE,
        "arrival": Arrival.RELEASE,
        "fresh": (),
        "base_attempts": 2,
        "tries": 4,
        "first_death_ms": NOW,
    }
    return letter(**(plain | fields))


# Conditions


@pytest.mark.parametrize(
    ("never", "only", "again", "failed"),
    [
        pytest.param((NO,), (), True, (), id="never-retry says nothing"),
        pytest.param((NO, YES), (), False, (), id="one of never-retry is enough"),
        pytest.param((), (NO, YES), True, (), id="one of retry-only is enough"),
        pytest.param((), (NO,), False, (), id="none of retry-only"),
        pytest.param((YES,), (YES,), False, (), id="never-retry beats retry-only"),
        pytest.param((BROKEN,), (), True, (TOLD,), id="a failed never-retry is false"),
        pytest.param((), (BROKEN,), False, (TOLD,), id="a failed retry-only is false"),
        pytest.param((BROKEN, YES), (BROKEN_TOO,), False, (TOLD,), id="what is not asked does not fail"),
        pytest.param((YES, BROKEN), (), False, (), id="nothing is asked after the first that holds"),
        pytest.param((BROKEN,), (BROKEN_TOO, YES), True, (TOLD, TOLD_TOO), id="failures of both are told, in order"),
    ],
)
def test_conditions_say_whether_a_letter_is_tried_again(
    never: tuple[Condition, ...], only: tuple[Condition, ...], again: bool, failed: tuple[str, ...]
) -> None:
    decision = decided(never_retry=never, retry_only=only)
    assert decision.failed == failed
    if again:
        assert decision == Retry(0, NOW, 1, failed=failed)
    else:
        assert decision == DeadLetter("", ("DLQ.work",), 1, Cause.NEVER_RETRY, "DLQ.work", failed=failed)


def test_conditions_see_the_attempts_with_the_new_deaths_and_the_age_of_the_letter() -> None:
    seen: list[View] = []
    died = letter(base_attempts=2, history=(death(times=3),), first_death_ms=NOW - 61_999)

    def look(shown: View) -> bool:
        seen.append(shown)
        return False

    assert isinstance(decided(died, never_retry=(condition("seen", look),)), Retry)
    assert [(shown.variables["attempts"], shown.variables["age"]) for shown in seen] == [(5, 61)]


@pytest.mark.parametrize(
    ("one", "definition", "decision"),
    [
        pytest.param(
            letter(history=(death(reason="expired"),)),
            {"discard": True},
            Discard(0),
            id="a reason that is discarded at once",
        ),
        pytest.param(
            letter(history=(death(reason="expired"),)),
            {},
            DeadLetter("", ("DLQ.work",), 0, Cause.NEVER_RETRY, "DLQ.work"),
            id="a reason that is not tried again",
        ),
        pytest.param(letter(known_before=True, reason="delivery_limit"), {}, Park(Cause.CYCLE), id="a cycle"),
        pytest.param(letter(state="dead", fresh=()), {}, Park(Cause.LOOP), id="a loop"),
        pytest.param(
            letter(declared=Declared(never=True)),
            {},
            DeadLetter("", ("DLQ.work",), 1, Cause.NEVER_RETRY, "DLQ.work"),
            id="the consumer said never",
        ),
    ],
)
def test_who_would_not_be_tried_again_anyway_is_asked_nothing(
    one: Letter, definition: dict[str, Any], decision: Decision
) -> None:
    asked = Asked()
    keys: dict[str, Any] = {"never_retry": (BROKEN,), "outage": OUTAGE, "redelivery_max_elapsed": 0}
    assert decided(one, asked, **keys, **definition) == decision
    assert asked.times == 0


@law
@given(st.lists(st.sampled_from([YES, NO, BROKEN]), max_size=6))
def test_any_holds_is_the_plain_or_with_failures_as_false(conditions: list[Condition]) -> None:
    answer = any_holds(conditions, view(letter(), 1, NOW))
    first = conditions.index(YES) if YES in conditions else len(conditions)
    assert answer.holds is (YES in conditions)
    assert answer.failed == (TOLD,) * conditions[:first].count(BROKEN)


# What a condition sees


# The clock


@pytest.mark.parametrize(
    ("first", "since", "delay", "again"),
    [
        (NOW - 9_000, 0, 1_000, True),
        (NOW - 9_001, 0, 1_000, False),
        (NOW - 10_000, 0, 0, True),
        (NOW - 10_001, 0, 0, False),
        (NOW - ONE_DAY, NOW - 9_000, 1_000, True),
        (NOW - ONE_DAY, NOW - 9_001, 1_000, False),
    ],
)
def test_no_retry_is_due_after_the_time_of_a_letter_is_over_and_a_redrive_starts_it_anew(
    first: int, since: int, delay: int, again: bool
) -> None:
    died = letter(first_death_ms=first, since_ms=since)
    decision = decided(died, redelivery_max_elapsed=10_000, redelivery_delay=delay, max_redelivery_delay=delay)
    if again:
        assert decision == Retry(delay, NOW + delay, 1)
    else:
        assert decision == DeadLetter("", ("DLQ.work",), 1, Cause.MAX_ELAPSED, "DLQ.work")


@pytest.mark.parametrize(
    ("redrives", "limit", "parked"), [(0, 0, False), (1, 2, False), (2, 2, True), (3, 2, True), (9, -1, False)]
)
@pytest.mark.parametrize(
    ("definition", "cause"),
    [({"never_retry": (YES,)}, Cause.NEVER_RETRY), ({"redelivery_max_elapsed": 5000}, Cause.MAX_ELAPSED)],
)
def test_who_was_redriven_too_often_is_parked_whatever_ended_the_retries(
    definition: dict[str, Any], cause: Cause, redrives: int, limit: int, parked: bool
) -> None:
    died = letter(redrives=redrives, first_death_ms=NOW - 5001)
    assert decided(died, max_redrives=limit, **definition).cause is (Cause.REDRIVE_EXHAUSTED if parked else cause)


def test_where_the_target_is_impossible_that_is_the_cause_whatever_ended_the_retries() -> None:
    target: dict[str, Any] = {"dead_letter_exchange": "dlx", "dead_letter_routing_key": "k" * 256}
    assert decided(never_retry=(YES,), **target) == Park(Cause.ROUTING_KEY_TOO_LONG, 1, "dlx")


# The breaker


@pytest.mark.parametrize(
    ("one", "tries", "attempts"),
    [
        pytest.param(letter(base_attempts=2), 1, 2, id="a first hold, and the death does not count"),
        pytest.param(back(), 5, 2, id="back from an outage, and again"),
        pytest.param(back(cause=Cause.UNROUTABLE), 1, 2, id="it was held for something else"),
        pytest.param(back(fresh=(death(),)), 1, 2, id="it was tried since"),
        pytest.param(back(state="retrying"), 1, 2, id="it was not held"),
        pytest.param(letter(base_attempts=9), 1, 9, id="its last attempt is not used either"),
    ],
)
def test_while_the_breaker_is_open_letters_wait_and_use_no_attempt(one: Letter, tries: int, attempts: int) -> None:
    asked = Asked()
    assert decided(one, asked, outage=OUTAGE) == Hold(Cause.OUTAGE, NOW + 7000, tries, attempts)
    assert asked.times == 1


def test_the_breaker_is_not_asked_of_a_letter_that_neither_died_nor_is_tried_again() -> None:
    asked = Asked()
    spent = decided(back(base_attempts=10), asked, outage=OUTAGE)
    assert spent == DeadLetter("", ("DLQ.work",), 10, Cause.ATTEMPTS_SPENT, "DLQ.work")
    assert asked.times == 0


def test_the_breaker_is_not_asked_of_a_policy_without_outage_nor_of_a_letter_that_may_not_be_retried() -> None:
    asked = Asked()
    assert decided(None, asked, retry_only=(YES,)) == Retry(0, NOW, 1)
    assert decided(None, asked, outage=OUTAGE, never_retry=(YES,)).cause is Cause.NEVER_RETRY
    assert asked.times == 0


@pytest.mark.parametrize(("wait", "held"), [(0, 100), (50, 100), (100, 100), (101, 101)])
def test_no_hold_is_shorter_than_the_lowest_rung_or_it_would_go_straight_back_into_the_outage(
    wait: int, held: int
) -> None:
    decision = decided(None, Asked(Verdict(Breaker.OPEN, wait)), outage=OUTAGE)
    assert decision == Hold(Cause.OUTAGE, NOW + held, 1, 0)


@law
@given(
    age=st.integers(0, 3 * ONE_DAY),
    limit=st.none() | st.integers(0, 2 * ONE_DAY),
    delay=st.integers(0, ONE_DAY),
    attempts=st.integers(0, 12),
    never=st.sampled_from([(), (YES,), (NO,), (BROKEN,)]),
    wait=st.none() | st.integers(0, 300_000),
)
def test_further_questions_only_ever_restrain_and_never_forgive_an_attempt(
    age: int, limit: int | None, delay: int, attempts: int, never: tuple[Condition, ...], wait: int | None
) -> None:
    died = letter(first_death_ms=NOW - age, base_attempts=attempts)
    asked = Asked(Verdict(Breaker.CLOSED if wait is None else Breaker.OPEN, wait))
    keys: dict[str, Any] = {} if limit is None else {"redelivery_max_elapsed": limit}
    plain = decided(died, redelivery_delay=delay)
    decision = decided(died, asked, redelivery_delay=delay, outage=OUTAGE, never_retry=never, **keys)
    assert asked.times <= 1
    if isinstance(decision, Retry):
        assert replace(decision, failed=()) == plain
        assert wait is None
        assert never != (YES,)
        assert limit is None or decision.due_ms <= died.first_death_ms + limit
    elif isinstance(decision, Hold):
        assert (decision.attempts, decision.due_ms) == (attempts, NOW + max(wait or 0, RUNGS[0]))
    else:
        assert decision.attempts == attempts + 1
