"""A stream that is made anew, or that retention overtakes: all that is left is read once, and what is lost is told."""

import time
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.streaming.datasource import ReadMaxRows

from dlx_router.spark.amqp import Message
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.archive.segment_source import SegmentReader
from dlx_router.spark.archive.sink import Sink
from dlx_router.spark.archive.verify import verify
from dlx_router.spark.offsets import Positions, Range, first_offset, position
from dlx_router.spark.options import Options
from dlx_router.spark.range_reader import whole
from dlx_router.spark.source import StreamReader
from dlx_router.wire import properties
from tests.core.core_samples import letter
from tests.journal.journal_samples import line
from tests.spark.test_offsets import Held

TAKEN = [(0, 20, []), (12, 8, [(0, 10), (10, 12)]), (5, 15, [(0, 5)]), (20, 0, [(0, 10), (10, 20)])]


class Growing(Held):
    """A stream that is read too; `before_read`: offsets that retention takes before the next read."""

    before_read = 0

    def read(self, _stream: str, start: int, end: int, prefetch: int) -> Iterator[list[Message]]:
        assert prefetch
        self.messages = [message for message in self.messages if message.offset >= self.before_read]
        yield [message for message in self.messages if start <= message.offset < end]


@dataclass(frozen=True)
class Near(Options):
    """Options whose broker is this one."""

    held: Growing = field(default_factory=Growing)

    def connect(self) -> AbstractContextManager[Growing]:  # type: ignore[override]  # a stand-in for a connection
        return nullcontext(self.held)


def near(held: Growing, **options: Any) -> Near:
    own: dict[str, Any] = {"fail_on_data_loss": False, "min_offsets": 7, "retry_for_s": 0}
    return Near("env:NO", ("s",), held=held, **(own | options))


def batch(reader: StreamReader, options: Near, start: Positions, most: int) -> tuple[Positions, list[bytes]]:
    """One micro-batch: where it ends, and the bodies that it reads."""
    end = reader.latestOffset(start, ReadMaxRows(most))
    parts = [part.value for part in reader.partitions(start, end)]
    return end, [message.body for part in parts for messages in whole(options, part) for message in messages]


@given(old=st.integers(0, 60), new=st.integers(0, 60), most=st.integers(1, 80), first=st.sampled_from([0, 70]))
def test_of_a_stream_that_is_made_anew_between_two_batches_all_that_is_new_is_read_once(
    old: int, new: int, most: int, first: int
) -> None:
    """Before, reading began at the old offset in the new stream, or not at all where it was shorter."""
    held = Growing(*range(old))
    options = near(held)
    reader = StreamReader(options)
    at, seen = reader.initialOffset(), list[bytes]()
    for _ in range(old // most + 1):
        at, bodies = batch(reader, options, at, most)
        seen += bodies
    fresh = [Message(offset, b"", b"new%03d" % offset) for offset in range(first, first + new)]
    before, held.messages = [message.body for message in held.messages], fresh
    for _ in range(new // most + 1):
        at, bodies = batch(reader, options, at, most)
        seen += bodies
    assert seen == before + [message.body for message in fresh]
    assert at["s"]["lost"] == bool(old or (new and first))


def test_a_stream_that_is_named_later_begins_where_it_is_asked_for() -> None:
    options = near(Growing(*range(40, 50)), starting="latest")
    end, bodies = batch(StreamReader(options), options, {}, 100)
    assert (end["s"]["next"], bodies) == (50, [])


@pytest.mark.parametrize(
    ("start", "end", "begins"),
    [
        (None, position(9, None), 0),  # as an earlier version wrote them
        (None, {**position(9, None), "from": 4}, 4),
        (position(5, None), position(9, None), 5),
        (position(5, None), {**position(9, None), "from": 2}, 5),
        (position(5, None), {**position(9, None, 1), "from": 2}, 2),
        (position(5, None), position(9, None, 1), 5),
    ],
)
def test_what_lies_between_two_positions_begins_where_reading_did(start: Any, end: Any, begins: int) -> None:
    assert first_offset(start, end) == begins


@pytest.mark.parametrize(("taken", "bodies", "lost"), TAKEN)
def test_what_retention_takes_while_it_is_to_be_read_is_told(
    taken: int, bodies: int, lost: list[tuple[int, int]]
) -> None:
    held = Growing(*range(20), 20)
    held.before_read, options, gone = taken, near(held), list[Range]()
    seen = [body for cut in (0, 10) for body in whole(options, Range("s", cut, cut + 10), gone.append)]
    assert sum(map(len, seen)) == bodies
    assert gone == [Range("s", *each) for each in lost]


def test_a_gap_at_the_beginning_of_what_is_read_is_no_loss() -> None:
    options, gone = near(Growing(0, 7, 8)), list[Range]()
    assert len([*whole(options, Range("s", 3, 8), gone.append)]) == 1
    assert gone == []


@pytest.mark.parametrize(("taken", "said"), [(0, 0), (12, 1)])
def test_what_retention_takes_while_it_is_to_be_read_is_in_the_manifest(taken: int, said: int, tmp_path: Path) -> None:
    """Before, the manifest said that nothing was lost, and verify had no finding."""
    header, now_ms = bytes(12) + properties.build(content_type=b"application/x-ndjson"), time.time_ns() // 1_000_000
    held = Growing(*range(20))
    held.messages = [Message(at, header, line(letter(id=f"{at:032x}"), now_ms=now_ms)) for at in range(20)]
    held.before_read, archive = taken, Archive(tmp_path)
    sink = Sink(str(tmp_path), "run", 0, "{}")
    reader = SegmentReader(near(held), str(sink.folder(archive)), keep_lines=False)
    start = reader.initialOffset()
    end = reader.latestOffset(start, ReadMaxRows(100))
    sink.put(archive, [file for part in reader.partitions(start, end) for file in reader.files(part.value)], start, end)
    (entry,) = archive.entries()
    assert (sum(entry.rows.values()), entry.lost) == (20 - taken, bool(said))
    findings = verify(tmp_path, deep=True).findings
    assert len(findings) == said
    assert all("messages were gone before they were read" in finding for finding in findings)
