"""What the report shows, out of DataFrames: for archives that only a cluster can read. `by_duckdb` says the same."""

from datetime import UTC, datetime
from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from dlx_router.core.signature import Signature
from dlx_router.spark.advice import query
from dlx_router.spark.advice.judge import Known, advise
from dlx_router.spark.analyses.efficacy import retry_efficacy
from dlx_router.spark.analyses.groups import failure_groups
from dlx_router.spark.analyses.letters import NEEDED, TOLD, letters, observed_quiet, tries
from dlx_router.spark.analyses.poison import poison_messages, redrive_success
from dlx_router.spark.analyses.recovery import slo_burn, time_to_recovery
from dlx_router.spark.analyses.trends import trends
from dlx_router.spark.report.data import MOST_BUCKETS, MOST_ROWS, NOTHING, Objective, ReportData, Rows, bucket_ms

COLUMNS: Final = (
    *NEEDED, "observed", "fingerprint", "error", "error_template", "body_sha256", "stream", "ingest_ts",
    "events", "signature",
)  # fmt: skip
"""All that a report looks at: far less than there is, since it has neither headers nor bodies."""


def gather(
    events: DataFrame,
    *,
    title: str,
    as_of_ms: int | None = None,
    objective: Objective | None = None,
    quiet: DataFrame | None = None,
    known: Known | None = None,
) -> ReportData:
    """Run every analysis over the events. `as_of_ms`: until when the journal is complete (default: the newest event).

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
    try:
        return ReportData(
            title=title,
            made_at=datetime.now(UTC),
            first_ms=first_ms,
            complete_ms=as_of_ms,
            last_ms=last_ms,
            bucket_ms=step_ms,
            objective=objective,
            kinds={row.kind: row["count"] for row in events.groupBy("kind").count().collect()},
            recovery=_rows(time_to_recovery(outcomes)),
            advice=advise(query.gather(events, quiet, as_of, with_traits=False).evidence, known),
            efficacy=_rows(efficacy),
            trends=_rows(_deaths(trends(events.where("redrive_id is null"), step_ms)), most=MOST_BUCKETS),
            groups=_rows(failure_groups(events, outcomes)),
            slo=_rows(slo_burn(outcomes, objective=objective.share, within_ms=objective.within_ms)),
            poison=_rows(poison_messages(events, outcomes)),
            redrives=_rows(redrive_success(tried, outcomes)),
            signatures=_signatures(events),
            gaps=_gaps(events),
        )
    finally:
        for frame in (quiet, tried, outcomes, efficacy):
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
    return decisions.agg(f.sum("events").alias("deaths"), f.sum("new_letters").alias("new_letters")).orderBy(
        "bucket_ms"
    )


def _rows(frame: DataFrame, most: int = MOST_ROWS) -> Rows:
    return [row.asDict(recursive=True) for row in frame.limit(most).collect()]
