"""Trends: how many letters were decided how, in each stretch of time."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from dlx_router.spark.analyses.letters import HOUR_MS, KEY, once
from dlx_router.spark.analyses.shape import shaped

TRENDS_SCHEMA: Final = (
    "bucket_ms long, vhost string, failed_queue string, reason string, kind string, events long, new_letters long"
)


def trends(events: DataFrame, bucket_ms: int = HOUR_MS) -> DataFrame:
    """Events of each kind by queue and reason in buckets of `bucket_ms`, and how many letters failed first. TRENDS_SCHEMA.

    `bucket_ms` is where the bucket begins. A bucket without events has no row.
    """
    first = F.struct("ts_ms", "event_id")
    named = once(events).select(*KEY, "reason", "kind", "ts_ms", "event_id")
    births = named.where(F.col("kind") != "released").groupBy(*KEY).agg(F.min_by("event_id", first).alias("birth"))
    marked = named.join(births, list(KEY), "left")
    return shaped(
        marked.withColumn("bucket_ms", F.col("ts_ms") - F.col("ts_ms") % bucket_ms)
        .groupBy("bucket_ms", "vhost", "failed_queue", "reason", "kind")
        .agg(F.count("*").alias("events"), F.count_if(F.col("event_id") == F.col("birth")).alias("new_letters")),
        TRENDS_SCHEMA,
    ).orderBy("bucket_ms", "vhost", "failed_queue", "reason", "kind")
