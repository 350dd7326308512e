"""What happens to a micro-batch: its rows become one segment of the archive, whole or not at all.

Written aside by Spark's tasks, moved day by day, and only then told by a manifest. Killed anywhere before that, the
segment does not count and the same messages are read again; killed afterwards, they are not.
"""

import json
import shutil
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql import DataFrame
from pyspark.sql.pandas.types import to_arrow_schema

from dlx_router.spark import schemas
from dlx_router.spark.archive import delta
from dlx_router.spark.archive.files import ArchiveError, moved
from dlx_router.spark.archive.layout import Archive, Entry
from dlx_router.spark.archive.parsing import BAD_REASON, rows

_NO_DATE: Final = "event_date=__HIVE_DEFAULT_PARTITION__"
_BAD: Final[pa.Schema] = to_arrow_schema(schemas.BAD, timezone="UTC").remove(
    len(schemas.BAD) - 1
)  # seg is the folder's


@dataclass(frozen=True, slots=True)
class Sink:
    """For foreachBatch. Plain values only: with Spark Connect it is pickled and runs on the server."""

    root: str
    run: str
    base: int
    start: str  # JSON of the positions that the run begins at
    keep_lines: bool = False
    with_delta: bool = False

    def __call__(self, batch: DataFrame, batch_id: int) -> None:
        """Archive the batch. An error ends the query, and leaves the archive as it was."""
        archive = Archive(self.root)
        start, end = self._positions(archive, batch_id)
        if start == end:  # Spark's first batch of a run without news
            return
        number = self._number(archive)
        seg = f"{number:010}-{self.run}"
        staged = archive.work / self.run / seg
        written = rows(batch, keep_lines=self.keep_lines).write.mode("overwrite").partitionBy("event_date")
        written.parquet(str(staged))
        bad = _bad(archive, staged / _NO_DATE, seg)
        counts = {day.name.partition("=")[2]: _count(day) for day in sorted(staged.glob("event_date=[0-9]*"))}
        for date in counts:
            moved(staged / f"event_date={date}", archive.raw(date, seg))
        entry = Entry(number, seg, counts, bad, start, end, time.time_ns() // 1_000_000, _has_loss(start, end))
        archive.commit(entry)
        shutil.rmtree(staged, ignore_errors=True)
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


def _count(folder: Path) -> int:
    return sum(pq.ParquetFile(file).metadata.num_rows for file in folder.glob("*.parquet"))


def _bad(archive: Archive, staged: Path, seg: str) -> int:
    """Put the lines that are no events to the others, with the columns that they have; how many."""
    files = sorted(staged.glob("*.parquet")) if staged.exists() else []
    if not files:
        return 0
    folder = archive.work / f"bad-{seg}"
    folder.mkdir(parents=True)
    count = 0
    with pq.ParquetWriter(folder / "part-0.parquet", _BAD, compression="zstd") as writer:
        for file in files:
            for batch in pq.ParquetFile(file).iter_batches(columns=[*_BAD.names[:3], BAD_REASON, "line", "ingest_ts"]):
                columns = {**dict(zip(batch.schema.names, batch.columns, strict=True))}
                columns["reason"] = columns.pop(BAD_REASON)
                writer.write_table(pa.table([columns[name].cast(_BAD.field(name).type) for name in _BAD.names], _BAD))
                count += batch.num_rows
    moved(folder, archive.bad(seg))
    return count
