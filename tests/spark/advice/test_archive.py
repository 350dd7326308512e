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


def plain(found: Evidence) -> tuple[Any, ...]:
    return merged(found.tries), sorted(found.episodes), sorted(found.peaks, key=repr)


def test_spark_counts_what_a_plain_script_counts(
    events: DataFrame, whole: Gathered, lines: list[dict[str, Any]]
) -> None:
    found = whole
    assert plain(found.evidence) == plain(counted(lines, AS_OF_MS))
    assert (found.left_out, found.believed) == ({}, "ok")
    assert any('exchange == "shop"' in row.traits for row in found.evidence.tries)
    bare = of(events, with_traits=False).evidence
    assert plain(bare) == plain(found.evidence)
    assert {row.traits for row in bare.tries} == {()}


def test_events_that_nobody_is_known_to_have_signed_are_left_out(events: DataFrame, whole: Gathered) -> None:
    forged = events.where("kind = 'retried'").withColumns(
        {
            "signature": f.lit("none"),
            "event_id": f.concat("event_id", f.lit("-forged")),
            "id": f.concat("id", f.lit("-f")),
        }
    )
    bad = forged.withColumns({"signature": f.lit("bad"), "event_id": f.concat("event_id", f.lit("-bad"))})
    found = of(events.unionByName(forged).unionByName(bad))
    many = forged.count()
    assert plain(found.evidence) == plain(whole.evidence)
    assert (found.left_out, found.believed) == ({"bad": many, "none": many}, "ok")
    assert of(bad).evidence == Evidence()
    assert of(events.where("false")).evidence == Evidence()


def test_where_nobody_verified_anything_that_is_said(events: DataFrame, whole: Gathered) -> None:
    unknown = events.withColumn("signature", f.lit(None).cast("string"))
    found = of(unknown)
    assert plain(found.evidence) == plain(whole.evidence)
    assert (found.left_out, found.believed) == ({}, "unknown_key")


def of_weeks(chosen: Sequence[weeks.Week]) -> tuple[causes.Cause, ...]:
    """The causes of known weeks as those of a journal; what tells letters apart is their exchange."""
    return tuple(
        causes.Cause(
            f"{one.name}-{number}",
            one.name,
            weeks.REASON,
            cause.share,
            causes.outage(cause.to_ms / 1000) if cause.ends_for_all else causes.heals(cause.heals, cause.chance),
            start_s=cause.from_ms / 1000,
            end_s=cause.to_ms / 1000,
            exchange=cause.trait.rpartition("== ")[2].strip('"') or "shop",
        )
        for one in chosen
        for number, cause in enumerate(one.causes)
    )


def policies_of(chosen: Sequence[weeks.Week], folder: Path) -> Path:
    """The policies that are in force in those weeks."""
    written = [
        {
            "name": one.name,
            "queue": one.name,
            "definition": {
                "max-delivery-attempts": one.now.attempts,
                "redelivery-delay": duration_text(one.now.delay_ms),
                "redelivery-delay-multiplier": one.now.multiplier,
                "max-redelivery-delay": duration_text(one.now.cap_ms),
                "redelivery-collision-avoidance-factor": one.now.jitter,
            },
        }
        for one in chosen
    ]
    folder.mkdir()
    (folder / "now.yaml").write_text(policy_file([], [(one, ()) for one in written]))
    return folder


def advised(spark: SparkSession, chosen: Sequence[weeks.Week], letters: int, seed: int, folder: Path) -> Any:
    """What is advised on a journal of these weeks, by queue."""
    policies = policies_of(chosen, folder / "policies")
    truth = week.week(letters, seed, policies, of_weeks(chosen))
    events = archived(spark, b"".join(truth.journal()), folder / "week.ndjson").cache()
    judge = judge_of(files_of(policies), "dlx-router")
    found = gather(events, quiet_of(events, judge), AS_OF_MS).evidence
    lines = [json.loads(line) for line in truth.journal()]
    assert sum(row.tried for row in found.tries) == sum(one["kind"] == "retried" for one in lines)
    events.unpersist()
    return {one.queue: one for one in advise(found, partial(known_of, judge))}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [1, 2])
def test_from_a_journal_too_the_advice_costs_at_most_a_tenth_more_than_the_best(
    spark: SparkSession, seed: int, tmp_path: Path
) -> None:
    chosen = [one for one in weeks.WEEKS if one.name in {"poison", "locks", "outage", "tellable", "flaky-in-vain"}]
    found = advised(spark, chosen, 1000, seed, tmp_path)
    assert {*found} == {one.name for one in chosen}
    for one in chosen:
        [part] = found[one.name].parts
        ladder, rule = part.advised or one.now, found[one.name].outage
        best = weeks.best(one)
        if rule is not None:
            cost, best = weeks.cost(weeks.lives(one, seed, ladder, rule), one.prices), weeks.best_held(one, seed)
        else:
            traits = [said.replace("exchange", "routing_key") for said in part.conditions]
            cost = weeks.expected(one, ladder, without=traits)
        assert cost <= WITHIN * best, (one.name, part.verdict, ladder, part.conditions)


@pytest.mark.slow
def test_from_a_journal_too_noise_is_left_alone(spark: SparkSession, tmp_path: Path) -> None:
    shares = (0.9, 0.8, 0.85, 0.3)
    chosen = [
        weeks.Week(f"q{number}", (weeks.Cause(0.25, weeks.at_once, share),), Ladder(4, 1000, 2.0, 60_000, 0.15))
        for number, share in enumerate(shares)
    ]
    found = advised(spark, chosen, 600, 3, tmp_path)
    assert len(found) == len(chosen)
    assert changing(found.values()) == []
