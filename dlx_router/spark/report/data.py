"""What the report shows: the rows of all analyses, small enough for one page. The only module of it that runs Spark."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as f

from dlx_router.core.signature import Signature
from dlx_router.spark.advice import query
from dlx_router.spark.advice.judge import Known, QueueAdvice, advise
from dlx_router.spark.analyses.efficacy import retry_efficacy
from dlx_router.spark.analyses.groups import failure_groups
from dlx_router.spark.analyses.letters import HOUR_MS, NEEDED, TOLD, letters, observed_quiet, tries
from dlx_router.spark.analyses.poison import poison_messages, redrive_success
from dlx_router.spark.analyses.recovery import slo_burn, time_to_recovery
from dlx_router.spark.analyses.trends import trends

Rows = list[dict[str, Any]]
COLUMNS: Final = (
    *NEEDED, "observed", "fingerprint", "error", "error_template", "body_sha256", "ingest_ts", "events",
    "signature",
)  # fmt: skip
"""All that a report looks at: far less than there is, since it has neither headers nor bodies."""
MOST_ROWS: Final = 200  # of one table; a page is no archive
BUCKETS: Final = 170
_STEPS_MS: Final = tuple(60_000 * one for one in (1, 5, 15, 60, 120, 180, 360, 720, 1440, 10_080))


@dataclass(frozen=True, slots=True)
class Objective:
    """The share of letters that should recover within a time from their first death."""

    share: float = 0.95
    within_ms: int = HOUR_MS // 4


@dataclass(frozen=True, slots=True)
class ReportData:
    """Rows of the analyses, as their schemas say; `kinds`: events of each kind; `bucket_ms`: of `trends`."""

    title: str
    made_at: datetime
    first_ms: int
    last_ms: int
    bucket_ms: int
    objective: Objective
    kinds: dict[str, int]
    recovery: Rows
    advice: list[QueueAdvice]
    efficacy: Rows
    trends: Rows
    groups: Rows
    slo: Rows
    poison: Rows
    redrives: Rows
    gaps: int = 0
    signatures: dict[str, int] = field(default_factory=dict)  # events of each
    complete_ms: int | None = None  # until then the journal is surely told to its end

    def total(self, name: str) -> int:
        """A column of `recovery`, summed up: letters, recovered, by_redrive, lost, open."""
        return sum(row[name] for row in self.recovery)


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
        raise ValueError("no event about a letter in this time: nothing to report; choose another --since")
    first_ms, last_ms = span
    as_of = last_ms if as_of_ms is None else as_of_ms
    bucket_ms = next((step for step in _STEPS_MS if (last_ms - first_ms) / step <= BUCKETS), _STEPS_MS[-1])
    quiet = (observed_quiet(events) if quiet is None else quiet).cache()
    tried, found = tries(events, quiet, as_of).cache(), letters(events, quiet, as_of).cache()
    efficacy = retry_efficacy(tried).cache()
    try:
        return ReportData(
            title=title,
            made_at=datetime.now(UTC),
            first_ms=first_ms,
            complete_ms=as_of_ms,
            last_ms=last_ms,
            bucket_ms=bucket_ms,
            objective=objective,
            kinds={row.kind: row["count"] for row in events.groupBy("kind").count().collect()},
            recovery=_rows(time_to_recovery(found)),
            advice=advise(query.gather(events, quiet, as_of, with_traits=False).evidence, known),
            efficacy=_rows(efficacy),
            trends=_rows(_deaths(trends(events.where("redrive_id is null"), bucket_ms)), most=100_000),
            groups=_rows(failure_groups(events, found)),
            slo=_rows(slo_burn(found, objective=objective.share, within_ms=objective.within_ms)),
            poison=_rows(poison_messages(events, found)),
            redrives=_rows(redrive_success(tried, found)),
            signatures=_signatures(events),
            gaps=events.where(f.col("kind") == "gap").agg(f.coalesce(f.sum("events"), f.lit(0))).collect()[0][0],
        )
    finally:
        for frame in (quiet, tried, found, efficacy):
            frame.unpersist()


def _signatures(events: DataFrame) -> dict[str, int]:
    by = f.coalesce("signature", f.lit(Signature.NONE.value)).alias("signature")
    return {row.signature: row["count"] for row in events.groupBy(by).count().collect()}


def _deaths(over_time: DataFrame) -> DataFrame:
    """Deaths by queue in each bucket, and the letters that failed for the first time."""
    told = over_time.where(f.col("kind").isin(*TOLD)).groupBy("bucket_ms", "failed_queue")
    return told.agg(f.sum("events").alias("deaths"), f.sum("new_letters").alias("new_letters")).orderBy("bucket_ms")


def _rows(frame: DataFrame, most: int = MOST_ROWS) -> Rows:
    return [row.asDict(recursive=True) for row in frame.limit(most).collect()]
