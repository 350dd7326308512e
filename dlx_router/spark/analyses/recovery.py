"""Time to recovery, and what each queue's objective says about it. Both take `letters`."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from dlx_router.spark.analyses.shape import high, low, quantiles, shaped, share

RECOVERY_SCHEMA: Final = (
    "vhost string, failed_queue string, reason string, letters long, recovered long, by_redrive long, lost long, "
    "open long, recovered_share double, low double, high double, time_p50_ms long, time_p95_ms long, time_p99_ms long"
)
SLO_SCHEMA: Final = (
    "vhost string, failed_queue string, letters long, good long, bad long, open long, good_share double, low double, "
    "high double, objective double, within_ms long, burn double"
)


def time_to_recovery(found: DataFrame) -> DataFrame:
    """How many letters recovered, and how long that took from the first death; by queue and reason. RECOVERY_SCHEMA.

    The time ends when the letter was given back for the last time: when its consumer was done with it nobody tells.
    """
    good, is_open = F.col("outcome") == "recovered", F.col("outcome").isin("open", "held")
    took = F.when(good, F.col("recovered_ms") - F.col("first_death_ms"))
    counted = found.groupBy("vhost", "failed_queue", "reason").agg(
        F.count("*").alias("letters"),
        F.count_if(good).alias("recovered"),
        F.count_if(good & (F.col("redrives") > 0)).alias("by_redrive"),
        F.count_if(is_open).alias("open"),
        *quantiles(took, "time"),
    )
    closed = F.col("letters") - F.col("open")
    whole = counted.withColumn("lost", closed - F.col("recovered"))
    rated = whole.withColumns(
        {
            "recovered_share": share(F.col("recovered"), closed),
            "low": low(F.col("recovered"), closed),
            "high": high(F.col("recovered"), closed),
        }
    )
    return shaped(rated, RECOVERY_SCHEMA).orderBy(F.desc("letters"), "vhost", "failed_queue", "reason")


def slo_burn(found: DataFrame, *, objective: float, within_ms: int) -> DataFrame:
    """How fast each queue uses up its error budget. SLO_SCHEMA.

    Good: recovered within `within_ms` of the first death. Of all letters that have an end (or are open for longer than
    that) the share `objective` (below 1) should be good; `burn` 1 uses up the budget exactly, 2 twice.
    """
    took = F.col("recovered_ms") - F.col("first_death_ms")
    good = (F.col("outcome") == "recovered") & (took <= within_ms)
    is_open = F.col("outcome").isin("open", "held")
    counted = found.groupBy("vhost", "failed_queue").agg(
        F.count("*").alias("letters"), F.count_if(good).alias("good"), F.count_if(is_open).alias("open")
    )
    closed = F.col("letters") - F.col("open")
    whole = counted.withColumn("bad", closed - F.col("good"))
    rated = whole.withColumns(
        {
            "good_share": share(F.col("good"), closed),
            "low": low(F.col("good"), closed),
            "high": high(F.col("good"), closed),
            "objective": F.lit(objective),
            "within_ms": F.lit(within_ms),
            "burn": share(F.col("bad"), closed) / (1 - objective),
        }
    )
    return shaped(rated, SLO_SCHEMA).orderBy(F.desc_nulls_last("burn"), "vhost", "failed_queue")
