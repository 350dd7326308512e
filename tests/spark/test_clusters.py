"""A real standalone cluster and a real Connect server give the archive that this machine alone gives."""

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pyarrow.dataset as ds
import pyspark
import pytest

from dlx_router.cli import pipeline_submit
from dlx_router.spark import bundle
from dlx_router.spark.archive.ingest import Ingest, ingest
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.archive.verify import verify
from dlx_router.spark.java import find_java
from tests.journal.journal_samples import line
from tests.spark.conftest import NAME, Stream
from tests.support.eventually import eventually
from tools import brokers

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
ROOT = Path(__file__).parents[2]
COUNT = 300
PATIENCE_S = 400  # a start of Spark takes some seconds, on a machine that is busy with other tests some tens
PIPELINE = (sys.executable, "-m", "dlx_router", "pipeline")


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

    def logs(self) -> str:
        """The end of what each process said, but for what is only a remark."""
        outputs = (
            (path.name, path.read_text(errors="replace").splitlines()) for path in sorted(self.folder.glob("*.log"))
        )
        worse = ((name, [line for line in lines if " INFO " not in line]) for name, lines in outputs)
        return "".join(f"\n--- {name}\n" + "\n".join(lines[-60:]) for name, lines in worse)

    def run(self, *argv: str) -> None:
        env = self.env | {"PYTHONPATH": str(ROOT)}  # as where the package is installed
        done = subprocess.run(
            argv, env=env, cwd=self.folder, capture_output=True, text=True, timeout=PATIENCE_S, check=False
        )
        assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-6000:] + self.logs()
        assert f"{COUNT} events" in done.stdout

    def cluster(self) -> str:
        """A standalone master and its worker → the master's URL."""
        host, port = "127.0.0.1", str(brokers.free_port())
        kinds, started = "org.apache.spark.deploy", str(self.bin / "spark-class")
        self.start("master", started, f"{kinds}.master.Master", "-h", host, "-p", port, "--webui-port", "0")
        place = ("-h", host, "-c", "2", "-m", "2g", "--webui-port", "0", "-d", str(self.folder / "worker"))
        self.start("worker", started, f"{kinds}.worker.Worker", *place, f"spark://{host}:{port}")
        eventually(lambda: self.says("worker", "Successfully registered"), within=PATIENCE_S)
        return f"spark://{host}:{port}"

    def connect(self) -> str:
        """A Spark Connect server where dlx-router is installed → its URL."""
        address, port = "127.0.0.1", str(brokers.free_port())
        settings = (f"spark.connect.grpc.binding.port={port}", f"spark.connect.grpc.binding.address={address}")
        server = [str(self.bin / "spark-submit"), "--class", "org.apache.spark.sql.connect.service.SparkConnectServer"]
        server += [
            "--master",
            "local[2,4]",
            *(part for setting in settings for part in ("--conf", setting)),
            "spark-internal",
        ]
        self.start("connect", *server, PYTHONPATH=str(ROOT))
        eventually(lambda: self.says("connect", "Spark Connect server started"), within=PATIENCE_S)
        return f"sc://{address}:{port}"

    def close(self) -> None:
        for process in self._running:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()


@pytest.fixture
def machines(newest: brokers.Broker, tmp_path: Path) -> Iterator[Machines]:
    running = Machines(tmp_path)
    yield running
    running.close()


def rows(archive: Path) -> list[str]:
    """Every event with all its columns but those of the run."""
    table = ds.dataset([str(file) for file in Archive(archive).files()]).to_table()
    assert verify(archive, deep=True).findings == ()
    return sorted(map(repr, table.drop_columns(["ingest_ts"]).to_pylist()))


def cli(archive: Path, connection: str) -> list[str]:
    return ["ingest", "--archive", str(archive), "--connection", connection, "--streams", NAME]


@pytest.fixture
def expected(spark: "SparkSession", stream: Stream, connection: str, tmp_path: Path) -> list[str]:
    """The archive of this machine alone."""
    for start in range(0, COUNT, 10):
        stream.put(*(line(size=number) for number in range(start, start + 10)))
    assert ingest(spark, Ingest(tmp_path / "here", connection, NAME)).events == COUNT
    return rows(tmp_path / "here")


def test_a_cluster_gives_the_archive_of_one_machine(
    machines: Machines, expected: list[str], connection: str, tmp_path: Path
) -> None:
    master = machines.cluster()
    machines.run(*PIPELINE, *cli(tmp_path / "cluster", connection), "--master", master)
    assert rows(tmp_path / "cluster") == expected

    bundle.write(tmp_path / "dlx_router.zip")
    submit = [str(machines.bin / "spark-submit"), "--master", master, "--py-files", str(tmp_path / "dlx_router.zip")]
    machines.run(*submit, str(pipeline_submit.__file__), *cli(tmp_path / "submitted", connection))
    assert rows(tmp_path / "submitted") == expected


def test_spark_connect_gives_the_archive_of_one_machine(
    machines: Machines, expected: list[str], connection: str, tmp_path: Path
) -> None:
    server = machines.connect()
    machines.run(*PIPELINE, *cli(tmp_path / "connect", connection), "--remote", server)
    assert rows(tmp_path / "connect") == expected
