"""`pipeline ingest`: the journal's streams into the archive, every message exactly once.

The manifests say where to go on, not Spark's checkpoint: that lives as long as one run. A lost or broken checkpoint is
therefore no case of its own.
"""

import json
import shutil
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final

from pyspark.sql import SparkSession
from pyspark.sql.streaming.query import StreamingQuery

from dlx_router.spark.archive import delta, here
from dlx_router.spark.archive.files import token
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.archive.segment_source import FOLDER, KEEP_LINES, NAME
from dlx_router.spark.archive.sink import Sink
from dlx_router.spark.options import EARLIEST
from dlx_router.spark.slow_start import patiently

EVERY_S: Final = 30.0
_LOOK_S: Final = 0.5


@dataclass(frozen=True, slots=True)
class Ingest:
    """What to archive, and how. `every_s` None: what is there now, then end. `source`: more options of the source."""

    root: Path
    connection: str
    streams: str
    every_s: float | None = None
    start: str = EARLIEST
    keep_lines: bool = False
    with_delta: bool = False
    source: dict[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ingested:
    """What a run did."""

    segments: int
    events: int
    bad: int


def ingest(spark: SparkSession | None, job: Ingest, is_over: Callable[[], bool] = lambda: False) -> Ingested:
    """Run until there is nothing more (or, with `every_s`, until `is_over`); what it did.

    By tasks of Spark; without a session, by this process. Raises ArchiveError where another ingest runs; DataLoss and
    StreamError, which come inside of Spark's StreamingQueryException.
    """
    archive = Archive(job.root)
    if job.with_delta or delta.is_wanted(archive):
        delta.require(archive.root)
    with archive.lease("ingest"):
        base = archive.next_number()
        if spark is None:
            _run(job, archive, partial(here.run, job.every_s, is_over))
        else:
            patiently(partial(_run, job, archive, partial(_by_spark, spark, job, is_over)))
        new = [entry for entry in archive.entries() if entry.number >= base]
    return Ingested(len(new), sum(sum(entry.rows.values()) for entry in new), sum(entry.bad for entry in new))


def _run(job: Ingest, archive: Archive, run: Callable[[Sink, dict[str, str]], None]) -> None:
    """`run` from where the manifests end, with nothing left of a run before, and nothing of this one behind it."""
    archive.clear()
    shutil.rmtree(archive.work, ignore_errors=True)
    known = {stream: at for stream, at in archive.end().items() if stream in _names(job.streams)}
    sink = Sink(str(archive.root), token(), archive.next_number(), json.dumps(known), job.with_delta)
    options = {"connection": job.connection, "streams": job.streams, "startingOffsets": _starting(job, known)}
    options |= {FOLDER: str(sink.folder(archive)), KEEP_LINES: str(job.keep_lines).lower()}
    try:
        run(sink, {**job.source, **options})
    finally:
        shutil.rmtree(archive.work, ignore_errors=True)


def _by_spark(
    spark: SparkSession, job: Ingest, is_over: Callable[[], bool], sink: Sink, options: dict[str, str]
) -> None:
    """One query."""
    writer = spark.readStream.format(NAME).options(**options).load().writeStream.foreachBatch(sink)
    writer = writer.queryName(f"dlx-router ingest {job.root.name}")
    writer = writer.option("checkpointLocation", str(sink.checkpoint(Archive(job.root))))
    trigger: dict[str, Any] = (
        {"availableNow": True} if job.every_s is None else {"processingTime": f"{job.every_s:g} seconds"}
    )
    query = writer.trigger(**trigger).start()
    try:
        _followed(query, job, is_over)
    finally:
        query.stop()


def _names(streams: str) -> list[str]:
    return [name.strip() for name in streams.split(",")]


def _starting(job: Ingest, known: dict[str, Any]) -> str:
    """Where the manifests end; streams that they do not know begin as asked."""
    return json.dumps({"*": job.start} | known) if known else job.start


def _followed(query: StreamingQuery, job: Ingest, is_over: Callable[[], bool]) -> None:
    if job.every_s is None:
        query.awaitTermination()
        return
    while not query.awaitTermination(_LOOK_S):  # type: ignore[arg-type]  # seconds may be a part of one
        if is_over():
            _drained(query)
            return


def _drained(query: StreamingQuery) -> None:
    """Let the batch that runs come to its end, for a while: one that is stopped is read again."""
    deadline = time.monotonic() + 60
    while query.isActive and query.status["isTriggerActive"] and time.monotonic() < deadline:
        time.sleep(_LOOK_S / 5)
