"""What happens to a micro-batch: its files become one segment of the archive, whole or not at all.

Written aside by the tasks that read, moved day by day, and only then told by a manifest. Killed anywhere before that,
the segment does not count and the same messages are read again; killed afterwards, they are not.
"""

import json
import shutil
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from dlx_router.spark.archive import delta
from dlx_router.spark.archive.day_files import BAD, GONE, Written
from dlx_router.spark.archive.files import ArchiveError, moved
from dlx_router.spark.archive.layout import Archive, Entry


@dataclass(frozen=True, slots=True)
class Sink:
    """For foreachBatch. Plain values only: with Spark Connect it is pickled and runs on the server."""

    root: str
    run: str
    base: int
    start: str  # JSON of the positions that the run begins at
    with_delta: bool = False

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Archive the batch. An error ends the query, and leaves the archive as it was."""
        archive = Archive(self.root)
        start, end = self._positions(archive, batch_id)
        if start != end:  # else Spark's first batch of a run without news
            self.put(archive, [Written(*row) for row in batch.collect()], start, end)

    def put(self, archive: Archive, files: Iterable[Written], start: dict[str, Any], end: dict[str, Any]) -> None:
        """Make the files, which hold what is between the positions, the next segment; it says what is lost."""
        number, files = self._number(archive), [*files]
        seg = f"{number:010}-{self.run}"
        counts = segment(archive, seg, [file for file in files if file.day != GONE])
        bad = counts.pop(BAD, 0)
        is_lost = _has_loss(start, end) or any(file.day == GONE for file in files)
        archive.commit(Entry(number, seg, counts, bad, start, end, time.time_ns() // 1_000_000, is_lost))
        shutil.rmtree(self.folder(archive), ignore_errors=True)  # of reads that broke off, which no `erase` would find
        if self.with_delta or delta.is_wanted(archive):
            delta.mirror(archive)

    def _number(self, archive: Archive) -> int:
        """The next one, if nobody else has written since this run began."""
        number = archive.next_number()
        if number > self.base and not archive.entry(number - 1).seg.endswith(self.run):
            raise ArchiveError(f"{self.root}: another ingest has written segment {number - 1}; let only one run")
        return number

    def checkpoint(self, archive: Archive) -> Path:
        """Spark's checkpoint of this run; the archive's manifests are what outlives it."""
        return archive.work / self.run / "checkpoint"

    def folder(self, archive: Archive) -> Path:
        """Where the tasks of this run write."""
        return archive.work / self.run / "files"

    def _positions(self, archive: Archive, batch_id: int) -> tuple[dict[str, Any], dict[str, Any]]:
        """What Spark wrote down before it began: the positions before and behind this batch."""
        log = self.checkpoint(archive) / "offsets"
        start = _logged(log / str(batch_id - 1)) if batch_id else json.loads(self.start)
        return start, _logged(log / str(batch_id))


def _logged(path: Path) -> dict[str, Any]:
    """A file of Spark's offset log: a version, the batch's settings, then one line for each source."""
    lines = path.read_text(encoding="utf-8").splitlines()
    if len(lines) != 3 or lines[0] != "v1":  # noqa: PLR2004 - as it says
        raise ArchiveError(f"{path}: not the offset log that this version of dlx-router knows; Spark is too new")
    return dict(json.loads(lines[2]))


def _has_loss(start: dict[str, Any], end: dict[str, Any]) -> bool:
    """Something was missing between the two, and that was allowed."""
    return any(at["lost"] > start.get(stream, at)["lost"] for stream, at in end.items())


def segment(archive: Archive, seg: str, files: Iterable[Written]) -> dict[str, int]:
    """Put the files to their places; → rows by day. They count from when the manifest says so."""
    rows: Counter[str] = Counter()
    staged = archive.work / f"staged-{seg}"
    for file in files:
        folder = staged / (file.day or "bad")
        folder.mkdir(parents=True, exist_ok=True)
        path = Path(file.path)
        path.rename(folder / f"part-{path.name}")
        rows[file.day] += file.rows
    for day in rows:
        moved(staged / (day or "bad"), archive.raw(day, seg) if day else archive.bad(seg))
    shutil.rmtree(staged, ignore_errors=True)
    return dict(sorted(rows.items()))
