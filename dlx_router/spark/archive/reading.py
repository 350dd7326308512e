"""The archive as DataFrames: the rows that count, whatever a killed process left beside them."""

from datetime import date
from pathlib import Path
from typing import Final

from pyspark.sql import Column, DataFrame, SparkSession, Window
from pyspark.sql import functions as f

from dlx_router.core.signature import Signature
from dlx_router.spark import schemas
from dlx_router.spark.archive import lookback
from dlx_router.spark.archive.layout import Archive, Part

_FIRST: Final = ("event_ts", "stream", "offset", "idx")  # of an event that was written twice, the earliest is kept
_MASK: Final = (1 << 20) - 1  # so many buckets at most are sent to all tasks, whatever comes twice


def read(spark: SparkSession, root: Path | str, *, since: date | None = None, repeated: bool = False) -> DataFrame:
    """Events of the archive with the columns of `schemas.ARCHIVE`, from day `since` (UTC) on.

    Each event_id once; with `repeated` as often as it was written, which is cheaper and what compacted days never are.
    Only what is not compacted yet is searched for events that came twice.
    """
    archive = Archive(root)
    every = archive.parts()
    parts = [part for part in every if since is None or part.date >= since.isoformat()]
    fresh = [part for part in parts if not part.is_compacted]
    if repeated or not fresh:
        return rows(spark, archive, parts)
    raw = once(rows(spark, archive, fresh))
    if near := lookback.near(fresh, every):
        raw = unknown(raw, rows(spark, archive, near))
    return rows(spark, archive, [part for part in parts if part.is_compacted]).unionByName(raw)


def rows(spark: SparkSession, archive: Archive, parts: list[Part]) -> DataFrame:
    """All rows of these parts."""
    frame = spark.createDataFrame([], schemas.ARCHIVE)
    for is_compacted, name in ((False, "raw"), (True, "events")):
        paths = [str(path) for part in parts if part.is_compacted is is_compacted for path in _paths(part)]
        if paths:
            reader = spark.read.schema(schemas.ARCHIVE).option("basePath", str(archive.root / name))
            frame = frame.unionByName(reader.parquet(*paths))
    return frame


def _paths(part: Part) -> list[Path]:
    return part.files if part.without else [part.folder]


def unknown(events: DataFrame, known: DataFrame) -> DataFrame:
    """Those whose event_id is not known yet. One that nobody is known to have signed never stands for one that is."""
    have = known.select(f.col("event_id").alias("_id"), (f.col("signature") == Signature.OK.value).alias("_ok"))
    stands = f.col("_ok").isNull() | f.col("_ok") | (f.coalesce("signature", f.lit("")) != Signature.OK.value)
    return events.join(have, (f.col("event_id") == f.col("_id")) & stands, "left_anti").select(*schemas.ARCHIVE.names)


def once(events: DataFrame) -> DataFrame:
    """Each event_id once: the event that was decided first, of those that a router signed where there are any.

    Hardly any comes twice, so only hashes are counted of all of them; those that may be there twice are then sorted.
    """
    marked = events.withColumn("_hash", f.xxhash64("event_id")).withColumn("_bucket", f.col("_hash").bitwiseAND(_MASK))
    counted = marked.groupBy("_hash").count().where(f.col("count") > 1)
    suspect = f.broadcast(counted.select(f.col("_hash").bitwiseAND(_MASK).alias("_bucket")).distinct())
    own = Window.partitionBy("event_id").orderBy(_signed_first(), *_FIRST)
    several = marked.join(suspect, "_bucket", "left_semi").withColumn("_nth", f.row_number().over(own))
    single = marked.join(suspect, "_bucket", "left_anti").select(*schemas.ARCHIVE.names)
    return single.unionByName(several.where("_nth = 1").select(*schemas.ARCHIVE.names))


def _signed_first() -> Column:
    return f.when(f.col("signature") == Signature.OK.value, 0).otherwise(1)


def bad(spark: SparkSession, root: Path | str) -> DataFrame:
    """The lines that are no events, with the reason: `schemas.BAD`."""
    archive = Archive(root)
    folders = archive.bad_folders()
    if not folders:
        return spark.createDataFrame([], schemas.BAD)
    reader = spark.read.schema(schemas.BAD).option("basePath", str(archive.bad_lines))
    return reader.parquet(*map(str, folders))
