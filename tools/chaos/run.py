"""Break everything around the router for some minutes, and account for every letter.

    make chaos MINUTES=30                       # writes docs/reliability.md and build/chaos.{json,log}
    make chaos MINUTES=2 ARGS="--seed 7 --version 4.0"

A steady load of letters takes five ways (dead at once; into two queues; retried; retried in vain) while faults are
drawn by a seeded chance: each kind once, shuffled, again and again. The first third of the time has one router, the
second two, the last three. The auditor is plain pika and shares no code with the router.

`--mutant NAME` runs a router that one of tools/mutants/run.py has spoiled, to see that the audit notices.

Exit: 0 all laws hold · 1 a law is broken · 2 the run could not be made.
"""

import argparse
import json
import logging
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Final, TextIO

import httpx
import pika

from tools.brokers import RELEASES, BrokerError
from tools.brokers.programs import Program, provide
from tools.chaos import leader_faults
from tools.chaos.drain import drain, revive
from tools.chaos.faults import GENTLE, KINDS, Arena
from tools.chaos.load import Load
from tools.chaos.page_sections import NODES, with_all_but
from tools.chaos.report import Report, as_json, markdown
from tools.chaos.schedule import Bag, strike
from tools.chaos.testbed import Scene, SceneError
from tools.mutants.run import spoiled
from tools.mutants.table import MUTANTS

ROOT: Final = Path(__file__).parents[2]
BUILD: Final = ROOT / "build"
PAGE: Final = ROOT / "docs" / "reliability.md"


@dataclass(frozen=True)
class Plan:
    """How long, how much, and by which chance. `kinds`: these in this order instead of the drawn ones."""

    version: str = "4.3"
    program: Program | None = None  # wins over `version`
    seconds: float = 1800.0
    seed: int = 1
    rate: float = 700.0
    replicas: tuple[int, ...] = (1, 2, 3)
    kinds: tuple[str, ...] = ()
    package: Path | None = None


def run(plan: Plan, folder: Path) -> Report:
    """A whole run: load, faults, drain, audit. `folder` is empty and keeps the logs."""
    with ExitStack() as stack:
        scene = Scene(plan.program or provide(plan.version), folder)
        stack.callback(scene.close)
        stack.enter_context(_inherited(scene.environment(plan.package)))
        scene.replicas(plan.replicas[0])
        load = Load(scene.url, plan.rate)
        load.start()
        stack.callback(load.close)
        report = Report(scene.node.version, _router_version(), plan.seed, plan.seconds / 60, plan.replicas)
        _break(plan, Arena(scene, load, random.Random(plan.seed)), report)
        drain(scene, load, report)
        report.verdict = load.books.judge(report.allowed)
        return report


class _inherited(ExitStack):  # noqa: N801 - reads as a sentence
    """Router processes that start while the block lasts inherit these variables."""

    def __init__(self, variables: dict[str, str]) -> None:
        super().__init__()
        for name, value in variables.items():
            before = os.environ.get(name)
            os.environ[name] = value
            self.callback(_restore, name, before)


def _restore(name: str, before: str | None) -> None:
    if before is None:
        del os.environ[name]
    else:
        os.environ[name] = before


def _break(plan: Plan, arena: Arena, report: Report) -> None:
    """One stage for each number of replicas, equally long; or the given kinds, once."""
    started = time.monotonic()
    bag, given = Bag(arena.chance), list(plan.kinds)
    with (arena.scene.folder / "chaos.log").open("w", encoding="utf-8") as log:
        for at, replicas in enumerate(plan.replicas, 1):
            arena.scene.replicas(replicas)
            window = arena.scene.window()
            ends = started + plan.seconds * at / len(plan.replicas)
            while given or (not plan.kinds and time.monotonic() < ends):
                _attempt(given.pop(0) if given else bag.draw(replicas), arena, report, window, started, log)
    report.seconds = time.monotonic() - started


