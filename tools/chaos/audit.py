"""Kill the router with SIGKILL in the middle of its work, again and again; account for every letter: `make audit`.

    python -m tools.chaos.audit --letters 100000 --kills 5 --version 4.3 --seed 1

The auditor is a plain client (pika) that shares no code with the router. Messages fail in three ways, so that each body
has one place where it must be in the end:

    expired   dies of its TTL; the policy dead-letters it              → queue `audit.dead`
    broken    rejected at each delivery; after two attempts it is dead → queue `DLQ.audit.broken`
    flaky     rejected at its first delivery, consumed at its second   → the consumer

The router is killed at seeded moments: when the inbox has shrunk to seeded depths, never below a tenth of the letters,
and only while at least a hundredth of them waits in rungs. Then nothing may be lost, each body is in its place, no more
copies exist than were in flight at the kills (the prefetch of all consumers), and a body has one letter id.

Exit: 0 all laws hold · 1 a law is broken · 2 the audit could not be made.
"""

import argparse
import random
import sys
import tempfile
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, Final, TypeVar

import httpx
import pika

from tests.support.router import Router, RouterEndedError
from tools.brokers import RELEASES, BrokerError, running
from tools.polling import ready, until

T = TypeVar("T")
POLICIES: Final = """
version: 1
policies:
  - name: audit-expired
    queue: audit.expired
    definition: {{dead-letter-exchange: audit.dead}}
  - name: audit-waits
    match: "audit.#"
    definition: {{max-delivery-attempts: 2, redelivery-delay: {wait_ms}ms}}
"""
INBOX, DEAD, CONSUMED = "dlx-router.inbox", "audit.dead", "the consumer"
PLACES: Final = {"expired": DEAD, "broken": "DLQ.audit.broken", "flaky": CONSUMED}
WAYS: Final = ("expired",) * 6 + ("broken",) * 2 + ("flaky",) * 2
ATTENDED: Final = {INBOX, "dlx-router.release"}
NO_LETTERS: Final = {"dlx-router.state", "dlx-router.journal"}
SLICE: Final = 500
RESTING: Final = 8  # looks
PATIENCE_S: Final = 180.0
READY_S: Final = 180.0

Copies = dict[str, list[tuple[str, str]]]  # body → (place, letter id) of each copy


class AuditError(Exception):
    """The audit could not be made; says why."""


@dataclass(frozen=True)
class Plan:
    """How much, how often, at which moments. `least`: the share that must be in the inbox at each kill."""

    letters: int = 100_000
    kills: int = 5
    seed: int = 1
    wait_ms: int = 10_000
    least: float = 0.1

    def depths(self) -> list[int]:
        """Return the depths of the inbox at the kills, deepest first; the same for the same seed."""
        chance = random.Random(self.seed)
        low, high = self.letters * 0.12, self.letters * 0.85
        step = (high - low) / self.kills
        return [int(high - step * (at + chance.random())) for at in range(self.kills)]


@dataclass
class Report:
    """What the auditor saw. `window`: the most that a router can have in flight; `kills`: depths of inbox and rungs."""

    plan: Plan
    version: str
    window: int = 0
    kills: list[tuple[int, int]] = field(default_factory=list)
    rows: list[tuple[str, str, int, int, int]] = field(default_factory=list)  # way, place, letters, found, copies
    violations: list[str] = field(default_factory=list)
    seconds: float = 0.0

    def __str__(self) -> str:
        head = f"{self.plan.letters} letters, {len(self.kills)} kills, seed {self.plan.seed}, RabbitMQ {self.version}"
        lines = [f"{head}, {self.seconds:.0f} s; at most {self.window} in flight"]
        lines += [f"killed with {inbox} in the inbox, {waiting} in rungs" for inbox, waiting in self.kills]
        for way, place, letters, found, copies in self.rows:
            counts = f"{letters} letters, lost {letters - found}, extra copies {copies - found}"
            lines.append(f"{way:8}  {place:16}  {counts}")
        return "\n".join([*lines, "", *(self.violations or ["every law holds"])])


