"""Replace routers one by one while letters are on their way: a part of `make upgrade`.

Two routers serve one vhost beside one another; one writes the journal in format 1 (`--tree`: and is another version,
unpacked there), the other in format 2. They lead by turns: one is stopped, one is killed, and each comes back. Letters
die all the while, wait in rungs over every change, and a redrive that the first leader began is ended by those after
it.

Then every letter must be where it belongs; the journal must tell each of them, read by a reader that shares no code
with the package; and the index of the last leader must say the same.

The auditor is plain pika. Exit: 0 all of it holds · 1 something does not · 2 the run could not be made.
"""

import argparse
import itertools
import sys
import tempfile
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import httpx
import pika

from tests.journal import plain_reader
from tests.support.bulk import INBOX, PARKING
from tests.support.client import Client
from tests.support.router import Router
from tools.brokers import Node
from tools.brokers.programs import provide
from tools.polling import stream
from tools.release.upgrade import UpgradeError, furnish, until, verdict

WORK, DOOMED, HOMELESS, AGAIN = "up.work", "up.doomed", "up.homeless", "up.again"
PLACES: Final = {WORK: WORK, DOOMED: f"DLQ.{DOOMED}", HOMELESS: PARKING, AGAIN: AGAIN}
NEWEST: Final = {WORK: "released", DOOMED: "dead_lettered", HOMELESS: "parked", AGAIN: "redriven"}
STATE: Final = {WORK: "released", DOOMED: "dead", HOMELESS: "parked", AGAIN: "redriven"}
JOURNAL: Final = "dlx-router.journal"
ROUNDS: Final = 6
POLICIES: Final = """
version: 1
policies:
  - {name: waits, queue: up.work, definition: {max-delivery-attempts: 2, redelivery-delay: 4s}}
  - {name: doomed, queue: up.doomed, definition: {max-delivery-attempts: 1}}
  - {name: again, queue: up.again, definition: {max-delivery-attempts: 1}}
"""


@dataclass
class Rolling:
    """One run. `wrong`: what does not hold."""

    letters: int
    routers: list[tuple[str, Router]] = field(default_factory=list)
    died: dict[str, list[str]] = field(default_factory=dict)
    formats: Counter[int] = field(default_factory=Counter)
    copies: int = 0
    wrong: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        mix = ", ".join(f"{count} messages in format {name}" for name, count in sorted(self.formats.items()))
        letters = sum(map(len, self.died.values()))
        laws = "; ".join(self.wrong) or "nothing lost, all of it told, and the index says the same"
        return f"{len(self.routers)} routers by turns, {letters} letters, {mix}, copies too many {self.copies}: {laws}"


def run(version: str, letters: int, folder: Path, tree: Path | None) -> Rolling:
    """Everything, on a private node that is gone afterwards."""
    furnish(folder, POLICIES)
    with ExitStack() as stack:
        node = Node(provide(version))
        stack.callback(node.close)
        done = Rolling(letters)
        names = itertools.count(1)

        def router(*, is_other: bool) -> Router:
            instance = _router(node, folder, f"{next(names)}", tree if is_other else None)
            stack.callback(instance.close)
            done.routers.append(("other" if is_other else "this", instance))
            return instance.start(within=60)

        with Client(node.amqp_url) as client:
            _declare(client)
            _turns(client, done, router)
            _audit(node, client, done)
        return done


def _turns(client: Client, done: Rolling, router: Any) -> None:  # noqa: ANN401 - the function that starts one
    first = router(is_other=True)
    _fail(client, done, (*NEWEST,))
    until(lambda: client.exists(f"DLQ.{AGAIN}") and client.depth(f"DLQ.{AGAIN}") == len(done.died[AGAIN]))
    task = _redrive(first, f"DLQ.{AGAIN}", rate=max(1.0, done.letters / 60))
    second = router(is_other=False)
    _fail(client, done)
    first.stop()
    _fail(client, done)
    third = router(is_other=True)
    _fail(client, done)
    second.kill()
    _fail(client, done)
    last = router(is_other=False)
    _fail(client, done)
    third.stop()
    until(lambda: _task(last, task).get("state") == "done")


def _router(node: Node, folder: Path, name: str, tree: Path | None) -> Router:
    env = {"PROVENANCE_KEY_FILE": str(folder / "key"), "JOURNAL": "required", "HEARTBEAT": "2"}
    env |= {"INDEX_PATH": str(folder / f"index-{name}.sqlite")}
    given: dict[str, Any] = {} if tree is None else {"tree": tree}
    return Router(
        amqp_url=node.amqp_url,
        management_url=node.management_url,
        policies=folder / "policies",
        log=folder / f"router-{name}.log",
        env=env,
        **given,
    )


