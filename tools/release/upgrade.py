"""Upgrade the broker under waiting letters: `make upgrade`, in the two ways that there are.

Letters wait in several rungs, others lie dead in their queue and in parking.

In place (4.0 → 4.3): all feature flags are enabled, the broker is stopped, the next version starts on the same data
with the same name and ports. The router is not touched: it finds the broker again.

Beside (`--beside`, 3.10 → 4.3): a new broker takes the old one's definitions, the router is stopped, shovels carry
every letter over, those out of the rungs to `dlx-router.release`, and the router starts at the new broker with the same
key. (3.10 cannot become 4.x in place: RabbitMQ asks for 3.13 between, which is not among the versions that we have.)

Then every letter must be where it belongs, and a new one must go through.

The auditor is plain pika. Exit: 0 nothing lost · 1 something is, or a letter is stuck · 2 the run could not be made.
"""

import argparse
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Final, Protocol

from tests.support.bulk import INBOX, PARKING, pour
from tests.support.client import Client
from tests.support.router import Router, RouterEndedError
from tools.brokers import RELEASES, BrokerError, Node
from tools.brokers.programs import provide
from tools.release import second_broker
from tools.release.history import HistoryError

RUNG: Final = "dlx-router.delay."
WORK, DOOMED, HOMELESS = "up.work", "up.doomed", "up.homeless"
PLACES: Final = {WORK: WORK, DOOMED: f"DLQ.{DOOMED}", HOMELESS: PARKING}
POLICIES: Final = """
version: 1
policies:
  - name: waits
    queue: up.work
    definition: {max-delivery-attempts: 2, redelivery-delay: 40s, redelivery-collision-avoidance-factor: 0.5}
  - {name: doomed, queue: up.doomed, definition: {max-delivery-attempts: 1}}
"""
PATIENCE_S: Final = 180.0
LOOK_S: Final = 0.1


class UpgradeError(Exception):
    """The run could not be made; says why."""


@dataclass
class Upgrade:
    """One run. `found`: queue of failure → copies of each body in the place where it belongs."""

    before: str
    after: str
    letters: int
    rungs: dict[str, int] = field(default_factory=dict)
    away_s: float = 0.0
    back_s: float = 0.0
    found: dict[str, Counter[bytes]] = field(default_factory=dict)

    def expected(self) -> Iterator[tuple[str, set[bytes]]]:
        """Queue of failure → bodies."""
        for queue in PLACES:
            yield queue, {f"{queue} {number}".encode() for number in range(self.count(queue))}

    def count(self, queue: str) -> int:
        """How many letters die there."""
        return self.letters if queue == WORK else self.letters // 5

    @property
    def lost(self) -> int:
        """Letters that are not in their place."""
        return sum(len(bodies - self.found[queue].keys()) for queue, bodies in self.expected())

    @property
    def copies(self) -> int:
        """Copies beyond the first."""
        return sum(bodies.total() - len(bodies) for bodies in self.found.values())

    def __str__(self) -> str:
        letters = sum(len(bodies) for _, bodies in self.expected())
        waited = ", ".join(f"{count} in {name.removeprefix(RUNG)} ms" for name, count in self.rungs.items())
        return (
            f"RabbitMQ {self.before} → {self.after}: {sum(self.rungs.values())} letters waited ({waited}); the change "
            f"took {self.away_s:.1f} s, the router ready {self.back_s:.1f} s later; "
            f"of {letters} letters lost {self.lost}, copies too many {self.copies}"
        )


def run(before: str, after: str, letters: int, folder: Path, *, beside: bool) -> Upgrade:
    """Everything, on private nodes that are gone afterwards."""
    furnish(folder, POLICIES)
    with ExitStack() as stack:
        node = Node(provide(before))
        stack.callback(node.close)
        router = _router(node, folder)
        stack.callback(router.close)
        router.start()
        done = Upgrade(node.version, "", letters)
        with Client(node.amqp_url) as client:
            _fail_all(client, done)
            _await_places(client, done)
            done.rungs = _rungs(node, client)
        if not done.rungs:
            raise UpgradeError("no letter waits: what is upgraded shows nothing")
        began = time.monotonic()
        if beside:
            router.stop()
            node = second_broker.moved(node, provide(after), stack)
            router = _router(node, folder)
            stack.callback(router.close)
            router.start(wait=False)
        else:
            _become(node, after)
        done.away_s, done.after = time.monotonic() - began, node.version
        _audit(node, router, done)
        return done


def furnish(folder: Path, policies: str) -> None:
    """What a router needs: a folder of policies, and the key."""
    (folder / "policies").mkdir()
    (folder / "policies" / "upgrade.yaml").write_text(policies, encoding="utf-8")
    (folder / "key").write_text(secrets.token_hex(32), encoding="utf-8")


