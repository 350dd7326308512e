"""Settlement: an ack never before its confirm, each publish answered once; tables, then a machine against a model."""
# ruff: noqa: FBT001 - tables and laws pass flags

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dlx_router.core.settlement import Acks, Confirms
from tests.core.core_samples import law
from tests.support.thoroughness import THOROUGH


def confirms(count: int) -> Confirms[str]:
    channel: Confirms[str] = Confirms()
    assert [channel.publish(f"job-{number}") for number in range(1, count + 1)] == list(range(1, count + 1))
    return channel


@pytest.mark.parametrize(
    ("number", "multiple", "answered"),
    [
        (1, False, [1]),
        (3, False, [3]),
        (3, True, [1, 2, 3]),
        (5, True, [1, 2, 3, 4, 5]),
        (0, True, [1, 2, 3, 4, 5]),
        (9, True, [1, 2, 3, 4, 5]),
        (0, False, []),
        (6, False, []),
        (-1, False, []),
    ],
)
def test_one_or_all_up_to_a_number_are_answered(number: int, multiple: bool, answered: list[int]) -> None:
    channel = confirms(5)
    assert channel.answered(number, multiple=multiple) == [(f"job-{at}", "") for at in answered]
    assert len(channel) == 5 - len(answered)
    assert channel.next_number == 6


def test_a_return_is_told_with_the_answer_of_its_own_publish_whatever_lies_between() -> None:
    channel = confirms(3)
    assert channel.returned(2, "NO_ROUTE")
    assert channel.answered(3, multiple=False) == [("job-3", "")]
    assert channel.answered(1, multiple=False) == [("job-1", "")]
    assert channel.answered(2, multiple=False) == [("job-2", "NO_ROUTE")]


def test_a_foreign_stamp_is_no_return_of_ours() -> None:
    channel = confirms(1)
    assert not channel.returned(2, "NO_ROUTE")
    assert not channel.returned(0, "NO_ROUTE")
    channel.answered(1, multiple=False)
    assert not channel.returned(1, "NO_ROUTE")


def test_after_a_channel_is_gone_all_that_is_open_is_in_doubt_and_numbers_begin_anew() -> None:
    channel = confirms(4)
    channel.answered(2, multiple=False)
    channel.returned(1, "NO_ROUTE")
    assert channel.in_doubt() == ["job-1", "job-3", "job-4"]
    assert (len(channel), channel.next_number, channel.in_doubt()) == (0, 1, [])
    assert channel.publish("anew") == 1
    assert channel.answered(1, multiple=False) == [("anew", "")]


def delivered(count: int) -> Acks:
    channel = Acks()
    for tag in range(1, count + 1):
        channel.delivered(tag)
    return channel


@pytest.mark.parametrize(
    ("settled", "acks"),
    [
        ([], []),
        ([1], [(1, True)]),
        ([1, 2, 3], [(3, True)]),
        ([3, 1, 2], [(3, True)]),
        ([2], [(2, False)]),
        ([1, 3], [(1, True), (3, False)]),
        ([5, 3], [(3, False), (5, False)]),
        ([1, 2, 3, 4, 5], [(5, True)]),
        ([9], []),
        ([1, 1], [(1, True)]),
    ],
)
def test_settled_deliveries_take_as_few_acks_as_possible(settled: list[int], acks: list[tuple[int, bool]]) -> None:
    channel = delivered(5)
    for tag in settled:
        channel.settle(tag)
    assert channel.flush() == acks
    assert channel.flush() == []


def test_what_is_gone_is_not_acked_and_holds_nothing_up() -> None:
    channel = delivered(3)
    channel.settle(1)
    channel.gone(1)
    channel.gone(7)
    channel.settle(2)
    channel.settle(1)
    assert channel.flush() == [(2, True)]
    assert len(channel) == 1


class Settling(RuleBasedStateMachine):
    """Deliveries are published, confirmed in any order, and acked; the model holds plain sets of tags."""

    def __init__(self) -> None:
        super().__init__()
        self.confirms: Confirms[int] = Confirms()  # the job is the tag of its delivery
        self.acks = Acks()
        self.tag = 0
        self.unacked: set[int] = set()
        self.settled: set[int] = set()
        self.published: dict[int, int] = {}
        self.returned: dict[int, str] = {}
        self.to_publish: list[int] = []

    @rule(count=st.integers(1, 4))
    def deliver(self, count: int) -> None:
        for _ in range(count):
            self.tag += 1
            self.acks.delivered(self.tag)
            self.unacked.add(self.tag)
            self.to_publish.append(self.tag)

    @precondition(lambda self: self.to_publish)
    @rule(count=st.integers(1, 4), last=st.booleans())
    def publish(self, count: int, last: bool) -> None:
        for _ in range(min(count, len(self.to_publish))):
            job = self.to_publish.pop(-1 if last else 0)
            number = self.confirms.publish(job)
            assert number not in self.published
            self.published[number] = job

    @rule(data=st.data(), stranger=st.booleans())
    def broker_returns(self, data: Any, stranger: bool) -> None:
        number = data.draw(
            st.integers(0, 40) if stranger or not self.published else st.sampled_from(sorted(self.published))
        )
        assert self.confirms.returned(number, f"why-{number}") is (number in self.published)
        if number in self.published:
            self.returned[number] = f"why-{number}"

    @rule(data=st.data(), multiple=st.booleans(), stranger=st.booleans())
    def broker_answers(self, data: Any, multiple: bool, stranger: bool) -> None:
        number = data.draw(
            st.integers(0, 40) if stranger or not self.published else st.sampled_from(sorted(self.published))
        )
        expected = [at for at in sorted(self.published) if at == number or (multiple and (at < number or not number))]
        answers = self.confirms.answered(number, multiple=multiple)
        assert answers == [(self.published.pop(at), self.returned.pop(at, "")) for at in expected]
        for job, why in answers:
            if why:
                self.to_publish.append(job)  # to another place
            else:
                self.acks.settle(job)
                self.settled.add(job)

    @rule()
    def flush(self) -> None:
        acked: list[int] = []
        for tag, multiple in self.acks.flush():
            covered = {unacked for unacked in self.unacked if unacked == tag or (multiple and unacked < tag)}
            assert covered <= self.settled, "acked before it was confirmed"
            assert covered, "an ack of nothing closes the channel"
            self.unacked -= covered
            acked += covered
        assert sorted(acked) == sorted(self.settled)
        self.settled.clear()

    @precondition(lambda self: self.to_publish)
    @rule(data=st.data())
    def give_back(self, data: Any) -> None:
        tag = data.draw(st.sampled_from(self.to_publish))
        self.to_publish.remove(tag)
        self.acks.gone(tag)
        self.unacked.discard(tag)

    @rule()
    def publish_channel_closes(self) -> None:
        doubtful = self.confirms.in_doubt()
        assert doubtful == [self.published[number] for number in sorted(self.published)]
        self.to_publish += doubtful
        self.published.clear()
        self.returned.clear()

    @invariant()
    def the_counts_agree(self) -> None:
        assert len(self.confirms) == len(self.published)
        assert len(self.acks) == len(self.unacked) - len(self.settled)
        assert all(earlier < other for earlier, other in pairwise([*sorted(self.published), self.confirms.next_number]))


TestSettling = Settling.TestCase
TestSettling.settings = settings(law, max_examples=8 * THOROUGH, stateful_step_count=20)
