"""`pipeline export`: a copy has each event once, in every format; what is there already is never written over."""

from pathlib import Path
from typing import Any

import polars as pl
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from pyiceberg.table import StaticTable

from dlx_router.cli.main import main
from dlx_router.spark import schemas
from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.tables.database import opened
from dlx_router.spark.tables.export import Days, export
from tests.spark.tables.scene import Written, event
from tests.spark.tables.test_sql import pipeline, written

__all__ = ["written"]
NAMES = [name for name in schemas.ARCHIVE.names if name != "seg"]


def rows_of(form: str, out: Path, where: Path) -> list[dict[str, Any]]:
    if form == "delta":
        return list(pa.table(DeltaTable(out).to_pyarrow_table()).to_pylist())
    if form == "iceberg":
        return list(StaticTable.from_metadata(str(where)).scan().to_arrow().to_pylist())
    rows: list[dict[str, Any]] = pl.read_parquet(out / "*/*.parquet", hive_partitioning=True).to_dicts()
    return rows


@pytest.mark.parametrize("form", ["parquet", "delta", "iceberg"])
def test_a_copy_has_each_event_once_and_every_column(written: Written, tmp_path: Path, form: str) -> None:
    made = Written(written.archive.root)
    made.put(event("e", 30, headers=[("x", "1")], deaths=[{"queue": "q", "count": 2}], props={"timestamp_s": 2**63}))
    out = tmp_path / "a copy"
    done = export(made.archive.root, out, form, Days())
    assert (done.events, done.days) == (5, 2)
    copied = sorted(rows_of(form, out, done.where), key=lambda row: row["id"])
    assert sorted(copied[0]) == sorted(NAMES)
    assert [row["id"] for row in copied] == ["a", "b", "c", "d", "e"]
    last = copied[-1]
    assert (last["deaths"][0]["count"], int(last["props"]["timestamp_s"])) == (2, 2**63)
    assert int(last["event_ts"].timestamp() * 1000) == last["ts_ms"]
    assert {row["event_date"].isoformat() for row in copied} == {"2026-03-09", "2026-03-10"}
    with pytest.raises(ArchiveError, match="is there already"):
        export(made.archive.root, out, form, Days())
    assert len(rows_of(form, out, done.where)) == 5


def test_days_are_chosen_and_what_fails_leaves_nothing(written: Written, tmp_path: Path) -> None:
    root, out = written.archive.root, tmp_path / "copy"
    assert export(root, out, "parquet", Days("2026-03-10")).events == 2
    for days in (Days("2027-01-01"), Days(until="2026-03-09")):
        with pytest.raises(ArchiveError, match="no event in these days"):
            export(root, tmp_path / "none", "parquet", days)
    assert not (tmp_path / "none").exists()
    with opened(root) as db:
        assert db.execute("select count(*) from events").fetchall() == [(4,)]


def test_the_command_says_what_is_wrong(written: Written, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    def refused(*args: str) -> str:
        with pytest.raises(SystemExit) as ended:
            main(["pipeline", "export", *args, "--archive", str(written.archive.root)])
        assert ended.value.code == 2
        return capsys.readouterr().err

    assert "--format 'orc'" in refused(str(tmp_path / "x"), "--format", "orc")
    assert "--since 'soon'" in refused(str(tmp_path / "x"), "--since", "soon")
    assert "/proc/none/copy: cannot be written" in refused("/proc/none/copy")
    assert "is there already" in (message := refused(str(tmp_path)))
    assert message.count("\n") == 1


@pytest.mark.slow
def test_the_command_says_what_to_name(written: Written, tmp_path: Path) -> None:
    done = pipeline(written, "export", str(tmp_path / "copy"), "--format", "iceberg")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("4 events of 2 days in ")
    assert Path(done.stdout.rpartition(" in ")[2].strip()).is_file()


def test_no_copy_lies_in_the_archive_and_one_that_is_being_written_stays(written: Written, tmp_path: Path) -> None:
    with pytest.raises(ArchiveError, match="lies in the archive"):
        export(written.archive.root, written.archive.root / "copy", "parquet", Days())
    (tmp_path / "copy/.dlx-router-export").mkdir(parents=True)
    with pytest.raises(ArchiveError, match="is there already"):
        export(written.archive.root, tmp_path / "copy", "parquet", Days())
    assert [entry.name for entry in (tmp_path / "copy").iterdir()] == [".dlx-router-export"]
