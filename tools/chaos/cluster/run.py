"""Break nodes and routers of a cluster for half an hour, beside a control without routers; account for every letter.

    make chaos-cluster MINUTES=30           # its section of docs/reliability.md, and build/chaos-cluster*
    make chaos-cluster MINUTES=4 ARGS="--seed 7 --part 4.3:autoheal"

The time is shared by four clusters: RabbitMQ 4.3 and 4.0, each with autoheal and with pause_minority. The seed draws
the faults; the same seed and part, the same faults. `--kind` (again and again) draws from these kinds only.

Exit: 0 all laws hold · 1 a law is broken, or a part could not be run · 2 none could.
"""

import argparse
import json
import logging
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Final

import httpx
import pika

from dlx_router import __version__
from tests.support.router import RouterEndedError
from tools.brokers import BrokerError
from tools.brokers.cluster import name_of
from tools.brokers.programs import provide
from tools.chaos.cluster.accounting import WAYS, Books
from tools.chaos.cluster.attribution import Troubles, attributed
from tools.chaos.cluster.drain import Drain
from tools.chaos.cluster.faults import is_of_nodes, strike
from tools.chaos.cluster.load import Load
from tools.chaos.cluster.monitor import Watch
from tools.chaos.cluster.partition import Held, beside, partitions, silences
from tools.chaos.cluster.report import PartReport, Report, Row, as_json, markdown
from tools.chaos.cluster.schedule import KINDS, PARTS, ROUTER_KILLED, Drawn, Part, drawn
from tools.chaos.cluster.testbed import CONTROL, VHOST, NodesScene
from tools.chaos.page_sections import NODES, with_section

BUILD: Final = Path(__file__).parents[3] / "build"
PAGE: Final = Path(__file__).parents[3] / "docs" / "reliability.md"
WARM_S: Final = 10.0
UNMADE: Final = (BrokerError, AssertionError, RouterEndedError, httpx.HTTPError, pika.exceptions.AMQPError, OSError)
"""What a part may end with; the others go on, and the law is broken."""
LOGGED: Final = {
    "down": ("rabbit on node", " down"),
    "autoheal": ("Autoheal decision",),
    "minority": ("minority", "awaiting recovery"),
}


def run(part: Part, seed: int, seconds: float, rate: float, kinds: tuple[str, ...], folder: Path) -> PartReport:
    """One cluster: load, faults, drain, audit. `folder` is empty and keeps logs and evidence."""
    with ExitStack() as stack:
        scene = NodesScene(provide(part.version), part, folder)
        stack.callback(scene.close)
        scene.start_routers()
        report = PartReport(part, scene.nodes[0].version, scene.tick_s(), scene.obeys())
        load = Load(scene.url, rate)
        load.start()
        stack.callback(load.close)
        watch = Watch(scene, load, folder, say)
        watch.start()
        try:
            time.sleep(WARM_S)
            troubles = _break(scene, load, watch, report, Plan(part, seed, seconds, kinds))
            load.quiet()
            Drain(scene, load, report, say).run()
        finally:
            watch.close()
        report.stands, report.evidence = watch.standstills.stands, watch.written
        report.in_vain, report.in_vain_spans = len(watch.readiness.seconds), [*watch.readiness.spans()]
        _heed_partitions(scene, report, troubles)
        _audit(scene, load, report, troubles)
        return report


class Plan:
    """How long, and which faults."""

    def __init__(self, part: Part, seed: int, seconds: float, kinds: tuple[str, ...]) -> None:
        self.seconds = seconds
        self.faults = drawn(seed, part, kinds or KINDS)


def _break(scene: NodesScene, load: Load, watch: Watch, report: PartReport, plan: Plan) -> Troubles:
    started = time.monotonic()
    troubles = Troubles()
    while time.monotonic() - started < plan.seconds:
        _attempt(scene, load, watch, report, troubles, next(plan.faults))
        for at, router in enumerate(scene.routers):
            if not router.running:
                report.violations.append(f"router {at} ended by itself: exit {router.exit_code}")
                say(report.violations[-1])
                router.start(wait=False)
    report.seconds = time.monotonic() - started
    return troubles


def _attempt(scene: NodesScene, load: Load, watch: Watch, report: PartReport, troubles: Troubles, draw: Drawn) -> None:
    begun = time.time()
    last = max((ended for _, ended in troubles.nodes), default=0.0)
    try:
        fault = strike(scene, load, watch, draw, last)
    except (BrokerError, OSError, httpx.HTTPError) as error:
        troubles.nodes.append((begun, time.time()))
        report.violations.append(f"{draw.kind} could not be done: {str(error)[:300]!r}")
        say(report.violations[-1])
        _restart(scene, watch)
        return
    if is_of_nodes(fault):
        troubles.nodes.append((fault.begun_s, fault.ended_s + (fault.whole or 0.0)))
    elif draw.kind == ROUTER_KILLED:
        troubles.kills.append(fault.begun_s)
    report.faults.append(fault)
    say(f"{report.part} {fault}")


def _restart(scene: NodesScene, watch: Watch) -> None:
    for at, node in enumerate(scene.nodes):
        with suppress(BrokerError):
            node.start()
            watch.down.discard(at)


