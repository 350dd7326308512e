"""Kill the router with SIGKILL in the middle of its work, again and again, and audit every letter afterwards.

    python -m tools.chaos.kills.run --letters 100000 --kills 5 --version 4.3 --seed 1

The auditor is a plain client (pika) that shares no code with the router. It fails messages in three ways, so that each
body has one place where it may be in the end:

    expired   dies of its TTL; the policy dead-letters it             → queue `audit.dead`
    broken    rejected at each delivery; after two attempts it is dead → queue `DLQ.audit.broken`
    flaky     rejected at its first delivery, consumed at its second  → the consumer

The router is killed at seeded moments: when the inbox has shrunk to seeded depths, never below a tenth of the letters,
and only while at least a hundredth of them waits in rungs. Then: nothing lost; each body in its place; more copies than
one only for what was in flight at a kill (the prefetch of all consumers, as the broker says it); one letter id a body.

Exit: 0 all laws hold · 1 a law is broken · 2 the audit itself could not be made.
"""

import argparse
import random
import sys
import tempfile
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from tools.brokers import RELEASES, BrokerError, running
from tools.chaos.kills.testbed import (
    CONSUMED,
    INBOX,
    LOOK_S,
    NO_LETTERS,
    PATIENCE_S,
    PLACES,
    POLICIES,
    RESTING,
    AuditError,
    Copies,
    Process,
    Scene,
    patiently,
)


@dataclass(frozen=True)
class Plan:
    """How much, how often, and by which chance. `least`: the share that must be in the inbox at each kill."""

    letters: int = 100_000
    kills: int = 5
    seed: int = 1
    wait_ms: int = 10_000
    least: float = 0.1

    @property
    def least_inbox(self) -> int:
        """Letters that must be in the inbox at each kill."""
        return int(self.letters * self.least)

    @property
    def least_waiting(self) -> int:
        """Letters that must be waiting in rungs at each kill."""
        return self.letters // 100

    def depths(self) -> list[int]:
        """The inbox depths at which the router is killed, deepest first; the same for the same seed."""
        chance = random.Random(self.seed)
        low, high = self.letters * 0.12, self.letters * 0.85
        step = (high - low) / self.kills
        return [int(high - step * (at + chance.random())) for at in range(self.kills)]


@dataclass(frozen=True)
class Kill:
    """What was where when the router was killed."""

    inbox: int
    waiting: int


@dataclass
class Report:
    """What the auditor saw. `window`: the most that a router can have in flight. `violations`: the laws that broke."""

    plan: Plan
    version: str
    window: int = 0
    kills: list[Kill] = field(default_factory=list)
    rows: list[tuple[str, str, int, int, int]] = field(default_factory=list)  # way, place, letters, found, copies
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        head = f"{self.plan.letters} letters, {len(self.kills)} kills, seed {self.plan.seed}, RabbitMQ {self.version}"
        lines = [f"{head}, {self.seconds:.0f} s; at most {self.window} in flight", ""]
        lines += [f"{'kill':>4}  {'in the inbox':>12}  {'in rungs':>8}"]
        lines += [f"{at:>4}  {kill.inbox:>12}  {kill.waiting:>8}" for at, kill in enumerate(self.kills, 1)]
        lines += ["", f"{'way':8}  {'place':16}  {'letters':>7}  {'found':>7}  {'lost':>5}  {'extra copies':>12}"]
        for way, place, letters, arrived, copies in self.rows:
            lines.append(
                f"{way:8}  {place:16}  {letters:>7}  {arrived:>7}  {letters - arrived:>5}  {copies - arrived:>12}"
            )
        return "\n".join([*lines, "", *(self.violations or ["every law holds"])])


# -- the audit ------------------------------------------------------------------------------------------------------


def audit(amqp_url: str, management_url: str, plan: Plan, log: Callable[[str], object] = lambda _line: None) -> Report:
    """Run the plan in the URL's vhost, which should be empty. AuditError where it could not be carried out."""
    with tempfile.TemporaryDirectory(prefix="dlx-router-audit-") as name, _scene(amqp_url, management_url) as scene:
        folder = Path(name)
        (folder / "policies").mkdir()
        (folder / "policies" / "audit.yaml").write_text(POLICIES.format(wait_ms=plan.wait_ms), encoding="utf-8")
        router = Process(amqp_url, management_url, folder)
        started = time.monotonic()
        try:
            report = Report(plan, scene.version)
            bodies = _fill(scene, router, plan, log)
            for depth in plan.depths():
                report.kills.append(_kill(scene, router, plan, depth))
                log(f"killed with {report.kills[-1].inbox} in the inbox and {report.kills[-1].waiting} in rungs")
            router.start()
            report.window = scene.window()
            _settle(scene, plan, log)
            if (code := router.stop()) != 0:
                report.violations.append(f"the router did not drain: exit {code}")
        finally:
            router.kill()
        _judge(scene, bodies, report)
        report.seconds = time.monotonic() - started
        return report


@contextmanager
def _scene(amqp_url: str, management_url: str) -> Iterator[Scene]:
    scene = Scene(amqp_url, management_url)
    try:
        yield scene
    finally:
        scene.close()


