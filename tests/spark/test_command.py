"""`dlx-router pipeline` as people run it: doctor, ingest, verify; and ingest that is killed as it works."""

import os
import subprocess
import sys
from contextlib import nullcontext
from pathlib import Path

import pytest
from typer.testing import CliRunner

from dlx_router.cli.main import app
from dlx_router.spark.archive.files import ArchiveError
from dlx_router.spark.archive.layout import Archive, Entry
from tests.journal.journal_samples import line
from tests.spark.conftest import NAME, Stream
from tests.support.version_draw import drawn
from tools import brokers

ROOT = Path(__file__).parents[2]


def pipeline(*args: str, **env: str) -> "subprocess.CompletedProcess[str]":
    argv = [sys.executable, "-m", "dlx_router", "pipeline", *args]
    plain = {key: value for key, value in os.environ.items() if not key.startswith("DLX_ROUTER_")}
    return subprocess.run(argv, env=plain | env, cwd=ROOT, capture_output=True, text=True, timeout=240, check=False)


def test_verify_says_what_is_there_and_what_is_not(tmp_path: Path) -> None:
    done = pipeline("verify", "--archive", str(tmp_path / "none"))
    assert (done.returncode, "no such folder" in done.stderr) == (2, True)
    empty = pipeline("verify", "--archive", str(tmp_path))
    assert (empty.returncode, empty.stdout) == (0, "0 segments, 0 compacted days, 0 events, 0 bad lines\n")


PATHS = {
    "ingest": "--archive", "compact": "--archive", "repair": "--archive", "erase": "--archive", "verify": "--archive",
    "doctor": "--archive", "report": "--out", "advise": "--out", "redrive": "",
}  # fmt: skip


@pytest.mark.parametrize("url", ["s3://bucket/x", "file:///x", "hdfs://name:8020/x"])
@pytest.mark.parametrize(("command", "option"), PATHS.items(), ids=[*PATHS])
def test_an_address_is_no_path(
    command: str, option: str, url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before, it was taken for a folder `s3:` below the current one, and the command succeeded."""
    monkeypatch.chdir(tmp_path)
    done = CliRunner().invoke(app, ["pipeline", command, *filter(None, (option, url))], env={"COLUMNS": "500"})
    assert (done.exit_code, "an address, and only a file system will do" in done.stderr) == (2, True), done.output
    assert not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    ("path", "is_refused"),
    [("s3://b/x", True), ("s3:/b", True), ("GS://b", True), ("/a/s3:/b", False), ("a:b", False), ("c:/x", False)],
)
def test_an_archive_has_a_path(path: str, is_refused: bool) -> None:  # noqa: FBT001 - a parameter of the test
    with pytest.raises(ArchiveError, match="write a path") if is_refused else nullcontext():
        Archive(path)


def test_a_java_that_is_not_there_is_a_finding_of_doctor_and_ends_ingest_with_one_line(tmp_path: Path) -> None:
    nowhere = {"JAVA_HOME": str(tmp_path), "DLX_ROUTER_AMQP_URL": "amqp://me:hunter2@localhost/"}
    doctor = pipeline("doctor", **nowhere)
    assert doctor.returncode == 1
    assert "fail  java" in doctor.stdout
    ingest = pipeline("ingest", "--archive", str(tmp_path / "archive"), "--master", "local[2,4]", **nowhere)
    assert (ingest.returncode, ingest.stderr.count("\n")) == (2, 1)
    assert "Spark needs Java 17" in ingest.stderr
    assert "hunter2" not in doctor.stdout + doctor.stderr + ingest.stderr


@pytest.mark.slow
def test_a_report_of_a_time_without_events_says_so_at_once_and_java_is_for_clusters_only(tmp_path: Path) -> None:
    Archive(tmp_path).commit(Entry(0, "0000000000-run", {"2026-03-10": 1, "2026-03-12": 1}, 0, {}, {}, 0))
    nowhere = {"JAVA_HOME": str(tmp_path)}  # Spark would not start
    for times in (("--since", "2026-03-13"), ("--since", "2026-03-11", "--until", "2026-03-11T23:00")):
        done = pipeline("report", "--archive", str(tmp_path), *times, **nowhere)
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "has events of 2026-03-10 to 2026-03-12" in done.stderr
    some = ("report", "--archive", str(tmp_path), "--since", "2026-03-11")
    assert "none of its files is there" in pipeline(*some, **nowhere).stderr
    assert "Spark needs Java" in pipeline(*some, "--master", "local[2,4]", **nowhere).stderr
    (tmp_path / "none").mkdir()
    empty = pipeline("report", "--archive", str(tmp_path / "none"), **nowhere)
    assert (empty.returncode, "no event yet" in empty.stderr) == (2, True)


@pytest.mark.slow
def test_doctor_is_content_with_this_machine_and_knows_the_stream(
    newest: brokers.Broker, stream: Stream, tmp_path: Path
) -> None:
    stream.put(b"x\n")
    done = pipeline("doctor", "--archive", str(tmp_path / "archive"), DLX_ROUTER_AMQP_URL=stream.vhost.amqp_url)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{NAME}: offsets 0 to 1" in done.stdout


def test_one_machine_needs_no_java_to_ingest(newest: brokers.Broker, stream: Stream, tmp_path: Path) -> None:
    stream.mixed = True
    for number in range(4):
        stream.put(line(size=number), line(size=number + 10))
    where = {"JAVA_HOME": str(tmp_path), "DLX_ROUTER_AMQP_URL": stream.vhost.amqp_url}
    done = pipeline("ingest", "--archive", str(tmp_path / "archive"), **where)
    assert (done.returncode, done.stdout) == (0, "1 segment, 8 events, 0 lines that are no events\n"), done.stderr
    assert "8 events" in pipeline("verify", "--archive", str(tmp_path / "archive"), "--deep").stdout


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize("how", drawn([(), ("--master", "local[2,4]")]))
def test_killed_three_times_nothing_is_lost_and_nothing_is_there_twice(
    newest: brokers.Broker, how: tuple[str, ...]
) -> None:
    name = newest.version.rpartition(".")[0] if newest.managed else "any"
    argv = [
        sys.executable,
        "-m",
        "tools.pipeline.kills",
        "--kills",
        "3",
        "--rate",
        "300",
        "--seed",
        "7",
        *how,
        "--broker",
    ]
    known = name if name in brokers.RELEASES else brokers.ANY
    env = os.environ | {"PYTHONPATH": str(ROOT)}
    done = subprocess.run([*argv, known], env=env, cwd=ROOT, capture_output=True, text=True, timeout=800, check=False)
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    assert "0 lost, 0 duplicated" in done.stdout
