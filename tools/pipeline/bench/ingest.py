"""What run.py beside it measures with: a journal of any length, and ingest as people run it or a plain script does.

Events are those of the made-up week (tools/pipeline/week.py), each letter as often as the length wants, every copy with
an id of its own: stretches of the week, each repeated, so that neighbours differ as they do in it. Messages are in
format 2, as routers write them.
"""

import itertools
import json
import os
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, Final

import pika
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

from dlx_router.broker.stream import LETTERS, TELLS
from dlx_router.core.names import Names
from dlx_router.journal import entry, fields
from dlx_router.journal.batch import Batch
from dlx_router.journal.events import gap
from dlx_router.journal.reading import Row, parts
from dlx_router.spark.archive.layout import Archive, Entry
from dlx_router.spark.options import Options
from dlx_router.spark.publishing import CONFIRMED, Outgoing, Publishing
from dlx_router.spark.redrive.letters import Sender, batch_of
from dlx_router.wire import table
from tools.pipeline.kills import STREAM, URL, ingest, kill, segments
from tools.pipeline.week import week

PER_MESSAGE: Final = 100
BASE_LETTERS: Final = 2000
WARM_S: Final = 30.0
KEPT: Final = 100_000  # of the plain script, in memory at a time
SEGMENTS: Final = 5  # at least, so that there is a time behind the first
STRETCH: Final = 2000  # events of the week that are repeated together
_ID: Final = slice(len(',"'), len(',"') + 8)  # of a row, digits of its letter's id
_SENDER: Final = Sender("", Names(), b"")


@cache
def _base() -> tuple[entry.Entry, ...]:
    return tuple(row for _, row in week(BASE_LETTERS, 7).rows)


