"""Which attempt succeeds, and when letters died: by an independent count."""

from collections import Counter, defaultdict
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.testing import assertSchemaEqual

from dlx_router.spark.analyses import efficacy as at
from dlx_router.spark.analyses.letters import observed_quiet, tries
from dlx_router.spark.analyses.shape import high, low, share, struct
from tests.spark.rows import AS_OF_MS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]


def counted(lines: list[dict[str, Any]]) -> dict[tuple[str, int], tuple[int, int]]:
    """(queue, attempts) → (tried, recovered), from the lines alone."""
    ways = defaultdict(list)
    for event in lines:
        if event["kind"] != "released":
            ways[event["id"]].append(event)
    counts: dict[tuple[str, int], list[int]] = defaultdict(lambda: [0, 0])
    for way in ways.values():
        for event, then in zip(way, [*way[1:], None], strict=True):
            if event["kind"] == "retried" and not event["redrives"]:
                entry = counts[event["failed_queue"], event["attempts"]]
                entry[0] += 1
                entry[1] += then is None
    return {key: (tried, recovered) for key, (tried, recovered) in counts.items()}


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


def test_an_episode_ends_with_a_pause(events: DataFrame, lines: list[dict[str, Any]]) -> None:
    frame = at.episodes(events, gap_ms=2 * 3_600_000)
    assertSchemaEqual(frame.schema, struct(at.EPISODES_SCHEMA))
    stock = [row for row in frame.collect() if row.failed_queue == "stock.reserve"]
    assert len(stock) == 2  # the outage, and what died again when it was sent back in the afternoon
    deaths = Counter(
        event["kind"] in {"retried", "dead_lettered"} for event in lines if event["failed_queue"] == "stock.reserve"
    )
    assert sum(row.deaths for row in stock) == deaths[True]
