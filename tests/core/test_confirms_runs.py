"""Runs of publishes: answered, returned, nacked and lost, each is what it would be among single ones."""
# ruff: noqa: FBT001 - tables pass flags

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.settlement import Acks, Confirms, PackedAcks
from tests.core.core_samples import law


class Numbers:
    """A run of jobs that are numbers."""

    def __init__(self, first: int, count: int) -> None:
        self._jobs = [*range(first, first + count)]
        self.made: list[int] = []

    def jobs(self, start: int, stop: int) -> list[int]:
        """From now on they are on their own, which happens once."""
        made = self._jobs[start:stop]
        assert not set(made) & set(self.made)
        self.made += made
        return made


def three_runs() -> Confirms[int]:
    """The numbers 1 to 3, 4 to 6 and 7 to 9; each job is its number."""
    channel = Confirms[int]()
    for first in (1, 4, 7):
        channel.publish_run(Numbers(first, 3), 3)
    return channel


def stretches(channel: Confirms[int]) -> list[tuple[int, int]]:
    return [(stretch.first, stretch.stop) for stretch in channel.stretches]


@pytest.mark.parametrize(
    ("number", "multiple", "answered", "left"),
    [
        (0, False, [], [(1, 4), (4, 7), (7, 10)]),
        (1, False, [[1]], [(2, 4), (4, 7), (7, 10)]),
        (5, False, [[5]], [(1, 4), (4, 5), (6, 7), (7, 10)]),
        (9, False, [[9]], [(1, 4), (4, 7), (7, 9)]),
        (10, False, [], [(1, 4), (4, 7), (7, 10)]),
        (1, True, [[1]], [(2, 4), (4, 7), (7, 10)]),
        (5, True, [[1, 2, 3], [4, 5]], [(6, 7), (7, 10)]),
        (6, True, [[1, 2, 3], [4, 5, 6]], [(7, 10)]),
        (9, True, [[1, 2, 3], [4, 5, 6], [7, 8, 9]], []),
        (10, True, [[1, 2, 3], [4, 5, 6], [7, 8, 9]], []),
        (0, True, [[1, 2, 3], [4, 5, 6], [7, 8, 9]], []),
    ],
)
def test_of_runs_is_answered_what_one_by_one_would_be(
    number: int, multiple: bool, answered: list[list[int]], left: list[tuple[int, int]]
) -> None:
    channel = three_runs()
    assert channel.plain(number, multiple=multiple) == []
    assert [part.jobs() for part in channel.runs(number, multiple=multiple)] == answered
    assert stretches(channel) == left
    assert len(channel) == 9 - sum(map(len, answered))
    assert channel.in_doubt() == sorted({*range(1, 10)} - {job for part in answered for job in part})


def test_what_comes_back_makes_jobs_of_its_own_run_and_of_no_other() -> None:
    channel = three_runs()
    assert channel.returned(5, "NO_ROUTE")
    assert (stretches(channel), len(channel)) == ([(1, 4), (7, 10)], 9)
    assert channel.plain(9, multiple=True) is None
    assert channel.answered(4, multiple=False) == [(4, "")]
    assert channel.answered(8, multiple=True) == [
        (1, ""), (2, ""), (3, ""), (5, "NO_ROUTE"), (6, ""), (7, ""), (8, ""),
    ]  # fmt: skip
    assert (stretches(channel), channel.in_doubt()) == ([], [9])


@pytest.mark.parametrize(
    ("number", "multiple", "nacked", "left"),
    [
        (5, False, [5], [(1, 4), (7, 10)]),
        (5, True, [1, 2, 3, 4, 5], [(7, 10)]),
        (0, True, [1, 2, 3, 4, 5, 6, 7, 8, 9], []),
        (10, False, [], [(1, 4), (4, 7), (7, 10)]),
    ],
)
def test_a_nack_makes_jobs_of_the_runs_that_it_answers(
    number: int, multiple: bool, nacked: list[int], left: list[tuple[int, int]]
) -> None:
    channel = three_runs()
    assert channel.answered(number, multiple=multiple) == [(job, "") for job in nacked]
    assert (stretches(channel), len(channel)) == (left, 9 - len(nacked))


