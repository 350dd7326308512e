"""Measure how fast the router moves dead letters, beside other programs: `make bench` → build/bench.json.

Contestants, in turn within each round and in an order drawn for each round, on one private broker:
  router                    the installed `dlx-router run` with default settings, from its source to an exchange
  router_before             the router of another tree: --before FOLDER
  amqp_shovel               RabbitMQ's shovel over AMQP by TCP, on-confirm, prefetch 1000
  amqp_shovel_again         the same once more: the difference between the two is noise of the machine
  aio_pika                  a concurrent relay on aio-pika: prefetch 1000, confirms, mandatory, x-death edited, uvloop
  local_shovel              RabbitMQ's `local` shovel inside the broker (since 4.2): the limit
  router_no_journal         the router with JOURNAL=off
  router_journal_required   the router with JOURNAL=required

All read the same full queue (quorum: dlx-router.inbox; classic: a queue that the router attends) and write to the same
exchange. A connection of the benchmark reads the depth of the target; speed and CPU are taken from its first reading
over 5 % to the first over 95 %, so that starting does not count. Every letter that comes out is counted, and 1,000 of
each run are compared in full. A run with a lost or changed letter has no speed: it is an error.

Numbers are medians over rounds without the first; a ratio is the median of the ratios within each round.
Exit: 0 done · 1 a run failed, the file is written · 2 wrong use · 130 interrupted.
"""

import argparse
import contextlib
import json
import os
import platform
import random
import re
import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from statistics import median
from typing import Any, Final, NamedTuple

import psutil

from tools.bench.contestants import (
    AGAIN,
    BEFORE,
    EXCHANGE,
    INBOX,
    INPUT,
    LOCAL,
    NAMES,
    RELAY,
    REQUIRED,
    ROOT,
    ROUTER,
    SETTINGS,
    SHOVEL,
    SILENT,
    SOURCE,
    Place,
    Process,
    Shovel,
    contestant,
    installed_router,
    router,
)
from tools.bench.letters import KEY, Inspection, Letters
from tools.bench.wire import BenchError, Wire
from tools.brokers import BrokerError, running

SMALL: Final = 1024
LARGE: Final = {64 * 1024: 20_000, 512 * 1024: 2_500}  # 1.3 GB each: some seconds
RATIOS: Final = {
    "router/before": (ROUTER, BEFORE), "router/shovel": (ROUTER, SHOVEL), "router/local": (ROUTER, LOCAL),
    "router/aio_pika": (ROUTER, RELAY), "router/no_journal": (ROUTER, SILENT), "required/shovel": (REQUIRED, SHOVEL),
    "shovel/again": (SHOVEL, AGAIN),
}  # fmt: skip
_CELL: Final = ("version", "kind", "size", "queues")
_TARGET: Final = "bench.target"
_JOURNAL: Final = "dlx-router.journal"
_HEAD: Final = ("| | letters/s | MB/s | CPU, µs | CPU of the broker, µs | peak MB |", "|---|---:|---:|---:|---:|---:|")
_SAMPLES: Final = 1000
_QUEUES: Final = 20  # of mixed letters
_KINDS: Final = ("classic", "quorum")
_LOCAL_SINCE: Final = (4, 2)
_COUNTED_SINCE: Final = 4  # RabbitMQ counts deliveries in headers
_STALL_S: Final = 60
_MB: Final = 1e6
_FACTS: Final = ("model name", "MemTotal")
# As RabbitMQ comes, where the brokers for tests differ; and memory enough that no alarm stops a contestant.
_CONFIG: Final = {
    "raft.wal_max_size_bytes": "536870912",
    "collect_statistics_interval": "5000",
    "vm_memory_high_watermark.absolute": "6GB",
}


@dataclass(frozen=True)
class Course:
    """Letters to be moved: type of source and target queue, bytes of a body, how many, of how many queues."""

    kind: str
    size: int
    count: int
    queues: int = 1


class Reading(NamedTuple):
    """The depth of the target at a moment, and CPU seconds of contestant and broker so far."""

    at_s: float
    depth: int
    cpu_s: float
    broker_s: float


def usage(pid: int | None) -> tuple[float, float]:
    """Return CPU seconds and resident MB of a process and its children."""
    if pid is None:
        return 0.0, 0.0
    cpu = rss = 0.0
    with contextlib.suppress(psutil.NoSuchProcess):
        for member in (process := psutil.Process(pid), *process.children(recursive=True)):
            times = member.cpu_times()
            cpu += times.user + times.system
            rss += member.memory_info().rss
    return cpu, rss / _MB


