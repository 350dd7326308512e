"""The tables of the dictionary as temporary views of a Spark session: the same names as in `pipeline sql`."""

from datetime import date
from pathlib import Path

from pyspark.sql import SparkSession

from dlx_router.spark.archive import reading
from dlx_router.spark.archive.complete import read_to_end
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.tables import sql
from dlx_router.spark.tables.dictionary import BY_NAME


def define(spark: SparkSession, root: Path | str) -> None:
    """Make (or renew) the views of what counts in the archive now."""
    reading.read(spark, root).createOrReplaceTempView("events")
    reading.read(spark, root, repeated=True).createOrReplaceTempView("raw_events")
    reading.bad(spark, root).createOrReplaceTempView("bad_lines")
    parts = Archive(root).parts()
    rows = [(date.fromisoformat(part.date), part.seg, part.rows, part.is_compacted) for part in parts]
    spark.createDataFrame(rows, BY_NAME["segments"].schema).createOrReplaceTempView("segments")
    asked = spark.createDataFrame([*read_to_end(Archive(root)).items()], "stream string, complete_ms long")
    asked.createOrReplaceTempView(sql.ASKED)
    spark.sql(sql.LETTERS).createOrReplaceTempView("letters")
    spark.sql(sql.GROUPS).createOrReplaceTempView("groups")
