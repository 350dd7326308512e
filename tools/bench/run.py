"""How fast the router moves dead letters, beside what else moves messages: `make bench` -> build/bench.json.

Contestants, in turn within each round and in an order drawn anew each round, on one private broker:
  router         the installed `dlx-router run`, default settings, its source -> a dead-letter exchange
  amqp_shovel    RabbitMQ's shovel over AMQP, on-confirm, prefetch 1000, through a socket as the router
                 (--shovel direct: without one, as only a shovel within its own broker can; faster)
  aio_pika       a concurrent relay on aio-pika: prefetch 1000, confirms, mandatory, x-death edited, uvloop
  local_shovel   RabbitMQ's `local` shovel, inside the broker (4.3): the limit
  amqp_shovel_again   the same once more: what lies between the two is the machine's noise
  router_no_journal   the router with JOURNAL=off: what the journal costs
  router_journal_required   the router with JOURNAL=required
  two_routers    two processes of the router on one source, sharing a key: no slower than one, and nothing counted twice

All read the same full queue and write to the same exchange; how a run is timed is told in tools/bench/measurement.py.
Exit: 0 done; 1 a run failed or its output was wrong (the file is written all the same); 2 wrong use; 130 interrupted.
"""

import argparse
import json
import random
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

from tools.bench import sizes
from tools.bench.contestants import AGAIN, LOCAL, NAMES, RELAY, ROUTER, ROUTERS, SHOVEL, Place, installed_router
from tools.bench.measurement import SAMPLES, Course, Stage
from tools.bench.report import SMALL, Round, cells, log, machine, summary, table
from tools.bench.wire import BenchError
from tools.brokers import BrokerError, running

_OUTPUT: Final = Path(__file__).parents[2] / "build" / "bench.json"
_LARGE: Final = {64 * 1024: 20_000, 512 * 1024: 2_500}  # 1.3 GB each: some seconds
_MIXED: Final = 20  # queues
_KINDS: Final = ("classic", "quorum")
_VERSIONS: Final = ("3.10", "4.3")
_WITH_LOCAL: Final = (4, 2)
# As RabbitMQ comes, where the brokers for tests differ; and memory enough that no alarm stops a contestant.
_CONFIG: Final = {
    "raft.wal_max_size_bytes": "536870912",
    "collect_statistics_interval": "5000",
    "vm_memory_high_watermark.absolute": "6GB",
}
_NOTES: Final = (
    "A cell is broker version x queue type (of source and target); each number a median over rounds but the first.",
    "queues: where letters died; cells of 20 have 5 policies and are in summary as mixed_*.",
    "ratio_of_shovel_to_itself: the same contestant twice in a round; what another ratio differs by less is noise.",
    "summary is the worst cell: the lowest ratio, the highest CPU and memory; 1 KiB cells except large_*.",
    "In quorum cells every contestant reads dlx-router.inbox; in classic cells a classic queue it attends.",
    "Each run begins without a journal: a router that starts reads it for open tasks, and would read that of all runs.",
    "Speed and CPU: from the first reading of the target over 5 % to the first over 95 %; startup never counts.",
    "cpu_us_per_message: user and system time of the contestant's processes; broker_cpu_us_per_message: the broker's.",
    "The shovels run inside the broker: their CPU is the broker's.",
    "options.shovel: network, amqp_shovel connects by TCP as between two brokers; direct, without a socket: faster.",
    "rss_mb: the peak; of two_routers the larger of both.",
    "settled: what each router counted; a run whose sum is not what came out is an error.",
    "shapes: one run each, outside of summary.",
    "aio_pika moves fewer messages (its `messages`), being too slow for as many; all rates are of its own run.",
    "Every letter that came out is counted by its number; of each run, random ones (`verified`) are compared in full.",
    "4.x: letters have x-delivery-count and x-acquired-count, as real ones have that a consumer refused.",
    "exact: own headers came out with the bytes that were sent, AMQP types included; demanded of the router only.",
)


COUNTED_SINCE: Final = 4  # the major version of RabbitMQ


