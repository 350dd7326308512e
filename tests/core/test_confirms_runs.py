"""Runs of publishes: answered, returned, nacked and lost, each is what it would be among single ones."""

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.settlement import Acks, Confirms
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


@law
@given(
    st.lists(st.tuples(st.sampled_from(["delivered", "settle", "gone", "flush"]), st.integers(1, 9), st.integers(1, 5)))
)
def test_deliveries_settled_in_runs_are_acked_as_each_by_itself(steps: list[tuple[str, int, int]]) -> None:
    together, alone, seen = Acks(), Acks(), 0
    for what, tag, count in steps:
        match what:
            case "delivered":
                together.delivered_run(seen + 1, seen + count + 1)
                for one in range(seen + 1, seen + count + 1):
                    alone.delivered(one)
                seen += count
            case "settle":
                together.settle_run(tag, tag + count)
                for one in range(tag, tag + count):
                    alone.settle(one)
            case "gone":
                together.gone(tag)
                alone.gone(tag)
            case "flush":
                assert together.flush() == alone.flush()
        assert (together.unsettled, together.unflushed) == (alone.unsettled, alone.unflushed)
