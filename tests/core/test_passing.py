"""Messages that pass: when they are due, how many are too many, and what their death looks like."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.letter import Death
from dlx_router.core.passing import Limits, Marks, Stamps, born_ms, due_ms, excess, recorded


@pytest.mark.parametrize(
    ("limits", "stamps", "arrived", "due"),
    [
        (Limits(), Stamps(), 1000, None),
        (Limits(ttl_ms=50), Stamps(), 1000, 1050),
        (Limits(ttl_ms=50), Stamps(), None, None),
        (Limits(ttl_ms=0), Stamps(), 1000, 1000),
        (Limits(ttl_ms=50), Stamps(broker_ms=400), 1000, 450),
        (Limits(ttl_ms=50), Stamps(broker_ms=9000), 1000, 1050),
        (Limits(ttl_ms=50), Stamps(producer_s=0), None, None),
        (Limits(ttl_ms=50, trusts=True), Stamps(producer_s=0), None, 1049),
        (Limits(ttl_ms=50, trusts=True), Stamps(broker_ms=10, producer_s=0), None, 60),
        (Limits(), Stamps(expiration="30"), 1000, 1030),
        (Limits(ttl_ms=50), Stamps(expiration="30"), 1000, 1030),
        (Limits(ttl_ms=20), Stamps(expiration="30"), 1000, 1020),
        (Limits(ttl_ms=20), Stamps(expiration="soon"), 1000, 1020),
        (Limits(), Stamps(expiration="30"), None, None),
    ],
)
def test_when_a_message_is_due(limits: Limits, stamps: Stamps, arrived: int | None, due: int | None) -> None:
    assert due_ms(limits, stamps, arrived) == due


@given(
    born=st.integers(0, 10**6),
    arrived=st.integers(0, 10**4),
    ttl=st.integers(0, 10**6),
    bases=st.tuples(st.booleans(), st.booleans(), st.booleans()),
)
def test_nothing_is_due_before_its_time(born: int, arrived: int, ttl: int, bases: tuple[bool, bool, bool]) -> None:
    limits = Limits(ttl_ms=ttl, trusts=True)
    stamps = Stamps(born if bases[0] else None, born // 1000 if bases[1] else None)
    due = due_ms(limits, stamps, born + arrived if bases[2] else None)
    assert due is None or due >= born + ttl
    assert (due is None) == (born_ms(limits, stamps, 0 if bases[2] else None) is None)


@pytest.mark.parametrize(
    ("limits", "ready", "mean", "over"),
    [
        (Limits(), 1000, 10.0, 0),
        (Limits(length=10), 10, 0.0, 0),
        (Limits(length=10), 25, 0.0, 15),
        (Limits(length=0), 3, 0.0, 3),
        (Limits(length_bytes=1000), 30, 100.0, 20),
        (Limits(length_bytes=1000), 30, 0.0, 0),
        (Limits(length_bytes=0), 30, 1.0, 30),
        (Limits(length=25, length_bytes=1000), 30, 100.0, 20),
        (Limits(length=5, length_bytes=1000), 30, 100.0, 25),
    ],
)
def test_how_many_are_too_many(limits: Limits, ready: int, mean: float, over: int) -> None:
    assert excess(limits, ready, mean) == over


def test_a_death_is_counted_by_queue_and_reason_and_comes_first() -> None:
    old = Death("q", "expired", 2, 10, "x", ("k",), "30")
    other = Death("p", "rejected", 1, 20, "", ("p",))
    again = Death("q", "expired", 1, 99, "y", ("z",))
    assert recorded((), again) == (again,)
    assert recorded((other,), again) == (again, other)
    assert recorded((other, old), again) == (old._replace(times=3), other)


def test_where_messages_vanish_nothing_is_known_of_those_that_follow() -> None:
    marks = Marks(slack=10)
    marks.counted(1000, marks.seen, 100)
    marks.counted(0, marks.seen, 200)
    assert marks.delivered(300) == 300


@given(
    st.lists(
        st.one_of(st.tuples(st.just("arrive"), st.integers(1, 5)), st.tuples(st.just("take"), st.integers(1, 5)),
                  st.tuples(st.just("count"), st.integers(0, 3))),
        max_size=60,
    )
)  # fmt: skip
def test_no_message_is_ever_said_to_be_older_than_it_is(steps: list[tuple[str, int]]) -> None:
    """A queue by the book, with counts that are answered while deliveries are on their way."""
    marks, queue, on_the_way, now = Marks(slack=100), list[int](), list[int](), 0

    def receive(count: int) -> None:
        for born in on_the_way[:count]:
            assert born <= marks.delivered(now) <= now
        del on_the_way[:count]

    for step, number in steps:
        now += 1
        if step == "arrive":
            queue += [now] * number
        elif step == "take":
            on_the_way += queue[:number]
            del queue[:number]
            receive(number // 2)
        else:
            asked, ready = marks.seen, len(queue)
            now += number
            receive(number)
            marks.counted(ready, asked, now)