@contextlib.contextmanager
def started(mover: Process | Shovel) -> Iterator[None]:
    """Run it while the block lasts."""
    try:
        mover.start()
        yield
    finally:
        mover.stop()


class Stage:
    """A broker made ready for runs."""

    def __init__(self, place: Place, seed: int, *, counted: bool) -> None:
        """Have the router declare its inbox. `counted`: as Letters has it."""
        self._place, self._seed, self._counted = place, seed, counted
        self._chance = random.Random(seed)
        process = router(place, INBOX)
        with started(process):
            process.await_ready()
        with Wire(place.amqp_url) as wire:
            wire.exchange(EXCHANGE, "direct")
            wire.exchange(INPUT, "fanout")

    def run(self, name: str, course: Course) -> dict[str, Any]:
        """Return speed, CPU and memory of this contestant; BenchError if a letter is missing or changed."""
        source = INBOX if course.kind == "quorum" else SOURCE
        letters = Letters(course.size, self._seed, course.queues, counted=self._counted)
        mover = contestant(name, replace(self._place, is_mixed=course.queues > 1), source)
        with Wire(self._place.amqp_url) as wire:
            self._fill(wire, course, source, letters)
            with started(mover):
                readings, rss_mb = self._watch(wire, mover, course.count)
                time.sleep(0.2)  # for the last acks
                settled = mover.settled()
            left = _rest(wire, source)
            inspection = Inspection(letters, course.count, _SAMPLES, self._chance)
            wire.drain(_TARGET, wire.depth(_TARGET)[0], inspection.take)
        inspection.finish(must_be_exact=name in SETTINGS)
        if settled is not None and settled != course.count + inspection.duplicates:
            raise BenchError(f"the router counted {settled} letters, {course.count + inspection.duplicates} came out")
        result = _result(readings, course)
        own = {"rss_mb": round(rss_mb, 1)} if mover.name in {*SETTINGS, RELAY} else {}
        return {**result, **own, "duplicates": inspection.duplicates, "left_in_source": left}

    def _fill(self, wire: Wire, course: Course, source: str, letters: Letters) -> None:
        wire.delete(_JOURNAL)  # a router that starts reads all of it
        wire.queue(_TARGET, {"x-queue-type": course.kind})
        wire.bind(_TARGET, EXCHANGE, KEY)
        if source == INBOX:
            _rest(wire, INBOX)
            wire.purge(INBOX)
        else:
            wire.queue(SOURCE, {"x-queue-type": course.kind})
            wire.bind(SOURCE, INPUT, "")
        wire.fill(INBOX if source == INBOX else INPUT, KEY, course.count, letters)
        if (filled := wire.depth(source)) != (course.count, 0):
            raise BenchError(f"{source} holds {filled[0]} letters of {course.count} and has {filled[1]} consumers")

    def _watch(self, wire: Wire, mover: Process | Shovel, count: int) -> tuple[list[Reading], float]:
        """Return the readings until all are in the target, and the peak of resident MB."""
        readings: list[Reading] = []
        peak, moved_s = 0.0, time.monotonic()
        while not readings or readings[-1].depth < count:
            depth, _ = wire.depth(_TARGET)
            (cpu, rss), (broker, _) = usage(mover.pid), usage(self._place.broker_pid)
            now, peak = Reading(time.monotonic(), depth, cpu, broker), max(peak, rss)
            moved_s = now.at_s if not readings or depth != readings[-1].depth else moved_s
            if now.at_s - moved_s > _STALL_S:
                raise BenchError(f"{mover.name} stands still at {depth} of {count}")
            readings.append(now)
            mover.check()
            time.sleep(0.05 if count > 20_000 else 0.005)  # noqa: PLR2004 - few are over soon
        return readings, peak


def _rest(wire: Wire, source: str) -> int:
    """Return how many letters the source holds once it has no consumer."""
    deadline = time.monotonic() + 30
    while (answer := wire.depth(source))[1]:
        if time.monotonic() > deadline:
            raise BenchError(f"{source} still has {answer[1]} consumers after 30 s")
        time.sleep(0.05)
    return answer[0]


def _result(readings: list[Reading], course: Course) -> dict[str, Any]:
    first = next(reading for reading in readings if reading.depth >= course.count * 0.05)
    last = next(reading for reading in readings if reading.depth >= course.count * 0.95)
    if first.depth == last.depth:
        first, last = next((one for one in reversed(readings) if not one.depth), readings[0]), readings[-1]
    seconds, count = last.at_s - first.at_s, last.depth - first.depth
    if not seconds or not count:
        raise BenchError("too fast to be measured: ask for more messages")
    return {
        "messages_per_s": round(count / seconds, 1),
        "mb_per_s": round(count * course.size / seconds / _MB, 2),
        "cpu_us": round((last.cpu_s - first.cpu_s) / count * 1e6, 2),
        "broker_cpu_us": round((last.broker_s - first.broker_s) / count * 1e6, 2),
    }