class Scene:
    """A vhost: queues, the flaky and the broken consumer, and what they saw."""

    def __init__(self, amqp_url: str, management_url: str) -> None:
        self._parameters = pika.URLParameters(amqp_url)
        self._parameters.heartbeat = 0
        self._vhost = httpx.URL(amqp_url).raw_path.decode().removeprefix("/")
        self._api = httpx.Client(base_url=f"{management_url}/api/", timeout=60, trust_env=False)
        self._link = pika.BlockingConnection(self._parameters)
        self.consumed: list[tuple[str, str]] = []  # (body, letter id)
        self._stopping = threading.Event()
        self._threads: list[threading.Thread] = []
        self._failure: BaseException | None = None

    def api(self, path: str) -> Any:  # noqa: ANN401 - JSON
        """Return the answer to a GET of the management API."""
        return self._api.get(path).raise_for_status().json()

    def fill(self, letters: int) -> dict[str, list[str]]:
        """Declare, consume, publish; return the bodies of each way once all have died and lie in the inbox."""
        channel, dies = self._link.channel(), {"x-dead-letter-exchange": INBOX}
        channel.queue_declare("audit.expired", durable=True, arguments={**dies, "x-message-ttl": 0})
        channel.queue_declare(DEAD, durable=True, arguments={"x-queue-type": "quorum"})
        channel.exchange_declare(DEAD, "fanout", durable=True)
        channel.queue_bind(DEAD, DEAD)
        for queue in ("audit.broken", "audit.flaky"):
            channel.queue_declare(queue, durable=True, arguments=dies)
            self._threads.append(threading.Thread(target=self._consume, args=(queue,), daemon=True))
            self._threads[-1].start()
        bodies: dict[str, list[str]] = {way: [] for way in PLACES}
        properties = pika.BasicProperties(delivery_mode=2, headers={"tenant": "audit", "number": 7})
        for number in range(letters):
            way = WAYS[number % len(WAYS)]
            bodies[way].append(f"{way}-{number}")
            channel.basic_publish("", f"audit.{way}", bodies[way][-1], properties)
            if number % SLICE == SLICE - 1 or number == letters - 1:  # else the ways would not be mixed in the inbox
                _until(partial(self._holds, number + 1), "letters do not reach the inbox")
        return bodies

    def _holds(self, least: int) -> bool:
        return self.depth(INBOX) >= least

    def depth(self, queue: str) -> int:
        """Return the ready messages; 0 if there is no such queue."""
        return ready(self._link, queue)

    def queues(self) -> list[str]:
        """Return the names of all queues of the vhost that hold letters."""
        names = {queue["name"] for queue in self.api(f"queues/{self._vhost}?columns=name")}
        return sorted(names - NO_LETTERS)

    def waiting(self) -> int:
        """Return how many letters wait in rungs."""
        return sum(self.depth(queue) for queue in self.queues() if ".delay." in queue)

    def places(self) -> tuple[int, int, int]:
        """Return how many copies lie in their last queues, were consumed, and are elsewhere."""
        if self._failure is not None:
            raise AuditError(f"a consumer of the audit failed: {self._failure!r}")
        depths = {queue: self.depth(queue) for queue in self.queues()}
        last = sum(depths.pop(queue, 0) for queue in PLACES.values())
        return last, len(self.consumed), sum(depths.values())

    def window(self) -> int:
        """Return what the router's consumers together may hold unacknowledged; waits for the statistics."""

        def look() -> int:
            known = {one["queue"]["name"]: one["prefetch_count"] for one in self.api(f"consumers/{self._vhost}")}
            return sum(known[queue] for queue in ATTENDED) if known.keys() >= ATTENDED else 0

        return int(_until(look, "the router's consumers are not in the management API"))

    def _consume(self, queue: str) -> None:
        try:
            with pika.BlockingConnection(self._parameters) as link:
                channel = link.channel()
                channel.basic_qos(prefetch_count=500)
                for method, properties, body in channel.consume(queue, inactivity_timeout=0.1):
                    if self._stopping.is_set():
                        break
                    if method is None:
                        continue
                    headers = properties.headers or {}
                    if queue == "audit.flaky" and "x-death" in headers:
                        self.consumed.append((body.decode(), headers.get("dlx-router-id", "")))
                        channel.basic_ack(method.delivery_tag)
                    else:
                        channel.basic_reject(method.delivery_tag, requeue=False)
        except BaseException as error:
            self._failure = error
            raise

    def empty(self, queue: str) -> Iterator[tuple[str, str]]:
        """Yield body and letter id of all that lies in a queue."""
        if not self.depth(queue):
            return
        channel = self._link.channel()
        channel.basic_qos(prefetch_count=1000)
        for method, properties, body in channel.consume(queue, inactivity_timeout=2):
            if method is None:
                break
            yield body.decode(), (properties.headers or {}).get("dlx-router-id", "")
            channel.basic_ack(method.delivery_tag)
        channel.cancel()
        channel.close()

    def close(self) -> None:
        """End the consumers, close the connections."""
        self._stopping.set()
        for thread in self._threads:
            thread.join(10)
        if self._link.is_open:
            self._link.close()
        self._api.close()


