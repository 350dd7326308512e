"""Retry efficacy: which attempt succeeds, by queue and reason, and in which stretches of time letters died.

An attempt here is a delivery: row `attempts` n is about the delivery after n failed ones. Shares have Wilson's 95 %
interval. Letters that are open, or whose queue refused them, tell nothing about an attempt and are left out.
"""

from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from dlx_router.spark.analyses.letters import is_death, of_letters
from dlx_router.spark.analyses.shape import rated, shaped
from dlx_router.spark.analyses.sql import GAP_MS

EFFICACY_SCHEMA: Final = (
    "vhost string, failed_queue string, reason string, attempts long, tried long, recovered long, failed long, "
    "recovered_share double, low double, high double, wait_p50_ms long, elapsed_p50_ms long"
)
EPISODES_SCHEMA: Final = (
    "vhost string, failed_queue string, reason string, first_ms long, last_ms long, length_ms long, letters long, "
    "deaths long"
)
_QUEUE: Final = ("vhost", "failed_queue", "reason")


def retry_efficacy(tried: DataFrame) -> DataFrame:
    """How often the delivery after n failed ones succeeded. EFFICACY_SCHEMA. `tried`: `tries`, without redriven stays.

    `wait_p50_ms`: how long those letters waited before it; `elapsed_p50_ms`: since their first death.
    """
    counted = (
        tried.where((f.col("kind") == "retried") & (f.col("redrives") == 0))
        .where(f.col("outcome").isin("recovered", "failed"))
        .groupBy(*_QUEUE, "attempts")
        .agg(
            f.count("*").alias("tried"),
            f.count_if(f.col("outcome") == "recovered").alias("recovered"),
            f.percentile(f.col("given_back_ms") - f.col("decided_ms"), 0.5).alias("wait_p50_ms"),
            f.percentile(f.col("given_back_ms") - f.col("first_death_ms"), 0.5).alias("elapsed_p50_ms"),
        )
        .withColumn("failed", f.col("tried") - f.col("recovered"))
    )
    return shaped(_rated(counted, "recovered", "tried"), EFFICACY_SCHEMA).orderBy(*_QUEUE, "attempts")


def episodes(events: DataFrame, gap_ms: int = GAP_MS) -> DataFrame:
    """Stretches of time in which a queue had deaths of one reason without a pause of `gap_ms`. EPISODES_SCHEMA."""
    grouped = (
        stretched(of_letters(events).where(is_death()), "ts_ms", gap_ms)
        .groupBy(*_QUEUE, "number")
        .agg(
            f.min("ts_ms").alias("first_ms"),
            f.max("ts_ms").alias("last_ms"),
            f.count_distinct("id").alias("letters"),
            f.count("*").alias("deaths"),
        )
    )
    length = grouped.withColumn("length_ms", f.col("last_ms") - f.col("first_ms"))
    return shaped(length, EPISODES_SCHEMA).orderBy("first_ms", *_QUEUE)


def stretched(frame: DataFrame, moment: str, gap_ms: int) -> DataFrame:
    """The rows with the `number` of their stretch: without a pause of `gap_ms` in their queue and reason."""
    own = Window.partitionBy(*_QUEUE).orderBy(moment)
    starts = (f.col(moment) - f.lag(moment).over(own) > gap_ms).cast("long")
    marked = frame.withColumn("starts", f.coalesce(starts, f.lit(0)))
    return marked.withColumn("number", f.sum("starts").over(own)).drop("starts")


def _rated(frame: DataFrame, good: str, of: str) -> DataFrame:
    return frame.withColumns(rated(f"{good}_share", f.col(good), f.col(of)))
