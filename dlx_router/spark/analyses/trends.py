"""Trends: how many letters were decided how, in each stretch of time."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from dlx_router.core.recovered import LEASES, first_death_sql
from dlx_router.spark.analyses.letters import HOUR_MS, KEY, of_letters
from dlx_router.spark.analyses.shape import shaped

TRENDS_SCHEMA: Final = (
    "bucket_ms long, vhost string, failed_queue string, reason string, kind string, events long, new_letters long"
)


def trends(events: DataFrame, bucket_ms: int = HOUR_MS, since_ms: int | None = None) -> DataFrame:
    """Events of each kind by queue and reason in buckets of `bucket_ms`, and the letters that failed first.

    TRENDS_SCHEMA; `bucket_ms` is where the bucket begins. A bucket without events has no row. `since_ms`: the events
    are of the time since; a letter that died before, of which they only tell what came later, is no new one.
    """
    first = f.struct("ts_ms", "event_id")
    born = f.expr(first_death_sql()).alias("born_ms")
    named = of_letters(events).select(*KEY, "reason", "kind", "ts_ms", "event_id", born)
    decided = named.where(~f.col("kind").isin("released", *LEASES))
    births = decided.groupBy(*KEY).agg(f.min_by("event_id", first).alias("birth"), f.min("born_ms").alias("born_ms"))
    young = births if since_ms is None else births.where(f.coalesce("born_ms", f.lit(since_ms)) >= since_ms)
    marked = named.drop("born_ms").join(young.drop("born_ms"), list(KEY), "left")
    return shaped(
        marked.withColumn("bucket_ms", f.col("ts_ms") - f.col("ts_ms") % bucket_ms)
        .groupBy("bucket_ms", "vhost", "failed_queue", "reason", "kind")
        .agg(f.count("*").alias("events"), f.count_if(f.col("event_id") == f.col("birth")).alias("new_letters")),
        TRENDS_SCHEMA,
    ).orderBy("bucket_ms", "vhost", "failed_queue", "reason", "kind")
