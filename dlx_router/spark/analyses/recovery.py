"""Time to recovery, and what each queue's objective says about it. Both take `letters`."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from dlx_router.core.recovered import RECOVERED, UNDECIDED
from dlx_router.spark.analyses.shape import quantiles, rated, shaped, share

RECOVERY_SCHEMA: Final = (
    "vhost string, failed_queue string, reason string, letters long, recovered long, by_redrive long, lost long, "
    "open long, recovered_share double, low double, high double, time_p50_ms long, time_p95_ms long, time_p99_ms long"
)
SLO_SCHEMA: Final = (
    "vhost string, failed_queue string, letters long, good long, bad long, open long, good_share double, low double, "
    "high double, objective double, within_ms long, burn double"
)


def time_to_recovery(letters: DataFrame) -> DataFrame:
    """How many letters recovered, and how long that took from the first death; by queue and reason. RECOVERY_SCHEMA.

    The time ends when the letter was given back for the last time: when its consumer was done with it nobody tells.
    """
    good, is_open = f.col("outcome") == RECOVERED, f.col("outcome").isin(*UNDECIDED)
    took = f.when(good, f.col("recovered_ms") - f.col("first_death_ms"))
    counted = letters.groupBy("vhost", "failed_queue", "reason").agg(
        f.count("*").alias("letters"),
        f.count_if(good).alias("recovered"),
        f.count_if(good & (f.col("redrives") > 0)).alias("by_redrive"),
        f.count_if(is_open).alias("open"),
        *quantiles(took, "time"),
    )
    closed = f.col("letters") - f.col("open")
    whole = counted.withColumn("lost", closed - f.col("recovered"))
    result = whole.withColumns(
        {
            **rated("recovered_share", f.col("recovered"), closed),
        }
    )
    return shaped(result, RECOVERY_SCHEMA).orderBy(f.desc("letters"), "vhost", "failed_queue", "reason")


def slo_burn(letters: DataFrame, *, objective: float, within_ms: int) -> DataFrame:
    """How fast each queue uses up its error budget. SLO_SCHEMA.

    Good: recovered within `within_ms` of the first death. Of all letters that have an end (or are open for longer than
    that) the share `objective` (below 1) should be good; `burn` 1 uses up the budget exactly, 2 twice.
    """
    took = f.col("recovered_ms") - f.col("first_death_ms")
    good = (f.col("outcome") == RECOVERED) & (took <= within_ms)
    is_open = f.col("outcome").isin(*UNDECIDED)
    counted = letters.groupBy("vhost", "failed_queue").agg(
        f.count("*").alias("letters"), f.count_if(good).alias("good"), f.count_if(is_open).alias("open")
    )
    closed = f.col("letters") - f.col("open")
    whole = counted.withColumn("bad", closed - f.col("good"))
    result = whole.withColumns(
        {
            **rated("good_share", f.col("good"), closed),
            "objective": f.lit(objective),
            "within_ms": f.lit(within_ms),
            "burn": share(f.col("bad"), closed) / (1 - objective),
        }
    )
    return shaped(result, SLO_SCHEMA).orderBy(f.desc_nulls_last("burn"), "vhost", "failed_queue")
