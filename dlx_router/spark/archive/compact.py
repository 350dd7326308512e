"""`pipeline compact` and `erase`: days that are over become one sorted file each, what is too old or unwanted goes.

A day is written aside, put in its place, and counts from the moment its note (`_days/D.json`) is renamed; until then
the segments do. Killed at any instant, every event counts exactly once.
"""

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from dlx_router.journal.audit import COMMENT
from dlx_router.spark import schemas
from dlx_router.spark.archive import bad_lines, delta, reading
from dlx_router.spark.archive.aggregates import Aggregates
from dlx_router.spark.archive.files import ArchiveBusyError, ArchiveError, moved, removed, token
from dlx_router.spark.archive.layout import Archive, Day, Entry, Part
from dlx_router.spark.archive.lookback import LOOKBACK_DAYS, days_around
from dlx_router.spark.archive.verify import counted, orphans

ROWS_A_FILE: Final = 2_000_000
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Rules:
    """How long what is kept, in days. `lookback`: how far back an event_id is looked for that comes again."""

    keep: int | None = None
    keep_raw: float = 1.0
    lookback: int = LOOKBACK_DAYS


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done. `repeated`: events that had come twice."""

    days: int
    events: int
    repeated: int
    expired: int
    segments: int


Fold = Callable[[Sequence[Part], Sequence[Part], Path], None]
"""Writes the events of the first parts, each once and none that the second have, as sorted files into a new folder."""


def compact(fold: Fold, root: Path | str, rules: Rules, *, now: datetime | None = None) -> Compacted:
    """Compact every day but today and tomorrow (UTC), then forget what is too old.

    A day that lies further ahead is that of a wrong clock: left open, it would keep every manifest behind it.
    ArchiveError where another one is at it.
    """
    archive, now = Archive(root), now or datetime.now(UTC)
    with _whole(archive):
        expired = _expire(archive, now, _kept_for(rules.keep, now)) if rules.keep is not None else 0
        days = events = repeated = 0
        for day, parts in _open_days(archive, now.date()).items():
            _require_whole(parts)
            before = sum(part.rows for part in parts)
            done = _folded(archive, day, parts, partial(fold, parts, _near(archive, day, rules)))
            days, events, repeated = days + 1, events + done.rows, repeated + before - done.rows
        _drop_old(archive, int(now.timestamp() * 1000 - rules.keep_raw * _DAY_MS))
        segments = _squash(archive)
        _mirrored(archive)
    return Compacted(days, events, repeated, expired, segments)


def _kept_for(days: int, now: datetime) -> timedelta:
    """So many days, at most until the first of all dates: who wants to keep everything may name any number."""
    return timedelta(min(days, now.toordinal() - 1))


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


def erase(spark: SparkSession, root: Path | str, what: Erasure | str) -> Erased:
    """Remove these events, and their files; a text is the condition `where`.

    Lines that are no events lose their text where an id that was asked for stands in it, or where they were read in the
    time that was. Killed in between, some days still have them: run it again, and it finds the same letters, because
    the events by which they are found go last. ArchiveError for a condition that cannot be read, or a lost file.
    """
    archive, what = Archive(root), Erasure(what) if isinstance(what, str) else what
    with _whole(archive):
        _clear_killed_ingest(archive)
        parts = archive.parts()
        matching = _matching(reading.rows(spark, archive, parts), what.condition)
        keys = matching.select("id", "event_id").distinct().persist()
        letters = keys.where("id is not null").select("id").distinct()
        erased = letters.count()
        names = {*what.letters, *what.message_ids, *_ids(letters if what.letters or what.message_ids else None)}
        bad_lines.blank(archive, names, since_ms=what.since_ms, until_ms=what.until_ms)
        asked_for = spark.createDataFrame([(name,) for name in what.letters], "id string")
        gone = 0
        for kept in _steps(what, keys, letters.union(asked_for).distinct()):
            gone += _rewritten(spark, archive, kept)
        _drop_old(archive, time.time_ns())  # all that is compacted: what came twice is only there any more
        keys.unpersist()
        _mirrored(archive)
    return Erased(erased, gone, bad_lines.count(archive))


Kept = Callable[[DataFrame], DataFrame]


def _steps(what: Erasure, keys: DataFrame, letters: DataFrame) -> list[Kept]:
    """What is kept by the first step, and by the last: the events by which letters are found outlive all others."""

    def without(rows: DataFrame) -> DataFrame:
        return _kept(rows, what, keys, letters)

    def without_others(rows: DataFrame) -> DataFrame:
        condition = f.expr(what.condition) if isinstance(what.condition, str) else what.condition
        finds = f.coalesce(condition, f.lit(False))  # noqa: FBT003 - a column
        return rows.where(finds).select(*schemas.ARCHIVE.names).unionByName(without(rows.where(~finds)))

    return [without] if what.is_time else [without_others, without]


def _rewritten(spark: SparkSession, archive: Archive, kept: Kept) -> int:
    """Each day that has other events than those that are kept is written without them; how many these were."""
    parts, gone = archive.parts(), 0
    for day in sorted({part.date for part in parts}):
        own = [part for part in parts if part.date == day]
        rows = reading.rows(spark, archive, own)
        if hit := rows.count() - kept(rows).count():
            _require_whole(own)
            _folded(archive, day, own, partial(_write_sorted, kept(reading.once(rows)), own))
            gone += hit
    return gone


def _require_whole(parts: Iterable[Part]) -> None:
    """ArchiveError where a file is lost: what is written without its events would look whole."""
    for part in parts:
        for problem in counted(part):
            raise ArchiveError(f"{problem}; restore the folder from a backup, and run it again")


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


@contextmanager
def _whole(archive: Archive) -> Iterator[None]:
    """Under the lease, and only where no note is missing: files that count would look like leftovers."""
    with archive.lease("compact"):
        delta.is_wanted(archive)  # before anything is done that the table has to tell
        for problem in orphans(archive):
            raise ArchiveError(problem)
        removed(archive.compacting)
        try:
            yield
        finally:
            Aggregates(archive.root).prune()


def _matching(rows: DataFrame, where: str | Column) -> DataFrame:
    try:
        return rows.where(where)
    except AnalysisException as error:
        raise ArchiveError(f"--where {where!r}: {str(error).splitlines()[0]}; columns: docs/pipeline.md") from None


def _kept(rows: DataFrame, what: Erasure, keys: DataFrame, letters: DataFrame) -> DataFrame:
    if what.is_time:
        return rows.where(~what.within)
    others = rows.join(letters, "id", "left_anti").select(*schemas.ARCHIVE.names)
    on_them = (f.col("action") == COMMENT) & (f.col("details").getItem("letter") == f.col("noted"))
    others = others.join(letters.select(f.col("id").alias("noted")), on_them, "left_anti")  # what people noted on them
    return others.join(keys.where("id is null"), "event_id", "left_anti").select(*schemas.ARCHIVE.names)


def _open_days(archive: Archive, today: date) -> dict[str, list[Part]]:
    """Days before today that have segments which are not compacted, late ones of a compacted day included.

    And days that are not even near.
    """
    days: dict[str, list[Part]] = {}
    for part in archive.parts():
        if part.date < today.isoformat() or part.date > _tomorrow(today):
            days.setdefault(part.date, []).append(part)
    return {day: parts for day, parts in days.items() if not all(part.is_compacted for part in parts)}


def _tomorrow(today: date) -> str:
    """Events of later days are not of a clock that is somewhat fast."""
    return (today + timedelta(1)).isoformat()


def _near(archive: Archive, day: str, rules: Rules) -> list[Part]:
    """Where its events may stand already: a letter may be decided again after midnight.

    Of later days only those that are compacted: the others look back at this one when their turn comes.
    """
    since, until = days_around(day, rules.lookback)
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
        _write_sorted(rows, own, folder)

    return fold


def _write_sorted(rows: DataFrame, of: Sequence[Part], folder: Path) -> None:
    """A shuffle: where one task did all that was asked before, it had not memory enough for millions of rows."""
    files = max(sum(part.rows for part in of) // ROWS_A_FILE, 1)
    whole = rows.drop("event_date", "seg").repartition(files)
    whole.sortWithinPartitions("failed_queue", "event_ts").write.parquet(str(folder))


def _folded(archive: Archive, day: str, parts: Sequence[Part], write: Callable[[Path], None]) -> Day:
    """The parts of a day as what `write` puts into a new folder. What they were stays on the disk, see `_drop_old`."""
    seg = f"c-{token()}"
    staged = archive.compacting / seg
    write(staged)
    count = sum(pq.ParquetFile(file).metadata.num_rows for file in staged.glob("*.parquet"))
    if count:
        moved(staged, archive.compacted(day, seg))
    old = archive.days().get(day)
    segs = {part.seg for part in parts if not part.is_compacted} | set(old.folded if old else ())
    note = Day(day, seg, count, tuple(sorted(segs)), time.time_ns() // 1_000_000)
    archive.commit_day(note)
    return note


def _drop_old(archive: Archive, before_ms: int) -> None:
    """Delete what a compacted day replaced before then, whatever was killed since; later readers read the new one."""
    for day in archive.days().values():
        if day.written_ms <= before_ms:
            for seg in day.folded:
                removed(archive.raw(day.date, seg))
    for folder, since_ms in archive.unnamed():
        if since_ms <= before_ms:
            removed(folder)


def _expire(archive: Archive, now: datetime, keep: timedelta) -> int:
    """Forget the days that are older, and those ahead that were compacted so long ago; how many there were."""
    before = now.date() - keep
    state, limit = archive.state(), before.isoformat()
    ahead = _forget_ahead(archive, _tomorrow(now.date()), int((now - keep).timestamp() * 1000))
    dates = sorted({part.date for part in archive.parts() if part.date < limit})
    if limit > state.before:
        archive.commit_state(replace(state, before=limit))
    for day in archive.days().values():
        if day.date < limit:
            archive.forget(archive.day(day.date))
    for folder in [*archive.root.glob("raw/event_date=*"), *archive.root.glob("events/event_date=*")]:
        if folder.name.partition("=")[2] < limit:
            removed(folder)
    bad_lines.blank(archive, until_ms=int(datetime.combine(before, datetime.min.time(), UTC).timestamp() * 1000))
    return len(dates) + ahead


def _forget_ahead(archive: Archive, tomorrow: str, before_ms: int) -> int:
    """Forget what was compacted before then of days that lie ahead, whose own time would never come."""
    old = [day for day in archive.days().values() if day.rows and day.date > tomorrow and day.written_ms < before_ms]
    for day in old:
        archive.commit_day(replace(day, seg=f"c-{token()}", rows=0))
    return len(old)


def _squash(archive: Archive) -> int:
    """Fold the manifests whose events all lie in compacted days into the state; how many.

    Never the newest: an ingest that runs looks there whether the last segment is its own.
    """
    state, days = archive.state(), archive.days()
    done: list[Entry] = []
    for entry in archive.entries()[:-1]:
        if not all(_is_past(archive, entry.seg, day, days, state.before) for day in entry.rows):
            break
        done.append(entry)
    if not done:
        return 0
    end = dict(state.end) | {stream: at for entry in done for stream, at in entry.end.items()}
    events = state.events + sum(sum(entry.rows.values()) for entry in done)
    bad = state.bad + sum(entry.bad for entry in done)
    number = done[-1].number + 1
    archive.commit_state(replace(state, squashed=number, end=end, events=events, bad=bad))
    for entry in done:
        archive.forget(archive.manifest(entry.number))
    return len(done)


def _is_past(archive: Archive, seg: str, day: str, days: dict[str, Day], before: str) -> bool:
    if day < before:
        return True
    return day in days and seg in days[day].folded and not archive.raw(day, seg).exists()


def _mirrored(archive: Archive) -> None:
    if delta.is_wanted(archive):
        delta.mirror(archive)