def machine() -> dict[str, Any]:
    """Return what the numbers depend on; nothing that names this machine."""
    facts = Path("/proc/cpuinfo").read_text(encoding="utf-8") + Path("/proc/meminfo").read_text(encoding="utf-8")
    cpu, memory = (next(iter(re.findall(rf"^{name}\s*: *(.+)$", facts, re.MULTILINE)), "?") for name in _FACTS)
    return {
        "cpu": cpu, "cores": len(os.sched_getaffinity(0)), "memory": memory,
        "system": f"{platform.system()} {platform.release()} {platform.machine()}",
        "python": platform.python_version(), "load_before": round(os.getloadavg()[0], 2),
    }  # fmt: skip


@dataclass(slots=True)
class Plan:
    """The options, and the rounds so far."""

    given: argparse.Namespace
    chance: random.Random
    rounds: list[dict[str, Any]] = field(default_factory=list)
    machine: dict[str, Any] = field(default_factory=machine)

    def courses(self) -> Iterator[tuple[Course, int]]:
        """Yield each course with its number of rounds."""
        given = self.given
        for kind in given.types:
            yield Course(kind, SMALL, given.messages), given.rounds
            yield Course(kind, SMALL, given.messages, _QUEUES), given.mixed_rounds
            for size, count in LARGE.items():
                yield Course(kind, size, max(50, int(count * min(1, given.messages / 100_000)))), given.large_rounds

    def names(self, version: str, course: Course) -> list[str]:
        """Return the contestants in the order of a round."""
        plain = course.size == SMALL and course.queues == 1
        names = [name for name in (NAMES if plain else (ROUTER, BEFORE, SHOVEL, AGAIN)) if name in self.given.only]
        without = {BEFORE} if self.given.before is None else set()
        without |= {LOCAL} if tuple(int(part) for part in version.split(".")[:2]) < _LOCAL_SINCE else set()
        names = [name for name in names if name not in without]
        self.chance.shuffle(names)
        return names

    def run(self) -> None:
        """Run every round of every course."""
        for version in self.given.versions:
            with tempfile.TemporaryDirectory(prefix="dlx-router-") as folder, running(version, config=_CONFIG) as node:
                pid = int(node.rabbitmqctl("eval", "os:getpid().").strip().strip('"'))
                command = installed_router(self.given.router)
                place = Place(node.amqp_url, node.management_url, pid, Path(folder), command, self.given.before)
                stage = Stage(place, self.given.seed, counted=int(version.split(".")[0]) >= _COUNTED_SINCE)
                for course, rounds in self.courses():
                    for number in range(rounds):
                        results = {name: self._one(stage, name, course) for name in self.names(version, course)}
                        self.rounds.append({
                            "version": version, "rabbitmq": node.version, **asdict(course), "round": number,
                            "dropped": number == 0 and rounds > 1, "results": results,
                        })  # fmt: skip
                        self.write()

    def _one(self, stage: Stage, name: str, course: Course) -> dict[str, Any]:
        count = min(course.count, 20_000) if name == RELAY else course.count  # which is slow
        try:
            result = stage.run(name, replace(course, count=count))
        except (BenchError, OSError) as error:
            result = {"error": str(error)}
        shown = result.get("error") or f"{result['messages_per_s']:,.0f}/s, {result['cpu_us']:.0f} us"
        print(f"{course.kind} {course.size} B x {count:,} {name}: {shown}", file=sys.stderr, flush=True)
        return result

    def write(self) -> None:
        """Write the file with all rounds so far."""
        document = {
            "cells": cells(self.rounds), "rounds": self.rounds, "date": datetime.now(UTC).date().isoformat(),
            "machine": self.machine,
            "options": {key: str(value) for key, value in vars(self.given).items()},
        }  # fmt: skip
        self.given.output.parent.mkdir(parents=True, exist_ok=True)
        self.given.output.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")

    @property
    def failed(self) -> int:
        """How many runs have no result."""
        return sum("error" in result for one in self.rounds for result in one["results"].values())


