"""From the archive: Spark counts what a plain script counts, and advice on weeks whose best is known is as good."""

import json
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from dlx_router.config.dialects.import_result import policy_file
from dlx_router.config.units import duration_text
from dlx_router.spark.advice.cost import Ladder
from dlx_router.spark.advice.evidence import Evidence, merged
from dlx_router.spark.advice.judge import advise, changing
from dlx_router.spark.advice.proposal import known_of
from dlx_router.spark.advice.query import Gathered, gather
from dlx_router.spark.analyses.letters import observed_quiet
from dlx_router.spark.backtest.replay import files_of, judge_of
from dlx_router.spark.recovery_windows import quiet_of
from tests.spark.advice.counted import counted
from tests.spark.rows import AS_OF_MS, archived
from tests.support.version_draw import drawn
from tools.pipeline import causes, week
from tools.pipeline import known_best as weeks

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
WITHIN = 1.1


def of(frame: DataFrame, **how: Any) -> Gathered:
    return gather(frame, observed_quiet(frame), AS_OF_MS, **how)


@pytest.fixture(scope="module")
def whole(events: DataFrame) -> Gathered:
    """What is counted of the week as it is."""
    return of(events)


def plain(evidence: Evidence) -> tuple[Any, ...]:
    return merged(evidence.tries), dict(evidence.busiest)


@pytest.mark.slow
def test_spark_counts_what_a_plain_script_counts(
    events: DataFrame, whole: Gathered, lines: list[dict[str, Any]]
) -> None:
    answer = whole
    assert plain(answer.evidence) == plain(counted(lines, AS_OF_MS))
    assert (answer.left_out, answer.believed) == ({}, "ok")
    assert any('exchange == "shop"' in row.traits for row in answer.evidence.tries)
    bare = of(events, with_traits=False).evidence
    assert plain(bare) == plain(answer.evidence)
    assert {row.traits for row in bare.tries} == {()}


@pytest.mark.slow
def test_events_that_nobody_is_known_to_have_signed_are_left_out(events: DataFrame, whole: Gathered) -> None:
    forged = events.where("kind = 'retried'").withColumns(
        {
            "signature": f.lit("none"),
            "event_id": f.concat("event_id", f.lit("-forged")),
            "id": f.concat("id", f.lit("-f")),
        }
    )
    bad = forged.withColumns({"signature": f.lit("bad"), "event_id": f.concat("event_id", f.lit("-bad"))})
    answer = of(events.unionByName(forged).unionByName(bad))
    many = forged.count()
    assert plain(answer.evidence) == plain(whole.evidence)
    assert (answer.left_out, answer.believed) == ({"bad": many, "none": many}, "ok")
    assert of(bad).evidence == Evidence()
    assert of(events.where("false")).evidence == Evidence()


@pytest.mark.slow
def test_where_nobody_verified_anything_that_is_said(events: DataFrame, whole: Gathered) -> None:
    unknown = events.withColumn("signature", f.lit(None).cast("string"))
    answer = of(unknown)
    assert plain(answer.evidence) == plain(whole.evidence)
    assert (answer.left_out, answer.believed) == ({}, "unknown_key")


def of_weeks(chosen: Sequence[weeks.Week]) -> tuple[causes.Cause, ...]:
    """The causes of known weeks as those of a journal; what tells letters apart is their exchange."""
    return tuple(
        causes.Cause(
            f"{history.name}-{number}",
            history.name,
            weeks.REASON,
            cause.share,
            causes.heals(cause.heals, cause.chance),
            exchange=cause.trait.rpartition("== ")[2].strip('"') or "shop",
        )
        for history in chosen
        for number, cause in enumerate(history.causes)
    )


def policies_of(chosen: Sequence[weeks.Week], folder: Path) -> Path:
    """The policies that are in force in those weeks."""
    written = [
        {
            "name": history.name,
            "queue": history.name,
            "definition": {
                "max-delivery-attempts": history.now.attempts,
                "redelivery-delay": duration_text(history.now.delay_ms),
                "redelivery-delay-multiplier": history.now.multiplier,
                "max-redelivery-delay": duration_text(history.now.cap_ms),
                "redelivery-collision-avoidance-factor": history.now.jitter,
            },
        }
        for history in chosen
    ]
    folder.mkdir()
    (folder / "now.yaml").write_text(policy_file([], [(policy, ()) for policy in written]))
    return folder


def advised(spark: SparkSession, chosen: Sequence[weeks.Week], letters: int, seed: int, folder: Path) -> Any:
    """What is advised on a journal of these weeks, by queue."""
    policies = policies_of(chosen, folder / "policies")
    truth = week.week(letters, seed, policies, of_weeks(chosen))
    events = archived(spark, b"".join(truth.journal()), folder / "week.ndjson").cache()
    judge = judge_of(files_of(policies), "dlx-router")
    evidence = gather(events, quiet_of(events, judge), AS_OF_MS).evidence
    lines = [json.loads(line) for line in truth.journal()]
    assert sum(row.tried for row in evidence.tries) == sum(event["kind"] == "retried" for event in lines)
    events.unpersist()
    return {entry.queue: entry for entry in advise(evidence, partial(known_of, judge))}


@pytest.mark.slow
@pytest.mark.parametrize("seed", drawn([1, 2]))
def test_from_a_journal_too_the_advice_costs_at_most_a_tenth_more_than_the_best(
    spark: SparkSession, seed: int, tmp_path: Path
) -> None:
    chosen = [history for history in weeks.WEEKS if history.name in {"poison", "locks", "tellable", "flaky-in-vain"}]
    by_queue = advised(spark, chosen, 1000, seed, tmp_path)
    assert {*by_queue} == {history.name for history in chosen}
    for history in chosen:
        [part] = by_queue[history.name].parts
        ladder, best = part.advised or history.now, weeks.best(history)
        traits = [condition.replace("exchange", "routing_key") for condition in part.conditions]
        cost = weeks.expected(history, ladder, without=traits)
        assert cost <= WITHIN * best, (history.name, part.verdict, ladder, part.conditions)


@pytest.mark.slow
def test_from_a_journal_too_noise_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    shares = (0.9, 0.8, 0.85, 0.3)
    chosen = [
        weeks.Week(f"q{number}", (weeks.Cause(0.25, weeks.at_once, share),), Ladder(4, 1000, 2.0, 60_000, 0.15))
        for number, share in enumerate(shares)
    ]
    by_queue = advised(spark, chosen, 600, 3, tmp_path)
    assert len(by_queue) == len(chosen)
    assert changing(by_queue.values()) == []
