"""Failure groups: letters that fail for one reason, by the fingerprint that was computed at ingest."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from dlx_router.spark.analyses.letters import KEY, TOLD, once
from dlx_router.spark.analyses.shape import shaped, share

GROUPS_SCHEMA: Final = (
    "fingerprint string, vhost string, failed_queue string, reason string, error_type string, error_template string, "
    "letters long, deaths long, recovered long, lost long, open long, lost_share double, first_ms long, last_ms long, "
    "sample_ids array<string>"
)
SAMPLES: Final = 3


def failure_groups(events: DataFrame, found: DataFrame) -> DataFrame:
    """The groups, the largest first. GROUPS_SCHEMA. `found`: `letters` of the same events.

    A letter is counted in every group that it died in. Needs also columns fingerprint, error and error_template.
    """
    named = once(events).withColumn("error_type", F.col("error.type"))
    died = named.where(F.col("kind").isin(*TOLD)).where(F.col("kind") != "held")
    each = died.groupBy("fingerprint", *KEY).agg(
        F.count("*").alias("deaths"),
        F.min("ts_ms").alias("first_ms"),
        F.max("ts_ms").alias("last_ms"),
        *(F.any_value(name).alias(name) for name in ("reason", "error_type", "error_template")),
    )
    ended = each.join(found.select(*KEY, "outcome"), list(KEY), "left")
    is_open, is_good = F.col("outcome").isin("open", "held"), F.col("outcome") == "recovered"
    counted = ended.groupBy("fingerprint", "vhost", "failed_queue").agg(
        *(F.any_value(name).alias(name) for name in ("reason", "error_type", "error_template")),
        F.count("*").alias("letters"),
        F.sum("deaths").alias("deaths"),
        F.count_if(is_good).alias("recovered"),
        F.count_if(is_open).alias("open"),
        F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
        F.slice(F.array_agg("id"), 1, SAMPLES).alias("sample_ids"),
    )
    lost = counted.withColumn("lost", F.col("letters") - F.col("recovered") - F.col("open"))
    shown = lost.withColumn("lost_share", share(F.col("lost"), F.col("letters")))
    return shaped(shown, GROUPS_SCHEMA).orderBy(F.desc("letters"), "fingerprint", "failed_queue")
