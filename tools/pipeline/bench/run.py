"""Measure the pipeline, and what it stands beside: a plain script without Spark, and DuckDB on the same files.

    python -m tools.pipeline.bench.run --events 100000,1000000,10000000 --rounds 3

For each length: a journal of batches of 100 events is published, archived by `dlx-router pipeline ingest` alone and by
Spark with one core and with two, and by pika + pyarrow; of the archive are asked failure groups, before and after it is
compacted (DuckDB too: the answers must be equal), a report and a backtest; letters are sent back. Of journals longer
than a million events only what grows with them: ingest alone, groups with two cores, reports, the plain script for
their first million. Once a round: freshness at 1,000 events a second, and the restart after a kill. The broker is on
the same cores. Writes build/bench-pipeline.json after every part, and a page: medians over the rounds, least and most.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from tools import brokers
from tools.bench.run import machine
from tools.pipeline.bench.ingest import Memory, freshness, measured_ingest, plain_ingest, publish, restart
from tools.pipeline.bench.page import page
from tools.pipeline.kills import declare

ROOT: Final = Path(__file__).resolve().parents[3]
BUILD: Final = ROOT / "build"
CORES: Final = (1, 2)
LONG: Final = 1_000_000  # events; of longer journals only what grows with them is measured
TRIGGER_S: Final = 1.0
Part = dict[str, dict[str, float]]


def one_size(events: int) -> Part:
    """Everything that depends on the length, on a broker of its own."""
    is_long = events > LONG
    with brokers.running("4.3") as broker, tempfile.TemporaryDirectory(prefix="dlx-router-bench-") as name:
        folder, url = Path(name), broker.amqp_url
        declare(url)
        figures: Part = {"published": published(url, events)}
        for cores in (0, *(() if is_long else CORES)):
            done = measured_ingest(url, folder / f"a{cores}", events, cores)
            figures[f"ingest_{cores}"] = told(f"ingest_{cores}", done)
        figures["plain"] = told("plain", plain_ingest(url, folder / "plain.parquet", min(events, LONG)))
        archive = folder / f"a{0 if is_long else CORES[-1]}"
        figures["report_fresh"] = told("report_fresh", reported(archive))
        for cores in reversed(CORES[is_long:]):  # the first of them compacts
            figures |= {f"{part}_{cores}": values for part, values in _reads(url, archive, cores, is_long).items()}
        return figures | {"report": told("report", reported(archive))}


def told(part: str, figures: dict[str, float]) -> dict[str, float]:
    """The same, said as soon as it is known."""
    print(f"{time.strftime('%H:%M:%S')} {part} {json.dumps(figures)}", file=sys.stderr, flush=True)
    return figures


def published(url: str, events: int) -> dict[str, float]:
    """Fill the stream; seconds, the making of the events included."""
    began = time.monotonic()
    publish(url, events)
    return told("published", {"events": events, "seconds": time.monotonic() - began})


def _reads(url: str, root: Path, cores: int, is_long: bool) -> Part:  # noqa: FBT001 - as it is passed on
    """In a process of its own: Java keeps what it was given, and so does DuckDB."""
    argv = [sys.executable, "-m", "tools.pipeline.bench.run", "--reads", str(root), "--cores", str(cores)]
    argv += ["--url-from", "DLX_ROUTER_AMQP_URL", *(["--long"] if is_long else [])]
    env = os.environ | {"DLX_ROUTER_AMQP_URL": url}
    done = subprocess.run(argv, cwd=ROOT, env=env, stdout=subprocess.PIPE, text=True, check=True)
    return dict(json.loads(done.stdout.splitlines()[-1]))


def reported(archive: Path) -> dict[str, float]:
    """`dlx-router pipeline report` over all of it, its start too."""
    page, began = archive.with_name("report.html"), time.monotonic()
    argv = [
        sys.executable,
        "-m",
        "dlx_router",
        "pipeline",
        "report",
        "--archive",
        str(archive),
        "--since",
        "2026-01-01",
    ]
    process = subprocess.Popen([*argv, "--out", str(page)], cwd=ROOT, stdout=subprocess.DEVNULL)
    memory = Memory(process.pid)
    memory.start()
    assert process.wait() == 0
    return {"seconds": time.monotonic() - began, "rss_mb": memory.rss / 1e6}


def by_itself(seconds: float) -> Part:
    """What does not depend on the length."""
    with brokers.running("4.3") as broker, tempfile.TemporaryDirectory(prefix="dlx-router-bench-") as name:
        declare(broker.amqp_url)
        return {
            "restart": told("restart", restart(broker.amqp_url, Path(name) / "restarted")),
            "freshness": told("freshness", freshness(broker.amqp_url, Path(name) / "fresh", TRIGGER_S, seconds)),
        }


def put_together(rounds: Sequence[Part], how: Callable[[list[float]], Any]) -> dict[str, dict[str, Any]]:
    """Each number of all rounds."""
    first = rounds[0]
    return {part: {name: how([result[part][name] for result in rounds]) for name in first[part]} for part in first}


def spread(numbers: list[float]) -> list[float]:
    """The least and the most."""
    return [min(numbers), max(numbers)]


def measured(given: argparse.Namespace) -> dict[str, Any]:
    """All rounds; what is known so far is on the disk after each."""
    alone: list[Part] = []
    sizes: dict[int, list[Part]] = {events: [] for events in given.events}
    results: dict[str, Any] = {"machine": machine(), "rounds": given.rounds, "command": " ".join(sys.argv[1:])}
    for _ in range(given.rounds):
        alone.append(by_itself(given.seconds))
        for events, parts in sizes.items():
            parts.append(one_size(events))
        every = {"by_itself": alone, **{str(size): parts for size, parts in sizes.items()}}
        results["summary"] = {name: put_together(parts, statistics.median) for name, parts in every.items()}
        results["spread"] = {name: put_together(parts, spread) for name, parts in every.items()}
        text = json.dumps({**results, "by_itself": alone, "sizes": sizes}, indent=1)
        (BUILD / "bench-pipeline.json").write_text(text, encoding="utf-8")
    return results


def _lengths(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def main() -> int:
    """0 measured; where the figures are is said."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--events", type=_lengths, default=[100_000, 1_000_000, 5_000_000], help="lengths, commas between"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=30, help="of the freshness measurement")
    parser.add_argument("--page", type=Path, default=BUILD / "bench-pipeline.md", help="where the page goes")
    parser.add_argument("--reads", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--cores", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--long", action="store_true", help=argparse.SUPPRESS)
    parser.add_argument("--url-from", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.reads:
        from tools.pipeline.bench.reads import reads  # noqa: PLC0415 - the only part with a session of its own

        first = given.cores == CORES[-1]
        print(json.dumps(reads(os.environ[given.url_from], given.reads, given.cores, first=first, long=given.long)))
        return 0
    BUILD.mkdir(exist_ok=True)
    results = measured(given)
    given.page.write_text(page(results), encoding="utf-8")
    print(f"{given.page}, {BUILD / 'bench-pipeline.json'}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
