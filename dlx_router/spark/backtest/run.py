"""A whole backtest: events and new policies → what differs, what surely follows, what probably would."""

from dataclasses import dataclass
from typing import Any, Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from dlx_router.spark.analyses.efficacy import episodes
from dlx_router.spark.analyses.letters import KEY, observed_quiet, tries
from dlx_router.spark.backtest import differences, places
from dlx_router.spark.backtest.estimate import Estimate, chances, estimates, schedules, strata
from dlx_router.spark.backtest.replay import Files, Judge, QueueTypes, judge_of

MOST_ATTEMPTS: Final = 1000


@dataclass(frozen=True, slots=True)
class Backtest:
    """The answer. `changes`: rows of differences.SUMMARY_SCHEMA; `estimates`: what nobody recorded, with intervals.

    `cut_recovered` of the `cut` letters that are now given up recovered by a later retry; `retries_spared` deliveries
    would not have been made. Both are recorded facts. `left_out`: policies for one type of queues that were not judged,
    because nobody told the type of the queues they may be for. `unjudged`: arrivals that no router told so, of which
    nothing can be said.
    """

    judged: int
    letters: int
    differing_arrivals: int
    differing_letters: int
    changes: tuple[dict[str, Any], ...]
    cut: int
    cut_recovered: int
    retries_spared: int
    estimates: tuple[Estimate, ...]
    left_out: tuple[str, ...] = ()
    unjudged: int = 0

    def as_dict(self) -> dict[str, Any]:
        """For JSON."""
        plain = {name: getattr(self, name) for name in self.__slots__ if name != "estimates"}
        labelled = [{**estimate._asdict(), "label": "estimate", "interval": 0.95} for estimate in self.estimates]
        return {**plain, "changes": list(self.changes), "estimates": labelled, "left_out": list(self.left_out)}


def backtest(
    events: DataFrame, files: Files, *, as_of_ms: int, prefix: str = "dlx-router", types: QueueTypes = ()
) -> Backtest:
    """Judge every arrival in `events` again under the policy `files`; the journal is complete until `as_of_ms`."""
    judge = judge_of(files, prefix, types)
    known = events.select(*{*differences.NEEDED, "policy", "redrive_id"}).cache()
    judged = differences.arrivals(known, files, prefix, types).cache()
    try:
        return _answer(known, judged, judge, as_of_ms)
    finally:
        judged.unpersist()
        known.unpersist()


def _answer(known: DataFrame, judged: DataFrame, judge: Judge, as_of_ms: int) -> Backtest:
    different = differences.changed(judged)
    totals: Row = judged.agg(
        f.count("differs").alias("judged"),
        f.count_distinct(f.when(f.col("differs").isNotNull(), f.struct(*KEY))).alias("letters"),
        f.count_if(f.col("differs").isNull()).alias("unjudged"),
        f.count_if(f.size("differs") > 0).alias("arrivals"),
    ).collect()[0]
    changes = tuple(row.asDict() for row in differences.summary(different).collect())
    tried = tries(known, observed_quiet(known), as_of_ms)
    cut = _cut(different, tried)
    return Backtest(
        judged=totals.judged,
        letters=totals.letters,
        differing_arrivals=totals.arrivals,
        differing_letters=sum(row["letters"] for row in changes),
        changes=changes,
        cut=cut.letters,
        cut_recovered=cut.recovered,
        retries_spared=cut.spared,
        estimates=tuple(_estimated(known, different, tried, judge)) if changes else (),
        left_out=left_out(judged, judge),
        unjudged=totals.unjudged,
    )


def left_out(judged: DataFrame, judge: Judge) -> tuple[str, ...]:
    """A line for each policy for one type that was not judged for queues of these rows: nobody told their type."""
    if not judge.asks_types:
        return ()
    queues = judged.select("vhost", "failed_queue").where("failed_queue is not null").distinct()
    return places.left_out(sorted(tuple(row) for row in queues.collect()), judge)


def _cut(different: DataFrame, tried: DataFrame) -> Row:
    """Letters whose first difference is that a retry is not made: what came of that retry and those after it."""
    gone = different.where(f.col("first") & (f.col("was_decision") == "retry") & (f.col("now_decision") != "retry"))
    since = gone.select(*KEY, f.col("ts_ms").alias("cut_ms"), f.col("redrives").alias("stay"))
    made = tried.where(f.col("kind") == "retried").withColumnRenamed("redrives", "of_stay")
    after = (f.col("decided_ms") >= f.col("cut_ms")) & (f.col("of_stay") == f.col("stay"))
    each = since.join(made, list(KEY)).where(after)
    return each.agg(
        f.count_distinct(*KEY).alias("letters"),
        f.count_if(f.col("outcome") == "recovered").alias("recovered"),
        f.count("*").alias("spared"),
    ).collect()[0]


def _estimated(known: DataFrame, different: DataFrame, tried: DataFrame, judge: Judge) -> list[Estimate]:
    retried = different.where(f.col("first") & (f.col("now_decision") == "retry"))
    rows = retried.groupBy("vhost", "failed_queue", "reason").agg(f.max("now_attempts").alias("most")).collect()
    if not rows:
        return []
    policies = {(row.vhost, row.failed_queue, row.reason): judge.effective(*row[:3]) for row in rows}
    most = min(max(row.most for row in rows), MOST_ATTEMPTS)
    schedule = schedules(known.sparkSession, policies, most)
    stretches = episodes(known)
    return estimates(strata(different, tried, stretches, schedule), chances(tried, stretches))
