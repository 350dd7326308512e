"""Measure redrive and index: `make redrive-bench`. Another client counts; the router only says when it is ready.

    python -m tools.bench.redrive.run --seconds 60 --letters 100000 --searched 1000000

    part       what                                                                                  limit
    rates      letters a second of a redrive at 10, 200 and 2,000/s, by the depth of the work queue  ± 5 %
    unlimited  a redrive without a rate beside the router's rate of dead-lettering the same letters  ≥ 0.8
    index      the routing rate with an index beside that without one, medians of --rounds each      ≥ 0.97
    search     events a second of the index's writer, and searches over what it wrote                20,000; 200 ms
    audit      a redrive with two kills: every body is there, copies have one id, number and task    lost 0

Prints a table and writes build/redrive.json. Exit: 0 all within their limits, 1 not all, 2 it could not be measured.
"""

import argparse
import json
import os
import platform
import statistics
import sys
import tempfile
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from tools.bench.redrive.index_search import measured
from tools.bench.redrive.testbed import RedriveError, Scene, patiently
from tools.bench.wire import BenchError
from tools.brokers import BrokerError, running

OUT: Final = Path(__file__).resolve().parents[3] / "build/redrive.json"
RATES: Final = (10, 200, 2000)
WINDOW: Final = 1000  # unconfirmed at most, and so copies at most for each kill
KILLS: Final = 2


@dataclass(frozen=True)
class Row:
    """One number; `ok` None: it has no limit."""

    part: str
    what: str
    found: float
    limit: str
    ok: bool | None


@dataclass(frozen=True)
class Bench:
    """What was asked for, on one broker."""

    given: argparse.Namespace
    node: Any
    folder: Path

    def scene(self, name: str, **env: str) -> Any:  # noqa: ANN401 - a context manager of a Scene
        """A vhost and a router of its own."""
        return Scene.of(self.node, name, self.folder, self.given.router, **env)


def rates(bench: Bench) -> Iterator[Row]:
    """The rate that was kept, after the first second."""
    for rate in RATES:
        with bench.scene(f"rate{rate}") as scene:
            seconds = bench.given.seconds
            queue, _ = scene.dead("work", int(rate * (seconds + 10)) + 1)
            task = scene.begin(queue, rate=rate)
            scene.await_depth("work", rate, 30)
            before, began = scene.depth("work"), time.monotonic()
            time.sleep(seconds)
            after, ended = scene.depth("work"), time.monotonic()
            scene.end(task)
        actual = (after - before) / (ended - began)
        yield Row("rates", f"{rate}/s over {seconds:g} s", round(actual, 2), "± 5 %", abs(actual / rate - 1) <= 0.05)  # noqa: PLR2004 - the goal, as the row says


def unlimited(bench: Bench) -> Iterator[Row]:
    """From the first letter that is there to the last, both ways."""
    letters = bench.given.letters
    with bench.scene("unlimited") as scene:
        queue, routing = scene.dead("work", letters)
        scene.begin(queue)
        scene.await_depth("work", 1, 60)
        first, began = scene.depth("work"), time.monotonic()
        scene.await_depth("work", letters, 60 + letters / 500)
        speed = (letters - first) / (time.monotonic() - began)
    yield Row("unlimited", "routing, letters/s", round(routing), "", None)
    yield Row("unlimited", "redrive, letters/s", round(speed), "", None)
    yield Row("unlimited", "redrive beside routing", round(speed / routing, 3), "≥ 0.8", speed >= 0.8 * routing)


def index(bench: Bench) -> Iterator[Row]:
    """On and off in turn, so that a busy moment of the machine meets both."""
    speeds: dict[bool, list[float]] = {True: [], False: []}
    for number in range(bench.given.rounds):
        for on in (True, False):
            env = {"INDEX_PATH": str(bench.folder / f"index{number}.sqlite")} if on else {}
            with bench.scene(f"index{number}{'on' if on else 'off'}", **env) as scene:
                speeds[on].append(scene.dead("work", bench.given.letters)[1])
    on_rate, off_rate = statistics.median(speeds[True]), statistics.median(speeds[False])
    yield Row("index", "routing with an index, letters/s", round(on_rate), "", None)
    yield Row("index", "routing without, letters/s", round(off_rate), "", None)
    yield Row("index", "with beside without", round(on_rate / off_rate, 3), "≥ 0.97", on_rate >= 0.97 * off_rate)


