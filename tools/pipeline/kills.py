"""Kill ingest in the middle of its work, again and again, then audit the archive: nothing lost, nothing twice.

    python -m tools.pipeline.kills --kills 100

A writer publishes numbered events with confirms all the while. `dlx-router pipeline ingest` runs as people do it; after
a moment drawn by chance its whole process group is killed with SIGKILL: Python, Java, workers. In the end one run is
let to finish, and Spark and pyarrow read the archive: each number exactly once. Exit 0 if so, else 1.
"""

import argparse
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pika
import pyarrow.compute as pc
import pyarrow.dataset as ds
from pyspark.sql import SparkSession
from pyspark.sql import functions as f

from dlx_router.core.letter import Arrival
from dlx_router.journal.batch import Batch
from dlx_router.journal.events import Ruling, fragments, gap, unreadable
from dlx_router.spark.archive import reading
from dlx_router.spark.archive.ingest import Ingest
from dlx_router.spark.archive.ingest import ingest as finish
from dlx_router.spark.archive.layout import Archive
from dlx_router.spark.archive.verify import verify
from dlx_router.spark.session import build_session
from tools import brokers

ROOT: Final = Path(__file__).resolve().parents[2]
STREAM: Final = "dlx-router.journal"
URL: Final = "DLX_ROUTER_AMQP_URL"
PER_MESSAGE: Final = 20
NOW_MS: Final = 1_790_000_000_000
_LETTERS: Final = fragments(
    unreadable("", "/", "q", Arrival.INBOX, "", "q", NOW_MS), Ruling("quarantined", 0, "chaos", detail="no AMQP")
)


class Writer(threading.Thread):
    """Publishes events numbered from 0 on, some to a message, until it is stopped; `count`: how many are confirmed."""

    def __init__(self, url: str, rate: float) -> None:
        super().__init__(daemon=True)
        self._url, self._pause_s = url, PER_MESSAGE / rate
        self._over = threading.Event()
        self.count = 0

    def run(self) -> None:
        connection = pika.BlockingConnection(pika.URLParameters(self._url))
        channel = connection.channel()
        channel.confirm_delivery()
        while not self._over.is_set():
            numbers = range(self.count, self.count + PER_MESSAGE)
            batch = message(numbers)
            properties = pika.BasicProperties(
                content_type="application/x-ndjson", headers={"v": batch.format}, delivery_mode=2
            )
            channel.basic_publish("", STREAM, batch.body, properties, mandatory=True)
            self.count = numbers.stop
            self._over.wait(self._pause_s)
        connection.close()

    def stop(self) -> None:
        """No more; every event so far is confirmed."""
        self._over.set()
        self.join()


def message(numbers: range) -> Batch:
    """Events with these numbers: whole lines, or rows, as `events` or as size of the body."""
    batch = Batch(1)
    for number in numbers:
        if numbers.start // PER_MESSAGE % 2:
            batch.add(gap("chaos", "/", events=number, from_ms=number, to_ms=NOW_MS))
        else:
            entry = _LETTERS.entry(f"{number:032x}", NOW_MS, first_ms=NOW_MS, last_ms=NOW_MS, crc32=0, size=number)
            batch.add(entry)
    batch.close()
    return batch


def declare(url: str) -> None:
    """The stream, as the router would."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    connection.channel().queue_declare(STREAM, durable=True, arguments={"x-queue-type": "stream"})
    connection.close()


def ingest(root: Path, url: str, log: Path, *more: str) -> subprocess.Popen[bytes]:
    """`dlx-router pipeline ingest` in a process group of its own."""
    argv = [sys.executable, "-m", "dlx_router", "pipeline", "ingest", "--archive", str(root), *more]
    env = {**os.environ, URL: url, "PYTHONPATH": str(ROOT)}
    with log.open("ab") as file:
        return subprocess.Popen(argv, env=env, cwd=ROOT, stdout=file, stderr=file, start_new_session=True)


def segments(root: Path) -> int:
    """How many count now."""
    return Archive(root).next_number()


def kill(process: subprocess.Popen[bytes]) -> None:
    """The whole group, at once."""
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def killed_run(root: Path, url: str, log: Path, chance: random.Random, *how: str) -> float:
    """One run, killed at some moment after its first segment; the seconds to that segment."""
    before, began = segments(root), time.monotonic()
    process = ingest(root, url, log, "--every", "0.2", "--option", "maxOffsetsPerTrigger=40", *how)
    while segments(root) == before:
        if process.poll() is not None:
            sys.exit(f"ingest ended by itself:\n{log.read_text(errors='replace')[-3000:]}")
        time.sleep(0.01)
    took = time.monotonic() - began
    time.sleep(chance.uniform(0, 1.5))
    kill(process)
    return took


def audit(spark: SparkSession, root: Path, count: int) -> list[str]:
    """What is wrong: numbers that are missing, or there twice, for each engine; what `verify` finds."""
    findings = list(verify(root, deep=True).findings)
    number = f.coalesce("events", "digest.size")
    by_spark = Counter(row[0] for row in reading.read(spark, root, repeated=True).select(number).collect())
    columns = {"number": pc.coalesce(pc.field("events"), pc.field("digest", "size"))}
    by_arrow = Counter(
        ds.dataset([str(file) for file in Archive(root).files()]).to_table(columns)["number"].to_pylist()
    )
    for engine, numbers in (("spark", by_spark), ("pyarrow", by_arrow)):
        lost, twice = {*range(count)} - {*numbers}, {value for value, times in numbers.items() if times > 1}
        print(f"{engine:8} {sum(numbers.values())} rows, {len(lost)} lost, {len(twice)} duplicated of {count}")
        if lost or twice:
            findings.append(f"{engine}: lost {sorted(lost)[:5]}, twice {sorted(twice)[:5]}")
    return findings


@contextmanager
def work() -> Iterator[Path]:
    """A folder for the archive, removed afterwards."""
    with tempfile.TemporaryDirectory(prefix="dlx-router-pipeline-") as folder:
        yield Path(folder)


def main() -> int:
    """0 nothing lost and nothing twice · 1 otherwise."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--rate", type=float, default=1000, help="events a second")
    parser.add_argument("--seed", type=int, default=random.randrange(10**6))
    parser.add_argument("--master", help="ingest by Spark, there; without: by one process")
    parser.add_argument("--broker", default="4.3", choices=[*brokers.RELEASES, brokers.ANY])
    given = parser.parse_args()
    print(f"seed {given.seed}", flush=True)
    chance = random.Random(given.seed)
    how = ("--master", given.master) if given.master else ()
    with brokers.started(given.broker) as broker, work() as folder:
        root, log = folder / "archive", folder / "ingest.log"
        declare(broker.amqp_url)
        writer = Writer(broker.amqp_url, given.rate)
        writer.start()
        for number in range(given.kills):
            took = killed_run(root, broker.amqp_url, log, chance, *how)
            print(f"kill {number + 1}: first segment after {took:.1f} s, {segments(root)} segments", flush=True)
        writer.stop()
        os.environ[URL] = broker.amqp_url
        spark = build_session("pipeline chaos")
        done = finish(spark, Ingest(root, f"env:{URL}", STREAM))
        print(f"the last run: {done.events} events in {done.segments} segments", flush=True)
        wrong = audit(spark, root, writer.count)
        spark.stop()
    print("\n".join(wrong) or f"0 lost, 0 duplicated: {writer.count} events, {given.kills} kills")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
