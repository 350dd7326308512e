"""Measure the pipeline: ingest, freshness, restart after a kill, memory; beside a plain script without Spark.

    python tools/bench_pipeline.py --events 1000000

Journal messages of 100 events are published first; then the same stream is archived by `dlx-router pipeline ingest` and
by pika + pyarrow, and DuckDB counts the archive's events by kind. Writes build/bench-pipeline.json: medians of the
rounds, the broker on the same cores.
"""

import argparse
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any, Final

import duckdb
import pika
import psutil
import pyarrow as pa
import pyarrow.parquet as pq

import brokers
from dlx_router.operate.journal.events import gap
from dlx_router.spark.archive.layout import Archive, Entry
from pipeline_chaos import STREAM, declare, ingest, kill, segments

OUT: Final = Path(__file__).resolve().parents[1] / "build/bench-pipeline.json"
PER_MESSAGE: Final = 100
ROWS: Final = 100_000  # of the plain script, in memory at a time
QUERY: Final = "select kind, count(*) from read_parquet({files}) group by kind"


def publish(url: str, events: int) -> None:
    """Fill the stream; every message is confirmed before this returns."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.confirm_delivery()
    told = pika.BasicProperties(content_type="application/x-ndjson", headers={"v": 1}, delivery_mode=2)
    now = time.time_ns() // 1_000_000
    for start in range(0, events, PER_MESSAGE):
        lines = [gap("bench", "/", events=one, from_ms=one, to_ms=now) for one in range(start, start + PER_MESSAGE)]
        channel.basic_publish("", STREAM, b"".join(lines), told)
    connection.close()


class Memory(threading.Thread):
    """The largest sum of resident bytes of a process and its children, looked at four times a second."""

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._root = psutil.Process(pid)
        self.most = 0

    def run(self) -> None:
        while self._root.is_running():
            try:
                family = [self._root, *self._root.children(recursive=True)]
                self.most = max(self.most, sum(one.memory_info().rss for one in family))
            except psutil.Error:
                pass
            time.sleep(0.25)


def spark_ingest(url: str, folder: Path, events: int) -> dict[str, float]:
    """Archive all that is there; events a second from the first segment's start on, and of the whole run."""
    began = time.time()
    process = ingest(folder / "archive", url, folder / "log", "--once")
    memory = Memory(process.pid)
    memory.start()
    if process.wait(3600):
        sys.exit((folder / "log").read_text(errors="replace")[-3000:])
    entries = Archive(folder / "archive").entries()
    later = sum(sum(one.rows.values()) for one in entries[1:])
    span = (entries[-1].written_ms - entries[0].written_ms) / 1000
    return {
        "events_per_s": later / span if span else 0.0,  # after the first segment, which starts Java and workers
        "events_per_s_whole_run": events / (time.time() - began),
        "rss_mb": memory.most / 1e6,
    }


def plain_ingest(url: str, folder: Path, events: int) -> dict[str, float]:
    """The same stream by pika and pyarrow: no positions, no manifests, nothing for a crash."""
    began, rows = time.time(), 0
    connection = pika.BlockingConnection(pika.URLParameters(url))
    channel = connection.channel()
    channel.basic_qos(prefetch_count=500)
    writer: Any = None
    kept: list[dict[str, Any]] = []
    for method, _, body in channel.consume(STREAM, arguments={"x-stream-offset": "first"}):
        kept += [json.loads(text) for text in body.splitlines()]
        channel.basic_ack(method.delivery_tag)
        if len(kept) >= ROWS or rows + len(kept) >= events:
            table = pa.Table.from_pylist(kept)
            writer = writer or pq.ParquetWriter(folder / "plain.parquet", table.schema, compression="zstd")
            writer.write_table(table)
            rows, kept = rows + len(kept), []
        if rows >= events:
            break
    writer.close()
    return {"events_per_s": rows / (time.time() - began)}


def freshness(url: str, folder: Path, trigger_s: float, seconds: float) -> dict[str, float]:
    """Seconds from an event's publication to the manifest of its segment, at about 1,000 events a second."""
    root = folder / "fresh"
    process = ingest(root, url, folder / "log", "--every", str(trigger_s), "--start", "latest")
    while segments(root) == 0 and process.poll() is None:
        publish(url, PER_MESSAGE)
        time.sleep(1)
    first, end = segments(root), time.monotonic() + seconds
    while time.monotonic() < end:
        publish(url, PER_MESSAGE)
        time.sleep(0.1)
    process.send_signal(signal.SIGTERM)
    process.wait(120)
    waits = sorted(wait for entry in Archive(root).entries()[first:] for wait in _waits(root, entry))
    return {"p99_s": waits[int(len(waits) * 0.99)], "trigger_s": trigger_s}


def _waits(root: Path, entry: Entry) -> list[float]:
    folders = [Archive(root).raw(day, entry.seg) for day in entry.rows]
    tables = [pq.ParquetFile(file).read(columns=["to_ms"]) for one in folders for file in one.glob("*.parquet")]
    return [(entry.written_ms - told) / 1000 for table in tables for told in table["to_ms"].to_pylist()]


def restart(url: str, folder: Path) -> dict[str, float]:
    """Seconds from the start after a kill to the first segment."""
    before, began = segments(folder / "archive"), time.time()
    publish(url, PER_MESSAGE)
    process = ingest(folder / "archive", url, folder / "log", "--every", "1")
    while segments(folder / "archive") == before and process.poll() is None:
        time.sleep(0.02)
    took = time.time() - began
    kill(process)
    return {"first_segment_s": took}


def queries(folder: Path) -> dict[str, float]:
    """DuckDB over the archive's files, seconds."""
    files = [str(file) for file in Archive(folder / "archive").files()]
    began = time.time()
    duckdb.execute(QUERY.format(files=files)).fetchall()
    return {"duckdb_s": time.time() - began}


def one_round(events: int, seconds: float) -> dict[str, dict[str, float]]:
    """Everything once, on a broker of its own."""
    with brokers.running("4.3") as broker, tempfile.TemporaryDirectory(prefix="dlx-router-bench-") as name:
        folder, url = Path(name), broker.amqp_url
        declare(url)
        publish(url, events)
        return {
            "ingest": spark_ingest(url, folder, events),
            "plain": plain_ingest(url, folder, events),
            "query": queries(folder),
            "restart": restart(url, folder),
            "freshness": freshness(url, folder, 1.0, seconds),
        }


def machine() -> dict[str, Any]:
    """What it was measured on."""
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    return {"cores": os.cpu_count(), "load": os.getloadavg()[0], "python": sys.version.split()[0], "java": java[:1]}


def main() -> int:
    """0 measured; the figures are in build/bench-pipeline.json."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60, help="of the freshness measurement")
    given = parser.parse_args()
    rounds = [one_round(given.events, given.seconds) for _ in range(given.rounds)]
    medians = {
        part: {name: statistics.median(one[part][name] for one in rounds) for name in rounds[0][part]}
        for part in rounds[0]
    }
    OUT.parent.mkdir(exist_ok=True)
    OUT.write_text(json.dumps({"summary": medians, "rounds": rounds, "machine": machine()}, indent=1), encoding="utf-8")
    print(json.dumps(medians, indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
