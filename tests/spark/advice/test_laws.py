"""Laws of advice over random evidence: order means nothing, more evidence is surer, lint takes what is proposed."""

from random import Random

import numpy as np
import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from dlx_router.spark.advice import texts
from dlx_router.spark.advice.cells import InForce
from dlx_router.spark.advice.cost import Ladder, Prices, schedule
from dlx_router.spark.advice.evidence import EDGES_MS, Z_CHOSEN, Evidence, Key, Tries, bucket
from dlx_router.spark.advice.judge import Advice, QueueAdvice, advise, changing
from dlx_router.spark.advice.proposal import known_of, propose
from dlx_router.spark.advice.survival import held, successes, time_heals, tries_help
from dlx_router.spark.backtest.replay import judge_of
from dlx_router.spark.intervals import wilson
from tools.pipeline import known_best as weeks
from tools.pipeline.known_best import WEEKS

MANY = settings(max_examples=60, deadline=None)
QUEUES = st.sampled_from(["orders.new", "a b", 'odd"name\\', "#", "é", "true", "x" * 250])
REASONS = st.sampled_from(["rejected", "delivery_limit", "application:invalid", "application:a b", "application"])
TRAITS = st.sampled_from([(), ('routing_key == "a"',), ('routing_key == "b\\"\\\\"', 'exchange == ""')])


@st.composite
def chains(draw: st.DrawFn, key: Key) -> list[Tries]:
    """Letters of one kind: so many of them get each attempt, a share of them recovers."""
    letters, at, rows = draw(st.integers(0, 2000)), 0, []
    traits = draw(TRAITS)
    for attempts in range(1, draw(st.integers(1, 7)) + 1):
        if not letters:
            break
        since, at = at, min(at + draw(st.integers(1, 8)), len(EDGES_MS))
        good = round(letters * draw(st.sampled_from([0.0, 0.0, 0.01, 0.3, 0.9, 1.0])))
        gone = letters - good if draw(st.booleans()) else 0
        wait = letters * EDGES_MS[at - 1]
        rows.append(Tries(key, attempts, since, at, good, letters - good, gone, wait, traits))
        letters -= good + gone
    if rows:
        rows[-1] = rows[-1]._replace(ended=rows[-1].failed)
    return rows


@st.composite
def evidences(draw: st.DrawFn) -> Evidence:
    """Of some queues."""
    keys = draw(st.lists(st.builds(Key, st.just("/"), QUEUES, REASONS), min_size=1, max_size=3, unique=True))
    rows = [row for key in keys for _ in range(draw(st.integers(1, 3))) for row in draw(chains(key))]
    return Evidence(tuple(rows), {key: draw(st.sampled_from([0, 20, 5000])) for key in keys})


@pytest.mark.slow
@MANY
@given(evidences(), st.randoms(use_true_random=False))
def test_equal_evidence_gives_equal_advice_in_any_order(evidence: Evidence, chance: Random) -> None:
    tries = [*evidence.tries]
    chance.shuffle(tries)
    split = [half for row in tries for half in (row._replace(recovered=0, failed=0, ended=0, wait_ms=0), row)]
    again = Evidence(tuple(split), evidence.busiest)
    assert advise(again) == advise(evidence)


@given(st.integers(0, 500), st.integers(1, 500), st.integers(2, 50))
def test_more_of_the_same_evidence_never_widens_an_interval(good: int, bad: int, times: int) -> None:
    low, high = wilson(good, good + bad)
    surer_low, surer_high = wilson(times * good, times * (good + bad))
    assert low <= surer_low <= good / (good + bad) <= surer_high <= high


@pytest.mark.slow
@MANY
@given(evidences(), st.sampled_from([Prices(), Prices(0, 1), Prices(1, 1e6), Prices(0, 0)]))
def test_numbers_are_numbers_and_few_letters_change_nothing(evidence: Evidence, prices: Prices) -> None:
    for advice in advise(evidence, None, prices):
        for part in advice.parts:
            assert all(np.isfinite([*part.saved, *part.spared, *part.sooner_s, part.cost_now, part.cost_then]))
            assert part.saved.low <= part.saved.expected <= part.saved.high or part.verdict == texts.KEEP
            assert part.letters >= 30 or part.verdict == texts.KEEP
            same = part.advised is None and not part.conditions
            assert (part.verdict == texts.KEEP) is same


POLICIES = [
    """version: 1
policies: [{name: all, match: "#", definition: {max-delivery-attempts: 6, redelivery-delay: 1s}}]
""",
    """version: 1
policies:
  - {name: advised-orders.new, queue: orders.new, priority: 7, definition: {ordering: fifo}}
  - {name: all, match: "#"}
""",
    """version: 1
policies:
  - name: all
    match: "#"
    priority: 3
    inherit: false
    definition:
      redelivery-delay: 5s
      on: {rejected: {max-delivery-attempts: 8, never-retry: ["size > 3"]}, application: {redelivery-delay: 0}}
""",
    """version: 1
policies:
  - name: new
    queue: orders.new
    definition: {redelivery-delay: 3s, outage: {deaths: 50, within: 10s, probe-every: 5s}}
""",
    """version: 1
policies: [{name: odd, pattern: ".*", definition: {retry-on: [application], max-delivery-attempts: -1}}]
""",
]


