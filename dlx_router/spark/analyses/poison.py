"""Poison messages, and what redrives brought. Poison: it dies again and again and nothing has ever cured it."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from dlx_router.spark.analyses.letters import KEY, TOLD, once
from dlx_router.spark.analyses.shape import high, low, shaped, share

POISON_SCHEMA: Final = (
    "vhost string, failed_queue string, message string, known_by string, letters long, deaths long, reasons array<string>, "
    "first_ms long, last_ms long, sample_id string"
)
REDRIVES_SCHEMA: Final = (
    "redrive_id string, vhost string, failed_queue string, letters long, recovered long, at_once long, lost long, "
    "open long, recovered_share double, low double, high double, first_ms long, last_ms long"
)


def poison_messages(events: DataFrame, found: DataFrame, *, deaths: int = 8) -> DataFrame:
    """Messages that died `deaths` times or more, as several letters or after a redrive, and never recovered. POISON_SCHEMA.

    A message is known by the SHA-256 of its body where the journal has it (the same body sent again is the same message),
    else by its letter id. `found`: `letters` of the same events. Needs also column body_sha256.
    """
    hashes = once(events).where(F.col("kind").isin(*TOLD)).groupBy(*KEY)
    told = found.join(hashes.agg(F.max("body_sha256").alias("body_sha256")), list(KEY), "left")
    named = told.withColumn("message", F.coalesce("body_sha256", "id")).withColumn(
        "known_by", F.when(F.col("body_sha256").isNotNull(), "body_sha256").otherwise("id")
    )
    counted = named.groupBy("vhost", "failed_queue", "message", "known_by").agg(
        F.count("*").alias("letters"),
        F.sum("deaths").alias("deaths"),
        F.max("redrives").alias("redrives"),
        F.count_if(F.col("outcome").isin("recovered", "open")).alias("hope"),
        F.array_sort(F.collect_set("reason")).alias("reasons"),
        F.min("first_death_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
        F.min("id").alias("sample_id"),
    )
    again = (F.col("letters") > 1) | (F.col("redrives") > 0)
    hopeless = counted.where((F.col("deaths") >= deaths) & (F.col("hope") == 0) & again)
    return shaped(hopeless, POISON_SCHEMA).orderBy(F.desc("deaths"), "vhost", "failed_queue", "message")


def redrive_success(tried: DataFrame, found: DataFrame) -> DataFrame:
    """What each redrive brought, by queue. REDRIVES_SCHEMA. `tried`, `found`: `tries` and `letters` of the same events.

    Recovered: the letter has come to rest since, `at_once` without dying again first; lost: it is dead again.
    """
    sent = (
        tried.where(F.col("kind") == "redriven")
        .groupBy("redrive_id", *KEY)
        .agg(
            F.max_by("outcome", "decided_ms").alias("first"),
            F.min("decided_ms").alias("first_ms"),
            F.max("decided_ms").alias("last_ms"),
        )
    )
    ended = sent.join(found.select(*KEY, "outcome"), list(KEY), "left")
    counted = ended.groupBy("redrive_id", "vhost", "failed_queue").agg(
        F.count("*").alias("letters"),
        F.count_if(F.col("outcome") == "recovered").alias("recovered"),
        F.count_if(F.col("first") == "recovered").alias("at_once"),
        F.count_if(F.col("outcome").isin("open", "held")).alias("open"),
        F.min("first_ms").alias("first_ms"),
        F.max("last_ms").alias("last_ms"),
    )
    closed = F.col("letters") - F.col("open")
    rated = counted.withColumns(
        {
            "lost": closed - F.col("recovered"),
            "recovered_share": share(F.col("recovered"), closed),
            "low": low(F.col("recovered"), closed),
            "high": high(F.col("recovered"), closed),
        }
    )
    return shaped(rated, REDRIVES_SCHEMA).orderBy("first_ms", "redrive_id", "vhost", "failed_queue")