def search(bench: Bench) -> Iterator[Row]:
    """Without a broker."""
    stats = measured(bench.folder, bench.given.searched)
    yield Row("search", "events/s of the writer", stats["events_per_s"], "≥ 20,000", stats["events_per_s"] >= 20_000)  # noqa: PLR2004 - the goal, as the row says
    yield Row("search", f"p95 ms over {stats['letters']:,} letters", stats["p95_ms"], "≤ 200", stats["p95_ms"] <= 200)  # noqa: PLR2004 - the goal, as the row says
    for name in ("p50_ms", "max_ms", "bytes_a_letter"):
        yield Row("search", name, stats[name], "", None)


def audit(bench: Bench) -> Iterator[Row]:
    """Kills in the middle; what lies in the work queue afterwards is read by a client that knows what was sent."""
    letters = bench.given.letters
    with bench.scene("audit", HEARTBEAT="2") as scene:
        queue, _ = scene.dead("work", letters)
        task = scene.begin(queue, rate=max(500, letters / 40))
        for kill in range(1, KILLS + 1):
            scene.await_depth("work", kill * letters // 4, 120)
            scene.kill()
            scene.start()
        patiently(lambda: scene.state(task) == "done", "the task does not end", 180)
        left, copies = scene.depth(queue), defaultdict(list)
        for number, record in scene.each("work"):
            copies[number].append((record["id"], record["redrives"], record["redrive_id"]))
    lost = letters - len(copies)
    extra = sum(map(len, copies.values())) - len(copies)
    unlike = sum(len({*records}) > 1 or records[0][1:] != (1, task) for records in copies.values())
    yield Row("audit", f"lost of {letters:,}, {KILLS} kills", lost, "0", lost == 0)
    yield Row("audit", "left in the dead-letter queue", left, "0", left == 0)
    yield Row("audit", "copies more", extra, f"≤ {KILLS * WINDOW:,}", extra <= KILLS * WINDOW)
    yield Row("audit", "letters of unlike id, number or task", unlike, "0", unlike == 0)


PARTS: Final[Mapping[str, Callable[[Bench], Iterator[Row]]]] = {
    "rates": rates, "unlimited": unlimited, "index": index, "search": search, "audit": audit,
}  # fmt: skip


def main() -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", default=",".join(PARTS), help="parts, with commas between")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each rate")
    parser.add_argument("--letters", type=int, default=100_000)
    parser.add_argument("--searched", type=int, default=1_000_000, help="letters in the index that is searched")
    parser.add_argument("--rounds", type=int, default=3, help="of part index")
    parser.add_argument("--version", default="4.3")
    parser.add_argument("--router", help="command of the router; default: the one beside this Python")
    parser.add_argument("--out", type=Path, default=OUT)
    given = parser.parse_args()
    chosen = [name for name in given.only.split(",") if name]
    if unknown := {*chosen} - {*PARTS}:
        parser.error(f"--only: no part {', '.join(sorted(unknown))}; there are {', '.join(PARTS)}")
    began, load = time.monotonic(), os.getloadavg()[0]
    rows: list[Row] = []
    try:
        with tempfile.TemporaryDirectory(prefix="dlx-router-") as folder, running(given.version) as node:
            for name in chosen:
                for row in PARTS[name](Bench(given, node, Path(folder))):
                    rows.append(row)
                    print(_line(row), flush=True)
    except (BenchError, BrokerError, RedriveError) as error:
        print(error, file=sys.stderr)
        return 2
    document = {
        "version": given.version,
        "machine": {"cpus": os.cpu_count(), "load_before": round(load, 2), "python": platform.python_version()},
        "asked": {
            "seconds": given.seconds,
            "letters": given.letters,
            "searched": given.searched,
            "rounds": given.rounds,
        },
        "seconds": round(time.monotonic() - began, 1),
        "rows": [asdict(row) for row in rows],
    }
    given.out.parent.mkdir(parents=True, exist_ok=True)
    given.out.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    print(f"load before {load:.1f} on {os.cpu_count()} CPUs, {document['seconds']} s → {given.out}")
    return int(any(row.ok is False for row in rows))


def _line(row: Row) -> str:
    verdict = {True: "ok", False: "MISSED", None: ""}[row.ok]
    return f"{row.part:10} {row.what:42} {row.found:>12,g} {row.limit:>10}  {verdict}".rstrip()


if __name__ == "__main__":
    sys.exit(main())