@MANY
@given(evidences(), st.sampled_from(POLICIES))
def test_lint_takes_what_is_proposed_and_it_is_then_in_force(evidence: Evidence, written: str) -> None:
    files = (("now.yaml", written.encode()),)
    before = judge_of(files, "dlx-router")
    advice = advise(evidence, lambda key: known_of(before, key))
    proposal = propose(advice, files).headed(["head"])
    after = judge_of(proposal.beside(files), "dlx-router")  # raises where lint refuses
    document = yaml.safe_load(proposal.text)
    assert [policy["queue"] for policy in document["policies"]] == [entry.queue for entry in proposal.advice]
    assert len(proposal.advice) + len(proposal.left) == len(changing(advice))
    for entry in advice:
        for part in entry.parts:
            now, then = known_of(before, part.key), known_of(after, part.key)
            if entry not in proposal.advice:
                assert then == now
            elif part.verdict != texts.KEEP:
                assert is_in_force(part, then)


def is_in_force(part: Advice, then: InForce | None) -> bool:
    assert then is not None
    if part.verdict == texts.NEVER:
        return not then.retries
    ladder = part.advised or part.now
    waits = schedule(then.ladder).waits_ms.tolist() == schedule(ladder).waits_ms.tolist()
    return waits and {*part.conditions} <= {*then.conditions}


@pytest.mark.parametrize("queue", ["new\nline", "\ud800", "\U0001f4e6"])
def test_a_name_that_no_file_can_hold_is_left_out_and_said(queue: str) -> None:
    files = (("now.yaml", b"version: 1\npolicies: [{name: all, match: '#'}]"),)
    key = Key("/", queue, "rejected")
    part = Advice(key, texts.NEVER, Ladder(10), Ladder(1), letters=99)
    proposal = propose([QueueAdvice("/", queue, (part,))], files)
    judge_of(proposal.beside(files), "dlx-router")
    assert len(proposal.advice) + len(proposal.left) == 1


def test_buckets_hold_times_in_order() -> None:
    assert [bucket(ms) for ms in (-5, 0, 1, 249, 250, 353, 354, 500)] == [0, 0, 1, 1, 2, 2, 3, 4]
    assert bucket(10**15) == len(EDGES_MS)


# -- the readings ---------------------------------------------------------------------------------------------------


def fixed(*shares: tuple[int, int]) -> list[Tries]:
    """A ladder without jitter: (tried, recovered) of each attempt."""
    key, rows = Key("/", "q", "rejected"), []
    for attempts, (tried, good) in enumerate(shares, 1):
        left = shares[attempts][0] if attempts < len(shares) else 0
        rows.append(Tries(key, attempts, 5 * (attempts - 1), 5 * attempts, good, tried - good, tried - good - left))
    return rows


def test_with_fixed_waits_both_readings_say_what_was_seen() -> None:
    rows = fixed((1000, 500), (500, 100), (400, 0))
    waits = np.diff([0, *(EDGES_MS[5 * number] for number in (1, 2, 3))])[None, :].astype(float)
    assert held(rows) == (True, True)
    for read in (time_heals, tries_help):
        alive = read(rows, successes(rows)).alive(waits, 1)
        assert alive[0] == pytest.approx([1, 0.5, 0.4, 0.4], abs=0.002)
        few, many = (float(read(rows, successes(rows, end)).alive(waits, 1)[0, 1]) for end in (0, 1))
        assert (1 - few, 1 - many) == pytest.approx(wilson(500, 1000, Z_CHOSEN), abs=0.01)


def test_nothing_is_expected_of_what_nobody_tried() -> None:
    rows = fixed((1000, 500), (500, 100))
    late = np.array([[1e9, 1e9, 1e9]])
    assert time_heals(rows, successes(rows)).alive(late, 1)[0, 1:] == pytest.approx(0.4, abs=0.002)
    assert tries_help(rows, successes(rows)).alive(late, 1)[0, 2:] == pytest.approx(0.4, abs=0.002)


@pytest.mark.parametrize(
    ("name", "stands"), [("locks", (True, False)), ("slow", (True, False)), ("flaky", (False, True))]
)
def test_the_reading_that_is_wrong_is_refuted(name: str, stands: tuple[bool, bool]) -> None:
    week = next(candidate for candidate in WEEKS if candidate.name == name)
    for seed in range(5):
        assert held(weeks.evidence(week, weeks.lives(week, seed)).tries) == stands


def test_a_letter_that_costs_nothing_is_not_tried_and_a_dear_one_is() -> None:
    week = next(candidate for candidate in WEEKS if candidate.name == "locks-and-poison")
    evidence = weeks.evidence(week, weeks.lives(week, 0))
    attempts = []
    for price in (0.0, 1.0, 100.0, 1e6):
        [advice] = advise(evidence, lambda _: InForce(week.now), Prices(0.01, price))
        attempts.append((advice.parts[0].advised or week.now).attempts)
    assert attempts[0] == 1
    assert attempts == sorted(attempts)