def _heed_partitions(scene: NodesScene, report: PartReport, troubles: Troubles) -> None:
    """Seconds in which two nodes that ran did not hear each other are not the router's, nor the letters lost then."""
    silent = silences([node.log for node in scene.nodes], [name_of(node) for node in scene.nodes])
    troubles.nodes += [silence.trouble for silence in silent]
    of_nodes = [fault for fault in report.faults if is_of_nodes(fault)]
    report.partitions = partitions(
        silent, [Held(fault.drawn.members, fault.begun_s, fault.ended_s) for fault in of_nodes]
    )
    report.stands = [beside(stand, report.partitions) for stand in report.stands]
    for partition in report.partitions:
        say(f"{report.part} {partition}")


def _audit(scene: NodesScene, load: Load, report: PartReport, troubles: Troubles) -> None:
    ours, theirs = load.main.books, load.control.books
    for vhost, books in ((VHOST, ours), (CONTROL, theirs)):
        for queue, body in scene.leftovers(vhost):
            books.find(queue, body)
    lost = ours.lost()
    last_kinds, troubles.gaps = scene.told() if lost else ({}, [])
    blamed: Counter[tuple[str, str]] = Counter()
    for letter in lost:
        who, why = attributed(letter, last_kinds.get(letter.number), troubles)
        blamed[letter.way.source, who] += 1
        report.arguments[f"{who}: {why}"] += 1
    (scene.folder / "lost.txt").write_text(
        "".join(f"{letter} {last_kinds.get(letter.number)}\n" for letter in lost), encoding="utf-8"
    )
    missed = Counter(letter.way for letter in theirs.lost())
    for way in WAYS:
        by = {who: many for (source, who), many in blamed.items() if source == way.source}
        report.rows.append(Row(way.source, ours.confirmed(way), by, theirs.confirmed(way), missed[way]))
    _numbers(report, ours)
    report.logged = {name: _lines(scene, words) for name, words in LOGGED.items()}


def _numbers(report: PartReport, books: Books) -> None:
    report.duplicates, report.in_doubt, report.refused = books.duplicates(), books.in_doubt(), books.refused
    for (_, place), many in books.places.items():
        report.places[place] = report.places.get(place, 0) + many
    if books.foreign:
        report.violations.append(f"{len(books.foreign)} bodies that nobody published: {books.foreign[:5]}")


def _lines(scene: NodesScene, words: tuple[str, ...]) -> int:
    return sum(all(word in line for word in words) for node in scene.nodes for line in node.log.splitlines())


def say(text: str) -> None:
    """For who looks on, and for build/chaos-cluster.log."""
    line = f"{time.strftime('%H:%M:%S')} {text}"
    print(line, flush=True)
    with (BUILD / "chaos-cluster.log").open("a", encoding="utf-8") as log:
        print(line, file=log)


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    given = _parser().parse_args(argv)
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # lost connections are the point
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1_000_000)
    BUILD.mkdir(exist_ok=True)
    (BUILD / "chaos-cluster.log").unlink(missing_ok=True)
    shutil.rmtree(BUILD / "chaos-cluster", ignore_errors=True)
    report = Report(__version__, seed, given.minutes, given.rate)
    parts = tuple(given.part) or PARTS
    say(f"seed {seed}, {given.minutes:g} minutes: {', '.join(map(str, parts))}")
    for part in parts:
        seconds = given.minutes * 60 / len(parts)
        with tempfile.TemporaryDirectory(prefix="dlx-router-chaos-") as folder:
            try:
                report.parts.append(run(part, seed, seconds, given.rate, tuple(given.kind), Path(folder)))
            except UNMADE as error:
                report.unmade.append(f"{part} could not be run: {str(error)[-500:]}")
                say(report.unmade[-1])
            finally:
                _keep(Path(folder), str(part).replace(":", "-"))
    if not report.parts:
        return 2
    _write(report, page=given.page)
    print(f"\n{markdown(report)}")
    return 1 if report.broken else 0


def _keep(folder: Path, name: str) -> None:
    place = BUILD / "chaos-cluster" / name
    place.mkdir(parents=True, exist_ok=True)
    for file in (*folder.glob("*.log"), *folder.glob("*.txt")):
        shutil.copy(file, place / file.name)


def _write(report: Report, *, page: bool) -> None:
    text = json.dumps(as_json(report), indent=1)
    (BUILD / "chaos-cluster.json").write_text(f"{text}\n", encoding="utf-8")
    (BUILD / "chaos-cluster.md").write_text(f"{markdown(report)}\n", encoding="utf-8")
    if page:
        PAGE.write_text(with_section(PAGE.read_text(encoding="utf-8"), NODES, markdown(report)), encoding="utf-8")


def _part(text: str) -> Part:
    known = {str(part): part for part in PARTS}
    if text not in known:
        message = f"not one of {', '.join(known)}"
        raise argparse.ArgumentTypeError(message)
    return known[text]


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Break a cluster of three nodes; account for every letter.")
    parser.add_argument("--minutes", type=float, default=30.0, help="under faults, all parts together (default 30)")
    parser.add_argument("--seed", type=int, default=None, help="of the faults; drawn and printed if not given")
    parser.add_argument("--rate", type=float, default=100.0, help="letters a second in each vhost (default 100)")
    parser.add_argument("--part", action="append", default=[], type=_part, help="VERSION:STRATEGY (default: all four)")
    parser.add_argument("--kind", action="append", default=[], choices=KINDS, help="only these, drawn")
    parser.add_argument("--no-page", dest="page", action="store_false", help="leave docs/reliability.md as it is")
    return parser


if __name__ == "__main__":
    sys.exit(main())
