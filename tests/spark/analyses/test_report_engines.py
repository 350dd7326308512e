"""The report by DuckDB says what the report by Spark says, of a week and of journals that chance wrote."""

import json
import random
from collections.abc import Callable, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import Any

import duckdb
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from dlx_router.cli.pipeline.run_analysis import known_until
from dlx_router.core.recovered import DEATHS
from dlx_router.journal.fields import KINDS
from dlx_router.spark.advice.evidence import EDGES_MS, bucket
from dlx_router.spark.advice.proposal import known_of
from dlx_router.spark.advice.sql import bucket_sql
from dlx_router.spark.archive.compact import Rules, compact
from dlx_router.spark.archive.reading import read
from dlx_router.spark.backtest.places import windows
from dlx_router.spark.backtest.replay import files_of, judge_of
from dlx_router.spark.recovery_windows import quiet_of
from dlx_router.spark.report import by_duckdb, by_spark
from dlx_router.spark.report.by_duckdb import Times
from dlx_router.spark.report.data import MOST_ROWS, NOTHING, ReportData
from dlx_router.spark.report.page import page
from dlx_router.spark.tables.database import fold
from tests.spark.rows import AS_OF_MS
from tests.spark.tables.scene import MONDAY_MS as SCENE_MS
from tests.spark.tables.scene import Written, event
from tests.spark.test_compact import Book
from tests.support.version_draw import drawn
from tools.pipeline import week
from tools.pipeline.week import MONDAY_MS

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
HOUR_MS = 3_600_000
YEAR_10000_MS = 253_402_300_800_000
NO_TIMES = (10**18, 2**63 - 1, -(2**63), YEAR_10000_MS)
POISONED = 1  # of the seeds
FREE = {"made_at"}  # when it was made
ROWS = {
    "recovery": (),
    "efficacy": (),
    "slo": (),
    "poison": (),
    "redrives": (),
    "trends": (),
    "groups": ("sample_ids",),
}
Make = Callable[[random.Random, int, int], dict[str, Any]]


def compared(data: ReportData) -> dict[str, Any]:
    """Everything but what may differ: samples of letters that died in one millisecond, the order of equal rows."""
    values = {field.name: getattr(data, field.name) for field in fields(data) if field.name not in FREE}
    for name, left_out in ROWS.items():
        rows = [{key: row[key] for key in sorted(row) if key not in left_out} for row in values[name]]
        rows = [*map(_said_by_its_fingerprint, rows)] if name == "groups" else rows
        values[name] = sorted(map(_rounded, rows), key=repr)
    return values | {"advice": sorted(values["advice"], key=repr)}


def _said_by_its_fingerprint(group: dict[str, Any]) -> dict[str, Any]:
    """Deaths without a reason have no fingerprint: what is said of the error is that of any of them."""
    return group | ({"error_type": None, "error_template": None} if group["fingerprint"] is None else {})


class Percentile(float):
    """Put together of two numbers: the last digit may differ, and with it the millisecond that is cut off."""

    __hash__ = None  # type: ignore[assignment]  # what is equal to two others, which differ, has none

    def __eq__(self, other: object) -> bool:
        return isinstance(other, float) and abs(self - other) <= 1


def _rounded(row: dict[str, Any]) -> dict[str, Any]:
    every = {key: round(value, 9) if isinstance(value, float) else value for key, value in row.items()}
    percentiles = {key: value for key, value in every.items() if value and key.endswith(("p50_ms", "p95_ms", "p99_ms"))}
    return every | {key: Percentile(value) for key, value in percentiles.items()}


def by_both(book: Book, **how: Any) -> list[dict[str, Any]]:
    """What either says of the whole archive."""
    events = read(book.spark, book.archive.root).cache()
    expected = by_spark.gather(events, title="t", as_of_ms=known_until(events, book.archive.root), **how)
    events.unpersist()
    with by_duckdb.opened(book.archive.root) as opened:
        return [compared(expected), compared(opened.gathered(title="t"))]


def invented(rng: random.Random, letter: int, at: int) -> dict[str, Any]:
    """An event that might be of any router, or of nobody."""
    kind = rng.choice([*DEATHS, *DEATHS, "retried", "retried", "redriven", *sorted(KINDS)])
    ts_ms = MONDAY_MS + at * 7919 + letter * rng.choice([60_000, 3_600_000])
    identity = f"{letter:032x}"
    return {
        "v": 1, "event_id": f"{identity}-{at:016x}", "id": identity, "kind": kind, "router_id": "r",
        "vhost": ["/", "shop"][letter % 2], "failed_queue": f"queue.{letter % 3}", "ts_ms": ts_ms,
        "reason": rng.choice(["rejected", "expired", None]), "attempts": rng.choice([0, 1, 2, 3, None]),
        "redrives": rng.choice([0, 0, 0, 1]), "first_death_ms": rng.choice([*[MONDAY_MS] * 6, *NO_TIMES]),
        "due_ms": rng.choice([None, ts_ms, ts_ms + 5_000, ts_ms + HOUR_MS, *NO_TIMES]),
        "redrive_id": rng.choice([None, None, f"r-{letter % 4}"]), "observed": rng.choice([None, None, None, True]),
        "body_sha256": rng.choice([None, f"{letter % 5:064x}"]),
        "error": rng.choice([None, {"type": "E", "message": f"order {letter}"}, {"type": "F", "message": "x"}]),
    }  # fmt: skip


