"""What became of letters, against a week whose truth is known, and by small tables."""

from collections import Counter
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.testing import assertDataFrameEqual, assertSchemaEqual

from dlx_router.core import recovered
from dlx_router.core.recovered import ORDER, SILENT, fate, window_ms
from dlx_router.journal.fields import KINDS
from dlx_router.spark.analyses import letters as at
from dlx_router.spark.analyses.groups import GROUPS_SCHEMA, failure_groups
from dlx_router.spark.analyses.poison import POISON_SCHEMA, REDRIVES_SCHEMA, poison_messages, redrive_success
from dlx_router.spark.analyses.recovery import RECOVERY_SCHEMA, SLO_SCHEMA, slo_burn, time_to_recovery
from dlx_router.spark.analyses.shape import struct
from dlx_router.spark.analyses.trends import TRENDS_SCHEMA, trends
from tests.spark.rows import AS_OF_MS
from tools.pipeline import week

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
HOUR = at.HOUR_MS
T = 1_790_000_000_000
EVENT = (
    "event_id string, vhost string, id string, failed_queue string, kind string, reason string, cause string, "
    "policy string, attempts long, redrives long, ts_ms long, due_ms long, first_death_ms long, redrive_id string, "
    "observed boolean"
)


@pytest.fixture(scope="module")
def found(events: DataFrame) -> DataFrame:
    return at.letters(events, at.observed_quiet(events), AS_OF_MS).cache()


@pytest.fixture(scope="module")
def tried(events: DataFrame) -> DataFrame:
    return at.tries(events, at.observed_quiet(events), AS_OF_MS).cache()


def told(spark: SparkSession, *steps: dict[str, Any], letter: str = "a") -> DataFrame:
    plain = {"vhost": "/", "id": letter, "failed_queue": "q", "reason": "rejected", "attempts": 1, "redrives": 0,
             "first_death_ms": T}  # fmt: skip
    names = struct(EVENT).names
    rows = [{**plain, "event_id": f"{letter}-{number}", **step} for number, step in enumerate(steps)]
    return spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], EVENT)


def test_every_letter_of_the_week_ends_as_it_did(found: DataFrame, truth: week.Truth) -> None:
    known = {
        letter.id: ("recovered" if letter.recovered_ms or letter.saved else "dead_lettered", letter.first_death_ms)
        for letter in truth.fates
    }
    assert {row.id: (row.outcome, row.first_death_ms) for row in found.collect()} == known


def test_an_event_that_stands_twice_in_the_journal_counts_once(events: DataFrame, found: DataFrame) -> None:
    twice = at.once(events.unionAll(events.limit(500)))
    again = at.letters(twice, at.observed_quiet(twice), AS_OF_MS)
    assertDataFrameEqual(again, found)


@pytest.mark.parametrize(
    ("steps", "as_of_ms", "outcome"),
    [
        ([{"kind": "retried", "ts_ms": T, "due_ms": T + 5}], T + 5 + HOUR - 1, "open"),
        ([{"kind": "retried", "ts_ms": T, "due_ms": T + 5}], T + 5 + HOUR, "recovered"),
        ([{"kind": "retried", "ts_ms": T, "due_ms": T + HOUR}], T + HOUR + 2 * HOUR - 1, "open"),
        ([{"kind": "retried", "ts_ms": T, "due_ms": T + HOUR}], T + HOUR + 2 * HOUR, "recovered"),
        ([{"kind": "retried", "ts_ms": T}, {"kind": "released", "ts_ms": T + 9}], T + HOUR, "recovered"),
        ([{"kind": "retried", "ts_ms": T}, {"kind": "parked", "ts_ms": T + 9, "attempts": 2}], T + 9 * HOUR, "parked"),
        ([{"kind": "dead_lettered", "ts_ms": T}, {"kind": "redriven", "ts_ms": T + 9, "redrives": 1}], T + 10, "open"),
        ([{"kind": "held", "ts_ms": T}], T + 9 * HOUR, "held"),
        ([{"kind": "dead_lettered", "ts_ms": T}, {"kind": "retired", "ts_ms": T + 9}], T + 9 * HOUR, "retired"),
    ],
)
def test_recovered_means_silent_for_an_hour_or_twice_the_longest_wait(
    spark: SparkSession, steps: list[dict[str, Any]], as_of_ms: int, outcome: str
) -> None:
    frame = told(spark, *steps)
    row = at.letters(frame, at.observed_quiet(frame), as_of_ms).collect()[0]
    assert row.outcome == outcome
    assert (row.recovered_ms is not None) == (outcome == "recovered")


