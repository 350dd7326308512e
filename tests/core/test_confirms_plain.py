"""The short ways of settlement: answers when nothing came back, and what of a channel is still open."""
# ruff: noqa: FBT001 - laws pass flags

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.settlement import Acks, Confirms
from tests.core.core_samples import law


def confirms(count: int) -> Confirms[int]:
    channel: Confirms[int] = Confirms()
    for number in range(1, count + 1):
        assert channel.publish(number) == number
    return channel


answers = st.lists(st.tuples(st.integers(0, 7), st.booleans()), max_size=6)


@law
@given(st.integers(0, 6), answers)
def test_where_nothing_was_returned_the_short_way_answers_what_the_long_way_answers(
    count: int, replies: list[tuple[int, bool]]
) -> None:
    short, long = confirms(count), confirms(count)
    for number, multiple in replies:
        jobs = short.plain(number, multiple=multiple)
        assert jobs is not None
        assert [(job, "") for job in jobs] == long.answered(number, multiple=multiple)
        assert len(short) == len(long)


@pytest.mark.parametrize("multiple", [False, True])
def test_where_something_was_returned_the_short_way_answers_nothing_and_loses_nothing(multiple: bool) -> None:
    channel = confirms(3)
    assert channel.returned(2, "NO_ROUTE")
    assert channel.plain(3, multiple=multiple) is None
    assert len(channel) == 3
    assert channel.answered(2, multiple=True) == [(1, ""), (2, "NO_ROUTE")]
    assert channel.plain(3, multiple=multiple) == [3]


def test_the_only_pending_publish_is_told_where_there_is_just_one() -> None:
    assert [confirms(count).only for count in range(4)] == [None, 1, None, None]
    channel = confirms(2)
    channel.answered(1, multiple=False)
    assert channel.only == 2


@law
@given(st.lists(st.tuples(st.sampled_from(["delivered", "settle", "gone", "flush"]), st.integers(1, 6)), max_size=20))
def test_each_delivery_is_unsettled_or_unflushed_until_it_is_flushed_or_gone(steps: list[tuple[str, int]]) -> None:
    acks, seen = Acks(), 0
    unsettled: list[int] = []
    settled: set[int] = set()
    for step, tag in steps:
        if step == "delivered":
            seen += 1
            acks.delivered(seen)
            unsettled.append(seen)
        elif step == "settle":
            acks.settle(tag)
            settled |= {tag} & set(unsettled)
            unsettled = [entry for entry in unsettled if entry != tag]
        elif step == "gone":
            acks.gone(tag)
            settled.discard(tag)
            unsettled = [entry for entry in unsettled if entry != tag]
        else:
            acks.flush()
            settled.clear()
        assert (acks.unsettled, acks.unflushed, len(acks)) == (unsettled, len(settled), len(unsettled))