def cells(rounds: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return a cell for each version, type, size and number of queues: medians and ratios over its rounds."""
    grouped: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for one in rounds:
        if not one["dropped"]:
            grouped.setdefault(tuple(one[key] for key in ("version", "kind", "size", "queues")), []).append(
                one["results"]
            )
    return [_cell(key, group) for key, group in grouped.items()]


def _cell(key: tuple[Any, ...], group: list[dict[str, Any]]) -> dict[str, Any]:
    cell: dict[str, Any] = dict(zip(_CELL, key, strict=True)) | {"ratios": {}}
    for name in NAMES:
        if results := [one[name] for one in group if "messages_per_s" in one.get(name, ())]:
            cell[name] = {measure: round(median(one[measure] for one in results), 2) for measure in results[0]}
    for ratio, (first, second) in RATIOS.items():
        speeds = [[one.get(name, {}).get("messages_per_s") for name in (first, second)] for one in group]
        if values := [ours / other for ours, other in speeds if ours and other]:
            cell["ratios"][ratio] = [round(value, 3) for value in (median(values), min(values), max(values))]
    return cell


def table(all_cells: Sequence[dict[str, Any]]) -> str:
    """Return the cells as tables of Markdown, for docs/performance.md."""
    lines: list[str] = []
    for cell in all_cells:
        lines += [
            f"### RabbitMQ {cell['version']}, {cell['kind']} queues, {cell['size']} B, {cell['queues']} queue(s)",
            "",
        ]
        lines += [
            "| | letters/s | MB/s | CPU, µs | CPU of the broker, µs | peak MB |",
            "|---|---:|---:|---:|---:|---:|",
        ]
        for name in (name for name in NAMES if name in cell):
            own = cell[name]
            speed = f"{own['messages_per_s']:,.0f} | {own['mb_per_s']:.0f} | {own['cpu_us']:.0f}"
            lines.append(f"| {name} | {speed} | {own['broker_cpu_us']:.0f} | {own.get('rss_mb', '–')} |")
        shown = (f"{ratio} {mid:.2f} ({low:.2f} … {high:.2f})" for ratio, (mid, low, high) in cell["ratios"].items())
        lines += ["", "; ".join(shown), ""]
    return "\n".join(lines)


def _options(argv: Sequence[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("--messages", type=int, default=100_000, help="of 1 KiB in each run; scales the large ones too (100000)")
    add("--rounds", type=int, default=8, help="of 1 KiB in each cell; the first is dropped; 0: none (8)")
    add("--mixed-rounds", type=int, default=4, help="of 1 KiB, 20 queues and 5 policies (4)")
    add("--large-rounds", type=int, default=4, help="of 64 KiB and 512 KiB (4)")
    add("--versions", type=_list(()), default=["3.10", "4.3"], help="of RabbitMQ (3.10,4.3)")
    add("--types", type=_list(_KINDS), default=list(_KINDS), help="of the queues (classic,quorum)")
    add("--only", type=_list(NAMES), default=list(NAMES), help=f"these contestants ({','.join(NAMES)})")
    add("--quick", action="store_true", help="the last of --versions only, 20000 messages, 2 rounds")
    add("--seed", type=int, default=random.SystemRandom().randrange(1 << 32), help="draws order, bodies and samples")
    add("--router", metavar="COMMAND", help="another dlx-router than the one installed beside this Python")
    add("--before", type=Path, metavar="FOLDER", help="another tree, whose router takes part as router_before")
    add("--output", type=Path, default=ROOT / "build" / "bench.json", help="(build/bench.json)")
    given = parser.parse_args(argv)
    if given.quick:
        given.versions, given.messages = given.versions[-1:], 20_000
        given.rounds = given.mixed_rounds = given.large_rounds = 2
    if given.messages < 1 or min(given.rounds, given.mixed_rounds, given.large_rounds) < 0:
        parser.error("messages are at least 1, rounds at least 0")
    if given.before and not (given.before / "dlx_router").is_dir():
        parser.error(f"--before {given.before}: there is no dlx_router in it")
    return given


def _list(allowed: tuple[str, ...]) -> Any:  # noqa: ANN401 - what argparse calls
    def parse(text: str) -> list[str]:
        words = text.split(",")
        if unknown := [word for word in words if allowed and word not in allowed]:
            raise argparse.ArgumentTypeError(f"{', '.join(unknown)}: there are {', '.join(allowed)}")
        return words

    return parse


def main(argv: Sequence[str] | None = None) -> int:
    """Run the rounds, write the file, print the tables."""
    given = _options(argv)
    plan = Plan(given, random.Random(given.seed))
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    code = 0
    try:
        plan.run()
    except (BenchError, BrokerError) as error:
        print(error, file=sys.stderr)
        code = 1
    except KeyboardInterrupt:
        code = 130
    print(table(cells(plan.rounds)), f"seed {given.seed}; {plan.failed} runs failed; {given.output}", sep="\n")
    return code or int(plan.failed > 0)


if __name__ == "__main__":
    sys.exit(main())
