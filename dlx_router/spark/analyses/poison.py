"""Poison messages, and what redrives brought. Poison: it dies again and again and nothing has ever cured it."""

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from dlx_router.core.recovered import RECOVERED, UNDECIDED
from dlx_router.spark.analyses.letters import KEY, is_death, of_letters
from dlx_router.spark.analyses.shape import rated, shaped
from dlx_router.spark.analyses.sql import POISON_DEATHS

POISON_SCHEMA: Final = (
    "vhost string, failed_queue string, message string, known_by string, letters long, deaths long, "
    "reasons array<string>, first_ms long, last_ms long, sample_id string"
)
REDRIVES_SCHEMA: Final = (
    "redrive_id string, vhost string, failed_queue string, letters long, recovered long, at_once long, lost long, "
    "open long, recovered_share double, low double, high double, first_ms long, last_ms long"
)


def poison_messages(events: DataFrame, outcomes: DataFrame, *, deaths: int = POISON_DEATHS) -> DataFrame:
    """Messages that died `deaths` times or more, as several letters or after a redrive, and never recovered.

    POISON_SCHEMA. A message is known by the SHA-256 of its body where the journal has it (the same body sent
    again is the same message), else by its letter id. `outcomes`: `letters` of the same events. Needs also column
    body_sha256.
    """
    hashes = of_letters(events).where(is_death()).groupBy(*KEY)
    hashed = outcomes.join(hashes.agg(f.max("body_sha256").alias("body_sha256")), list(KEY), "left")
    named = hashed.withColumn("message", f.coalesce("body_sha256", "id")).withColumn(
        "known_by", f.when(f.col("body_sha256").isNotNull(), "body_sha256").otherwise("id")
    )
    counted = named.groupBy("vhost", "failed_queue", "message", "known_by").agg(
        f.count("*").alias("letters"),
        f.sum("deaths").alias("deaths"),
        f.max("redrives").alias("redrives"),
        f.count_if(f.col("outcome").isin(RECOVERED, *UNDECIDED)).alias("hope"),
        f.array_sort(f.collect_set("reason")).alias("reasons"),
        f.min("first_death_ms").alias("first_ms"),
        f.max("last_ms").alias("last_ms"),
        f.min("id").alias("sample_id"),
    )
    again = (f.col("letters") > 1) | (f.col("redrives") > 0)
    hopeless = counted.where((f.col("deaths") >= deaths) & (f.col("hope") == 0) & again)
    return shaped(hopeless, POISON_SCHEMA).orderBy(f.desc("deaths"), "vhost", "failed_queue", "message")


def redrive_success(tried: DataFrame, outcomes: DataFrame) -> DataFrame:
    """What each redrive brought, by queue, the newest first. REDRIVES_SCHEMA.

    `tried`, `outcomes`: `tries` and `letters` of them.

    Recovered: the letter has come to rest since, `at_once` without dying again first; lost: it is dead again.
    """
    sent = (
        tried.where(f.col("kind") == "redriven")
        .groupBy("redrive_id", *KEY)
        .agg(
            f.max_by("outcome", "decided_ms").alias("first"),
            f.min("decided_ms").alias("first_ms"),
            f.max("decided_ms").alias("last_ms"),
        )
    )
    ended = sent.join(outcomes.select(*KEY, "outcome"), list(KEY), "left")
    counted = ended.groupBy("redrive_id", "vhost", "failed_queue").agg(
        f.count("*").alias("letters"),
        f.count_if(f.col("outcome") == RECOVERED).alias("recovered"),
        f.count_if(f.col("first") == RECOVERED).alias("at_once"),
        f.count_if(f.col("outcome").isin(*UNDECIDED)).alias("open"),
        f.min("first_ms").alias("first_ms"),
        f.max("last_ms").alias("last_ms"),
    )
    closed = f.col("letters") - f.col("open")
    result = counted.withColumns(
        {
            "lost": closed - f.col("recovered"),
            **rated("recovered_share", f.col("recovered"), closed),
        }
    )
    return shaped(result, REDRIVES_SCHEMA).orderBy(f.desc("first_ms"), "redrive_id", "vhost", "failed_queue")
