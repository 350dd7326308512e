"""Aggregates beside the archive say what Spark says of all events, whatever was killed, folded or erased."""

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest
from pyspark.sql import SparkSession

from dlx_router.cli.main import main
from dlx_router.spark.analyses.groups import failure_groups
from dlx_router.spark.analyses.letters import letters, observed_quiet
from dlx_router.spark.archive.aggregates import Aggregates
from dlx_router.spark.archive.compact import Rules, compact
from dlx_router.spark.archive.erase import erase
from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.archive.reading import read
from dlx_router.spark.tables.database import fold
from tests.spark.rows import AS_OF_MS
from tests.spark.test_compact import Book
from tools.pipeline import week

pytestmark = [pytest.mark.spark, pytest.mark.timeout(900)]
Groups = dict[tuple[str, str, str], dict[str, Any]]


@pytest.fixture(scope="module")
def written(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A week in three segments; some events stand in two of them, and some twice in one."""
    lines = [*week.week(150, 5).journal()]
    third = len(lines) // 3
    filled = Book(spark, tmp_path_factory.mktemp("week") / "archive")
    filled.put(*lines[:third], *lines[: third // 2])
    filled.put(*lines[third // 2 : third * 2])
    filled.put(*lines[third * 2 :])
    return filled.archive.root


@pytest.fixture
def book(spark: SparkSession, written: Path, tmp_path: Path) -> Book:
    """A test's own copy."""
    return Book(spark, Path(shutil.copytree(written, tmp_path / "archive")))


def by_spark(book: Book) -> Groups:
    events = read(book.spark, book.archive.root).cache()
    fates = letters(events, observed_quiet(events), AS_OF_MS)
    rows = [row.asDict() for row in failure_groups(events, fates).collect()]
    events.unpersist()
    return keyed(rows)


def keyed(rows: list[dict[str, Any]]) -> Groups:
    """Without the samples: of letters of one millisecond any may be one."""
    named = {(row["fingerprint"], row["vhost"], row["failed_queue"]): row for row in rows}
    return {key: {name: row[name] for name in sorted(row) if name != "sample_ids"} for key, row in named.items()}


def files(book: Book) -> dict[str, int]:
    """What lies beside the archive, and when it was written."""
    parts = (book.archive.root / "_aggregates").glob("*/*/*")
    return {str(file.relative_to(book.archive.root)): file.stat().st_mtime_ns for file in parts}


@pytest.mark.slow
def test_groups_are_those_of_spark_before_and_after_days_are_compacted(book: Book) -> None:
    aggregates, truth = Aggregates(book.archive.root), by_spark(book)
    groups = aggregates.groups(as_of_ms=AS_OF_MS)
    assert keyed(groups) == truth
    assert all(1 <= len({*row["sample_ids"]}) == len(row["sample_ids"]) <= 3 for row in groups)
    hours = aggregates.hours()
    for name, other in (("deaths", "deaths"), ("new_letters", "letters")):
        assert sum(row[name] for row in hours) == sum(row[other] for row in groups)
    compact(fold, book.archive.root, Rules())
    assert keyed(aggregates.groups(as_of_ms=AS_OF_MS)) == by_spark(book) == truth
    assert aggregates.hours() == hours


def test_a_part_is_looked_at_once_and_what_was_killed_is_mended(book: Book) -> None:
    aggregates = Aggregates(book.archive.root)
    truth, kept = aggregates.groups(as_of_ms=AS_OF_MS), files(book)
    assert (aggregates.refresh(), files(book)) == (0, kept)
    removed, other = (book.archive.root / name for name in sorted(kept)[:2])
    removed.unlink()  # killed before it was made …
    other.with_name("seg=9999999999-gone.parquet").write_bytes(b"")  # … or before it was removed
    assert (aggregates.refresh(), {*files(book)}) == (1, {*kept})
    assert aggregates.groups(as_of_ms=AS_OF_MS) == truth


def no_parquet(part: Path, _other: Path) -> None:
    part.write_bytes(b"no Parquet")


def cut_off(part: Path, _other: Path) -> None:
    part.write_bytes(part.read_bytes()[:-20])


def torn_inside(part: Path, _other: Path) -> None:
    """Its footer is whole, and the pages are not."""
    data = part.read_bytes()
    footer = int.from_bytes(data[-8:-4], "little") + 8
    part.write_bytes(data[:4] + bytes(len(data) - footer - 4) + data[-footer:])


def of_another_part(part: Path, other: Path) -> None:
    shutil.copy(other, part)


def of_another_schema(part: Path, _other: Path) -> None:
    table = pq.ParquetFile(part).read()
    pq.write_table(table.rename_columns([f"old_{name}" for name in table.column_names]), part)


def of_before_parts_were_named(part: Path, _other: Path) -> None:
    pq.write_table(pq.ParquetFile(part).read().replace_schema_metadata(None).slice(0, 1), part)


@pytest.mark.parametrize(
    "damage", [no_parquet, cut_off, torn_inside, of_another_part, of_another_schema, of_before_parts_were_named]
)
def test_an_aggregate_that_is_not_that_of_its_part_is_made_anew_and_no_other(
    book: Book, damage: Callable[[Path, Path], None]
) -> None:
    aggregates = Aggregates(book.archive.root)
    truth, hours, kept = aggregates.groups(as_of_ms=AS_OF_MS), aggregates.hours(), files(book)
    first, *_, last = sorted(kept)
    damage(book.archive.root / first, book.archive.root / last)
    damaged = files(book)[first]
    assert aggregates.groups(as_of_ms=AS_OF_MS) == truth
    assert aggregates.hours() == hours
    now = files(book)
    assert {name for name in now if now[name] != kept[name]} == {first}
    assert now[first] != damaged


@pytest.mark.slow
def test_what_is_erased_is_gone_from_the_aggregates(book: Book) -> None:
    aggregates = Aggregates(book.archive.root)
    letter = aggregates.groups()[0]["sample_ids"][0]
    for whole in [book.archive.root / name for name in files(book)]:
        shutil.copy(whole, whole.with_name(f".{whole.name}.killed"))  # just now, before it had its name
    assert erase(book.spark, book.archive.root, f"id = '{letter}'").letters == 1
    for file in files(book):
        assert letter not in str(pq.ParquetFile(book.archive.root / file).read().to_pylist())
    assert not any(letter in row["sample_ids"] for row in aggregates.groups())


def test_a_file_that_cannot_be_read_is_named(book: Book) -> None:
    part = book.archive.parts()[0]
    next(part.folder.glob("*.parquet")).write_bytes(b"no Parquet")
    with pytest.raises(ArchiveError, match=part.seg):
        Aggregates(book.archive.root).groups()
    assert not any("/." in name for name in files(book))


def test_an_archive_without_events_has_no_groups(spark: SparkSession, tmp_path: Path) -> None:
    assert (Aggregates(tmp_path).groups(), Aggregates(tmp_path).hours()) == ([], [])
    empty = Book(spark, tmp_path / "archive")
    assert Aggregates(empty.archive.root).groups() == []


def test_the_command_prints_groups_and_hours(book: Book, capsys: pytest.CaptureFixture[str]) -> None:
    def typed(*args: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["pipeline", "groups", "--archive", str(book.archive.root), "--since", "2026-10-01", *args])
        assert ended.value.code == 0
        return capsys.readouterr().out

    rows = json.loads(typed("--json", "--queue", "mail.send"))
    assert {row["failed_queue"] for row in rows} == {"mail.send"}
    assert f"{rows[0]['letters']} letters, {rows[0]['deaths']} deaths" in typed()
    hours = json.loads(typed("--hours", "--json"))
    assert f"{hours[0]['deaths']} deaths" in typed("--hours").splitlines()[0]
