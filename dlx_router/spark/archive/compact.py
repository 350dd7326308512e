"""`pipeline compact` and `erase`: days that are over become one sorted file each, what is too old or unwanted goes.

A day is written aside, put in its place, and counts from the moment its note (`_days/D.json`) is renamed; until then
the segments do. Killed at any instant, every event counts exactly once.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, date, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Final

import pyarrow.parquet as pq
from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame, SparkSession

from dlx_router.spark import schemas
from dlx_router.spark.archive import delta, reading
from dlx_router.spark.archive.aggregates import Aggregates
from dlx_router.spark.archive.files import ArchiveError, moved, removed, token
from dlx_router.spark.archive.layout import Archive, Day, Entry, Part
from dlx_router.spark.archive.verify import orphans

ROWS_A_FILE: Final = 2_000_000
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Rules:
    """How long what is kept, in days. `lookback`: how far back an event_id is looked for that comes again."""

    keep: int | None = None
    keep_raw: float = 1.0
    lookback: int = reading.LOOKBACK_DAYS


@dataclass(frozen=True, slots=True)
class Compacted:
    """What was done. `repeated`: events that had come twice."""

    days: int
    events: int
    repeated: int
    expired: int
    segments: int


def compact(spark: SparkSession, root: Path | str, rules: Rules, *, now: datetime | None = None) -> Compacted:
    """Compact every day before today (UTC), then forget what is too old. ArchiveError where another one is at it."""
    archive, now = Archive(root), now or datetime.now(UTC)
    with _whole(archive):
        expired = _expire(archive, now.date() - timedelta(rules.keep)) if rules.keep is not None else 0
        days = events = repeated = 0
        for day, parts in _open_days(archive, now.date()).items():
            before = sum(part.rows for part in parts)
            done = _folded(spark, archive, day, parts, partial(_new, spark, archive, day, rules))
            days, events, repeated = days + 1, events + done.rows, repeated + before - done.rows
        _drop_old(archive, int(now.timestamp() * 1000 - rules.keep_raw * _DAY_MS))
        segments = _squash(archive)
        _mirrored(archive)
    return Compacted(days, events, repeated, expired, segments)


@dataclass(frozen=True, slots=True)
class Erased:
    """How many letters and events are gone, and how many lines that are no events could not be looked into."""

    letters: int
    events: int
    bad: int


def erase(spark: SparkSession, root: Path | str, where: str) -> Erased:
    """Remove every event of each letter that has an event for which the SQL condition holds; their files are deleted.

    Killed in between, some days still have them: run it again. ArchiveError for a condition that cannot be read.
    """
    archive = Archive(root)
    with _whole(archive):
        parts = archive.parts()
        found = _matching(reading.rows(spark, archive, parts), where).select("id", "event_id").distinct().persist()
        letters = found.where("id is not null").select("id").distinct()
        gone = 0
        for day in sorted({part.date for part in parts}):
            own = [part for part in parts if part.date == day]
            rows = reading.rows(spark, archive, own)
            hit = (
                rows.join(letters, "id", "left_semi").count()
                + rows.join(found.where("id is null"), "event_id", "left_semi").count()
            )
            if hit:
                _folded(spark, archive, day, own, lambda rows: _without(reading.once(rows), found, letters))
                gone += hit
        _drop_old(archive, time.time_ns())  # all that is compacted: what came twice is only there any more
        counted = letters.count()
        found.unpersist()
        _mirrored(archive)
    bad = sum(pq.ParquetFile(file).metadata.num_rows for file in archive.bad_files())
    return Erased(counted, gone, bad)


@contextmanager
def _whole(archive: Archive) -> Iterator[None]:
    """Under the lease, and only where no note is missing: files that count would look like leftovers."""
    with archive.lease("compact"):
        for said in orphans(archive):
            raise ArchiveError(said)
        removed(archive.compacting)
        yield
        Aggregates(archive.root).prune()


def _matching(rows: DataFrame, where: str) -> DataFrame:
    try:
        return rows.where(where)
    except AnalysisException as error:
        raise ArchiveError(f"--where {where!r}: {str(error).splitlines()[0]}; columns: docs/pipeline.md") from None


def _without(rows: DataFrame, found: DataFrame, letters: DataFrame) -> DataFrame:
    kept = rows.join(letters, "id", "left_anti").select(*schemas.ARCHIVE.names)
    return kept.join(found.where("id is null"), "event_id", "left_anti").select(*schemas.ARCHIVE.names)


def _open_days(archive: Archive, today: date) -> dict[str, list[Part]]:
    """Days before today that have segments which are not compacted, late ones of a compacted day included."""
    found: dict[str, list[Part]] = {}
    for part in archive.parts():
        if part.date < today.isoformat():
            found.setdefault(part.date, []).append(part)
    return {day: parts for day, parts in found.items() if not all(part.is_compacted for part in parts)}


def _new(spark: SparkSession, archive: Archive, day: str, rules: Rules, rows: DataFrame) -> DataFrame:
    """Each event once, without those that an earlier day has: a letter may be decided again after midnight."""
    since = (date.fromisoformat(day) - timedelta(rules.lookback)).isoformat()
    earlier = [part for part in archive.parts() if since <= part.date < day]
    return reading.unknown(reading.once(rows), reading.rows(spark, archive, earlier))


def _folded(
    spark: SparkSession, archive: Archive, day: str, parts: list[Part], change: Callable[[DataFrame], DataFrame]
) -> Day:
    """The parts of a day as one, changed so. What they were stays on the disk, see `_drop_old`."""
    seg = f"c-{token()}"
    staged = archive.compacting / seg
    files = max(sum(part.rows for part in parts) // ROWS_A_FILE, 1)
    rows = change(reading.rows(spark, archive, parts)).drop("event_date", "seg")
    rows.coalesce(files).sortWithinPartitions("failed_queue", "event_ts").write.parquet(str(staged))
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


def _expire(archive: Archive, before: date) -> int:
    """Forget the days before; how many there were."""
    state, limit = archive.state(), before.isoformat()
    dates = sorted({part.date for part in archive.parts() if part.date < limit})
    if limit > state.before:
        archive.commit_state(replace(state, before=limit))
    for day in archive.days().values():
        if day.date < limit:
            archive.forget(archive.day(day.date))
    for folder in [*archive.root.glob("raw/event_date=*"), *archive.root.glob("events/event_date=*")]:
        if folder.name.partition("=")[2] < limit:
            removed(folder)
    return len(dates)


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
