"""The short form of `make chaos`: two replicas, eight kinds of faults, one after another, and every letter accounted.

The books that judge it are tried first: a judge that sees nothing finds nothing lost.
"""

from pathlib import Path

import pytest

from tools import brokers
from tools.chaos.accounting import PARKING, WAYS, Books, body_of, way_of
from tools.chaos.faults import KINDS
from tools.chaos.run import Plan, run

KINDS_IN_CI = (
    "router killed",
    "connections cut",
    "line stalled",
    "target full (nack)",
    "replica killed",
    "broker killed",
    "consumer timeout",
    "clock jump",
)


def found(letters: int, *, skip: int = -1) -> Books:
    books = Books()
    for number in (books.next() for _ in range(letters)):
        books.confirm(number)
        for place in way_of(number).places:
            if number != skip:
                books.find(place, body_of(number), f"id-{number}", redelivered=False)
    return books


def test_books_where_every_letter_is_in_its_places_hold() -> None:
    verdict = found(40).judge(allowed=0)
    assert (verdict.letters, verdict.lost, verdict.duplicates, verdict.violations) == (40, 0, 0, [])


@pytest.mark.parametrize("number", range(len(WAYS)))
def test_a_letter_that_is_nowhere_is_lost(number: int) -> None:
    books = found(40, skip=number)
    verdict = books.judge(allowed=0)
    assert verdict.lost == books.missing() == len(way_of(number).places)
    assert str(number) in verdict.violations[0]


def test_a_letter_in_parking_is_not_lost() -> None:
    books = found(40, skip=3)
    books.find(PARKING, body_of(3), "id-3", redelivered=False)
    verdict = books.judge(allowed=0)
    assert (verdict.lost, verdict.parked, verdict.violations) == (0, 1, [])


def test_copies_are_counted_and_only_so_many_allowed() -> None:
    books = found(40)
    books.find(way_of(0).places[0], body_of(0), "id-0", redelivered=False)
    assert books.judge(allowed=1).violations == []
    assert books.judge(allowed=0).duplicates == 1
    assert "copies too many" in books.judge(allowed=0).violations[0]


@pytest.mark.parametrize(("finds", "said"), [(1, "1 of 1 messages that faults"), (2, ""), (3, ""), (4, "too many")])
def test_messages_of_faults_are_found_as_often_as_they_were_published_and_not_too_often(finds: int, said: str) -> None:
    books = found(40)
    body = books.hostile(times=2, most=3)
    for _ in range(finds):
        books.find(PARKING, body, "", redelivered=False)
    (violation,) = books.judge(allowed=0).violations or [""]
    assert said in violation if said else not violation


def test_what_the_auditor_is_given_twice_is_one_copy() -> None:
    books = found(40)
    books.find(way_of(0).places[0], body_of(0), "id-0", redelivered=True)
    verdict = books.judge(allowed=0)
    assert (verdict.duplicates, verdict.again, verdict.violations) == (0, 1, [])


def test_a_letter_that_the_broker_dead_lettered_twice_has_two_ids_and_is_no_copy_of_ours() -> None:
    books = found(40)
    books.find(way_of(0).places[0], body_of(0), "another", redelivered=False)
    verdict = books.judge(allowed=0)
    assert (verdict.duplicates, verdict.broker_twins, verdict.violations) == (0, 1, [])


@pytest.mark.parametrize(
    ("place", "body", "letter_id", "said"),
    [
        ("chaos.single.dead", body_of(0), "id-0", "should not be"),
        ("dlx-router.release", body_of(0), "id-0", "left in dlx-router.release"),
        ("dlx-router.quarantine", body_of(0), "id-0", "in quarantine"),
        ("chaos.swift.dead", b"swift-99", "x", "nobody published"),
        ("chaos.swift.dead", body_of(0), "", "without an id"),
        ("chaos.swift.dead", body_of(0), "id-1", "have one id"),
    ],
)
def test_what_is_wrong_is_said(place: str, body: bytes, letter_id: str, said: str) -> None:
    books = found(40)
    books.find(place, body, letter_id, redelivered=False)
    assert any(said in violation for violation in books.judge(allowed=9).violations)


@pytest.mark.slow
def test_nothing_is_lost_in_a_short_chaos(broker: brokers.Broker, tmp_path: Path) -> None:
    if not isinstance(broker, brokers.Node):
        pytest.skip("a broker that was given cannot be killed")
    assert set(KINDS_IN_CI) <= set(KINDS)
    report = run(Plan(program=broker.program, seed=11, rate=250, replicas=(2,), kinds=KINDS_IN_CI), tmp_path)
    assert report.broken == []
    assert [fault.kind for fault in report.faults] == [*KINDS_IN_CI]
    assert report.verdict.letters > 1500
