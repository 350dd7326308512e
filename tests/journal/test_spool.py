"""The spool: in order, bounded, and honest about what it could not keep."""

from hypothesis import given
from hypothesis import strategies as st

from dlx_router.journal.batch import MAX_BYTES, Batch
from dlx_router.journal.spool import Spool
from tests.core.core_samples import law


def batch(number: int, events: int = 1, size: int = 10) -> Batch:
    subject = Batch(number)
    subject.tells_tasks = True  # which is not compressed
    for _ in range(events):
        subject.add(b"x" * size)
    subject.close()
    return subject


def drained(spool: Spool) -> list[int]:
    return [spool.next().number for _ in range(len(spool))]


def test_what_was_sent_in_vain_comes_before_what_was_not() -> None:
    spool = Spool(None)
    for number in (4, 5):
        assert spool.keep(batch(number), 0)
    spool.give_back([batch(3), batch(1)])
    assert drained(spool) == [1, 3, 4, 5]
    assert spool.size == 0


def test_behind_a_loss_nothing_is_kept_so_that_the_gap_is_one() -> None:
    spool = Spool(100)
    assert spool.keep(batch(1, 5), 1000)
    assert not spool.keep(batch(2, 6), 2000)
    assert not spool.keep(batch(3, 1), 3000)
    assert spool.gap is not None
    assert (spool.gap.events, spool.gap.from_ms, spool.gap.to_ms) == (7, 2000, 3000)
    assert drained(spool) == [1]


@law
@given(st.lists(st.integers(1, 50), max_size=40), st.integers(0, 2000))
def test_every_event_is_kept_or_counted(sizes: list[int], limit: int) -> None:
    spool = Spool(limit)
    batches = [batch(number, events) for number, events in enumerate(sizes)]
    kept = [entry for entry in batches if spool.keep(entry, entry.number)]
    assert sum(entry.size for entry in kept) == spool.size <= limit
    assert kept == batches[: len(kept)]
    assert (spool.gap.events if spool.gap else 0) == sum(sizes) - sum(entry.events for entry in kept)


@law
@given(st.lists(st.integers(1, 2 * MAX_BYTES), min_size=1, max_size=5))
def test_a_batch_takes_lines_up_to_its_limits_and_always_one(sizes: list[int]) -> None:
    subject = Batch(1)
    for size in sizes:
        subject.add(b"x" * size)
    assert subject.events >= 1
    assert subject.events == 1 or subject.size <= MAX_BYTES


def test_those_who_wait_are_let_go_once_and_in_order() -> None:
    seen: list[int] = []
    subject = batch(1)
    for number in range(3):
        subject.wait(seen.append, number)
    assert seen == []
    subject.settle()
    subject.settle()
    subject.wait(seen.append, 3)
    assert seen == [0, 1, 2, 3]


def test_lines_that_are_discarded_are_sent_no_more_and_all_others_are() -> None:
    """A router that lost its leadership must not tell of tasks what its successor has changed."""
    spool, lines = (
        Spool(10_000),
        [b'{"action":"task.running"}\n', b'{"kind":"redriven"}\n', b'{"action":"group.set"}\n'],
    )
    kept = [batch(1), Batch(2), Batch(3)]
    for entry in kept[1:]:
        entry.tells_tasks = True
        for line in lines:
            entry.add(line)
    kept[1].close()
    for entry in kept[:2]:
        assert spool.keep(entry, 0)
    spool.discard_lines(b'"action":"task.')
    kept[2].discard_lines(b'"action":"task.')
    kept[2].close()
    assert [entry.body for entry in kept[1:]] == [b"".join(lines[1:])] * 2
    assert spool.size == sum(entry.size for entry in kept[:2])
