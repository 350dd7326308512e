"""`pipeline repair`: what the archive lacks is read again from the stream, or somebody accepts that it is lost.

A part of the archive (a folder, which a manifest or a day's note counts) is repaired whole or left as it was. What is
read again is put in its place only if it is as many events as were written. What is accepted is one note, that of its
day: the day is compacted without it, with an event `gap` in its place. Killed at any instant, it is to be run again.
"""

import getpass
import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from dlx_router.journal.encoding import encode
from dlx_router.journal.events import gap
from dlx_router.spark.amqp import StreamError
from dlx_router.spark.archive import lines
from dlx_router.spark.archive.aggregates import Aggregates
from dlx_router.spark.archive.day_files import Written
from dlx_router.spark.archive.files import ArchiveError, moved, token
from dlx_router.spark.archive.folding import Fold, alone, folded, mirrored, near
from dlx_router.spark.archive.layout import Archive, Entry, Loss, Part
from dlx_router.spark.archive.missing import Lacking, described, lacking, readable
from dlx_router.spark.archive.segment_source import FOLDER, KEEP_LINES, SegmentSource
from dlx_router.spark.offsets import DataLoss, Range, first_offset
from dlx_router.spark.options import OptionError

Reader = Callable[[Entry, Path], list[Written]]
"""Reads the messages of a segment once more, into files of a folder. ArchiveError: why it cannot."""


@dataclass(frozen=True, slots=True)
class Repaired:
    """A sentence for each part that is whole again, and for each that is not."""

    restored: tuple[str, ...]
    left: tuple[str, ...]


def from_stream(options: Mapping[str, str], *, keep_lines: bool = False) -> Reader:
    """A reader with these options of the source."""

    def read(entry: Entry, folder: Path) -> list[Written]:
        wanted = [*_ranges(entry)]
        if not wanted:
            raise ArchiveError("its manifest names no offsets")
        own = {"streams": ",".join(each.stream for each in wanted), FOLDER: str(folder)}
        try:
            source = SegmentSource({**options, **own, KEEP_LINES: str(keep_lines).lower()})
            return source.segments().again(wanted, entry.end, entry.written_ms)
        except (DataLoss, StreamError, OptionError) as error:
            raise ArchiveError(str(error).partition("; ")[0]) from None

    return read


def _ranges(entry: Entry) -> Iterator[Range]:
    for stream, at in entry.end.items():
        start = first_offset(entry.start.get(stream), at)
        if start < at["next"]:
            yield Range(stream, start, at["next"])


def repair(root: Path | str, read: Reader, fold: Fold) -> Repaired:
    """Make whole again what is lost or damaged: of the segments that are still there, or by `read`.

    What cannot be is left as it is. ArchiveError where another process is at it.
    """
    archive, restored, left = Archive(root), list[str](), list[str]()
    with alone(archive):
        entries = {entry.seg: entry for entry in archive.entries()}
        again: dict[str, list[Written]] = {}
        for state in lacking(archive.parts()):
            part = state.part
            try:
                if part.is_compacted:
                    _fold_again(archive, part, entries, fold)
                else:
                    if part.seg not in again:
                        again[part.seg] = read(entries[part.seg], archive.compacting / token())
                    _replace(archive, part, [file for file in again[part.seg] if file.day == part.date])
                restored.append(f"{part.folder}: {part.rows} events, whole again")
            except ArchiveError as error:
                left.append(f"{state.problem}; it cannot be made again: {error}; {_accept(archive, part)}")
        mirrored(archive, by_file=True)
    return Repaired(tuple(restored), tuple(left))


def _accept(archive: Archive, part: Part) -> str:
    return f"restore it from a backup, or run `dlx-router pipeline repair --accept-loss {_name(archive, part)}`"


def _name(archive: Archive, part: Part) -> str:
    return str(part.folder.relative_to(archive.root))


def _fold_again(archive: Archive, part: Part, entries: Mapping[str, Entry], fold: Fold) -> None:
    """A compacted day, of its segments while they are kept. `erase` keeps none that have what it erased."""
    day = archive.days()[part.date]
    rows = {seg: entries[seg].rows[day.date] for seg in day.folded if seg in entries}
    segments = [Part(archive.raw(day.date, seg), day.date, seg, rows[seg], is_compacted=False) for seg in rows]
    if len(segments) < len(day.folded) or lacking(segments):
        raise ArchiveError("the segments of that day are not kept any more")
    others = readable(near(archive, day.date))
    folded(archive, day.date, segments, partial(fold, segments, others))


def _replace(archive: Archive, part: Part, files: Sequence[Written]) -> None:
    """The part has these files and no others."""
    events = sum(file.rows for file in files)
    if events != part.rows:
        raise ArchiveError(f"the stream has {events} events of it now, and {part.rows} were written")
    staged, aside = (archive.compacting / token() for _ in range(2))
    staged.mkdir(parents=True)
    for file in files:
        Path(file.path).rename(staged / f"part-{Path(file.path).name}")
    if part.folder.exists():
        part.folder.rename(aside)
    moved(staged, part.folder)
    Aggregates(archive.root).forget(part)  # an earlier version may have made it of what was left