def _declare(client: Client) -> None:
    for queue in PLACES:
        client.queue(queue, "quorum", dead_letter_exchange=INBOX)


def _fail(client: Client, done: Rolling, queues: Sequence[str] = (WORK, DOOMED, HOMELESS)) -> None:
    """Letters of each queue die once. Those that came back to a queue stay there."""
    count = max(1, done.letters // ROUNDS)
    for queue in queues:
        known = done.died.setdefault(queue, [])
        names = [f"{queue} {number}" for number in range(len(known), len(known) + count)]
        for name in names:
            client.publish(name, key=queue, message_id=name)
        known += names
        wanted, kept = {*names}, []
        while wanted:
            message = client.await_message(queue, 60)
            name = message.body.decode()
            if name in wanted:
                wanted.discard(name)
                message.reject()
            else:
                kept.append(message)
        for message in kept:
            message.requeue()


def _redrive(router: Router, queue: str, rate: float) -> str:
    asked = {"vhost": "/", "queue": queue, "rate": rate}
    url = f"http://127.0.0.1:{router.port}/api/v1/tasks"
    ids: list[str] = []

    def begun() -> bool:
        answer = httpx.post(url, json=asked, timeout=30, trust_env=False)
        if answer.status_code == httpx.codes.CREATED:
            ids.append(str(answer.json()["id"]))
        return bool(ids)

    until(begun)
    return ids[0]


def _task(router: Router, name: str) -> dict[str, Any]:
    """As the router shows it; {} while it does not lead."""
    answer = httpx.get(f"http://127.0.0.1:{router.port}/api/v1/tasks/{name}", timeout=30, trust_env=False)
    return dict(answer.json()) if answer.status_code == httpx.codes.OK else {}


# -- what has to hold --------------------------------------------------------------------------------------------------


def _audit(node: Node, client: Client, done: Rolling) -> None:
    _, last = done.routers[-1]
    until(lambda: last.metric("in_flight") == 0 and client.depth(INBOX) == 0 and not _waiting(node))
    _compare(last, done)  # first: what is taken out of its queue is gone for the index too
    for queue, names in done.died.items():
        bodies = Counter(_bodies(client, PLACES[queue]))
        lost = [name for name in names if not bodies[name]]
        done.copies += bodies.total() - len(bodies)
        if lost:
            done.wrong.append(f"lost of {queue}: {len(lost)} of {len(names)}, {lost[0]} the first")
    newest = {(event["props"].get("message_id"), event["failed_queue"]): event["kind"] for event in _events(node, done)}
    for queue, names in done.died.items():
        kinds = Counter(newest.get((name, queue)) for name in names)
        if set(kinds) != {NEWEST[queue]}:
            done.wrong.append(f"the journal tells of {queue} {dict(kinds)}, not only {NEWEST[queue]}")


def _compare(router: Router, done: Rolling) -> None:
    """With the index of the last leader."""
    wanted = {queue: {STATE[queue]: len(names)} for queue, names in done.died.items()}

    def states() -> dict[str, dict[str, int]]:
        answer = httpx.get(f"http://127.0.0.1:{router.port}/api/v1/queues", timeout=30, trust_env=False)
        if answer.status_code != httpx.codes.OK:
            return {}  # it does not lead yet
        return {row["failed_queue"]: row["states"] for row in answer.json()["failed"]}

    try:
        until(lambda: states() == wanted)
    except UpgradeError:
        done.wrong.append(f"the index says {states()}, not {wanted}")


def _waiting(node: Node) -> int:
    """Letters in rungs."""
    lines = node.rabbitmqctl("list_queues", "name", "messages").splitlines()
    return sum(
        int(line.split("\t")[1]) for line in lines if line.startswith(("dlx-router.delay.", "dlx-router.release"))
    )


def _bodies(client: Client, queue: str) -> Iterator[str]:
    while (message := client.get(queue)) is not None:
        yield message.ack().body.decode()


def _events(node: Node, done: Rolling) -> Iterator[dict[str, Any]]:
    """Of letters, in the order of the journal."""
    connection = pika.BlockingConnection(pika.URLParameters(node.amqp_url))
    for properties, body in stream(connection, JOURNAL, idle_s=3.0):
        done.formats[properties.headers["v"]] += 1
        yield from (
            event for event in plain_reader.events(properties.content_encoding, body) if "failed_queue" in event
        )
    connection.close()


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--letters", type=int, default=600, help="that die at each of three queues (default 600)")
    parser.add_argument("--broker", default="4.3", help="version of RabbitMQ (default 4.3)")
    parser.add_argument("--tree", type=Path, help="the router of format 1 is the one whose source is here")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="dlx-router-rolling-") as folder:
        return verdict(lambda: run(given.broker, given.letters, Path(folder), given.tree))


if __name__ == "__main__":
    sys.exit(main())
