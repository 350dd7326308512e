"""`pipeline erase`: every event of some letters, or of a time, is gone from each file of the archive."""

import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from dlx_router.journal.audit import COMMENT
from dlx_router.spark import schemas
from dlx_router.spark.archive import bad_lines, reading
from dlx_router.spark.archive.files import ArchiveBusyError, ArchiveError, removed
from dlx_router.spark.archive.folding import alone, drop_old, folded, mirrored, near, write_sorted
from dlx_router.spark.archive.layout import Archive, Part
from dlx_router.spark.archive.missing import require_whole


@dataclass(frozen=True, slots=True)
class Erased:
    """How many letters and events are gone, and how many lines that are no events have their text still."""

    letters: int
    events: int
    bad: int


@dataclass(frozen=True, slots=True)
class Erasure:
    """What to erase: whole letters (that have an event for which `where` holds, or by id or message id), or a time.

    A time is events alone, from `since_ms` on and before `until_ms`: of a letter that lived longer the rest stays.
    """

    where: str = ""
    letters: tuple[str, ...] = ()
    message_ids: tuple[str, ...] = ()
    since_ms: int | None = None
    until_ms: int | None = None

    @property
    def is_time(self) -> bool:
        return self.since_ms is not None or self.until_ms is not None

    @property
    def within(self) -> Column:
        """Of an event: it is of that time."""
        since, until = self.since_ms, self.until_ms
        after = f.col("ts_ms") >= (0 if since is None else since)
        return after if until is None else after & (f.col("ts_ms") < until)

    @property
    def condition(self) -> str | Column:
        """Of the events that are looked for. Ids are values, and never a part of a text of SQL."""
        if self.is_time:
            return self.within
        ids = f.col("id").isin(*self.letters) | f.col("props.message_id").isin(*self.message_ids)
        return self.where or f.coalesce(ids, f.lit(False))  # noqa: FBT003 - a column


@dataclass(frozen=True, slots=True)
class Doomed:
    """What goes: the events by which letters are found, which outlive all others of them, and those others.

    `keys`: `id` and `event_id` of the first; `letters`: ids of all letters that go.
    """

    what: Erasure
    keys: DataFrame
    letters: DataFrame

    @property
    def steps(self) -> tuple[int, ...]:
        """Of what `by_day` counts, which goes first and which last."""
        return (0,) if self.what.is_time else (0, 1)

    def by_day(self, rows: DataFrame) -> dict[str, tuple[int, ...]]:
        """How many events of each day go in which step; one read of all rows, and days without any are left out."""
        goes = self.what.within if self.what.is_time else self._goes(0) | self._goes(1)
        marked = self._marked(rows).where(goes)
        counts = [f.count_if(self.what.within if self.what.is_time else self._goes(step)) for step in self.steps]
        return {str(row[0]): tuple(row[1:]) for row in marked.groupBy("event_date").agg(*counts).collect()}

    def kept(self, step: int, rows: DataFrame) -> DataFrame:
        """The rows without what goes in this step and before."""
        if self.what.is_time:
            return rows.where(~self.what.within)
        goes = self._goes(0) | self._goes(1) if step else self._goes(0)
        return self._marked(rows).where(~goes).select(*schemas.ARCHIVE.names)

    def _goes(self, step: int) -> Column:
        finds = f.col("_finds")
        return f.col("_goes") & (finds if step else ~finds)

    def _marked(self, rows: DataFrame) -> DataFrame:
        """With `_goes`: it is of such a letter, a note on it, or an event of no letter that was looked for itself."""
        if self.what.is_time:
            return rows
        condition = f.expr(self.what.condition) if isinstance(self.what.condition, str) else self.what.condition
        rows = rows.withColumn("_finds", f.coalesce(condition, f.lit(False)))  # noqa: FBT003 - a column
        rows = rows.withColumn("_on", f.when(f.col("action") == COMMENT, f.col("details").getItem("letter")))
        own = self.letters.select(f.col("id").alias("_id"))
        noted = self.letters.select(f.col("id").alias("_noted"))
        single = self.keys.where("id is null").select(f.col("event_id").alias("_event")).distinct()
        rows = rows.join(own, f.col("id") == f.col("_id"), "left")
        rows = rows.join(noted, f.col("_on") == f.col("_noted"), "left")
        rows = rows.join(single, f.col("event_id") == f.col("_event"), "left")
        return rows.withColumn(
            "_goes", f.col("_id").isNotNull() | f.col("_noted").isNotNull() | f.col("_event").isNotNull()
        )


def erase(spark: SparkSession, root: Path | str, what: Erasure | str) -> Erased:
    """Remove these events, and their files; a text is the condition `where`.

    Lines that are no events lose their text where an id that was asked for stands in it, or where they were read in the
    time that was. Killed in between, some days still have them: run it again, and it finds the same letters, because
    the events by which they are found go last. ArchiveError for a condition that cannot be read, or a lost file.
    """
    archive, what = Archive(root), Erasure(what) if isinstance(what, str) else what
    with alone(archive):
        _clear_killed_ingest(archive)
        parts = archive.parts()
        require_whole(part for part in parts if not part.files)
        rows = reading.rows(spark, archive, parts)
        keys = _matching(rows, what.condition).select("id", "event_id").distinct().persist()
        letters = keys.where("id is not null").select("id").distinct()
        erased = letters.count()
        names = {*what.letters, *what.message_ids, *_ids(letters if what.letters or what.message_ids else None)}
        bad_lines.blank(archive, names, since_ms=what.since_ms, until_ms=what.until_ms)
        asked_for = spark.createDataFrame([(name,) for name in what.letters], "id string")
        doomed = Doomed(what, keys, letters.union(asked_for).distinct())
        hits = doomed.by_day(rows)
        for step in doomed.steps:
            _rewrite(spark, archive, [day for day, counts in hits.items() if counts[step]], partial(doomed.kept, step))
        drop_old(archive, time.time_ns())  # all that is compacted: what came twice is only there any more
        keys.unpersist()
        mirrored(archive)
    return Erased(erased, sum(map(sum, hits.values())), bad_lines.count(archive))


def _rewrite(
    spark: SparkSession, archive: Archive, days: Collection[str], kept: Callable[[DataFrame], DataFrame]
) -> None:
    """Each of these days is written without what is not kept."""
    by_day: dict[str, list[Part]] = {day: [] for day in sorted(days)}
    for part in archive.parts():
        if part.date in by_day:
            by_day[part.date].append(part)
    for day, own in by_day.items():
        require_whole(own)
        rows = reading.once(reading.rows(spark, archive, own))
        if not all(part.is_compacted for part in own):  # then nobody looks any more whether they stand elsewhere too
            rows = reading.unknown(rows, reading.rows(spark, archive, near(archive, day)))
        folded(archive, day, own, partial(write_sorted, kept(rows), own))


def _ids(letters: DataFrame | None) -> Iterable[str]:
    """Of letters that were asked for by name: what is no event may know them by this one alone."""
    return () if letters is None else (row["id"] for row in letters.collect())


def _clear_killed_ingest(archive: Archive) -> None:
    """Remove what a killed ingest left. One that runs has done so when it began."""
    try:
        with archive.lease("ingest"):
            archive.clear()
            removed(archive.work)
    except ArchiveBusyError:
        return


def _matching(rows: DataFrame, where: str | Column) -> DataFrame:
    try:
        return rows.where(where)
    except AnalysisException as error:
        raise ArchiveError(f"--where {where!r}: {str(error).splitlines()[0]}; columns: docs/pipeline.md") from None