def _fill(scene: Scene, router: Process, plan: Plan, log: Callable[[str], object]) -> dict[str, list[str]]:
    """Every body has died once and lies in the inbox, and no router runs. → the bodies of each way."""
    router.start()  # declares what it owns
    router.stop()
    scene.declare()
    scene.start_consumers()
    bodies = scene.publish(plan.letters)
    log(f"{plan.letters} letters are in the inbox")
    return bodies


def _kill(scene: Scene, router: Process, plan: Plan, depth: int) -> Kill:
    """Start the router, kill it when the inbox has shrunk to `depth` and enough letters wait in rungs."""
    router.start()

    def now() -> bool:
        return scene.depth(INBOX) <= depth and scene.waiting() >= plan.least_waiting

    patiently(
        now, lambda: f"{scene.depth(INBOX)} in the inbox, {scene.waiting()} in rungs, never {depth}", every=LOOK_S
    )
    router.kill()
    inbox, waiting = scene.depth(INBOX), scene.waiting()
    if inbox < plan.least_inbox or waiting < plan.least_waiting:
        raise AuditError(f"killed at a wrong moment: {inbox} in the inbox, {waiting} in rungs; try --wait or --letters")
    return Kill(inbox, waiting)


def _settle(scene: Scene, plan: Plan, log: Callable[[str], object]) -> None:
    """Wait until all bodies may be in their places, and nothing has moved for a while."""
    seen: list[tuple[int, int, int]] = []

    def at_rest() -> bool:
        scene.check()
        seen.append(scene.places())
        last, consumed, way = seen[-1]
        return last + consumed >= plan.letters and not way and len(seen) > RESTING and len({*seen[-RESTING:]}) == 1

    try:
        patiently(at_rest, "", within=PATIENCE_S + plan.letters / 500, every=0.25)
    except AuditError:
        log("something never came to rest; judged as it is")


def _judge(scene: Scene, bodies: dict[str, list[str]], report: Report) -> None:
    """Look into every queue, and hold what is there against the laws."""
    copies: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for body, letter in scene.consumed:
        copies[body].append((CONSUMED, letter))
    for queue in scene.queues():
        if queue not in NO_LETTERS:
            for body, letter in scene.empty(queue):
                copies[body].append((queue, letter))
    report.violations += [*_places(bodies, copies, report), *_ids(copies), *_copies(copies, report)]
    if foreign := copies.keys() - {body for of_way in bodies.values() for body in of_way}:
        report.violations.append(f"{len(foreign)} bodies that nobody published: {sorted(foreign)[:5]}")


def _places(bodies: dict[str, list[str]], copies: Copies, report: Report) -> Iterator[str]:
    """Nothing is lost, and each copy is where its way ends."""
    for way, place in PLACES.items():
        there = [copies[body] for body in bodies[way] if body in copies]
        report.rows.append((way, place, len(bodies[way]), len(there), sum(map(len, there))))
        if lost := [body for body in bodies[way] if body not in copies]:
            yield f"{len(lost)} {way} bodies are lost: {', '.join(lost[:5])} …"
        strayed = Counter(where for group in there for where, _ in group if where != place)
        for where, many in strayed.items():
            yield f"{many} copies of {way} bodies are in {where}, and should be in {place}"


def _ids(copies: Copies) -> Iterator[str]:
    """All copies of a body have one letter id, and no other body has it."""
    owners: dict[str, str] = {}
    for body, group in copies.items():
        ids = {letter for _, letter in group}
        if len(ids) != 1 or "" in ids:
            yield f"body {body} has {len(ids)} letter ids: {sorted(ids)}"
        for letter in ids:
            if owners.setdefault(letter, body) != body:
                yield f"letter id {letter!r} is on the bodies {owners[letter]} and {body}"


def _copies(copies: Copies, report: Report) -> Iterator[str]:
    """More copies than one only of what could be in flight when the router was killed."""
    extra = sum(map(len, copies.values())) - len(copies)
    if extra > (allowed := report.window * len(report.kills)):
        yield f"{extra} extra copies, and no more than {allowed} could be in flight at the kills"


def main(argv: list[str] | None = None) -> int:
    """0 all laws hold · 1 a law is broken · 2 the audit could not be made."""
    parser = argparse.ArgumentParser(
        description="Kill the router with SIGKILL in the middle of its work; audit every letter."
    )
    parser.add_argument("--letters", type=int, default=100_000, help="how many messages fail (default 100000)")
    parser.add_argument("--kills", type=int, default=5, help="how often the router is killed (default 5)")
    parser.add_argument("--version", choices=list(RELEASES), default="4.3", help="of RabbitMQ (default 4.3)")
    parser.add_argument("--seed", type=int, default=None, help="of the moments; chosen and printed if not given")
    parser.add_argument("--wait", type=int, default=10_000, metavar="MS", help="redelivery-delay (default 10000)")
    given = parser.parse_args(argv)
    seed = given.seed if given.seed is not None else random.SystemRandom().randrange(1_000_000)
    plan = Plan(given.letters, given.kills, seed, given.wait)
    print(f"seed {seed}", flush=True)
    try:
        with running(given.version) as node:
            report = audit(node.amqp_url, node.management_url, plan, lambda line: print(line, flush=True))
    except (AuditError, BrokerError) as error:
        print(f"seed {seed}: {error}", file=sys.stderr)
        return 2
    print(f"\n{report}")
    return 1 if report.violations else 0


if __name__ == "__main__":
    sys.exit(main())
