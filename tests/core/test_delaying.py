"""Delayed messages: what a header asks for, what it says afterwards, and how long the rungs make it wait."""

from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.delaying import MAX_DELAY_MS, asked_ms, obeyed
from dlx_router.core.names import RUNGS, Names


@pytest.mark.parametrize(
    ("tag", "value", "asked"),
    [
        ("S", b"5000", 5000),
        ("S", b"+5", 5),
        ("S", b"-5", None),
        ("S", b"", None),
        ("S", b"5s", None),
        ("S", b" 5", None),
        ("S", "\u0665".encode(), None),
        ("S", b"9" * 5000, None),
        ("d", 1500.9, 1500),
        ("f", -0.5, 0),
        ("d", float("nan"), None),
        ("d", float("inf"), None),
        ("D", Decimal("12.5"), 12),
        ("l", MAX_DELAY_MS, MAX_DELAY_MS),
        ("l", MAX_DELAY_MS + 1, None),
        ("t", True, None),
        ("T", 1_700_000_000, None),
        ("V", None, None),
        ("x", b"5", None),
    ],
)
def test_what_a_header_asks_for(tag: str, value: Any, asked: int | None) -> None:
    assert asked_ms(tag, value) == asked


@pytest.mark.parametrize(
    ("asked", "header"),
    [
        (None, None),
        (0, None),
        (1, ("I", -1)),
        (1 << 31, ("I", -(1 << 31))),
        ((1 << 31) + 1, ("l", -(1 << 31) - 1)),
    ],
)
def test_a_wait_that_was_obeyed_is_negated_in_the_type_that_holds_it(
    asked: int | None, header: tuple[str, int] | None
) -> None:
    assert obeyed(asked) == header


@given(st.integers(0, MAX_DELAY_MS))
def test_the_rungs_add_up_to_the_wait_and_never_to_more(wait: int) -> None:
    names, left, steps = Names(), wait, 0
    while (rung := names.rung_for(left)) is not None:
        left -= rung
        steps += 1
        assert left >= 0
    assert left < RUNGS[0]
    assert steps <= wait // RUNGS[-1] + 12


@given(st.text(max_size=300), st.text(max_size=300))
def test_each_exchange_has_a_queue_of_its_own_whose_name_fits(exchange: str, other: str) -> None:
    names = Names("p")
    queue = names.delayed(exchange)
    assert len(queue.encode()) <= 255
    assert names.is_delayed(queue)
    assert names.is_own(queue)
    assert (queue == names.delayed(other)) == (exchange == other)


def test_the_queues_of_others_are_none_of_a_delayed_exchange() -> None:
    names = Names()
    assert not any(map(names.is_delayed, (names.inbox, names.delay(100), "dlx-router.delayed", "orders.delayed")))