@dataclass(slots=True)
class Plan:
    """What is to be run, and what came of it so far. `write` may be called at any time."""

    given: argparse.Namespace
    seed: int
    router: tuple[str, ...]
    chance: random.Random
    brokers: dict[str, str] = field(default_factory=dict)
    rounds: list[Round] = field(default_factory=list)
    shapes: list[Round] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=machine)
    began_s: float = field(default_factory=time.monotonic)

    def courses(self) -> Iterator[tuple[Course, int]]:
        """Each with its rounds."""
        given = self.given
        for kind in given.types:
            yield Course(kind, SMALL, given.messages), given.rounds
            yield Course(kind, SMALL, given.messages, _MIXED), given.mixed_rounds
        for kind in given.types if given.large_rounds else ():
            for size, count in _LARGE.items():
                yield Course(kind, size, max(50, int(count * min(1, given.messages / 100_000)))), given.large_rounds

    def names(self, version: str, course: Course) -> list[str]:
        """Who takes part, in this round's order."""
        plain = course.size == SMALL and course.queues == 1
        names = self.asked(NAMES if plain else (ROUTER, SHOVEL, AGAIN))
        if tuple(int(part) for part in version.split(".")[:2]) < _WITH_LOCAL:
            names = [name for name in names if name != LOCAL]
        self.chance.shuffle(names)
        return names

    def asked(self, names: Iterable[str]) -> list[str]:
        """Those of them that were asked for."""
        return [name for name in names if name in self.given.only]

    @property
    def failed(self) -> int:
        """Runs without a result."""
        return sum("error" in result for part in self.rounds + self.shapes for result in part["results"].values())

    def write(self) -> None:
        """The file holds all rounds that are over."""
        all_cells = cells(self.rounds)
        options = {key: value for key, value in vars(self.given).items() if key not in {"output", "seed", "router"}}
        document = {
            "summary": summary(all_cells), "cells": all_cells, "rounds": self.rounds, "shapes": self.shapes,
            "date": datetime.now(UTC).date().isoformat(), "machine": self.machine, "brokers": self.brokers,
            "failed_runs": self.failed, "seed": self.seed, "options": options,
            "seconds": round(time.monotonic() - self.began_s), "notes": list(_NOTES),
        }  # fmt: skip
        output: Path = self.given.output
        output.parent.mkdir(parents=True, exist_ok=True)
        output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")


def bench(plan: Plan) -> None:
    """Every round of every cell is in `plan` and in its file; brokers and processes are gone."""
    for version in plan.given.versions:
        with tempfile.TemporaryDirectory(prefix="dlx-router-") as folder, running(version, config=_CONFIG) as node:
            plan.brokers[version] = node.version
            broker = int(node.rabbitmqctl("eval", "os:getpid().").strip().strip('"'))
            shovel = node.amqp_url if plan.given.shovel == "network" else "amqp:///%2F"
            place = Place(node.amqp_url, shovel, node.management_url, broker, Path(folder), plan.router)
            counted = int(version.split(".")[0]) >= COUNTED_SINCE
            stage = Stage(place, plan.seed, with_router=bool(plan.asked(ROUTERS)), counted=counted)
            for course, rounds in plan.courses():
                for number in range(rounds):
                    results = _round(plan, stage, plan.names(version, course), version, course)
                    plan.rounds.append({
                        "version": version, "type": course.kind, "bytes": course.size, "queues": course.queues,
                        "round": number,
                        "dropped": number == 0 and rounds > 1, "order": list(results), "results": results,
                    })  # fmt: skip
                    plan.write()
            if plan.given.shapes and version == plan.given.versions[-1]:
                _shapes(plan, stage, version)


def _shapes(plan: Plan, stage: Stage, version: str) -> None:
    for course in sizes.courses(plan.given.shapes, plan.given.messages / 100_000):
        results = _round(plan, stage, plan.asked(sizes.CONTESTANTS), version, course)
        plan.shapes.append(sizes.row(version, course, results))
        plan.write()


