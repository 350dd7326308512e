"""An archive that this user may not write: questions are answered, and what must write says so before it begins."""

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import pytest

from dlx_router.spark.archive.aggregates import Aggregates
from tests.spark.tables.scene import Written, event

ROOT: Final = Path(__file__).parents[3]
_BARE: Final = ("setpriv", "--bounding-set=-all", "--inh-caps=-all")  # root, whom rights of files bind as others
Stamps = dict[str, int]


def bound() -> tuple[str, ...]:
    """What makes a command one of a user whom rights bind. Skips where there is none."""
    if os.geteuid() != 0:
        return ()
    if shutil.which("setpriv") and subprocess.run([*_BARE, "true"], check=False, capture_output=True).returncode == 0:
        return _BARE
    pytest.skip("root may write everything, and setpriv takes no capabilities here")


def typed(made: Written, *args: str) -> "subprocess.CompletedProcess[str]":
    nowhere = {"JAVA_HOME": "/no/java", "PATH": "/usr/bin:/bin", "AMQP": "amqp://localhost:1/"}  # Spark would not start
    argv = [*bound(), sys.executable, "-m", "dlx_router", "pipeline", *args, "--archive", str(made.archive.root)]
    return subprocess.run(argv, env=nowhere, cwd=ROOT, capture_output=True, text=True, timeout=60, check=False)


def stamps(root: Path) -> Stamps:
    return {str(path): path.stat().st_mtime_ns for path in root.rglob("*")}


def may(root: Path, *, write: bool) -> None:
    for path in [root, *root.rglob("*")]:
        path.chmod((0o755 if path.is_dir() else 0o644) if write else (0o555 if path.is_dir() else 0o444))


@pytest.fixture
def written(tmp_path: Path) -> Iterator[Written]:
    """Three parts: one with an aggregate, one with that of another, one without."""
    made = Written(tmp_path / "archive")
    made.put(event("a", 1), event("b", 30, fingerprint="f2"))
    aggregates = Aggregates(made.archive.root)
    aggregates.refresh()
    first, second = sorted((made.archive.root / "_aggregates").glob("*/*/*"))
    shutil.copy(first, second)
    made.put(event("c", 31))
    may(made.archive.root, write=False)
    yield made
    may(made.archive.root, write=True)


@pytest.mark.slow
def test_questions_are_answered_and_nothing_is_written(written: Written) -> None:
    before = stamps(written.archive.root)
    done = typed(written, "sql", "select count(*) as n from letters", "--json")
    assert (json.loads(done.stdout), done.stderr) == ([{"n": 3}], "")
    done = typed(written, "groups", "--since", "2026-01-01", "--json")
    assert done.returncode == 0, done.stderr
    groups = {(row["fingerprint"], row["letters"], row["deaths"]) for row in json.loads(done.stdout)}
    assert groups == {("f1", 2, 2), ("f2", 1, 1)}
    assert typed(written, "groups", "--since", "2026-01-01", "--hours").returncode == 0
    assert typed(written, "verify").returncode == 0
    assert stamps(written.archive.root) == before


def test_a_day_of_aggregates_that_is_another_users_stops_no_question(written: Written) -> None:
    may(written.archive.root, write=True)
    days = sorted((written.archive.root / "_aggregates/v1").iterdir())
    (days[0]).chmod(0o555)  # made by somebody else, who asked first
    shutil.copy(next(days[1].iterdir()), next(days[0].iterdir()))
    for _ in range(2):
        done = typed(written, "groups", "--since", "2026-01-01", "--json")
        assert done.returncode == 0, done.stderr
        assert {(row["fingerprint"], row["letters"]) for row in json.loads(done.stdout)} == {("f1", 2), ("f2", 1)}


@pytest.mark.parametrize(
    "args", [("compact",), ("erase", "--letter", "a"), ("ingest", "--connection", "env:AMQP")], ids=lambda args: args[0]
)
def test_what_must_write_says_where_and_what_now_before_it_begins(written: Written, args: tuple[str, ...]) -> None:
    before = stamps(written.archive.root)
    done = typed(written, *args)
    assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
    assert f"{written.archive.root}: may not be written by this user" in done.stderr
    assert f"{args[0]} writes there; run {args[0]} where it may be written, as its owner" in done.stderr
    assert stamps(written.archive.root) == before


@pytest.mark.parametrize("name", ["_manifest", "_days", "raw"])
def test_a_folder_that_may_not_be_read_is_no_empty_one(written: Written, name: str) -> None:
    folder = written.archive.root / name
    if not folder.exists():
        may(written.archive.root, write=True)
        folder.mkdir()
    folder.chmod(0)
    try:
        for args in (("sql", "select 1"), ("groups",)):
            done = typed(written, *args)
            assert (done.returncode, done.stderr.count("\n")) == (2, 1), done.stderr
            assert f"{folder}: may not be read by this user" in done.stderr
    finally:
        folder.chmod(0o755)
