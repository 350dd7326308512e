"""A day of the archive becomes one folder of sorted files: what `compact`, `erase` and `repair` do alike.

It is written aside, put in its place, and counts from the moment its note (`_days/D.json`) is renamed; until then what
was there before does. Killed at any instant, every event counts exactly once.
"""

import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.sql import DataFrame, SparkSession

from dlx_router.spark.archive import delta, reading
from dlx_router.spark.archive.aggregates import Aggregates
from dlx_router.spark.archive.files import ArchiveError, moved, removed, token
from dlx_router.spark.archive.layout import Archive, Day, Loss, Part
from dlx_router.spark.archive.lookback import LOOKBACK_DAYS, days_around
from dlx_router.spark.archive.verify import orphans

ROWS_A_FILE: Final = 2_000_000


Fold = Callable[[Sequence[Part], Sequence[Part], Path], None]
"""Writes the events of the first parts, each once and none that the second have, as sorted files into a new folder."""


@contextmanager
def alone(archive: Archive) -> Iterator[None]:
    """Under the lease of `compact`, and only where no note is missing: files that count would look like leftovers."""
    with archive.lease("compact"):
        delta.is_wanted(archive)  # before anything is done that the table has to tell
        for problem in orphans(archive):
            raise ArchiveError(problem)
        removed(archive.compacting)
        try:
            yield
        finally:
            Aggregates(archive.root).prune()


def near(archive: Archive, day: str, lookback: int = LOOKBACK_DAYS) -> list[Part]:
    """Where its events may stand already: a letter may be decided again after midnight.

    Of later days only those that are compacted: the others look back at this one when their turn comes.
    """
    since, until = days_around(day, lookback)
    return [
        part for part in archive.parts() if since <= part.date < day or (part.is_compacted and day < part.date <= until)
    ]


def by_spark(spark: SparkSession, root: Path | str) -> Fold:
    """For archives that no one machine reads in time."""
    archive = Archive(root)

    def fold(own: Sequence[Part], near: Sequence[Part], folder: Path) -> None:
        rows = reading.unknown(
            reading.once(reading.rows(spark, archive, [*own])), reading.rows(spark, archive, [*near])
        )
        write_sorted(rows, own, folder)

    return fold


def write_sorted(rows: DataFrame, of: Sequence[Part], folder: Path) -> None:
    """A shuffle: where one task did all that was asked before, it had not memory enough for millions of rows."""
    files = max(sum(part.rows for part in of) // ROWS_A_FILE, 1)
    whole = rows.drop("event_date", "seg").repartition(files)
    whole.sortWithinPartitions("failed_queue", "event_ts").write.parquet(str(folder))


def folded(
    archive: Archive, day: str, parts: Sequence[Part], write: Callable[[Path], None], lost: Sequence[Loss] = ()
) -> Day:
    """The parts of a day as what `write` puts into a new folder. What they were stays on the disk, see `drop_old`."""
    seg = f"c-{token()}"
    staged = archive.compacting / seg
    write(staged)
    count = sum(pq.ParquetFile(file).metadata.num_rows for file in staged.glob("*.parquet"))
    if count:
        moved(staged, archive.compacted(day, seg))
    old = archive.days().get(day)
    segs = {part.seg for part in parts if not part.is_compacted} | set(old.folded if old else ())
    losses = (*(old.lost if old else ()), *lost)
    note = Day(day, seg, count, tuple(sorted(segs)), time.time_ns() // 1_000_000, losses)
    archive.commit_day(note)
    return note


def drop_old(archive: Archive, before_ms: int) -> None:
    """Delete what a compacted day replaced before then, whatever was killed since; later readers read the new one.

    And what came of days that retention took already: nobody reads it, so no `erase` finds it either.
    """
    gone = archive.state().before
    for folder in [*archive.root.glob("raw/event_date=*"), *archive.root.glob("events/event_date=*")]:
        if folder.name.partition("=")[2] < gone:
            removed(folder)
    for day in archive.days().values():
        if day.written_ms <= before_ms:
            for seg in day.folded:
                removed(archive.raw(day.date, seg))
    for folder, since_ms in archive.unnamed():
        if since_ms <= before_ms:
            removed(folder)


def mirrored(archive: Archive, *, by_file: bool = False) -> None:
    """A Delta table that there is names what counts now; see `delta.mirror`."""
    if delta.is_wanted(archive):
        delta.mirror(archive, by_file=by_file)