moments = st.integers(T - 3 * HOUR, T + 3 * HOUR) | st.sampled_from([T, T - HOUR, T - 2 * HOUR])
histories = st.lists(
    st.fixed_dictionaries(
        {
            "kind": st.sampled_from(sorted({*KINDS} - {"audit", "gap"})),
            "ts_ms": moments,
            "due_ms": st.none() | moments,
            "redrives": st.integers(0, 2),
            "attempts": st.integers(0, 3),
        }
    ),
    min_size=1,
    max_size=6,
)


def by_core(letter: list[dict[str, Any]], window: int) -> tuple[str | None, list[str]]:
    """What became of a letter, and how each time ended that it was given back."""
    ordered = sorted(letter, key=lambda step: tuple(step[name] for name in ORDER))
    steps = [(step["kind"], step["ts_ms"], step["due_ms"]) for step in ordered if step["kind"] not in SILENT]
    following = [*(kind for kind, *_ in steps[1:]), None]
    whole = fate(*steps[-1], as_of_ms=T, window_ms=window) if steps else None
    return whole, [
        recovered.tried(*step, next_kind=then, as_of_ms=T, window_ms=window)
        for step, then in zip(steps, following, strict=False)
        if step[0] in {"retried", "redriven"}
    ]


@settings(max_examples=2, deadline=None, database=None, suppress_health_check=[*HealthCheck])
@given(found=st.lists(histories, min_size=40, max_size=60), longest=st.integers(0, 2 * HOUR))
def test_spark_answers_as_core_does(spark: SparkSession, found: list[list[dict[str, Any]]], longest: int) -> None:
    told_of = {
        f"{number:04}": [{**step, "event_id": f"{number:04}-{at}"} for at, step in enumerate(steps)]
        for number, steps in enumerate(found)
    }
    plain = {"vhost": "/", "failed_queue": "q", "reason": "rejected", "first_death_ms": T}
    rows = [{**plain, **step, "id": key} for key, steps in told_of.items() for step in steps]
    names = struct(EVENT).names
    frame = spark.createDataFrame([tuple(row.get(name) for name in names) for row in rows], EVENT)
    window = window_ms(longest)
    quiet = spark.createDataFrame([("/", "q", "rejected", window)], at.QUIET_SCHEMA)
    whole = {row.id: row.outcome for row in at.letters(frame, quiet, T).collect()}
    ended: dict[str, Counter[str]] = {key: Counter() for key in told_of}
    for row in at.tries(frame, quiet, T).collect():
        ended[row.id][row.outcome] += 1
    core = {key: by_core(steps, window) for key, steps in told_of.items()}
    assert whole == {key: outcome for key, (outcome, _) in core.items() if outcome is not None}
    assert ended == {key: Counter(each) for key, (_, each) in core.items()}


def test_a_letter_that_was_edited_when_it_was_sent_back_has_recovered(spark: SparkSession) -> None:
    frame = told(spark, {"kind": "redriven", "ts_ms": T}, {"kind": "edited", "ts_ms": T})
    (row,) = at.letters(frame, at.observed_quiet(frame), T + HOUR).collect()
    assert row.outcome == "recovered"


def test_a_refused_return_is_no_failed_try(spark: SparkSession) -> None:
    steps = [{"kind": "retried", "ts_ms": T, "due_ms": T + 5}, {"kind": "held", "ts_ms": T + 6}]
    steps += [
        {"kind": "retried", "ts_ms": T + 9, "due_ms": T + 9},
        {"kind": "dead_lettered", "ts_ms": T + 12, "attempts": 2},
    ]
    frame = told(spark, *steps)
    rows = at.tries(frame, at.observed_quiet(frame), T + HOUR).orderBy("decided_ms").collect()
    assert [row.outcome for row in rows] == ["refused", "failed"]


def test_a_try_that_a_redrive_ends_is_not_said_to_have_failed(spark: SparkSession) -> None:
    frame = told(
        spark, {"kind": "retried", "ts_ms": T, "due_ms": T}, {"kind": "redriven", "ts_ms": T + 5, "redrives": 1}
    )
    rows = at.tries(frame, at.observed_quiet(frame), T + 9 * HOUR).orderBy("decided_ms").collect()
    assert [row.outcome for row in rows] == ["open", "recovered"]


def test_what_a_task_does_to_a_letter_is_no_death(spark: SparkSession) -> None:
    told_of = {"fingerprint": "string", "error": "struct<type: string>", "error_template": "string"}
    frame = told(
        spark,
        {"kind": "dead_lettered", "ts_ms": T},
        {"kind": "parked", "ts_ms": T + 5, "redrive_id": "r-1"},
        {"kind": "discarded", "ts_ms": T + 9, "redrive_id": "r-2"},
    ).withColumns({name: f.lit(None).cast(kind) for name, kind in told_of.items()})
    fates = at.letters(frame, at.observed_quiet(frame), T + HOUR)
    assert [(row.deaths, row.outcome) for row in fates.collect()] == [(1, "discarded")]
    assert [row.deaths for row in failure_groups(frame, fates).collect()] == [1]


