"""Which attempt succeeds, and what is advised: by an independent count, and by tables."""

from collections import Counter, defaultdict
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.testing import assertSchemaEqual

from dlx_router.spark.analyses import efficacy as at
from dlx_router.spark.analyses.letters import LETTERS_SCHEMA, TRIES_SCHEMA, observed_quiet, tries
from dlx_router.spark.analyses.shape import high, low, share, struct
from tests.spark.analyses.conftest import AS_OF_MS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
MINUTE = 60_000


def counted(lines: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, int]]:
    """(queue, attempts) → (tried, recovered), from the lines alone."""
    ways = defaultdict(list)
    for event in lines:
        if event["kind"] != "released":
            ways[event["id"]].append(event)
    found: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for way in ways.values():
        for event, then in zip(way, [*way[1:], None], strict=True):
            if event["kind"] == "retried" and not event["redrives"]:
                entry = found[event["failed_queue"], event["attempts"]]
                entry[0] += 1
                entry[1] += then is None
    return {key: (tried, recovered) for key, (tried, recovered) in found.items()}


def test_efficacy_is_what_the_journal_says(events: DataFrame, lines: list[dict[str, Any]]) -> None:
    frame = at.retry_efficacy(tries(events, observed_quiet(events), AS_OF_MS))
    assertSchemaEqual(frame.schema, struct(at.EFFICACY_SCHEMA))
    rows = frame.collect()
    assert {(row.failed_queue, row.attempts): (row.tried, row.recovered) for row in rows} == counted(lines)
    assert all(row.low <= row.recovered_share <= row.high for row in rows)
    assert all(row.failed == row.tried - row.recovered for row in rows)


@pytest.mark.parametrize(
    ("good", "of", "ends"),  # R: binom::binom.confint(x, n, methods = "wilson")
    [(0, 10, (0.0, 0.2775)), (5, 10, (0.2366, 0.7634)), (10, 10, (0.7225, 1.0)), (1, 1000, (0.000177, 0.005642))],
)
def test_intervals_are_wilsons(spark: SparkSession, good: int, of: int, ends: tuple[float, float]) -> None:
    frame = spark.range(1).select(low(f.lit(good), f.lit(of)), high(f.lit(good), f.lit(of)))
    assert tuple(frame.collect()[0]) == pytest.approx(ends, abs=5e-5)


def test_a_share_of_nothing_is_unknown(spark: SparkSession) -> None:
    zero = f.lit(0)
    assert (
        tuple(spark.range(1).select(share(zero, zero), low(zero, zero), high(zero, zero)).collect()[0]) == (None,) * 3
    )


def judged(
    spark: SparkSession, shares: list[tuple[int, int]], redriven: tuple[int, int] = (0, 0), span_ms: int = 0
) -> Any:
    """The advice for a queue whose n-th retry was tried and recovered so often."""
    row = ("/", "q", "rejected")
    seen = [
        (*row, n, tried, good, tried - good, good / tried, 0.0, 1.0, 1000 * n, 1000 * n)
        for n, (tried, good) in enumerate(shares, 1)
    ]
    names = struct(TRIES_SCHEMA).names
    sent = [{"vhost": "/", "failed_queue": "q", "reason": "rejected", "kind": "redriven", "id": str(n)}
            for n in range(redriven[1])]  # fmt: skip
    tried_ = spark.createDataFrame([tuple(one.get(name) for name in names) for one in sent], TRIES_SCHEMA)
    own = struct(LETTERS_SCHEMA).names
    ended = [one | {"outcome": "recovered" if int(one["id"]) < redriven[0] else "parked"} for one in sent]
    found = spark.createDataFrame([tuple(one.get(name) for name in own) for one in ended], LETTERS_SCHEMA)
    stretches = spark.createDataFrame([(*row, 0, span_ms, span_ms, 10, 10)], at.EPISODES_SCHEMA)
    frame = at.advice(spark.createDataFrame(seen, at.EFFICACY_SCHEMA), tried_, found, stretches)
    assertSchemaEqual(frame.schema, struct(at.ADVICE_SCHEMA))
    return frame.collect()[0]


def test_what_never_helped_is_not_to_be_tried(spark: SparkSession) -> None:
    row = judged(spark, [(1000, 0), (1000, 0), (1000, 0)])
    assert (row.verdict, row.attempts_now, row.attempts_advised) == ("never", 4, 1)
    assert (row.retries_saved, row.recovered_lost, row.saved_share) == (3000, 0, 1.0)
    assert 0 < row.lost_high < 5


def test_few_failures_prove_nothing(spark: SparkSession) -> None:
    assert judged(spark, [(20, 0), (20, 0)]).verdict == "keep"


def test_attempts_beyond_the_last_that_helps_are_spared(spark: SparkSession) -> None:
    row = judged(spark, [(2000, 1000), (1000, 1), (999, 0), (999, 1)])
    assert (row.verdict, row.attempts_now, row.attempts_advised) == ("fewer", 5, 2)
    assert (row.retries_saved, row.recovered_lost) == (1000 + 999 + 999, 2)


def test_what_a_redrive_cured_waited_for_too_short_a_time(spark: SparkSession) -> None:
    row = judged(spark, [(1000, 0), (1000, 3), (997, 2)], redriven=(95, 100), span_ms=40 * MINUTE)
    assert (row.verdict, row.span_ms, row.delay_advised_ms) == ("longer", 40 * MINUTE, 30_000)
    waits = [30_000 * 2**n for n in range(row.attempts_advised - 1)]
    assert sum(waits) >= 40 * MINUTE > sum(waits[:-1])
    assert row.retries_saved == 0


def test_what_pays_is_kept(spark: SparkSession) -> None:
    row = judged(spark, [(1000, 0), (1000, 500), (500, 400)])
    assert (row.verdict, row.attempts_advised) == ("keep", 4)
    assert row.delay_advised_ms == 2000  # the first wait that saves anybody


def test_an_episode_ends_with_a_pause(events: DataFrame, lines: list[dict[str, Any]]) -> None:
    frame = at.episodes(events, gap_ms=2 * 3_600_000)
    assertSchemaEqual(frame.schema, struct(at.EPISODES_SCHEMA))
    stock = [row for row in frame.collect() if row.failed_queue == "stock.reserve"]
    assert len(stock) == 2  # the outage, and what died again when it was sent back in the afternoon
    deaths = Counter(
        event["kind"] in {"retried", "dead_lettered"} for event in lines if event["failed_queue"] == "stock.reserve"
    )
    assert sum(row.deaths for row in stock) == deaths[True]