@pytest.mark.parametrize(
    ("number", "jobs", "left"),
    [
        (1, [], [(1, 4), (4, 7), (7, 10)]),
        (4, [1, 2, 3], [(4, 7), (7, 10)]),
        (5, [1, 2, 3, 4], [(7, 10)]),
        (10, [*range(1, 10)], []),
    ],
)
def test_who_asks_for_what_was_published_before_gets_it_from_runs_too(
    number: int, jobs: list[int], left: list[tuple[int, int]]
) -> None:
    channel = three_runs()
    assert channel.before(number) == jobs
    assert (stretches(channel), len(channel)) == (left, 9), "and nothing is answered by that"


numbers = st.integers(0, 30)
steps = st.lists(
    st.one_of(
        st.tuples(st.just("publish"), st.integers(1, 6), st.booleans()),
        st.tuples(st.just("ack"), numbers, st.booleans()),
        st.tuples(st.just("nack"), numbers, st.booleans()),
        st.tuples(st.just("return"), numbers, st.booleans()),
        st.tuples(st.just("before"), numbers, st.booleans()),
        st.tuples(st.just("doubt"), numbers, st.booleans()),
    ),
    max_size=20,
)


@law
@given(steps)
def test_what_is_published_in_runs_is_answered_as_each_by_itself(steps: list[tuple[str, int, bool]]) -> None:
    together, alone = Confirms[int](), Confirms[int]()
    for what, number, flag in steps:
        match what:
            case "publish":
                first = alone.next_number
                if flag:
                    together.publish_run(Numbers(first, number), number)
                else:
                    assert [together.publish(job) for job in range(first, first + number)]
                assert [alone.publish(job) for job in range(first, first + number)]
            case "ack":
                jobs, expected = together.plain(number, multiple=flag), alone.plain(number, multiple=flag)
                if jobs is None or expected is None:
                    assert jobs is expected is None
                    assert together.answered(number, multiple=flag) == alone.answered(number, multiple=flag)
                else:
                    of_runs = [job for part in together.runs(number, multiple=flag) for job in part.jobs()]
                    assert sorted(jobs + of_runs) == expected
                    assert of_runs == sorted(of_runs)
            case "nack":
                assert together.answered(number, multiple=flag) == alone.answered(number, multiple=flag)
            case "return":
                assert together.returned(number, "why") is alone.returned(number, "why")
            case "before":
                assert together.before(number) == alone.before(number)
            case "doubt":
                assert together.in_doubt() == alone.in_doubt()
        assert len(together) == len(alone)
        assert together.only == alone.only
        assert together.next_number == alone.next_number


@pytest.mark.parametrize("acks", [Acks, PackedAcks])
@law
@given(
    st.lists(st.tuples(st.sampled_from(["delivered", "settle", "gone", "flush"]), st.integers(1, 9), st.integers(1, 5)))
)
def test_deliveries_settled_in_runs_are_acked_as_each_by_itself(
    acks: type[Acks | PackedAcks], steps: list[tuple[str, int, int]]
) -> None:
    together, alone, seen = acks(), Acks(), 0
    for what, tag, count in steps:
        match what:
            case "delivered":
                together.delivered_run(seen + 1, seen + count + 1)
                for number in range(seen + 1, seen + count + 1):
                    alone.delivered(number)
                seen += count
            case "settle":
                together.settle_run(tag, tag + count)
                for number in range(tag, tag + count):
                    alone.settle(number)
            case "gone":
                together.gone(tag)
                alone.gone(tag)
            case "flush":
                assert together.flush() == alone.flush()
        assert (together.unsettled, together.unflushed) == (alone.unsettled, alone.unflushed)
        assert len(together) == len(alone)