def test_groups_are_the_causes_of_the_week(events: DataFrame, found: DataFrame, truth: week.Truth) -> None:
    groups = failure_groups(events, found)
    assertSchemaEqual(groups.schema, struct(GROUPS_SCHEMA))
    rows = groups.collect()
    causes = Counter(letter.cause for letter in truth.fates)
    deaths = {letter.cause: letter for letter in truth.fates}
    assert sorted((row.failed_queue, row.letters) for row in rows) == sorted(
        (deaths[cause].queue, count) for cause, count in causes.items()
    )
    dead = Counter(letter.queue for letter in truth.fates if letter.dead and not letter.saved)
    assert {row.failed_queue: row.lost for row in rows} == {row.failed_queue: dead[row.failed_queue] for row in rows}
    assert {row.error_template for row in rows if row.failed_queue == "orders.new"} == {
        "order <n>: field 'vat' is missing"
    }


def test_trends_count_every_event_and_every_letter_once(events: DataFrame, truth: week.Truth) -> None:
    frame = trends(events)
    assertSchemaEqual(frame.schema, struct(TRENDS_SCHEMA))
    rows = frame.collect()
    assert sum(row.events for row in rows) == len(truth.lines)
    assert sum(row.new_letters for row in rows) == len(truth.fates)
    assert all(row.bucket_ms % HOUR == 0 for row in rows)


def test_time_to_recovery_is_from_the_first_death_to_the_last_return(found: DataFrame, truth: week.Truth) -> None:
    frame = time_to_recovery(found)
    assertSchemaEqual(frame.schema, struct(RECOVERY_SCHEMA))
    rows = {row.failed_queue: row for row in frame.collect()}
    took = sorted(
        letter.recovered_ms - letter.first_death_ms for letter in truth.of("gateway-timeouts") if letter.recovered_ms
    )
    row = rows["payments.charge"]
    assert row.recovered == len(took)
    assert took[len(took) // 2 - 1] <= row.time_p50_ms <= took[len(took) // 2 + 1]
    assert rows["stock.reserve"].by_redrive == sum(letter.saved for letter in truth.fates)
    assert rows["mail.send"].time_p50_ms is None


def test_an_error_budget_burns_by_what_is_late_or_lost(found: DataFrame, truth: week.Truth) -> None:
    frame = slo_burn(found, objective=0.9, within_ms=10_000)
    assertSchemaEqual(frame.schema, struct(SLO_SCHEMA))
    row = next(candidate for candidate in frame.collect() if candidate.failed_queue == "payments.charge")
    fates = truth.of("gateway-timeouts")
    good = sum(
        letter.recovered_ms is not None and letter.recovered_ms - letter.first_death_ms <= 10_000 for letter in fates
    )
    assert (row.good, row.bad) == (good, len(fates) - good)
    assert row.burn == pytest.approx((len(fates) - good) / len(fates) / 0.1)


def test_poison_is_the_same_body_again_and_again(events: DataFrame, found: DataFrame, truth: week.Truth) -> None:
    frame = poison_messages(events, found)
    assertSchemaEqual(frame.schema, struct(POISON_SCHEMA))
    rows = frame.collect()
    bodies = Counter(letter.body for letter in truth.of("heic-pictures"))
    assert sorted(row.letters for row in rows) == sorted(bodies.values())
    assert {row.known_by for row in rows} == {"body_sha256"}


def test_a_redrive_is_judged_by_what_came_to_rest(found: DataFrame, tried: DataFrame, truth: week.Truth) -> None:
    frame = redrive_success(tried, found)
    assertSchemaEqual(frame.schema, struct(REDRIVES_SCHEMA))
    [row] = frame.collect()
    sent = [letter for letter in truth.fates if letter.redriven]
    assert (row.redrive_id, row.letters, row.recovered) == (
        "r-stock-wednesday",
        len(sent),
        sum(letter.saved for letter in sent),
    )
    assert 0 < row.at_once < row.letters  # one of ten dies again first


def test_a_gap_is_no_letter(spark: SparkSession) -> None:
    frame = told(spark, {"kind": "retried", "ts_ms": T}, {"kind": "gap", "id": None, "failed_queue": None, "ts_ms": T})
    assert at.letters(frame, at.observed_quiet(frame), T).count() == 1
    assert trends(frame).agg(f.sum("events")).collect()[0][0] == 1
