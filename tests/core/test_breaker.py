"""The breaker: when it opens, who may try, when it closes. No clock: each line says what time it is."""

from typing import Final

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.breaker import LONGEST_WAIT_MS, MAX_TURNS, RAMP_MS, Breaker, Breakers, QueueBreaker
from dlx_router.core.limits import Outage
from tests.core.core_samples import law

RULE: Final = Outage(deaths=3, within_ms=10_000, probe_ms=5_000)


def opened(at_ms: int = 0) -> QueueBreaker:
    breaker = QueueBreaker(RULE)
    for number in range(3):
        breaker.ask(f"first-{number}", at_ms, deaths=1, tries=0)
    assert breaker.state(at_ms) is Breaker.OPEN
    return breaker


def test_so_many_deaths_in_that_time_open_it_and_the_last_of_them_waits() -> None:
    breaker = QueueBreaker(RULE)
    assert [breaker.ask(name, 0, deaths=1, tries=0).wait_ms for name in "abc"] == [None, None, 5_000]


def test_holds_double_up_to_five_minutes_and_each_probe_has_a_letter_of_its_own() -> None:
    breaker = opened()
    waits = [breaker.ask(f"l-{number}", 5_000, deaths=0, tries=2).wait_ms for number in range(6)]
    assert waits == [None, 5_000, 10_000, 15_000, 20_000, 20_000]
    assert breaker.ask("old", 5_000, deaths=0, tries=60).wait_ms == 25_000
    many = [breaker.ask(f"o-{number}", 5_000, deaths=0, tries=60).wait_ms for number in range(100)]
    assert max(wait or 0 for wait in many) == LONGEST_WAIT_MS


def test_of_so_many_letters_only_is_known_whose_turn_it_is() -> None:
    breaker = QueueBreaker(Outage(deaths=3, within_ms=10_000, probe_ms=100))
    breaker.ask("first", 0, deaths=3, tries=0)
    waits = [breaker.ask(f"l-{number}", 0, deaths=0, tries=30).wait_ms for number in range(MAX_TURNS + 100)]
    assert len(breaker._turns) == MAX_TURNS
    assert None not in waits
    assert len({*waits}) == len(waits), "each has a time of its own all the same"


def test_one_probe_at_a_time_and_never_a_letter_that_has_just_died() -> None:
    breaker = opened()
    assert breaker.ask("fresh", 5_000, deaths=1, tries=0).state is Breaker.OPEN
    assert breaker.ask("p", 5_000, deaths=0, tries=1) == (Breaker.PROBE, None)
    assert breaker.ask("q", 5_001, deaths=0, tries=1).state is Breaker.OPEN


def test_a_probe_that_dies_is_followed_by_another_letter_after_the_pause() -> None:
    breaker = opened()
    breaker.ask("p", 5_000, deaths=0, tries=1)
    breaker.ask("q", 5_000, deaths=0, tries=1)
    assert breaker.ask("p", 5_100, deaths=1, tries=0).wait_ms
    assert breaker.ask("p", 10_000, deaths=0, tries=1).state is Breaker.OPEN, "the other's turn"
    assert breaker.ask("q", 10_000, deaths=0, tries=1).state is Breaker.PROBE


def test_a_probe_that_does_not_come_back_lets_the_rest_go_at_a_ramp() -> None:
    breaker = opened()
    breaker.ask("p", 5_000, deaths=0, tries=1)
    gone: list[int] = []
    waiting = [f"l-{number}" for number in range(40)]
    for at in range(10_000, 10_000 + RAMP_MS, 1_000):
        let = [name for name in waiting if breaker.ask(name, at, deaths=0, tries=1).wait_ms is None]
        waiting = [name for name in waiting if name not in let]
        gone.append(len(let))
    assert gone[:5] == [1, 2, 4, 8, 16]
    assert not waiting
    assert breaker.state(10_000 + RAMP_MS) is Breaker.CLOSED
    assert breaker.ask("x", 30_000, deaths=1, tries=0) == (Breaker.CLOSED, None)