def entries(events: int) -> Iterator[entry.Entry]:
    """So many events of a journal."""
    base = _base()
    copies = -(-events // len(base))
    stretches = (base[at : at + STRETCH] for at in range(0, len(base), STRETCH))
    every = (_copy(event, number) for some in stretches for number in range(copies) for event in some)
    return itertools.islice(every, events)


def _copy(event: entry.Entry, number: int) -> entry.Entry:
    """The same event of another letter."""
    shared, row = event
    return (shared, f"{row[: _ID.start]}{number:08x}{row[_ID.stop :]}") if number else event


def options(url: str) -> Options:
    """How the broker is reached here."""
    os.environ[URL] = url
    return Options.read({"connection": f"env:{URL}", "streams": STREAM})


def publish(url: str, events: int) -> None:
    """Fill the stream; every message is confirmed when this returns."""
    with Publishing(options(url).address()) as out:
        confirms = out.publish(map(_message, _batched(events)))
        assert all(result == CONFIRMED for _, result in confirms)


def _batched(events: int) -> Iterator[list[entry.Entry]]:
    every = entries(events)
    while some := list(itertools.islice(every, PER_MESSAGE)):
        yield some


def _message(events: list[entry.Entry]) -> Outgoing:
    """As a router writes it."""
    batch = Batch(1)
    for event in events:
        assert batch.add(event)
    batch.close()
    plain = batch_of([], _SENDER)
    properties = {**plain.properties, "content_encoding": b"zstd"}
    return plain._replace(
        headers=table.long_(b"v", fields.ROWS) + TELLS[LETTERS], properties=properties, body=batch.body
    )


class Memory(threading.Thread):
    """The most that a process and its children had resident, twice a second, in bytes.

    `rss` counts a page once for each process that has it: forked workers share most of theirs. `pss` counts it once.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self.rss = self.pss = 0

    def run(self) -> None:
        while self._root.is_running():
            try:
                family = [self._root, *self._root.children(recursive=True)]
                usages = [process.memory_full_info() for process in family]
                self.rss = max(self.rss, sum(usage.rss for usage in usages))
                self.pss = max(self.pss, sum(usage.pss for usage in usages))
            except psutil.Error:
                pass
            time.sleep(0.5)


def measured_ingest(url: str, root: Path, events: int, cores: int) -> dict[str, float]:
    """Archive all that is there; events a second of the whole run, and behind the first segment (all has started).

    `cores`: of Spark; 0: by one process without it.
    """
    began, log = time.time(), root.with_suffix(".log")
    how = ("--master", f"local[{cores},4]") if cores else ()
    pieces = max(events // PER_MESSAGE // SEGMENTS, 1)
    process = ingest(root, url, log, "--once", "--option", f"maxOffsetsPerTrigger={pieces}", *how)
    memory = Memory(process.pid)
    memory.start()
    if process.wait(7200):
        sys.exit(log.read_text(errors="replace")[-3000:])
    took, entries = time.time() - began, Archive(root).entries()
    assert sum(sum(segment.rows.values()) for segment in entries) == events
    later = sum(sum(segment.rows.values()) for segment in entries[1:])
    span = (entries[-1].written_ms - entries[0].written_ms) / 1000
    figures = {
        "seconds": took,
        "events_per_s_whole_run": events / took,
        "rss_mb": memory.rss / 1e6,
        "pss_mb": memory.pss / 1e6,
    }
    return figures | ({"events_per_s": later / span} if span else {})


def plain_ingest(url: str, target: Path, events: int) -> dict[str, float]:
    """The same stream by pika and pyarrow: no positions, no manifests, no bad lines, nothing for a crash."""
    began, rows = time.time(), 0
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=500)
    writer: Any = None
    kept: list[dict[str, Any]] = []
    schema = _plain_schema()
    for method, _, body in channel.consume(STREAM, arguments={"x-stream-offset": "first"}):
        kept += [part.event() if isinstance(part, Row) else json.loads(part) for part in parts(body)]
        channel.basic_ack(method.delivery_tag)
        if len(kept) >= KEPT or rows + len(kept) >= events:
            writer = writer or pq.ParquetWriter(target, schema, compression="zstd")
            writer.write_table(pa.Table.from_pylist(kept, schema))
            rows, kept = rows + len(kept), []
        if rows >= events:
            break
    writer.close()
    connection.close()
    took = time.time() - began
    return {"events": rows, "seconds": took, "events_per_s": rows / took}


@cache
def _plain_schema() -> pa.Schema:
    """The columns that a plain script finds in what it reads."""
    every = [json.loads(line) for line in week(BASE_LETTERS, 7).journal()]
    return pa.Table.from_pylist(every).schema


@contextmanager
def going(root: Path, url: str, *more: str) -> Iterator[Callable[[], None]]:
    """Ingest that goes on while the block lasts, then is killed → a check that it still runs."""
    log = root.with_suffix(".log")
    process = ingest(root, url, log, *more)

    def check() -> None:
        if process.poll() is not None:
            sys.exit(log.read_text(errors="replace")[-3000:])

    try:
        yield check
    finally:
        if process.poll() is None:
            kill(process)


def freshness(url: str, root: Path, trigger_s: float, seconds: float) -> dict[str, float]:
    """Seconds from an event's publication to the manifest of its segment, at about 1,000 events a second.

    Told of what comes WARM_S after the first batches: how long a start takes is told by `restart`.
    """
    first, warm, last_ms, end = 0, 0.0, 0, float("inf")
    every = ("--every", str(trigger_s), "--start", "latest")
    with going(root, url, *every) as check, Publishing(options(url).address()) as out:
        due = time.monotonic()
        while (now := time.monotonic()) < end:
            check()
            last_ms = int(time.time() * 1000)
            batch = [gap("bench", "/", events=number, from_ms=number, to_ms=last_ms) for number in range(PER_MESSAGE)]
            assert [result for _, result in out.publish([batch_of(batch, _SENDER)])] == [CONFIRMED]
            if not warm and segments(root) > 1:
                warm = now + WARM_S
            if not first and now > warm > 0:
                first, end = segments(root), now + seconds
            due += PER_MESSAGE / 1000
            time.sleep(max(due - time.monotonic(), 0))
        while _newest_ms(root) < last_ms:  # else the latest would be left out
            check()
            time.sleep(0.1)
    waits = sorted(wait for entry in Archive(root).entries()[first:] for wait in _waits(root, entry))
    figures = {f"p{point}_s": waits[int(len(waits) * point / 100)] for point in (50, 99)}
    return figures | {"trigger_s": trigger_s, "events_per_s": len(waits) / seconds}


def _newest_ms(root: Path) -> int:
    """When the latest event was published that is in the archive."""
    entry = Archive(root).entries()[-1]
    return entry.written_ms - int(min(_waits(root, entry)) * 1000)


def _waits(root: Path, entry: Entry) -> list[float]:
    folders = [Archive(root).raw(day, entry.seg) for day in entry.rows]
    tables = [pq.ParquetFile(file).read(columns=["to_ms"]) for folder in folders for file in folder.glob("*.parquet")]
    return [(entry.written_ms - to_ms) / 1000 for table in tables for to_ms in table["to_ms"].to_pylist()]


def restart(url: str, root: Path) -> dict[str, float]:
    """Ingest that has archived is killed; seconds from the next start to the next segment."""
    return {"first_segment_s": [_until_killed(url, root) for _ in range(2)][-1]}


def _until_killed(url: str, root: Path) -> float:
    """Start ingest with something to do, kill it behind its first segment; seconds until that."""
    publish(url, 10 * PER_MESSAGE)
    before, began = segments(root), time.time()
    with going(root, url, "--every", "1") as check:
        while segments(root) == before:
            check()
            time.sleep(0.02)
        return time.time() - began