def _round(plan: Plan, stage: Stage, names: list[str], version: str, course: Course) -> dict[str, dict[str, Any]]:
    results: dict[str, dict[str, Any]] = {}
    for name in names:
        count = min(course.count, plan.given.aio_messages) if name == RELAY else course.count
        try:
            results[name] = stage.run(name, replace(course, count=count))
            outcome = f"{results[name]['messages_per_s']:,.0f} msg/s, {results[name]['mb_per_s']:.1f} MB/s"
        except (BenchError, OSError) as error:
            results[name] = {"error": str(error)}
            outcome = f"FAILED: {error}"
        log(f"{version} {course.kind} {course.count:,} of {course.size / 1024:g} KiB {name}: {outcome}")
    return results


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--messages", type=int, default=100_000, help="of 1 KiB in each run; scales the large ones too (100000)")
    add("--aio-messages", type=int, default=20_000, help="for the relay on aio-pika, which is slow (20000)")
    add("--rounds", type=int, default=8, help="of 1 KiB in each cell; the first is dropped; 0: none (8)")
    add("--mixed-rounds", type=int, default=4, help="of 1 KiB, 20 queues and 5 policies; the first is dropped (4)")
    add("--large-rounds", type=int, default=4, help="of 64 KiB and 512 KiB; the first is dropped; 0: none (4)")
    add("--shapes", type=int, nargs="?", const=1_000_000, metavar="MOST", help="also backlogs up to MOST, all sizes")
    add("--versions", type=_list(None), default=list(_VERSIONS), help="of RabbitMQ (3.10,4.3)")
    add("--types", type=_list(_KINDS), default=list(_KINDS), help="of the queues (classic,quorum)")
    add("--only", type=_list(NAMES), default=list(NAMES), help=f"these contestants ({','.join(NAMES)})")
    add("--shovel", choices=("network", "direct"), default="network", help="how amqp_shovel connects (network)")
    add("--quick", action="store_true", help="the last of --versions only, 20000 messages, 2 rounds")
    add("--seed", type=int, help="draws order, bodies and samples; printed")
    add("--router", metavar="COMMAND", help="another dlx-router than the one installed beside this Python")
    add("--output", type=Path, default=_OUTPUT, help="(build/bench.json)")
    return parser


def _list(allowed: tuple[str, ...] | None) -> Any:  # noqa: ANN401 - what argparse calls
    def parse(text: str) -> list[str]:
        words = text.replace("-", "_").split(",")
        for word in words:
            if allowed and word not in allowed:
                raise argparse.ArgumentTypeError(f"{word!r} is none of {', '.join(allowed)}")
        return words

    return parse


def main(argv: list[str] | None = None) -> int:
    """See the module for exit codes."""
    parser = _parser()
    given = parser.parse_args(argv)
    if given.quick:
        given.versions, given.messages, given.rounds, given.large_rounds = given.versions[-1:], 20_000, 2, 2
        given.mixed_rounds = 2
    if min(given.messages, given.aio_messages) < 1 or min(given.rounds, given.mixed_rounds, given.large_rounds) < 0:
        parser.error("messages are at least 1, rounds at least 0")
    seed = random.SystemRandom().randrange(1 << 32) if given.seed is None else given.seed
    if not Path("/proc/self/stat").exists():
        parser.error("this needs Linux: CPU and memory are read from /proc")
    plan = Plan(given, seed, installed_router(given.router), random.Random(seed))
    log(f"seed {seed}; router: {' '.join(plan.router)}; {SAMPLES} outputs of each run are verified")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    code = 0
    try:
        bench(plan)
    except (BenchError, BrokerError) as error:
        log(str(error))
        code = 1
    except KeyboardInterrupt:
        log(f"interrupted after {len(plan.rounds)} rounds")
        code = 130
    all_cells = cells(plan.rounds)
    if all_cells:
        print(f"{table(all_cells)}\n\n{json.dumps(summary(all_cells), indent=1)}\n\nseed {seed}; {given.output}")
    if plan.failed:
        log(f"{plan.failed} runs failed: see `error` in {given.output}")
    return code or int(plan.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
