"""A real standalone cluster and a real Connect server give the archive that this machine alone gives."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pyarrow.dataset as ds
import pyspark
import pytest

import brokers
from dlx_router.cli import pipeline_submit
from dlx_router.spark import bundle
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.archive.verify import verify
from dlx_router.spark.java import find_java
from tests.journal.journal_samples import line
from tests.spark.conftest import NAME, Stream
from tests.support.eventually import eventually

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]
ROOT = Path(__file__).parents[2]
COUNT = 300


class Machines:
    """Processes of Spark, each in a group of its own; all end with the test."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._running: list[subprocess.Popen[bytes]] = []
        self.bin = Path(pyspark.__file__).parent / "bin"
        own = {"JAVA_HOME": str(find_java().home), "SPARK_LOCAL_IP": "127.0.0.1", "PYSPARK_PYTHON": sys.executable}
        self.env = {key: value for key, value in os.environ.items() if key not in {"PYTHONPATH", "SPARK_REMOTE"}} | own

    def start(self, name: str, *argv: str, **env: str) -> None:
        with (self.folder / f"{name}.log").open("wb") as log:
            process = subprocess.Popen(
                argv, env=self.env | env, cwd=self.folder, stdout=log, stderr=log, start_new_session=True
            )
        self._running.append(process)

    def says(self, name: str, text: str) -> bool:
        return text in (self.folder / f"{name}.log").read_text(errors="replace")

    def run(self, *argv: str) -> None:
        env = self.env | {"PYTHONPATH": str(ROOT)}  # as where the package is installed
        done = subprocess.run(argv, env=env, cwd=self.folder, capture_output=True, text=True, timeout=240, check=False)
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:]
        assert f"{COUNT} events" in done.stdout

    def close(self) -> None:
        for process in self._running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def machines(newest: brokers.Broker, tmp_path: Path) -> Iterator[Machines]:
    found = Machines(tmp_path)
    yield found
    found.close()


def rows(archive: Path) -> list[str]:
    """Every event with all its columns but those of the run."""
    table = ds.dataset([str(file) for file in Archive(archive).files()]).to_table()
    assert verify(archive, deep=True).findings == ()
    return sorted(map(repr, table.drop_columns(["ingest_ts"]).to_pylist()))


def cli(archive: Path, connection: str) -> list[str]:
    return ["ingest", "--archive", str(archive), "--connection", connection, "--streams", NAME]


def test_a_cluster_and_connect_give_the_archive_of_one_machine(
    machines: Machines, stream: Stream, connection: str, tmp_path: Path
) -> None:
    for start in range(0, COUNT, 10):
        stream.put(*(line(size=number) for number in range(start, start + 10)))
    python, spark_class = [sys.executable, "-m", "dlx_router", "pipeline"], str(machines.bin / "spark-class")
    master, connect = (f"127.0.0.1:{brokers.free_port()}" for _ in range(2))
    host, port = master.split(":")
    machines.start(
        "master", spark_class, "org.apache.spark.deploy.master.Master", "-h", host, "-p", port, "--webui-port", "0"
    )
    worker = (
        "-h",
        host,
        "-c",
        "2",
        "-m",
        "2g",
        "--webui-port",
        "0",
        "-d",
        str(tmp_path / "worker"),
        f"spark://{master}",
    )
    machines.start("worker", spark_class, "org.apache.spark.deploy.worker.Worker", *worker)
    machines.run(*python, *cli(tmp_path / "here", connection))

    eventually(lambda: machines.says("worker", "Successfully registered"), within=90)
    machines.run(*python, *cli(tmp_path / "cluster", connection), "--master", f"spark://{master}")
    bundle.write(tmp_path / "dlx_router.zip")
    submitted = [str(machines.bin / "spark-submit"), "--master", f"spark://{master}", "--py-files"]
    submitted += [str(tmp_path / "dlx_router.zip"), str(pipeline_submit.__file__)]
    submitted += cli(tmp_path / "submitted", connection)
    machines.run(*submitted)

    address, port = connect.split(":")
    conf = (f"spark.connect.grpc.binding.port={port}", f"spark.connect.grpc.binding.address={address}")
    server = [str(machines.bin / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
    server += ["--master", "local[2,4]", *(part for one in conf for part in ("--conf", one)), "spark-internal"]
    machines.start("connect", *server, PYTHONPATH=str(ROOT))  # foreachBatch's process there gets nothing from a client
    eventually(lambda: machines.says("connect", "Spark Connect server started"), within=90)
    machines.run(*python, *cli(tmp_path / "connect", connection), "--remote", f"sc://{connect}")

    expected = rows(tmp_path / "here")
    assert len(expected) == COUNT
    assert [rows(tmp_path / name) == expected for name in ("cluster", "submitted", "connect")] == [True] * 3