def accept(root: Path | str, names: Sequence[str], fold: Fold) -> list[Loss]:
    """Compact the days of these folders without what of them is lost, and note that. Nothing is done where one is not.

    A loss that was accepted before is given again. ArchiveError for a name that is no folder of the archive's, a part
    that is whole, and another part of the same day that is not and was not named.
    """
    archive = Archive(root)
    with alone(archive):
        paths = [_path(archive, name) for name in names]
        before = {loss.folder: loss for day in archive.days().values() for loss in day.lost}
        known = [before[str(path)] for path in paths if str(path) in before]
        wanted = [archive.root / path for path in paths if str(path) not in before]
        by_day = _lost_by_day(archive, wanted)
        losses = [loss for day, states in by_day.items() for loss in _without(archive, day, states, fold)]
        mirrored(archive)
    return [*known, *losses]


def _path(archive: Archive, name: str) -> Path:
    """Of a folder in the archive, as its notes have it."""
    path = Path(name)
    for root in (archive.root, archive.root.resolve()):
        if path.is_absolute() and path.is_relative_to(root):
            path = path.relative_to(root)
    if path.is_absolute() or ".." in path.parts:
        raise ArchiveError(f"--accept-loss {name}: not in {archive.root}; name a folder as `pipeline repair` says it")
    return path


def _lost_by_day(archive: Archive, wanted: Sequence[Path]) -> dict[str, list[Lacking]]:
    """What is lost of the days of these folders."""
    parts = archive.parts()
    by_folder = {part.folder: part for part in parts}
    for folder in wanted:
        if folder not in by_folder:
            now = "name one as `pipeline repair` says it, raw/event_date=…/seg=… or events/…"
            raise ArchiveError(f"--accept-loss {folder}: no folder of events that count; {now}")
    days = {by_folder[folder].date for folder in wanted}
    states = lacking(part for part in parts if part.date in days)
    lost = {state.part.folder: state for state in states}
    for folder in wanted:
        if folder not in lost:
            raise ArchiveError(f"--accept-loss {folder}: each of its events can be read; nothing is lost")
        if lost[folder].lost <= 0:
            raise ArchiveError(f"{lost[folder].problem}: more than were written; take away what is not the archive's")
    for state in states:
        if state.part.folder not in wanted:
            raise ArchiveError(f"{state.problem}; it is of the same day: repair it first, or accept that too")
    return {day: [state for state in states if state.part.date == day] for day in sorted(days)}


def _without(archive: Archive, day: str, states: Sequence[Lacking], fold: Fold) -> list[Loss]:
    own = [part for part in archive.parts() if part.date == day]
    rest = {state.part.folder: state.readable for state in states}
    sources = [part for part in (rest.get(part.folder, part) for part in own) if part.files]
    entries = {entry.seg: entry for entry in archive.entries()}
    losses = [_loss(archive, state, entries) for state in states]
    others = readable(near(archive, day))

    def write(folder: Path) -> None:
        if sources:
            fold(sources, others, folder)
        folder.mkdir(parents=True, exist_ok=True)
        pq.write_table(_gaps(_vhost(archive), losses), folder / f"gap-{token()}.parquet", compression="zstd")

    folded(archive, day, own, write, losses)
    return losses


def _loss(archive: Archive, state: Lacking, entries: Mapping[str, Entry]) -> Loss:
    """What is known of it: the time is that of its day until it was written, of which it can only be a part."""
    part, now = state.part, time.time_ns() // 1_000_000
    begin = int(datetime.fromisoformat(part.date).replace(tzinfo=UTC).timestamp() * 1000)
    end = begin + lines.DAY_MS - 1
    offsets: dict[str, list[int]] = {}
    if (entry := entries.get(part.seg)) is not None:
        end = min(max(entry.written_ms, begin), end) if entry.written_ms else end
        offsets = {each.stream: [each.start, each.end] for each in _ranges(entry)}
    return Loss(_name(archive, part), state.lost, offsets, begin, end, now, getpass.getuser())


def _gaps(vhost: str, losses: Sequence[Loss]) -> Any:  # noqa: ANN401 - pyarrow has no types
    """Events `gap`, as a router writes them of what it could not journal."""
    rows = []
    for loss in losses:
        stream, (first, _) = next(iter(loss.offsets.items()), ("", (-1, -1)))
        place = lines.Place(stream, first, "none", -1)
        rows.append(lines.row(place, _line(vhost, loss)))
    return lines.table(rows, None)  # a time of now would say that the journal is known until now


def _line(vhost: str, loss: Loss) -> bytes:
    name = f"pipeline {loss.folder}"  # its id is made of this, too
    document = json.loads(gap(name, vhost, events=loss.events, from_ms=loss.from_ms, to_ms=loss.to_ms))
    return encode(document | {"actor": loss.by, "detail": described(loss)}).encode()


def _vhost(archive: Archive) -> str:
    """That of the archive's events."""
    for part in archive.parts():
        for file in part.files:
            with suppress(OSError, pa.ArrowException, StopIteration):
                batch = next(pq.ParquetFile(file).iter_batches(batch_size=1, columns=["vhost"]))
                return str(batch["vhost"][0])
    return ""
