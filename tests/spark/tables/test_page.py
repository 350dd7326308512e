"""docs/pipeline-sql.md and docs/data-dictionary.md: what they say runs, in every engine that they name, alike."""

import math
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Final

import pytest

from dlx_router.spark.tables import views
from dlx_router.spark.tables.database import opened
from dlx_router.spark.tables.dictionary import TABLES
from dlx_router.spark.tables.page import page
from tests.docs.pages import ROOT, read
from tests.spark.tables.scene import Written, by_day, row_of
from tools.pipeline import week

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

PAGE: Final = read(ROOT / "docs/pipeline-sql.md")
SQL: Final = [block for block in PAGE.blocks if block.info == ("sql",)]
ENGINES: Final = [block for block in PAGE.blocks if block.info == ("python", "engine")]
LETTERS: Final = 250


@pytest.fixture(scope="module")
def written(tmp_path_factory: pytest.TempPathFactory) -> Written:
    """A week in some segments: the first day compacted, some events twice, a line that is none."""
    made = Written(tmp_path_factory.mktemp("sql") / "archive")
    rows = [row_of(line) for line in week.week(LETTERS, seed=11).journal()]
    segs = [made.put(*rows[at : at + 300], bad=[b"x"] if not at else ()) for at in range(0, len(rows), 300)]
    made.put(*rows[40:60], *rows[-10:])
    day, own = next(iter(by_day(rows).items()))
    made.compact(day, own, *segs)
    return made


@pytest.fixture(scope="module")
def views_of_spark(spark: "SparkSession", written: Written) -> "SparkSession":
    views.define(spark, written.archive.root)
    return spark


def plain(value: Any) -> Any:
    """A cell as both engines tell it."""
    if isinstance(value, datetime):
        return int(value.timestamp())
    if isinstance(value, bytearray):
        return bytes(value)
    if isinstance(value, Decimal | float):
        return None if math.isnan(value) else round(float(value), 6)
    return value


def in_duckdb(made: Written, text: str) -> list[tuple[Any, ...]]:
    with opened(made.archive.root) as db:
        return [tuple(map(plain, row)) for row in db.execute(text).fetchall()]


def in_spark(spark: "SparkSession", text: str) -> list[tuple[Any, ...]]:
    return [tuple(map(plain, row)) for row in spark.sql(text).collect()]


def test_the_data_dictionary_is_made_of_the_schema() -> None:
    assert (ROOT / "docs/data-dictionary.md").read_text(encoding="utf-8") == page(), "make pages"


@pytest.mark.slow
@pytest.mark.parametrize("block", SQL, ids=lambda block: f"line {block.line}")
def test_the_sql_of_the_page_has_equal_answers(written: Written, views_of_spark: "SparkSession", block: Any) -> None:
    by_duckdb = in_duckdb(written, block.text)
    assert by_duckdb
    assert in_spark(views_of_spark, block.text) == by_duckdb


@pytest.mark.slow
def test_spark_has_the_columns_of_the_dictionary_and_each_table_has_equal_rows(
    written: Written, views_of_spark: "SparkSession"
) -> None:
    for table in TABLES:
        assert views_of_spark.table(table.name).dtypes == [
            (column.name, column.dataType.simpleString()) for column in table.schema
        ], table.name
        key = "event_id, seg, idx" if "events" in table.name else "*"
        text = f"SELECT {key} FROM {table.name}"
        both = [sorted(map(str, rows)) for rows in (in_duckdb(written, text), in_spark(views_of_spark, text))]
        assert both[0] == both[1], table.name


@pytest.mark.slow
def test_letters_and_groups_are_those_of_the_analyses(written: Written, views_of_spark: "SparkSession") -> None:
    from pyspark.sql import functions as f  # noqa: PLC0415 - pyspark may be missing

    from dlx_router.spark.analyses.groups import failure_groups  # noqa: PLC0415 - as above
    from dlx_router.spark.analyses.letters import letters, observed_quiet  # noqa: PLC0415 - as above
    from dlx_router.spark.archive.reading import read as read_archive  # noqa: PLC0415 - as above

    events = read_archive(views_of_spark, written.archive.root)
    as_of_ms = events.agg(f.unix_millis(f.max("ingest_ts"))).collect()[0][0]
    states = letters(events, observed_quiet(events), as_of_ms)
    groups = failure_groups(events, states)
    for name, frame in (("letters", states), ("groups", groups)):
        columns = [column for column, _, _ in next(table for table in TABLES if table.name == name).columns]
        wanted = [tuple(map(plain, row)) for row in frame.select(*columns).collect()]
        assert len(wanted) > 5
        answered = in_duckdb(written, f"SELECT {', '.join(columns)} FROM {name}")
        assert sorted(map(str, answered)) == sorted(map(str, wanted))


@pytest.mark.slow
@pytest.mark.parametrize("block", ENGINES, ids=lambda block: f"line {block.line}")
def test_each_engine_of_the_page_reads_the_archive(
    written: Written, spark: "SparkSession", monkeypatch: pytest.MonkeyPatch, block: Any
) -> None:
    monkeypatch.chdir(written.archive.root.parent)
    names: dict[str, Any] = {}
    exec(compile(block.text, f"line {block.line}", "exec"), names)
    answer = names["answer"]
    if hasattr(answer, "to_dict"):
        answer = answer.to_dict().items()
    counts = sorted(tuple(row.values()) if isinstance(row, dict) else tuple(row) for row in answer)
    wanted = in_duckdb(written, "SELECT failed_queue, count(*) FROM events GROUP BY failed_queue")
    assert [row for row in counts if row[0]] == sorted(row for row in wanted if row[0])
