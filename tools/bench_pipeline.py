"""Measure the pipeline, and what it stands beside: a plain script without Spark, and DuckDB on the same files.

    python tools/bench_pipeline.py --events 100000,1000000,10000000 --rounds 3

For each length: a journal of batches of 100 events is published, archived by `dlx-router pipeline ingest` with one
core and with two, and by pika + pyarrow; of the archive are asked failure groups (DuckDB too: the answers must be
equal) and a backtest; letters are sent back. Once a round: freshness at 1,000 events a second, and the restart after a
kill. The broker is on the same cores. Writes build/bench-pipeline.json and a page, medians over the rounds.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

import brokers
from bench_pipeline_load import freshness, plain_ingest, publish, restart, spark_ingest
from bench_pipeline_page import page
from bench_report import machine
from pipeline_chaos import declare

BUILD: Final = Path(__file__).resolve().parents[1] / "build"
CORES: Final = (1, 2)
TRIGGER_S: Final = 1.0
Part = dict[str, dict[str, float]]


def one_size(events: int) -> Part:
    """Everything that depends on the length, on a broker of its own."""
    with brokers.running("4.3") as broker, tempfile.TemporaryDirectory(prefix="dlx-router-bench-") as name:
        folder, url = Path(name), broker.amqp_url
        declare(url)
        publish(url, events)
        found: Part = {f"ingest_{cores}": spark_ingest(url, folder / f"a{cores}", events, cores) for cores in CORES}
        found["plain"] = plain_ingest(url, folder / "plain.parquet", events)
        for cores in CORES:
            found |= {f"{part}_{cores}": told for part, told in _reads(url, folder / "a2", cores).items()}
        return found


def _reads(url: str, root: Path, cores: int) -> Part:
    """In a process of its own: Java keeps what it was given, and so does DuckDB."""
    argv = [sys.executable, __file__, "--reads", str(root), "--cores", str(cores), "--url-from", "DLX_ROUTER_AMQP_URL"]
    env = os.environ | {"DLX_ROUTER_AMQP_URL": url}
    done = subprocess.run(argv, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def by_itself(seconds: float) -> Part:
    """What does not depend on the length."""
    with brokers.running("4.3") as broker, tempfile.TemporaryDirectory(prefix="dlx-router-bench-") as name:
        declare(broker.amqp_url)
        return {
            "restart": restart(broker.amqp_url, Path(name) / "restarted"),
            "freshness": freshness(broker.amqp_url, Path(name) / "fresh", TRIGGER_S, seconds),
        }


def medians(rounds: Iterable[Part]) -> Part:
    """Of each number."""
    every = list(rounds)
    return {
        part: {name: statistics.median(one[part][name] for one in every) for name in every[0][part]}
        for part in every[0]
    }


def measured(given: argparse.Namespace) -> dict[str, Any]:
    """All rounds; what is known so far is on the disk after each."""
    alone: list[Part] = []
    sizes: dict[int, list[Part]] = {events: [] for events in given.events}
    found = {"machine": machine(), "rounds": given.rounds, "command": " ".join(sys.argv[1:])}
    for number in range(given.rounds):
        alone.append(by_itself(given.seconds))
        for events, parts in sizes.items():
            parts.append(one_size(events))
            print(f"round {number + 1}: {events} events", json.dumps(parts[-1]), file=sys.stderr, flush=True)
        found["summary"] = {"by_itself": medians(alone), **{str(size): medians(parts) for size, parts in sizes.items()}}
        text = json.dumps({**found, "by_itself": alone, "sizes": sizes}, indent=1)
        (BUILD / "bench-pipeline.json").write_text(text, encoding="utf-8")
    return found


def _lengths(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> int:
    """0 measured; where the figures are is said."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=_lengths, default=[100_000, 1_000_000], help="lengths, commas between")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=60, help="of the freshness measurement")
    parser.add_argument("--page", type=Path, default=BUILD / "bench-pipeline.md", help="where the page goes")
    parser.add_argument("--reads", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--url-from", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.reads:
        from bench_pipeline_reads import reads  # noqa: PLC0415 - the only part with a session of its own

        send = given.cores == CORES[-1]
        print(json.dumps(reads(os.environ[given.url_from], given.reads, given.cores, send=send)))
        return 0
    BUILD.mkdir(exist_ok=True)
    found = measured(given)
    given.page.write_text(page(found), encoding="utf-8")
    print(f"{given.page}, {BUILD / 'bench-pipeline.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
