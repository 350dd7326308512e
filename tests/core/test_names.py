"""Our names in the broker, and the grid of rungs."""
# ruff: noqa: FBT001 - tables and laws pass flags

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.names import RUNGS, Names, return_key
from tests.core.core_samples import law

DAY = 86_400_000


def test_everything_of_ours_stands_under_the_prefix() -> None:
    names = Names("eu")
    assert (names.inbox, names.declared, names.release, names.return_) == (
        "eu.inbox",
        "eu.declared",
        "eu.release",
        "eu.return",
    )
    assert (names.parking, names.quarantine, names.retired) == ("eu.parking", "eu.quarantine", "eu.retired")
    assert (names.state, names.journal, names.delay(250)) == ("eu.state", "eu.journal", "eu.delay.250")
    assert all(names.is_own(name) for name in (names.inbox, names.delay(1), names.return_))
    assert Names().inbox == "dlx-router.inbox"
    assert Names("eu") == names != Names()


def test_no_rung_is_so_far_from_the_next_that_a_wait_takes_many_hops() -> None:
    assert all(high <= 1.5 * low or low >= 6 * 3_600_000 for low, high in pairwise(RUNGS) if high <= DAY)


@pytest.mark.parametrize(
    ("remaining", "rung"),
    [
        (-5, None),
        (0, None),
        (99, None),
        (100, 100),
        (124, 100),
        (125, 125),
        (5000, 5000),
        (5999, 5000),
        (7 * DAY, 7 * DAY),
        (365 * DAY, 7 * DAY),
    ],
)
def test_the_largest_rung_that_is_not_longer_is_taken(remaining: int, rung: int | None) -> None:
    assert Names().rung_for(remaining) == rung


@law
@given(st.integers(0, 60 * DAY))
def test_a_letter_climbs_down_in_few_hops_and_never_waits_too_long(remaining: int) -> None:
    names, hops = Names(), 0
    while (rung := names.rung_for(remaining)) is not None:
        remaining -= rung
        hops += 1
        assert remaining >= 0
    assert remaining < 100
    assert hops <= 30


@pytest.mark.parametrize(
    ("queue", "plain"),
    [("work", True), ("q" * 240, True), ("q" * 241, False), ("é" * 121, False), ("\udcff" * 240, True)],
)
def test_the_way_back_is_the_queues_name_or_its_hash(queue: str, plain: bool) -> None:
    key = Names().return_key(queue)
    assert (key == f"to:{queue}") is plain
    assert len(key.encode(errors="surrogateescape")) <= 255
    assert key == return_key(queue)