def audit(amqp_url: str, management_url: str, plan: Plan) -> Report:
    """Run the plan in an empty vhost. AuditError if it could not be carried out."""
    with (
        tempfile.TemporaryDirectory(prefix="dlx-router-audit-") as name,
        closing(Scene(amqp_url, management_url)) as scene,
    ):
        folder, began = Path(name), time.monotonic()
        (folder / "policies").mkdir()
        (folder / "policies" / "audit.yaml").write_text(POLICIES.format(wait_ms=plan.wait_ms), encoding="utf-8")
        policies, log = folder / "policies", folder / "router.log"
        router = Router(amqp_url=amqp_url, management_url=management_url, policies=policies, log=log)
        with closing(router):
            report = Report(plan, str(scene.api("overview")["rabbitmq_version"]))
            router.start(within=READY_S)  # it declares its inbox
            router.stop()
            bodies = scene.fill(plan.letters)
            for depth in plan.depths():
                router.start(within=READY_S)
                report.kills.append(_kill(scene, router, plan, depth))
            router.start(within=READY_S)
            report.window = scene.window()
            _settle(scene, plan)
            if (code := router.stop()) != 0:
                report.violations.append(f"the router did not drain: exit {code}")
        _judge(scene, bodies, report)
        report.seconds = time.monotonic() - began
        return report


def _kill(scene: Scene, router: Router, plan: Plan, depth: int) -> tuple[int, int]:
    """Kill the router when the inbox has shrunk to `depth` and enough letters wait; return what is where then."""
    least = plan.letters // 100
    _until(lambda: scene.depth(INBOX) <= depth and scene.waiting() >= least, f"the inbox never held {depth}", 0.01)
    router.kill()
    inbox, waiting = scene.depth(INBOX), scene.waiting()
    if inbox < plan.letters * plan.least or waiting < least:
        raise AuditError(f"killed at a wrong moment: {inbox} in the inbox, {waiting} in rungs; try --wait or --letters")
    return inbox, waiting


def _settle(scene: Scene, plan: Plan) -> None:
    """Wait until all bodies may be in their places and nothing has moved for two seconds; else judge it as it is."""
    seen: list[tuple[int, int, int]] = []
    deadline = time.monotonic() + PATIENCE_S + plan.letters / 500
    while time.monotonic() < deadline:
        seen.append(scene.places())
        last, consumed, elsewhere = seen[-1]
        if last + consumed >= plan.letters and not elsewhere and len({*seen[-RESTING:]}) == 1 and len(seen) > RESTING:
            return
        time.sleep(0.25)


def _judge(scene: Scene, bodies: dict[str, list[str]], report: Report) -> None:
    """Hold what lies in every queue against the laws."""
    copies: defaultdict[str, list[tuple[str, str]]] = defaultdict(list)
    for body, letter in scene.consumed:
        copies[body].append((CONSUMED, letter))
    for queue in scene.queues():
        for body, letter in scene.empty(queue):
            copies[body].append((queue, letter))
    report.violations += [*_places(bodies, copies, report), *_ids(copies)]
    extra, allowed = sum(map(len, copies.values())) - len(copies), report.window * len(report.kills)
    if extra > allowed:
        report.violations.append(f"{extra} extra copies, and no more than {allowed} could be in flight at the kills")
    if foreign := copies.keys() - {body for group in bodies.values() for body in group}:
        report.violations.append(f"{len(foreign)} bodies that were not published: {sorted(foreign)[:5]}")


def _places(bodies: dict[str, list[str]], copies: Copies, report: Report) -> Iterator[str]:
    """Nothing is lost, and each copy is where its way ends."""
    for way, place in PLACES.items():
        found = [copies[body] for body in bodies[way] if body in copies]
        report.rows.append((way, place, len(bodies[way]), len(found), sum(map(len, found))))
        if lost := [body for body in bodies[way] if body not in copies]:
            yield f"{len(lost)} {way} bodies are lost: {', '.join(lost[:5])} …"
        strayed = Counter(where for group in found for where, _ in group if where != place)
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


def _until(look: Callable[[], T], failure: str, every_s: float = 0.05) -> T:
    return until(look, lambda: AuditError(failure), within_s=PATIENCE_S, every_s=every_s)


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--letters", type=int, default=100_000, help="how many messages fail (100000)")
    parser.add_argument("--kills", type=int, default=5, help="how often the router is killed (5)")
    parser.add_argument("--version", choices=list(RELEASES), default="4.3", help="of RabbitMQ (4.3)")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(1_000_000), help="of the moments")
    parser.add_argument("--wait", type=int, default=10_000, metavar="MS", help="redelivery-delay (10000)")
    given = parser.parse_args(argv)
    print(f"seed {given.seed}", flush=True)
    try:
        with running(given.version) as node:
            plan = Plan(given.letters, given.kills, given.seed, given.wait)
            report = audit(node.amqp_url, node.management_url, plan)
    except (AuditError, BrokerError, RouterEndedError, AssertionError) as error:
        print(error, file=sys.stderr)
        return 2
    print(report)
    return int(bool(report.violations))


if __name__ == "__main__":
    sys.exit(main())
