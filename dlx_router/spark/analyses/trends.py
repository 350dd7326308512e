"""Trends: how many letters were decided how, in each stretch of time."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from dlx_router.core.recovered import LEASES
from dlx_router.spark.analyses.letters import HOUR_MS, KEY, of_letters
from dlx_router.spark.analyses.shape import shaped

TRENDS_SCHEMA: Final = (
    "bucket_ms long, vhost string, failed_queue string, reason string, kind string, events long, new_letters long"
)


def trends(events: DataFrame, bucket_ms: int = HOUR_MS) -> DataFrame:
    """Events of each kind by queue and reason in buckets of `bucket_ms`, and the letters that failed first.

    TRENDS_SCHEMA; `bucket_ms` is where the bucket begins. A bucket without events has no row.
    """
    first = f.struct("ts_ms", "event_id")
    named = of_letters(events).select(*KEY, "reason", "kind", "ts_ms", "event_id")
    decided = named.where(~f.col("kind").isin("released", *LEASES))
    births = decided.groupBy(*KEY).agg(f.min_by("event_id", first).alias("birth"))
    marked = named.join(births, list(KEY), "left")
    return shaped(
        marked.withColumn("bucket_ms", f.col("ts_ms") - f.col("ts_ms") % bucket_ms)
        .groupBy("bucket_ms", "vhost", "failed_queue", "reason", "kind")
        .agg(f.count("*").alias("events"), f.count_if(f.col("event_id") == f.col("birth")).alias("new_letters")),
        TRENDS_SCHEMA,
    ).orderBy("bucket_ms", "vhost", "failed_queue", "reason", "kind")
