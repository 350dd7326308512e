"""Temporary files of the pipeline: where they lie, how large they may become, and that nothing of them stays."""

import errno
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import duckdb
import pytest

from dlx_router.spark import scratch
from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.duckdb_session import connected, reason
from dlx_router.spark.errors import own_text
from dlx_router.spark.options import OptionError
from dlx_router.spark.session import _aside
from dlx_router.spark.tables.query import run
from tests.spark.tables.scene import Written, event

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ROOT: Final = Path(__file__).parents[2]
_HOLDS: Final = """
import sys
from dlx_router.spark import scratch
with scratch.folder() as path:
    (path / "spilled").write_bytes(b"x")
    print(path, flush=True)
    sys.stdin.read()
"""


@contextmanager
def holding(place: Path) -> Iterator[tuple["subprocess.Popen[str]", Path]]:
    """A process that has a folder there."""
    argv = [sys.executable, "-c", _HOLDS]
    env = {**os.environ, "TMPDIR": str(place)}
    with subprocess.Popen(argv, cwd=ROOT, env=env, stdin=-1, stdout=-1, text=True) as process:
        try:
            assert process.stdout is not None
            yield process, Path(process.stdout.readline().strip())
        finally:
            process.kill()


def typed(made: Written, place: Path, *args: str, cwd: Path = ROOT) -> "subprocess.CompletedProcess[str]":
    env = {**os.environ, "TMPDIR": str(place), "PYTHONPATH": str(ROOT)}
    argv = [sys.executable, "-m", "dlx_router", "pipeline", *args, "--archive", str(made.archive.root)]
    return subprocess.run(argv, cwd=cwd, env=env, capture_output=True, text=True, timeout=60, check=False)


@pytest.fixture
def written(tmp_path: Path) -> Written:
    made = Written(tmp_path / "archive")
    made.put(event("a", 1), event("b", 30))
    return made


def test_who_was_killed_leaves_a_folder_that_the_next_one_removes_and_no_other(tmp_path: Path) -> None:
    others = [tmp_path / "dlx-router-export", tmp_path / f"{scratch.PREFIX}file"]
    others[0].mkdir()
    others[1].write_text("no folder")
    (tmp_path / f"{scratch.PREFIX}link").symlink_to(others[0])
    with holding(tmp_path) as (killed, left), holding(tmp_path) as (_, alive):
        killed.send_signal(signal.SIGKILL)
        killed.wait()
        assert (left / "spilled").exists()
        with holding(tmp_path) as (third, new):
            assert not left.exists()
            assert (alive / "spilled").exists()
            third.communicate("")
        assert not new.exists()
        assert (alive / "spilled").exists()
    assert all(path.exists() for path in others)
    assert (tmp_path / f"{scratch.PREFIX}link").is_symlink()


@pytest.mark.slow
def test_commands_leave_nothing_in_the_temporary_nor_in_the_current_folder(written: Written, tmp_path: Path) -> None:
    here, place = tmp_path / "here", tmp_path / "place"
    here.mkdir()
    place.mkdir()
    for args, code in (
        (("sql", "from events"), 0),
        (("sql", "select error('no')"), 2),
        (("groups", "--since", "2026-01-01"), 0),
    ):
        done = typed(written, place, *args, cwd=here)
        assert (done.returncode, [*here.iterdir()], [*place.iterdir()]) == (code, [], []), done.stderr


def test_a_temporary_folder_in_the_archive_or_none_at_all_is_refused(written: Written, tmp_path: Path) -> None:
    before = sorted(written.archive.root.rglob("*"))
    done = typed(written, written.archive.root / "raw", "sql", "select 1")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert "would lie in the archive" in done.stderr
    assert sorted(written.archive.root.rglob("*")) == before
    assert scratch.checked(tmp_path, "TMPDIR") == tmp_path


def test_a_current_folder_that_is_gone_stops_no_question(written: Written, tmp_path: Path) -> None:
    code = (
        f"import os; os.mkdir({str(tmp_path / 'gone')!r}); os.chdir({str(tmp_path / 'gone')!r}); os.rmdir(os.getcwd())"
    )
    code += f"; from dlx_router.spark.tables.database import opened; opened({str(written.archive.root)!r}).__enter__()"
    env = {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-P", "-c", code], env=env, capture_output=True, text=True, timeout=60, check=False
    )
    assert done.returncode == 0, done.stderr


def test_a_named_folder_that_cannot_be_written_is_not_silently_another(written: Written, tmp_path: Path) -> None:
    done = typed(written, tmp_path / "no such", "sql", "select 1")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"TMPDIR {tmp_path}/no such: cannot be written" in done.stderr
    assert typed(written, Path(), "sql", "select 1", cwd=tmp_path).returncode == 0  # the current one, by its name


def test_what_is_spilled_has_a_bound_and_what_goes_beyond_it_says_what_now(written: Written, tmp_path: Path) -> None:
    with connected(memory="20MB") as db:
        (most,) = db.execute("select current_setting('max_temp_directory_size')").fetchone() or ("",)
        assert most.endswith("iB")
        db.execute("SET max_temp_directory_size = '1MB'")
        with pytest.raises(duckdb.Error) as full:
            db.execute("create temp table x as select range as a, md5(range::text) as b from range(2000000) order by b")
    assert reason(full.value).endswith(scratch.MORE_ROOM)
    with pytest.raises(ArchiveError) as refusal:
        run(written.archive.root, "select error('No space left on device')", "csv", sys.stdout, lambda *_: None)
    assert "TMPDIR" in str(refusal.value)


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT])
def test_a_full_disk_is_said_in_a_line(number: int) -> None:
    message = own_text(OSError(number, os.strerror(number), "/archive/raw/x.parquet")) or ""
    assert message.startswith("/archive/raw/x.parquet: ")
    assert "TMPDIR" in message
    assert own_text(OSError(errno.EBADF, "a mistake of ours")) is None
    assert "run it as a user who may" in (own_text(PermissionError(errno.EACCES, "denied", "/x")) or "")


def test_spark_and_java_write_into_a_folder_of_the_process(spark: "SparkSession") -> None:
    folder = str(scratch.of_process())
    conf = dict(spark.sparkContext.getConf().getAll())
    assert conf["spark.local.dir"] == folder
    assert conf["spark.sql.warehouse.dir"].removeprefix("file:") == f"{folder}/warehouse"
    assert f"-Djava.io.tmpdir={folder}" in conf["spark.driver.extraJavaOptions"]
    spark.range(1000).repartition(4).count()
    assert [entry for entry in Path(folder).iterdir() if entry.name.startswith(("blockmgr-", "spark-"))]
    assert not (Path.cwd() / "spark-warehouse").exists()


def test_local_folders_of_spark_that_lie_in_the_archive_are_refused(
    written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SPARK_LOCAL_DIRS", f"/somewhere,{written.archive.root}/raw")
    with pytest.raises(OptionError, match=r"SPARK_LOCAL_DIRS .*would lie in the archive"):
        _aside("")
