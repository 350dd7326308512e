"""`pipeline verify`: does the archive hold what its manifests say, without a hole? Reads files only; needs no Spark."""

from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq

from dlx_router.core.signature import Signature
from dlx_router.spark.archive.layout import Archive, Entry, Part

_PLACE: Final = ["stream", "offset", "idx"]
_UNREADABLE: Final = (OSError, pa.ArrowException)


@dataclass(frozen=True, slots=True)
class Verified:
    """What counts in the archive, and what is wrong with it: one sentence each. `signatures`: events of each."""

    segments: int
    days: int
    events: int
    bad: int
    findings: tuple[str, ...]
    signatures: Mapping[str, int]


def verify(root: Path | str, *, deep: bool = False) -> Verified:
    """Manifests without a hole, positions without a gap, every file there with its rows; `deep`: each event once.

    ArchiveError where manifests cannot be read at all.
    """
    archive = Archive(root)
    entries, parts = archive.entries(), archive.parts()
    findings = [*_chain(archive, entries), *(finding for part in parts for finding in counted(part))]
    findings += [*_bad_counted(archive, entries), *orphans(archive)]
    if deep and not findings:
        findings += [finding for entry in entries for finding in _placed(archive, entry)]
        findings += [finding for part in parts if part.is_compacted for finding in _unique(part)]
    rows = sum(part.rows for part in parts)
    bad = archive.state().bad + sum(entry.bad for entry in entries)
    return Verified(archive.next_number(), len(archive.days()), rows, bad, tuple(findings), signatures(archive))


def signatures(archive: Archive) -> dict[str, int]:
    """How many events of the archive have which signature; those of before it was looked at count as none."""
    counts: Counter[str] = Counter()
    for part in archive.parts():
        for file in part.files:
            with suppress(*_UNREADABLE):  # verify says so
                counts.update(_signatures(file))
    return {name: counts[name] for name in sorted(counts)}


def _signatures(file: Path) -> dict[str, int]:
    parquet = pq.ParquetFile(file)
    if "signature" not in parquet.schema_arrow.names:
        return {Signature.NONE.value: parquet.metadata.num_rows}
    counted = parquet.read(columns=["signature"])["signature"].value_counts().to_pylist()
    return {entry["values"] or Signature.NONE.value: entry["counts"] for entry in counted}


def _chain(archive: Archive, entries: list[Entry]) -> Iterator[str]:
    at: dict[str, Any] = dict(archive.state().end)
    for entry in entries:
        for stream, start in entry.start.items():
            if stream in at and at[stream]["next"] != start["next"]:
                was, begins = at[stream]["next"], start["next"]
                yield f"segment {entry.seg}: begins at offset {begins} of {stream!r}, the one before ended at {was}"
        if entry.lost:
            yield f"segment {entry.seg}: messages were gone before they were read, and that was allowed"
        at |= entry.end


def counted(part: Part) -> Iterator[str]:
    """What is wrong with the number of its events, if anything."""
    rows = 0
    for file in part.files:
        try:
            rows += pq.ParquetFile(file).metadata.num_rows
        except _UNREADABLE as error:
            yield f"{part.folder}: a file cannot be read, {file.name}: {error}"
            return
    if rows != part.rows:
        yield f"{part.folder}: {rows} rows, {part.rows} were written"


def orphans(archive: Archive) -> Iterator[str]:
    """Compacted folders whose events would be lost with them, though no day tells of them: their note is gone."""
    days, before = archive.days(), archive.state().before
    parts = archive.parts()
    for folder, _ in archive.unnamed():
        date = folder.parent.name.partition("=")[2]
        if date >= before and date not in days:
            raw = sum(part.rows for part in parts if part.date == date and part.folder.exists())
            if (rows := sum(pq.ParquetFile(file).metadata.num_rows for file in folder.glob("part-*.parquet"))) > raw:
                yield f"{folder}: {rows} events that no day tells of: restore {archive.day(date)} from a backup"


def _bad_counted(archive: Archive, entries: list[Entry]) -> Iterator[str]:
    for entry in entries:
        rows = sum(pq.ParquetFile(file).metadata.num_rows for file in archive.bad(entry.seg).glob("*.parquet"))
        if rows != entry.bad:
            yield f"{archive.bad(entry.seg)}: {rows} rows, {entry.bad} were written"


def _placed(archive: Archive, entry: Entry) -> Iterator[str]:
    """Every event of a segment has a place of its own, between the segment's positions."""
    seen: set[tuple[str, int, int]] = set()
    for day in entry.rows:
        for file in archive.raw(day, entry.seg).glob("*.parquet"):
            table = pq.ParquetFile(file).read(columns=_PLACE)
            for place in zip(*(column.to_pylist() for column in table.columns), strict=True):
                if place in seen:
                    yield f"{file}: {place} is there twice"
                seen.add(place)
    for stream, offset, _ in seen:
        start = entry.start.get(stream, {"next": 0})["next"]
        if not (start <= offset < entry.end[stream]["next"] or entry.lost):
            yield f"segment {entry.seg}: offset {offset} of {stream!r} is not of this segment"


def _unique(part: Part) -> Iterator[str]:
    ids = [pq.ParquetFile(file).read(columns=["event_id"])["event_id"] for file in part.files]
    different = len(pa.chunked_array([chunk for column in ids for chunk in column.chunks], pa.string()).unique())
    if different != part.rows:
        yield f"{part.folder}: {part.rows} events, but {different} event ids"
