"""The archive as DataFrames: the rows that count, whatever a killed process left beside them."""

from datetime import date
from pathlib import Path
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dlx_router.spark import schemas
from dlx_router.spark.archive.layout import Archive, Part

_FIRST: Final = ("event_ts", "stream", "offset", "idx")  # of an event that was written twice, the earliest is kept


def read(spark: SparkSession, root: Path | str, *, since: date | None = None, repeated: bool = False) -> DataFrame:
    """Events of the archive with the columns of `schemas.ARCHIVE`, from day `since` (UTC) on.

    Each event_id once; with `repeated` as often as it was written, which is cheaper and what compacted days never are.
    """
    archive = Archive(root)
    parts = [part for part in archive.parts() if since is None or part.date >= since.isoformat()]
    found = rows(spark, archive, parts)
    return found if repeated or all(part.is_compacted for part in parts) else once(found)


def rows(spark: SparkSession, archive: Archive, parts: list[Part]) -> DataFrame:
    """All rows of these parts."""
    found = spark.createDataFrame([], schemas.ARCHIVE)
    for is_compacted, name in ((False, "raw"), (True, "events")):
        paths = [str(part.folder) for part in parts if part.is_compacted is is_compacted]
        if paths:
            reader = spark.read.schema(schemas.ARCHIVE).option("basePath", str(archive.root / name))
            found = found.unionByName(reader.parquet(*paths))
    return found


def once(events: DataFrame) -> DataFrame:
    """Each event_id once: the event that was decided first."""
    place = f.struct(*_FIRST)
    kept = events.groupBy("event_id").agg(f.min(place).alias("_kept"))
    at = f.struct(*(events[name] for name in _FIRST))
    joined = events.join(
        kept.withColumnRenamed("event_id", "_id"), (events["event_id"] == f.col("_id")) & (at == f.col("_kept"))
    )
    return joined.select(*schemas.ARCHIVE.names)


def bad(spark: SparkSession, root: Path | str) -> DataFrame:
    """The lines that are no events, with the reason: `schemas.BAD`."""
    archive = Archive(root)
    segments = {entry.seg for entry in archive.entries()}
    squashed = archive.state().squashed
    folders = [path for path in sorted(archive.root.glob("bad/seg=*")) if _counts(path, segments, squashed)]
    if not folders:
        return spark.createDataFrame([], schemas.BAD)
    reader = spark.read.schema(schemas.BAD).option("basePath", str(archive.root / "bad"))
    return reader.parquet(*map(str, folders))


def _counts(folder: Path, segments: set[str], squashed: int) -> bool:
    seg = folder.name.removeprefix("seg=")
    return seg in segments or int(seg.partition("-")[0]) < squashed
