"""Until when an archive tells everything: not when a backlog was read, but when its stream was read to its end."""

import time
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from dlx_router.cli.pipeline.run_analysis import known_until
from dlx_router.spark.archive.aggregates import Aggregates
from dlx_router.spark.archive.complete import complete_until, read_to_end
from dlx_router.spark.archive.ingest import Ingest, ingest
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.archive.reading import read
from dlx_router.spark.offsets import dated, position
from dlx_router.spark.report import by_duckdb
from dlx_router.spark.tables import views
from dlx_router.spark.tables.database import opened
from tests.core.core_samples import letter
from tests.journal.journal_samples import line
from tests.spark.conftest import Stream
from tests.spark.tables.scene import HOUR_MS, MONDAY_MS, Written, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DAYS_LATER = 72.0


@pytest.mark.parametrize(
    ("asked", "newest", "answer"),
    [
        ({}, {}, 0),
        ({"s": 0}, {}, 0),
        ({}, {"s": 5}, 5),  # a manifest without positions
        ({"s": 0}, {"s": 5}, 5),  # an archive of an earlier version
        ({"s": 9}, {"s": 5}, 9),
        ({"s": 4}, {"s": 5}, 5),  # read to its end once, and a part of what came then
        ({"s": 9, "t": 0}, {"s": 8, "t": 3}, 3),  # the one that lags decides
        ({"s": 9, "t": 7}, {"s": 8}, 7),
        ({"s": 9, "t": 0}, {"s": 8}, 9),  # nobody knows of any event of it
        ({"s": 9}, {"s": 8, "gone": 2}, 9),  # not read any more
    ],
)
def test_the_stream_that_lags_most_decides(asked: dict[str, int], newest: dict[str, int], answer: int) -> None:
    assert complete_until(asked, newest) == answer


def test_a_position_keeps_the_moment_at_which_its_stream_ended_until_there_is_a_later_one() -> None:
    at = position(5, None)
    assert dated(at, None, {6: 7}) == at
    assert dated(at, None, {5: 7}) == at | {"complete_ms": 7}
    assert dated(at, {**position(3, None), "complete_ms": 4}, {4: 7}) == at | {"complete_ms": 4}
    assert dated(at, {**position(3, None), "complete_ms": 4}, {5: 7}) == at | {"complete_ms": 7}


def became(made: Written) -> dict[str, Counter[str]]:
    """What became of the letters, by each reader that needs no Spark."""
    with opened(made.archive.root) as database:
        by_sql = Counter(row[0] for row in database.execute("SELECT outcome FROM letters").fetchall())
    with by_duckdb.opened(made.archive.root) as events:
        data = events.gathered(title="t")
        by_report = Counter({name: data.total(name) for name in ("recovered", "lost", "open")})
    (group,) = Aggregates(made.archive.root).groups()
    by_group = Counter({name: group[name] for name in ("recovered", "lost", "open")})
    return {"sql": by_sql, "report": by_report, "groups": by_group}


@pytest.fixture
def backlog(tmp_path: Path) -> Written:
    """Of two letters that were retried the first was read, days later; each died for good 5 s after its retry."""
    made = Written(tmp_path / "archive")
    made.put(*(event(name, 0, kind="retried", due_ms=MONDAY_MS + 1000) for name in "ab"), is_end=False)
    return made


def test_no_letter_has_recovered_while_a_backlog_is_worked_off(backlog: Written) -> None:
    """All of them had, after the first of several segments: the archive counted as complete until it was read."""
    assert [*map(Counter.total, became(backlog).values())] == [2, 2, 2]
    assert all(counts["open"] == 2 for counts in became(backlog).values())
    dead = [event(name, 5 / 3600, kind="dead_lettered") for name in "ab"]
    backlog.put(*dead, is_end=True)
    told = became(backlog)
    assert (told["sql"]["dead_lettered"], told["report"]["lost"], told["groups"]["lost"]) == (2, 2, 2)


def test_a_letter_has_recovered_once_its_stream_was_read_to_its_end(backlog: Written) -> None:
    backlog.put(event("c", DAYS_LATER))
    told = became(backlog)
    assert [counts["recovered"] for counts in told.values()] == [2, 2, 2]


@pytest.mark.slow
def test_spark_says_the_same_of_a_backlog(spark: "SparkSession", backlog: Written) -> None:
    for segments in ([], [event("c", DAYS_LATER)]):
        backlog.put(*segments) if segments else None
        root = backlog.archive.root
        views.define(spark, root)
        by_spark = Counter(row.outcome for row in spark.sql("SELECT outcome FROM letters").collect())
        assert by_spark == became(backlog)["sql"]
        with by_duckdb.opened(root) as events:
            assert known_until(read(spark, root), root) == events.complete_ms


def test_a_time_that_lies_ahead_does_not_say_until_when_all_is_known(tmp_path: Path) -> None:
    made, read_ms = Written(tmp_path / "archive"), MONDAY_MS + 2 * HOUR_MS
    moment = datetime.fromtimestamp(read_ms / 1000, UTC)
    made.put(event("a", 1, ingest_ts=moment), event("b", 400, ingest_ts=moment), is_end=False)
    with by_duckdb.opened(made.archive.root) as events:
        assert events.complete_ms == read_ms


@pytest.mark.parametrize("how", ["spark", "alone"])
def test_ingest_notes_when_it_read_a_stream_to_its_end(
    newest: object,
    spark: "SparkSession",
    stream: Stream,
    connection: str,
    tmp_path: Path,
    how: str,
) -> None:
    root, began_ms = tmp_path / "archive", time.time_ns() // 1_000_000
    for at in range(6):
        stream.put(line(letter(id=f"{at:032x}"), now_ms=began_ms - 48 * HOUR_MS))
    job = Ingest(root, connection, stream.name, source={"maxOffsetsPerTrigger": "2", "minOffsetsPerPartition": "1"})
    asked_of = spark if how == "spark" else None
    ingest(asked_of, job)
    entries = Archive(root).entries()
    moments = [entry.end[stream.name].get("complete_ms") for entry in entries]
    assert moments[:-1] == [None] * (len(entries) - 1)
    assert len(entries) > 1
    assert began_ms <= moments[-1] <= time.time_ns() // 1_000_000
    assert read_to_end(Archive(root)) == {stream.name: moments[-1]}
    assert ingest(asked_of, job).segments == 0  # a moment alone is no news
