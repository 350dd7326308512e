"""Letters: all events of a letter → what became of it. A letter is (vhost, id, failed_queue).

What *recovered* and *open* mean is core's answer (`core.recovered`), as an expression of columns. `quiet`: its window.
"""

from typing import Final

from pyspark.sql import Column, DataFrame, Window
from pyspark.sql import functions as f

from dlx_router.core.recovered import (
    AT_LEAST_MS,
    DEATHS,
    ORDER,
    RECOVERED,
    SILENT,
    WAITS,
    fate_sql,
    first_death_sql,
    given_back_sql,
    try_sql,
    wait_sql,
)
from dlx_router.spark.analyses.shape import shaped

NEEDED: Final = (
    "event_id", "vhost", "id", "failed_queue", "kind", "reason", "cause", "policy", "attempts", "redrives", "ts_ms",
    "due_ms", "first_death_ms", "redrive_id",
)  # fmt: skip
KEY: Final = ("id", "failed_queue", "vhost")  # what differs most first: Spark sorts by the first bytes
HOUR_MS: Final = AT_LEAST_MS
TOLD: Final = (*DEATHS, "held")  # a decision about a death
LETTERS_SCHEMA: Final = (
    "vhost string, id string, failed_queue string, reason string, policy string, first_death_ms long, last_ms long, "
    "deaths long, attempts long, redrives long, redrive_id string, given_back_ms long, recovered_ms long, "
    "outcome string"
)
TRIES_SCHEMA: Final = (
    "vhost string, id string, failed_queue string, reason string, policy string, kind string, attempts long, "
    "redrives long, redrive_id string, decided_ms long, given_back_ms long, first_death_ms long, next_kind string, "
    "next_ms long, last_kind string, outcome string"
)
_WINDOW: Final = f"coalesce(quiet_ms, {AT_LEAST_MS})"
QUIET_SCHEMA: Final = "vhost string, failed_queue string, reason string, quiet_ms long"


def once(events: DataFrame) -> DataFrame:
    """Each event once, for events that do not come from `archive.reading.read`, which sees to that for less."""
    return events.dropDuplicates(["event_id", "failed_queue", "vhost"])


def of_letters(events: DataFrame) -> DataFrame:
    """Only events of letters, and none of observed copies."""
    return events.where(f.col("id").isNotNull() & f.col("observed").isNull())


def is_death() -> Column:
    """Of an event: it is about a death. What a task does to a letter is none, though its kind may be the same."""
    return f.col("kind").isin(*TOLD) & f.col("redrive_id").isNull()


def observed_quiet(events: DataFrame) -> DataFrame:
    """How long a letter must be silent to be recovered, from the longest wait seen: max(1 h, 2 × it). QUIET_SCHEMA.

    For archives without their policies; `quiet_of` (spark/recovery_windows) knows the longest wait of policies.
    """
    wait = f.max(f.expr(wait_sql()))
    longest = events.groupBy("vhost", "failed_queue", "reason").agg(f.coalesce(wait, f.lit(0)).alias("wait"))
    return shaped(longest.withColumn("quiet_ms", f.greatest(f.lit(AT_LEAST_MS), WAITS * f.col("wait"))), QUIET_SCHEMA)


def tries(events: DataFrame, quiet: DataFrame, as_of_ms: int) -> DataFrame:
    """One row for each time that a letter was given back (retried or redriven), and how it ended. TRIES_SCHEMA.

    outcome: recovered, failed, refused or open at `as_of_ms`, as `core.recovered.tried` says.
    """
    walked = _walked(of_letters(events)).where(f.col("kind").isin("retried", "redriven"))
    known = walked.join(f.broadcast(quiet), ["vhost", "failed_queue", "reason"], "left")
    outcome = f.expr(try_sql(as_of_ms=as_of_ms, window=_WINDOW))
    return shaped(known.withColumn("outcome", outcome), TRIES_SCHEMA)


def letters(events: DataFrame, quiet: DataFrame, as_of_ms: int) -> DataFrame:
    """One row for each letter and what became of it. LETTERS_SCHEMA.

    outcome: recovered, or the last kind (dead_lettered, parked, quarantined, discarded, held, retired …), or open.
    `deaths`: decided failures, of all its stays; `recovered_ms`: when it was given back for the last time.
    """
    speaking = of_letters(events).where(_speaks())
    latest = f.max_by(_facts(), _order())
    grouped = speaking.groupBy(*KEY).agg(
        latest.alias("last"),
        f.min(f.expr(first_death_sql())).alias("first_death_ms"),
        f.sum((is_death() & (f.col("kind") != "held")).cast("long")).alias("deaths"),
        f.max("redrives").alias("redrives"),
        f.max("redrive_id").alias("redrive_id"),
    )
    last = grouped.select(*KEY, "first_death_ms", "deaths", "redrives", "redrive_id", "last.*")
    known = last.join(f.broadcast(quiet), ["vhost", "failed_queue", "reason"], "left")
    ended = known.withColumn("outcome", f.expr(fate_sql(as_of_ms=as_of_ms, window=_WINDOW)))
    recovered = f.when(f.col("outcome") == RECOVERED, f.col("given_back_ms"))
    return shaped(ended.withColumn("recovered_ms", recovered), LETTERS_SCHEMA)


def _speaks() -> Column:
    """Of an event: it says something about what became of its letter."""
    return ~f.col("kind").isin(*SILENT)


def _facts() -> Column:
    """What the newest event says of its letter."""
    return f.struct(
        "kind", "reason", "policy", "attempts", "ts_ms", "due_ms", f.col("ts_ms").alias("last_ms"),
        f.expr(given_back_sql()).alias("given_back_ms"),
    )  # fmt: skip


def _order() -> Column:
    """Time, and for one millisecond the order of a letter's life."""
    return f.struct(*ORDER)


def _walked(events: DataFrame) -> DataFrame:
    """Each event that speaks, with the next one of its letter and the last."""
    own = Window.partitionBy(*KEY).orderBy(*ORDER)
    whole = own.rowsBetween(Window.unboundedPreceding, Window.unboundedFollowing)
    steps = events.where(_speaks())
    return steps.select(
        *(name for name in NEEDED if name not in {"event_id", "cause", "first_death_ms"}),
        f.expr(first_death_sql()).alias("first_death_ms"),
        f.col("ts_ms").alias("decided_ms"),
        f.expr(given_back_sql()).alias("given_back_ms"),
        f.lead("kind").over(own).alias("next_kind"),
        f.lead("ts_ms").over(own).alias("next_ms"),
        f.last("kind").over(whole).alias("last_kind"),
    )