def journal(seed: int) -> list[bytes]:
    """Some letters with some events each, in any order, and a gap."""
    rng = random.Random(seed)
    rows = [invented(rng, letter, at) for letter in range(80) for at in range(rng.randrange(1, 12))]
    rows.append(
        {"v": 1, "event_id": "gap", "kind": "gap", "router_id": "r", "vhost": "/", "ts_ms": MONDAY_MS, "events": 7}
    )
    rows += [{**rows[-1], "event_id": f"gap{number}", "events": 2**63 - 1} for number in range(2)]
    rng.shuffle(rows)
    return [
        json.dumps({key: value for key, value in row.items() if value is not None}).encode() + b"\n" for row in rows
    ]


@pytest.mark.slow
@pytest.mark.parametrize("seed", drawn([1, 2, 3]))
def test_both_say_the_same_of_a_journal_that_chance_wrote(spark: SparkSession, tmp_path: Path, seed: int) -> None:
    book, lines = Book(spark, tmp_path / "archive"), journal(seed)
    book.put(*lines[: len(lines) // 2], *lines[:20])
    book.put(*lines[len(lines) // 3 :])
    spark_said, duckdb_said = by_both(book)
    assert duckdb_said == spark_said
    assert duckdb_said["poison"] or seed != POISONED
    assert duckdb_said["redrives"]
    assert duckdb_said["gaps"] == 7 + 2 * (2**63 - 1)


@pytest.mark.slow
def test_both_say_the_same_of_a_week_by_its_policies_before_and_after_it_is_compacted(
    spark: SparkSession, tmp_path: Path
) -> None:
    book, lines = Book(spark, tmp_path / "archive"), [*week.week(400, 5).journal()]
    book.put(*lines[: len(lines) // 2])
    book.put(*lines[len(lines) // 3 :])
    judge = judge_of(files_of(week.NOW), "dlx-router")
    known = partial(known_of, judge)
    for _ in range(2):
        events = read(spark, book.archive.root)
        expected = by_spark.gather(events, title="t", as_of_ms=AS_OF_MS, quiet=quiet_of(events, judge), known=known)
        with by_duckdb.opened(book.archive.root, Times(None, AS_OF_MS)) as opened:
            quiet = windows(opened.places(), judge)
            assert compared(opened.gathered(title="t", quiet=quiet, known=known)) == compared(expected)
        compact(fold, book.archive.root, Rules())


def of_many_queues(queues: int) -> list[dict[str, Any]]:
    """Of each queue a letter that is tried twice, and of the last one ten; each dies for good, and is redriven."""
    rows = []
    for at, letter in enumerate([*range(queues), *[queues - 1] * 9]):
        own = {"failed_queue": f"q{letter:04}", "fingerprint": f"f{letter}"}
        name = f"{at:032x}"
        rows += [
            event(name, 0, kind="retried", due_ms=SCENE_MS + 1000, **own),
            event(name, 1, kind="retried", due_ms=SCENE_MS + HOUR_MS, attempts=2, **own),
            event(name, 2, kind="dead_lettered", attempts=3, **own),
            event(name, 3 + at / 100, kind="redriven", redrives=1, redrive_id=f"r{at}", **own),
        ]
    return rows


@pytest.mark.slow
def test_both_say_the_same_of_more_queues_than_a_page_shows(spark: SparkSession, tmp_path: Path) -> None:
    made, queues = Written(tmp_path / "archive"), MOST_ROWS + 50
    made.put(*of_many_queues(queues))
    events = read(spark, made.archive.root)
    with by_duckdb.opened(made.archive.root) as opened:
        answer = opened.gathered(title="t")
    expected = by_spark.gather(events, title="t", as_of_ms=answer.complete_ms)
    assert compared(answer) == compared(expected)


def test_what_a_page_cannot_show_is_counted_and_said(tmp_path: Path) -> None:
    """Letters and retries were summed up over the rows that were shown, and nothing said that there were more."""
    made, queues = Written(tmp_path / "archive"), MOST_ROWS + 50
    made.put(*of_many_queues(queues))
    with by_duckdb.opened(made.archive.root) as opened:
        answer = opened.gathered(title="t")
    letters, tables = queues + 9, ("recovery", "efficacy", "groups", "slo", "redrives")
    assert (answer.total("letters"), answer.total("born"), answer.total("tried")) == (letters, letters, 2 * letters)
    assert [len(getattr(answer, table)) for table in tables] == [MOST_ROWS] * len(tables)
    assert [answer.count(table) for table in tables] == [queues, 2 * queues, queues, queues, letters]
    assert answer.count("poison") == len(answer.poison)
    assert answer.recovery[0]["failed_queue"] == answer.efficacy[0]["failed_queue"] == f"q{queues - 1:04}"
    assert answer.redrives[0]["redrive_id"] == f"r{letters - 1}"
    html = page(answer)
    assert f"<b>{letters}</b><span>letters, {letters} of them failed for the first time" in html
    assert f"of {2 * letters} retries in vain" in html
    for text in (
        f"The first 200 of {queues}, those with most letters first",
        f"The first 200 of {letters}, the newest",
    ):
        assert text in html


def test_an_old_letter_that_dies_again_or_is_redriven_is_no_new_one(tmp_path: Path) -> None:
    """Its first event since `--since` was taken for its first death."""
    made, first_ms, since_ms = Written(tmp_path / "archive"), SCENE_MS, SCENE_MS + 100 * HOUR_MS
    made.put(
        event("again", 0, kind="retried", due_ms=first_ms),
        event("again", 110, kind="retried", due_ms=first_ms, first_death_ms=first_ms),
        event("redriven", 0),
        event("redriven", 120, kind="redriven", redrives=1, redrive_id="r", first_death_ms=first_ms),
        event("new", 130),
    )
    with by_duckdb.opened(made.archive.root, Times(since_ms)) as opened:
        answer = opened.gathered(title="t")
    assert [row["bucket_ms"] for row in answer.trends if row["new_letters"]] == [SCENE_MS + 130 * HOUR_MS]
    assert (answer.total("letters"), answer.total("born")) == (3, 1)
    assert "<b>3</b><span>letters, 1 of them failed for the first time" in page(answer)


@pytest.mark.slow
def test_only_events_of_the_time_that_is_asked_for_are_looked_at(spark: SparkSession, tmp_path: Path) -> None:
    book = Book(spark, tmp_path / "archive")
    book.put(*week.week(100, 5).journal())
    since, until = MONDAY_MS + 30 * HOUR_MS, MONDAY_MS + 90 * HOUR_MS
    events = read(spark, book.archive.root).where(f"ts_ms >= {since} and ts_ms < {until}")
    expected = by_spark.gather(events, title="t", as_of_ms=until, since_ms=since)
    with by_duckdb.opened(book.archive.root, Times(since, until)) as opened:
        answer = opened.gathered(title="t")
    assert compared(answer) == compared(expected)
    assert since <= answer.first_ms <= answer.last_ms < until
    with by_duckdb.opened(book.archive.root, Times(until, since)) as opened, pytest.raises(ValueError, match=NOTHING):
        opened.gathered(title="t")


@pytest.mark.parametrize("name", ["due_ms", "first_death_ms"])
@pytest.mark.parametrize("ms", [2**63 - 1, -(2**63), YEAR_10000_MS])
def test_an_event_whose_times_are_none_ends_no_report(tmp_path: Path, name: str, ms: int) -> None:
    """Whoever may publish to the journal may write such numbers, and their difference is none that DuckDB has."""
    made = Written(tmp_path / "archive")
    made.put(event("a", 1, kind="retried"), event("forged", 2, kind="retried", **{name: ms}), event("a", 1.5))
    with by_duckdb.opened(made.archive.root) as opened:
        answer = opened.gathered(title="t")
    assert [(row["letters"], row["recovered"]) for row in answer.recovery] == [(2, 1)]
    assert page(answer)


def test_a_poison_message_whose_letters_have_no_time_of_death_ends_no_report(tmp_path: Path) -> None:
    made = Written(tmp_path / "archive")
    same = {"first_death_ms": YEAR_10000_MS, "body_sha256": "ab" * 32}
    made.put(*(event(name, hour, **same) for name in "ab" for hour in range(5)))
    with by_duckdb.opened(made.archive.root) as opened:
        answer = opened.gathered(title="t")
    assert [(row["deaths"], row["first_ms"]) for row in answer.poison] == [(10, None)]
    assert "Poison messages" in page(answer)


def test_gaps_of_more_events_than_there_are_numbers_end_no_report(tmp_path: Path) -> None:
    made, most = Written(tmp_path / "archive"), 2**63 - 1
    gaps = [event(name, 2, id=None, failed_queue=None, kind="gap", events=most) for name in ("g1", "g2")]
    made.put(event("a", 1), *gaps)
    with by_duckdb.opened(made.archive.root) as opened:
        assert opened.gathered(title="t").gaps == 2 * most


def bucketed(times: Sequence[int]) -> list[int]:
    """By SQL."""
    with duckdb.connect() as database:
        rows = database.execute(f"SELECT {bucket_sql('ms')} FROM (SELECT unnest(?) AS ms)", [[*times]]).fetchall()
    return [row[0] for row in rows]


def test_the_buckets_of_sql_begin_where_those_of_evidence_begin() -> None:
    times = [edge + step for edge in EDGES_MS for step in (-1, 0, 1)] + [-5, 10**15]
    assert bucketed(times) == [bucket(ms) for ms in times]


@given(st.lists(st.integers(-(10**6), 10**13), min_size=1, max_size=200))
def test_a_time_is_in_the_same_bucket_in_both(times: list[int]) -> None:
    assert bucketed(times) == [bucket(ms) for ms in times]
