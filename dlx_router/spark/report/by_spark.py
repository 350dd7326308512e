"""What the report shows, out of DataFrames: for archives that only a cluster can read. `by_duckdb` says the same."""

from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame, Window
from pyspark.sql import functions as f

from dlx_router.core.recovered import RECOVERED, UNDECIDED
from dlx_router.core.signature import Signature
from dlx_router.spark.advice import query
from dlx_router.spark.advice.judge import Known, advise
from dlx_router.spark.analyses.efficacy import retry_efficacy
from dlx_router.spark.analyses.groups import failure_groups
from dlx_router.spark.analyses.letters import NEEDED, TOLD, letters, observed_quiet, tries
from dlx_router.spark.analyses.poison import poison_messages, redrive_success
from dlx_router.spark.analyses.recovery import slo_burn, time_to_recovery
from dlx_router.spark.analyses.trends import trends
from dlx_router.spark.report.data import NOTHING, Objective, ReportData, Rows, bucket_ms, most_rows

COLUMNS: Final = (
    *NEEDED, "observed", "fingerprint", "error", "error_template", "body_sha256", "stream", "ingest_ts",
    "events", "signature",
)  # fmt: skip
"""All that a report looks at: far less than there is, since it has neither headers nor bodies."""


def gather(  # noqa: PLR0913 - options
    events: DataFrame,
    *,
    title: str,
    as_of_ms: int | None = None,
    objective: Objective | None = None,
    quiet: DataFrame | None = None,
    known: Known | None = None,
    since_ms: int | None = None,
) -> ReportData:
    """Run every analysis over the events, which are of the time since `since_ms` (None: all).

    `as_of_ms`: until when the journal is complete (default: the newest event).

    `quiet`: how long a letter must be silent to be recovered (`waits.quiet_of`); default: by the longest wait seen.
    `known`: the policies that are advised on; default: as it was recorded.

    Raises ValueError where there is no event at all.
    """
    objective = objective or Objective()
    span = events.where(f.col("id").isNotNull()).agg(f.min("ts_ms"), f.max("ts_ms")).collect()[0]
    if span[0] is None:
        raise ValueError(NOTHING)
    first_ms, last_ms = span
    as_of = last_ms if as_of_ms is None else as_of_ms
    step_ms = bucket_ms(first_ms, last_ms)
    quiet = (observed_quiet(events) if quiet is None else quiet).cache()
    tried, outcomes = tries(events, quiet, as_of).cache(), letters(events, quiet, as_of).cache()
    efficacy = retry_efficacy(tried).cache()
    over_time = _deaths(trends(events.where("redrive_id is null"), step_ms, since_ms)).cache()
    frames = {
        "recovery": time_to_recovery(outcomes), "efficacy": _most_tried_first(efficacy), "trends": over_time,
        "groups": failure_groups(events, outcomes),
        "slo": slo_burn(outcomes, objective=objective.share, within_ms=objective.within_ms),
        "poison": poison_messages(events, outcomes), "redrives": redrive_success(tried, outcomes),
    }  # fmt: skip
    try:
        rows = {name: _rows(frame, most_rows(name)) for name, frame in frames.items()}
        return ReportData(
            title=title,
            made_at=datetime.now(UTC),
            first_ms=first_ms,
            complete_ms=as_of_ms,
            last_ms=last_ms,
            bucket_ms=step_ms,
            objective=objective,
            kinds={row.kind: row["count"] for row in events.groupBy("kind").count().collect()},
            advice=advise(query.gather(events, quiet, as_of, with_traits=False).evidence, known),
            **rows,
            totals=_totals(outcomes, efficacy, over_time),
            whole={name: frame.count() for name, frame in frames.items() if len(rows[name]) == most_rows(name)},
            signatures=_signatures(events),
            gaps=_gaps(events),
        )
    finally:
        for frame in (quiet, tried, outcomes, efficacy, over_time):
            frame.unpersist()


def _signatures(events: DataFrame) -> dict[str, int]:
    by = f.coalesce("signature", f.lit(Signature.NONE.value)).alias("signature")
    return {row.signature: row["count"] for row in events.groupBy(by).count().collect()}


def _gaps(events: DataFrame) -> int:
    """Events that are missing; anybody may write a gap of any number, and a sum of such is no long."""
    count = f.sum(f.col("events").cast("decimal(38,0)"))
    return int(events.where(f.col("kind") == "gap").agg(count).collect()[0][0] or 0)


def _deaths(over_time: DataFrame) -> DataFrame:
    """Deaths by queue in each bucket, and the letters that failed for the first time."""
    decisions = over_time.where(f.col("kind").isin(*TOLD)).groupBy("bucket_ms", "failed_queue")
    counted = decisions.agg(f.sum("events").alias("deaths"), f.sum("new_letters").alias("new_letters"))
    return counted.orderBy(f.desc("deaths"), "bucket_ms", "failed_queue")


def _most_tried_first(efficacy: DataFrame) -> DataFrame:
    """Whole queues, those with most retries first."""
    place = ("vhost", "failed_queue", "reason")
    weighed = efficacy.withColumn("weight", f.sum("tried").over(Window.partitionBy(*place)))
    return weighed.orderBy(f.desc("weight"), *place, "attempts").drop("weight")


def _totals(outcomes: DataFrame, efficacy: DataFrame, over_time: DataFrame) -> dict[str, int]:
    """Of all letters and retries, however many rows are shown."""
    good, is_open = f.col("outcome") == RECOVERED, f.col("outcome").isin(*UNDECIDED)
    letters_of = outcomes.agg(
        f.count("*").alias("letters"),
        f.count_if(good).alias("recovered"),
        f.count_if(good & (f.col("redrives") > 0)).alias("by_redrive"),
        f.count_if(is_open).alias("open"),
    )
    retries = efficacy.agg(f.sum("tried").alias("tried"), f.sum("recovered").alias("helped"))
    born = over_time.agg(f.sum("new_letters").alias("born"))
    totals = {
        name: int(value or 0) for frame in (letters_of, retries, born) for name, value in _rows(frame, 1)[0].items()
    }
    return totals | {"lost": totals["letters"] - totals["open"] - totals["recovered"]}


def _rows(frame: DataFrame, most: int) -> Rows:
    return [row.asDict(recursive=True) for row in frame.limit(most).collect()]