def _attempt(kind: str, arena: Arena, report: Report, window: int, started_s: float, log: TextIO) -> None:
    revive(arena.scene, report)
    try:
        fault = strike(kind, arena, started_s)
    except (BrokerError, httpx.HTTPError, pika.exceptions.AMQPError) as error:
        report.violations.append(outcome := f"{kind} could not be done: {str(error)[:200]!r}")
    else:
        report.faults.append(fault)
        report.violations += arena.violations
        arena.violations.clear()
        report.allowed += 0 if kind in GENTLE else window
        outcome = str(fault)
    print(outcome, flush=True)
    print(outcome, file=log, flush=True)


def _router_version() -> str:
    text = (ROOT / "dlx_router" / "__init__.py").read_text(encoding="utf-8")
    return next((line.split('"')[1] for line in text.splitlines() if line.startswith("__version__")), "?")


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    given = _parser().parse_args(argv)
    logging.getLogger("pika").setLevel(logging.CRITICAL)  # lost connections are the point
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1_000_000)
    print(f"seed {seed}", flush=True)
    try:
        with ExitStack() as stack:
            package = stack.enter_context(spoiled(given.mutant)) if given.mutant else given.package
            folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="dlx-router-chaos-")))
            replicas = tuple(map(int, given.replicas.split(",")))
            plan = Plan(
                version=given.version,
                seconds=given.minutes * 60,
                seed=seed,
                rate=given.rate,
                replicas=replicas,
                kinds=tuple(given.kind),
                package=package,
            )
            report = run(plan, folder)
            print("\n".join(report.broken) or "every law holds", flush=True)
            cluster = _on_a_cluster(plan, given.cluster, folder) if given.cluster else None
            _write(report, cluster, folder, page=given.page and not given.mutant)
    except (BrokerError, SceneError) as error:
        print(f"seed {seed}: {error}", file=sys.stderr)
        return 2
    print(f"\n{markdown(report, cluster)}")
    return 1 if report.broken or (cluster and cluster.broken) else 0


def _on_a_cluster(plan: Plan, minutes: float, folder: Path) -> Report:
    place = folder / "cluster"
    place.mkdir()
    return leader_faults.run(plan.program or provide(plan.version), place, plan.seed, minutes * 60, _router_version())


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description="Break everything around the router; account for every letter.")
    parser.add_argument("--minutes", type=float, default=30.0, help="under faults (default 30)")
    parser.add_argument("--version", choices=list(RELEASES), default="4.3", help="of RabbitMQ (default 4.3)")
    parser.add_argument("--seed", type=int, default=None, help="of the faults; drawn and printed if not given")
    parser.add_argument("--rate", type=float, default=700.0, help="letters a second (default 700)")
    parser.add_argument("--replicas", default="1,2,3", help="of the router, one stage each (default 1,2,3)")
    parser.add_argument("--kind", action="append", default=[], choices=list(KINDS), help="only these, in this order")
    parser.add_argument("--mutant", choices=[mutant.name for mutant in MUTANTS], help="spoil the router in this way")
    parser.add_argument("--cluster", type=float, default=0.0, metavar="MINUTES", help="then so long on three nodes")
    parser.add_argument("--package", type=Path, metavar="DIR", help="run the dlx_router in this folder instead")
    parser.add_argument("--no-page", dest="page", action="store_false", help="leave docs/reliability.md as it is")
    return parser


def _write(report: Report, cluster: Report | None, folder: Path, *, page: bool) -> None:
    BUILD.mkdir(exist_ok=True)
    document = as_json(report) | ({"cluster": as_json(cluster)} if cluster else {})
    (BUILD / "chaos.json").write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    for log in sorted(folder.rglob("*.log")):
        stem = "-".join(log.relative_to(folder).parts)
        name = stem if stem.startswith("chaos") else f"chaos-{stem}"
        (BUILD / name).write_text(log.read_text(encoding="utf-8", errors="replace"), encoding="utf-8")
    if page:
        now = PAGE.read_text(encoding="utf-8")
        PAGE.write_text(with_all_but(now, NODES, markdown(report, cluster)), encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