def test_what_is_let_go_and_dies_opens_it_again_but_one_bad_letter_does_not() -> None:
    breaker = opened()
    breaker.ask("p", 5_000, deaths=0, tries=1)
    let = [name for at in (10_000, 11_000, 12_000) for name in map(str, range(8)) if not breaker.ask(
        f"{at}-{name}", at, deaths=0, tries=1).wait_ms]  # fmt: skip
    assert len(let) == 7
    assert breaker.ask("bad", 12_000, deaths=1, tries=0) == (Breaker.HALF_OPEN, None)
    again = opened()
    again.ask("p", 5_000, deaths=0, tries=1)
    some = [f"{at}-{name}" for at in (10_000, 11_000) for name in range(8)]
    some = [name for name in some if not again.ask(name, int(name[:5]), deaths=0, tries=1).wait_ms]
    states = [again.ask(name, 11_500, deaths=1, tries=0).state for name in some]
    assert states[-1] is Breaker.OPEN


def test_a_probe_behind_others_that_still_die_has_not_survived() -> None:
    breaker = opened()
    breaker.ask("p", 5_000, deaths=0, tries=1)
    for number in range(20):
        breaker.ask(f"queued-{number}", 5_000 + number * 200, deaths=1, tries=0)
    assert breaker.state(10_000) is Breaker.OPEN


def test_another_rule_is_another_breaker_and_queues_that_are_well_are_forgotten() -> None:
    some = Breakers(most=2)
    first = some.of("a", RULE, 0)
    assert some.of("a", RULE, 0) is first
    assert some.of("a", Outage(9, 1, 1), 0) is not first
    for _ in range(3):
        some.of("bad", RULE, 0).ask("x", 0, deaths=1, tries=0)
    some.of("c", RULE, 0)
    assert some.states(0) == {"bad": Breaker.OPEN, "c": Breaker.CLOSED}


def test_two_rules_of_one_queue_have_a_breaker_each_and_the_worst_is_the_state_of_the_queue() -> None:
    some, patient = Breakers(), Outage(deaths=90, within_ms=10_000, probe_ms=5_000)
    states = []
    for number in range(100):
        for rule in (RULE, patient):
            some.of("q", rule, number).ask(f"{number} by {rule.deaths}", number, deaths=1, tries=0)
        states.append(tuple(some.of("q", rule, number).state(number) for rule in (RULE, patient)))
        assert some.states(number) == {"q": max(states[-1], key=Breaker.badness)}
    assert states[1] == (Breaker.CLOSED, Breaker.CLOSED)
    assert states[2] == states[88] == (Breaker.OPEN, Breaker.CLOSED)
    assert states[89] == (Breaker.OPEN, Breaker.OPEN)


def test_a_breaker_that_nobody_asked_for_longer_than_letters_are_held_is_closed() -> None:
    """Its rule is in force no more, or all letters that it held were sent elsewhere."""
    breaker = opened()
    assert breaker.state(2 * LONGEST_WAIT_MS) is Breaker.OPEN
    assert breaker.state(2 * LONGEST_WAIT_MS + 1) is Breaker.CLOSED
    again = opened()
    for at in range(0, 4 * LONGEST_WAIT_MS, LONGEST_WAIT_MS):
        assert again.ask("fresh", at, deaths=1, tries=0).state is Breaker.OPEN
    slow = QueueBreaker(Outage(deaths=1, within_ms=1000, probe_ms=10 * LONGEST_WAIT_MS))
    assert slow.ask("a", 0, deaths=1, tries=0) == (Breaker.OPEN, 10 * LONGEST_WAIT_MS)
    assert slow.state(20 * LONGEST_WAIT_MS) is Breaker.OPEN


moves = st.lists(st.tuples(st.sampled_from("abcdef"), st.integers(0, 20_000), st.booleans(), st.integers(0, 9)))


@law
@given(moves)
def test_whatever_happens_waits_are_bounded_and_probes_are_apart(steps: list[tuple[str, int, bool, int]]) -> None:
    breaker, now, probes = QueueBreaker(RULE), 0, [-RULE.probe_ms]
    for name, later, died, tries in steps:
        now += later
        verdict = breaker.ask(name, now, deaths=int(died), tries=tries)
        assert verdict.wait_ms is None or 0 < verdict.wait_ms <= LONGEST_WAIT_MS
        assert not died or verdict.state is not Breaker.PROBE
        if verdict.state is Breaker.PROBE:
            assert now - probes[-1] >= RULE.probe_ms * 0.9
            probes.append(now)
