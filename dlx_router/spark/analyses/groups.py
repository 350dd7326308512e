"""Failure groups: letters that fail for one reason, by the fingerprint that was computed at ingest."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from dlx_router.core.recovered import RECOVERED, UNDECIDED
from dlx_router.spark.analyses.letters import KEY, is_death, of_letters
from dlx_router.spark.analyses.shape import shaped, share

GROUPS_SCHEMA: Final = (
    "fingerprint string, vhost string, failed_queue string, reason string, error_type string, error_template string, "
    "letters long, deaths long, recovered long, lost long, open long, lost_share double, first_ms long, last_ms long, "
    "sample_ids array<string>"
)
_COMMON: Final = ("reason", "error_type", "error_template")  # the same in all of a group


def failure_groups(events: DataFrame, outcomes: DataFrame) -> DataFrame:
    """The groups, the largest first. GROUPS_SCHEMA. `outcomes`: `letters` of the same events.

    A letter is counted in every group that it died in; samples are the one that failed first, the one that failed last,
    and another. Needs also columns fingerprint, error and error_template.
    """
    named = of_letters(events).withColumn("error_type", f.col("error.type"))
    died = named.where(is_death()).where(f.col("kind") != "held")
    each = died.groupBy(*KEY, "fingerprint").agg(
        f.count("*").alias("deaths"),
        f.min("ts_ms").alias("first_ms"),
        f.max("ts_ms").alias("last_ms"),
        *(f.any_value(name).alias(name) for name in _COMMON),
    )
    ended = each.join(outcomes.select(*KEY, "outcome"), list(KEY), "left")
    is_open, is_good = f.col("outcome").isin(*UNDECIDED), f.col("outcome") == RECOVERED
    counted = ended.groupBy("fingerprint", "vhost", "failed_queue").agg(
        *(f.any_value(name).alias(name) for name in _COMMON),
        f.count("*").alias("letters"),
        f.sum("deaths").alias("deaths"),
        f.count_if(is_good).alias("recovered"),
        f.count_if(is_open).alias("open"),
        f.min("first_ms").alias("first_ms"),
        f.max("last_ms").alias("last_ms"),
        f.array_distinct(f.array(f.min_by("id", "first_ms"), f.max_by("id", "last_ms"), f.min("id"))).alias(
            "sample_ids"
        ),
    )
    lost = counted.withColumn("lost", f.col("letters") - f.col("recovered") - f.col("open"))
    shown = lost.withColumn("lost_share", share(f.col("lost"), f.col("letters")))
    return shaped(shown, GROUPS_SCHEMA).orderBy(f.desc("letters"), "fingerprint", "failed_queue", "vhost")
