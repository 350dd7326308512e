"""The archive as a table of Delta: what engines may do to it, and what they read; files only, no Spark session."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import duckdb
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, Schema
from deltalake.transaction import create_table_with_add_actions
from pyspark.sql.pandas.types import to_arrow_schema

from dlx_router.spark import schemas
from dlx_router.spark.archive import delta
from dlx_router.spark.archive.compact import Rules, compact
from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.archive.layout import Archive, Day, Entry, State
from dlx_router.spark.tables.database import fold
from tests.spark.tables.scene import Written, event

DATE = "2026-03-10"
COLUMNS = to_arrow_schema(schemas.ARCHIVE, timezone="UTC")
STORED = pa.schema([field for field in COLUMNS if field.name not in {"event_date", "seg"}])


def put(archive: Archive, number: int, *ts_ms: int) -> None:
    """A segment with events of these times."""
    seg = f"{number:010}-run"
    folder = archive.raw(DATE, seg)
    folder.mkdir(parents=True)
    rows = [{"ts_ms": moment, "id": str(moment), "breaker": "open"} for moment in ts_ms]
    pq.write_table(pa.Table.from_pylist(rows, STORED), folder / "part-0.parquet")
    archive.commit(Entry(number, seg, {DATE: len(ts_ms)}, 0, {}, {}, 0))


def at_ms(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, UTC)


def add_actions(root: Path) -> list[dict[str, Any]]:
    actions: list[dict[str, Any]] = pa.table(DeltaTable(root).get_add_actions(flatten=True)).to_pylist()
    return actions


def test_a_vacuum_lists_nothing_of_the_archives_own(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    with archive.lease("ingest"):
        put(archive, 0, 1, 2)
    archive.bad("0000000000-run").mkdir(parents=True)
    (archive.bad("0000000000-run") / "part-0.parquet").write_bytes(b"x")
    archive.commit_day(Day("2026-03-09", "c-1", 0, (), 0))
    archive.commit_state(State())
    delta.mirror(archive)
    table = DeltaTable(tmp_path)
    assert table.vacuum(retention_hours=0, enforce_retention_duration=False, full=True, dry_run=True) == []


def test_a_column_of_a_newer_version_comes_into_the_table(tmp_path: Path) -> None:
    old = pa.schema([field for field in COLUMNS if field.name != "breaker"])
    create_table_with_add_actions(str(tmp_path), Schema.from_arrow(old), [], partition_by=["event_date", "seg"])
    archive = Archive(tmp_path)
    put(archive, 0, 1)
    assert delta.mirror(archive) == (1, 0)
    table = DeltaTable(tmp_path)
    assert [column.name for column in table.schema().fields].count("breaker") == 1
    assert pa.table(table.to_pyarrow_table(columns=["breaker"])).to_pylist() == [{"breaker": "open"}]
    assert delta.mirror(archive) == (0, 0)


def test_the_log_says_how_many_rows_and_of_what_time_a_file_is(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    put(archive, 0, 10, 30, 20)
    delta.mirror(archive)
    (action,) = add_actions(tmp_path)
    assert (action["num_records"], action["min.event_ts"], action["max.event_ts"]) == (3, at_ms(10), at_ms(30))
    put(archive, 1, 40)
    assert delta.mirror(archive) == (1, 0)
    files = [str(file) for file in archive.files()]
    assert (
        sum(action["num_records"] for action in add_actions(tmp_path))
        == len(duckdb.read_parquet(files).fetchall())
        == 4
    )


def linked_to(folder: Path) -> Path:
    """A symbolic link to a folder."""
    (folder / "real").mkdir()
    (folder / "link").symlink_to(folder / "real")
    return folder / "link"


def named_in(root: Path) -> list[str]:
    """The files that the log names."""
    return sorted(str(root / action["path"]) for action in add_actions(root))


@pytest.mark.parametrize(
    "made",
    [
        lambda folder: folder / "plain",
        lambda folder: folder / "with space",
        lambda folder: folder / "ä",
        lambda folder: folder / "100% #?",
        linked_to,
    ],
    ids=["plain", "space", "umlaut", "signs of URLs", "symbolic link"],
)
def test_the_log_names_the_files_that_count_whatever_the_folder_is_called(
    tmp_path: Path, made: Callable[[Path], Path]
) -> None:
    written = Written(made(tmp_path))
    written.put(event("a", 1), event("b", 2))
    written.put(event("c", 25))
    root, archive = written.archive.root, written.archive
    assert delta.mirror(archive) == (2, 0)
    assert delta.mirror(archive) == (0, 0)
    compact(fold, root, Rules(keep_raw=-1e6), now=datetime(2026, 3, 20, tzinfo=UTC))
    assert named_in(root) == sorted(map(str, archive.files()))
    assert delta.mirror(archive) == (0, 0)


def test_a_folder_that_delta_rs_would_read_as_another_is_refused_before_a_table_is_made(tmp_path: Path) -> None:
    archive = Archive(tmp_path / "a%20b")
    put(archive, 0, 1)
    with pytest.raises(ArchiveError, match=r"a%20b: delta-rs reads % and two digits .* another name$"):
        delta.mirror(archive)
    assert not (archive.root / "_delta_log").exists()


def test_a_log_that_nobody_can_read_is_said_in_a_sentence(tmp_path: Path) -> None:
    archive = Archive(tmp_path)
    put(archive, 0, 1)
    delta.mirror(archive)
    (log,) = (tmp_path / "_delta_log").glob("*.json")
    log.write_text("torn\n")
    with pytest.raises(ArchiveError, match=r"its Delta table: .*; the archive is whole; run this again"):
        delta.mirror(archive)


def test_ingest_and_compact_may_bring_the_table_up_to_the_archive_at_once(tmp_path: Path) -> None:
    """Each saw files go that the other had taken out already, and ended with a traceback of delta-rs."""
    archive = Archive(tmp_path)
    for number in range(20):
        put(archive, number, number + 1)
    delta.mirror(archive)
    archive.commit_day(Day(DATE, "c-1", 0, tuple(f"{number:010}-run" for number in range(20)), 0))
    with ThreadPoolExecutor(4) as threads:
        done = sorted(threads.map(lambda _: delta.mirror(archive), range(4)))
    assert done == [(0, 0), (0, 0), (0, 0), (0, 20)]
    assert add_actions(tmp_path) == []