class Judged(Protocol):
    """A run; as text, what came of it. `wrong`: what does not hold."""

    wrong: list[str]


def verdict(run: Callable[[], Judged]) -> int:
    """The exit code of a program that makes this run, and prints what came of it."""
    try:
        done = run()
    except (BrokerError, UpgradeError, RouterEndedError, HistoryError) as error:
        print(error, file=sys.stderr)
        return 2
    print(done)
    return int(bool(done.wrong))


def _router(node: Node, folder: Path) -> Router:
    """One on this node, not started."""
    env, log = {"PROVENANCE_KEY_FILE": str(folder / "key")}, folder / f"router-{node.version}.log"
    urls = node.amqp_url, node.management_url
    return Router(amqp_url=urls[0], management_url=urls[1], policies=folder / "policies", log=log, env=env)


def _audit(node: Node, router: Router, done: Upgrade) -> None:
    began = time.monotonic()
    try:
        router.await_ready(PATIENCE_S)
        done.back_s = time.monotonic() - began
        with Client(node.amqp_url) as client:
            done.found = {queue: collect(client, place, done.count(queue)) for queue, place in PLACES.items()}
            _one_more(client)
    except AssertionError as error:
        raise UpgradeError(f"{error}\n{router.output[-2000:]}") from error


def _fail_all(client: Client, done: Upgrade) -> None:
    """Every letter is rejected once."""
    for queue, bodies in done.expected():
        client.queue(queue, "quorum", dead_letter_exchange=INBOX)
        pour(client, queue, sorted(bodies))
        for _ in bodies:
            client.fail(queue)


def _await_places(client: Client, done: Upgrade) -> None:
    """The inbox is empty, and all that need not wait lie in their place."""
    for queue, place in PLACES.items():
        if queue != WORK:
            until(partial(_holds, client, place, done.count(queue)))
    until(lambda: client.depth(INBOX) == 0)


def _holds(client: Client, place: str, count: int) -> bool:
    return client.exists(place) and client.depth(place) >= count


def until(look: Callable[[], bool]) -> None:
    """Wait for it. Raises UpgradeError."""
    deadline = time.monotonic() + PATIENCE_S
    while not look():
        if time.monotonic() > deadline:
            raise UpgradeError(f"not within {PATIENCE_S:g} s")
        time.sleep(LOOK_S)


def _rungs(node: Node, client: Client) -> dict[str, int]:
    """What waits in which. Asked of the queues: rabbitmqctl knows counts of some seconds ago."""
    names = sorted(name for name in node.rabbitmqctl("list_queues", "name").splitlines() if name.startswith(RUNG))
    return {name: count for name in names if (count := client.depth(name))}


def _become(node: Node, version: str) -> None:
    """As the manual says: every feature flag first, then stop, then the next version on the same data."""
    node.rabbitmqctl("enable_feature_flag", "all")
    node.stop()
    node.become(provide(version))
    node.start()


def collect(client: Client, place: str, count: int) -> Counter[bytes]:
    """What lies there, or comes, until all are there and nothing more is."""
    bodies: Counter[bytes] = Counter()
    deadline = time.monotonic() + PATIENCE_S
    while time.monotonic() < deadline:
        message = client.get(place)
        if message is not None:
            bodies[message.ack().body] += 1
        elif len(bodies) >= count:
            break
        else:
            time.sleep(LOOK_S)
    return bodies


def _one_more(client: Client) -> None:
    """On the new broker letters go through as ever."""
    client.publish("new", key=DOOMED)
    client.fail(DOOMED)
    assert client.take(PLACES[DOOMED], within=30).body == b"new"


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--letters", type=int, default=1000, help="that wait (default 1000); a fifth more of two kinds")
    parser.add_argument("--beside", action="store_true", help="a new broker beside the old one, instead of in place")
    parser.add_argument("--from", dest="before", choices=list(RELEASES), help="(default 4.0; beside 3.10)")
    parser.add_argument("--to", dest="after", choices=list(RELEASES), default="4.3", help="(default 4.3)")
    given = parser.parse_args(argv)
    try:
        with tempfile.TemporaryDirectory(prefix="dlx-router-upgrade-") as folder:
            before = given.before or ("3.10" if given.beside else "4.0")
            done = run(before, given.after, given.letters, Path(folder), beside=given.beside)
    except (BrokerError, UpgradeError, second_broker.MoveError) as error:
        print(error, file=sys.stderr)
        return 2
    print(done)
    return int(done.lost > 0)


if __name__ == "__main__":
    sys.exit(main())
