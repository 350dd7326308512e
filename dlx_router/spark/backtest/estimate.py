"""What would probably have come of it: estimates with a 95 % interval, for letters that another policy tries otherwise.

A decision under other policies is certain, see `differences`; whether a delivery that never was would have succeeded is
not. The model: deliveries inside the stretch of deaths (episode, see `efficacy.episodes`) that a letter died in
succeed as often as those that were recorded in that episode, deliveries after it as often as those of the queue that
were recorded outside of it. Both shares are posteriors (inside: around the queue's own share, outside: Jeffreys'), so
what was seldom seen gets a wide interval. Waits are the policy's, without jitter.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
from pyspark.sql import DataFrame, Row, SparkSession, Window
from pyspark.sql import functions as f

from dlx_router.core.backoff import base_delay_ms
from dlx_router.core.policy import Effective
from dlx_router.spark.analyses.letters import KEY
from dlx_router.spark.analyses.shape import shaped

CHANCES_SCHEMA: Final = "vhost string, failed_queue string, reason string, episode_ms long, tried long, recovered long"
STRATA_SCHEMA: Final = (
    "vhost string, failed_queue string, reason string, episode_ms long, tries_in long, tries_out long, letters long, "
    "recovered_then long"
)
SCHEDULE_SCHEMA: Final = "vhost string, failed_queue string, reason string, attempts long, waits_ms array<long>"
MOST_TRIES: Final = 100  # of a policy without limit; nobody is saved by the hundredth that the first 99 did not save
DRAWS: Final = 4000
_QUEUE: Final = ("vhost", "failed_queue", "reason")
Key = tuple[str, str, str]


class Estimate(NamedTuple):
    """Of `letters` that are now tried otherwise, `expected` recover, and in 95 % of cases `low` to `high`.

    `recovered_then`: how many of them recovered by retries as it was; recorded, no estimate.
    """

    vhost: str
    failed_queue: str
    reason: str
    letters: int
    recovered_then: int
    expected: float
    low: int
    high: int


def schedules(spark: SparkSession, policies: Mapping[Key, Effective | None], most_attempts: int) -> DataFrame:
    """For each number of failed deliveries, the waits that the policy still has, added up. SCHEDULE_SCHEMA."""
    rows = [
        (*key, attempts, _cumulated(policy, attempts))
        for key, policy in sorted(policies.items())
        if policy is not None
        for attempts in range(1, most_attempts + 1)
    ]
    return spark.createDataFrame(rows, SCHEDULE_SCHEMA)


def _cumulated(policy: Effective, attempts: int) -> list[int]:
    """Ms from the decision after `attempts` failed deliveries to each delivery that may still come."""
    last = policy.max_attempts if policy.max_attempts >= 0 else attempts + MOST_TRIES
    passed, waits = 0, []
    for failed in range(attempts, min(last, attempts + MOST_TRIES)):
        passed += base_delay_ms(policy, failed)
        waits.append(passed)
    return waits


def chances(tried: DataFrame, stretches: DataFrame) -> DataFrame:
    """How often deliveries succeeded, by queue, reason and the episode they fell in. CHANCES_SCHEMA.

    `episode_ms`: when the episode began, null outside of all.
    """
    ended = tried.where(f.col("outcome").isin("recovered", "failed"))
    counted = _placed(ended, "given_back_ms", stretches).groupBy(*_QUEUE, f.col("span.first_ms").alias("episode_ms"))
    good = f.col("outcome") == "recovered"
    return shaped(counted.agg(f.count("*").alias("tried"), f.count_if(good).alias("recovered")), CHANCES_SCHEMA)


def _placed(frame: DataFrame, moment: str, stretches: DataFrame) -> DataFrame:
    """Each row with the episode of its queue that `moment` falls in as `span`, else null; by sorting, not by a join."""
    marks = stretches.select(
        *_QUEUE, f.col("first_ms").alias("at"), f.struct("first_ms", "last_ms").alias("span"), f.lit(1).alias("mark")
    )
    both = frame.withColumn("at", f.col(moment)).unionByName(marks, allowMissingColumns=True)
    own = Window.partitionBy(*_QUEUE).orderBy("at", f.desc_nulls_last("mark"))
    latest = both.withColumn("span", f.last("span", ignorenulls=True).over(own)).where(f.col("mark").isNull())
    return latest.withColumn("span", f.when(f.col("at") <= f.col("span.last_ms"), f.col("span"))).drop("at", "mark")


def strata(different: DataFrame, tried: DataFrame, stretches: DataFrame, schedule: DataFrame) -> DataFrame:
    """Letters whose first difference is a retry, by their deliveries in and after the episode.

    STRATA_SCHEMA. `different`: `differences.changed`. Only first stays: what a redrive brought is not the
    policy's doing.
    """
    first = different.where(f.col("first") & (f.col("now_decision") == "retry") & (f.col("redrives") == 0))
    planned = first.withColumn("attempts", f.col("now_attempts")).join(f.broadcast(schedule), [*_QUEUE, "attempts"])
    placed = _placed(planned, "ts_ms", stretches)
    saved = tried.where((f.col("redrives") == 0) & (f.col("kind") == "retried") & (f.col("outcome") == "recovered"))
    marked = placed.join(saved.select(*KEY).distinct().withColumn("then", f.lit(1)), list(KEY), "left")
    early = f.size(f.filter("waits_ms", lambda wait: f.col("ts_ms") + wait <= f.col("span.last_ms")))
    counted = (
        marked.withColumns({"tries_in": early, "tries_out": f.size("waits_ms") - early})
        .groupBy(*_QUEUE, f.col("span.first_ms").alias("episode_ms"), "tries_in", "tries_out")
        .agg(f.count("*").alias("letters"), f.count("then").alias("recovered_then"))
    )
    return shaped(counted, STRATA_SCHEMA)


class Stratum(NamedTuple):
    """Letters of one episode that get as many deliveries; (recovered, tried) as recorded in and out of it."""

    tries_in: int
    tries_out: int
    letters: int
    inside: tuple[int, int] = (0, 0)
    outside: tuple[int, int] = (0, 0)


def predicted(groups: Sequence[Stratum], whole: tuple[int, int], *, seed: int = 0) -> tuple[float, int, int]:
    """(expected, low, high) of how many recover; `whole`: (recovered, tried) of the queue and reason.

    Draws shares from their posteriors and outcomes from those, so that the interval has both uncertainties. The same
    seed gives the same numbers.
    """
    chance = np.random.default_rng(seed)
    mean = (whole[0] + 0.5) / (whole[1] + 1)
    total = np.zeros(DRAWS)
    drawn: dict[tuple[tuple[int, int], float], Any] = {}

    def share(seen: tuple[int, int], around: float, weight: float) -> Any:  # noqa: ANN401 - an array of floats
        if (seen, weight) not in drawn:
            good, bad = seen[0] + weight * around, seen[1] - seen[0] + weight * (1 - around)
            drawn[seen, weight] = chance.beta(good, bad, DRAWS)
        return drawn[seen, weight]

    for stratum in groups:
        p_in, p_out = share(stratum.inside, mean, 2.0), share(stratum.outside, 0.5, 1.0)
        failed = (1 - p_in) ** stratum.tries_in * (1 - p_out) ** stratum.tries_out
        total += chance.binomial(stratum.letters, 1 - failed)
    low, high = np.quantile(total, [0.025, 0.975], method="nearest")
    return float(total.mean()), int(low), int(high)


def estimates(stratified: DataFrame, seen: DataFrame) -> list[Estimate]:
    """An estimate for each queue and reason; runs both (small) frames. Takes `strata` and `chances`."""
    known: dict[Key, dict[int | None, tuple[int, int]]] = {}
    for row in seen.collect():
        known.setdefault((row.vhost, row.failed_queue, row.reason), {})[row.episode_ms] = (row.recovered, row.tried)
    groups: dict[Key, list[Row]] = {}
    for row in stratified.orderBy(*_QUEUE, "episode_ms", "tries_in", "tries_out").collect():
        groups.setdefault((row.vhost, row.failed_queue, row.reason), []).append(row)
    return [_estimate(key, rows, known.get(key, {})) for key, rows in groups.items()]


def _estimate(key: Key, rows: Sequence[Row], seen: Mapping[int | None, tuple[int, int]]) -> Estimate:
    whole = (sum(good for good, _ in seen.values()), sum(tried for _, tried in seen.values()))
    groups = []
    for row in rows:
        inside = seen.get(row.episode_ms, (0, 0)) if row.episode_ms is not None else (0, 0)
        outside = (whole[0] - inside[0], whole[1] - inside[1])
        groups.append(Stratum(row.tries_in, row.tries_out, row.letters, inside, outside))
    letters, then = sum(row.letters for row in rows), sum(row.recovered_then for row in rows)
    return Estimate(*key, letters, then, *predicted(groups, whole))
