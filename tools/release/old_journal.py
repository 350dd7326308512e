"""The journal of a real router of another version, as a file for the tests.

    git archive 203533f | tar -x -C build/old
    python -m tools.release.old_journal build/old tests/journal/old/journal-0.1.0.ndjson.gz

Letters die for several reasons, wait, come back, die again, are discarded, parked, put aside and sent back. The first
line of the file says what was done, counted by this program and not by anything of the router's; each other is a
message of the stream, with offset, headers and body.
"""

import argparse
import gzip
import json
import random
import secrets
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from pathlib import Path
from typing import Any, Final

import httpx
import pika

from tests.support.bulk import INBOX, PARKING, QUARANTINE
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tools.brokers import Node
from tools.brokers.programs import provide
from tools.polling import stream

POLICIES: Final = Path("tests/journal/old/policies.yaml").resolve()
STREAM: Final = "dlx-router.journal"
ORDERS: Final = ("orders.new", "orders.eu")
ERRORS: Final = ("connection to 10.0.0.%d refused", "order %d is unknown", "no sku %d")
LETTERS: Final = 40  # in each queue


def main(argv: Sequence[str] | None = None) -> int:
    """See the module."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("tree", type=Path, help="the other version's source")
    parser.add_argument("file", type=Path, help="to write")
    given = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="dlx-router-journal-") as folder:
        lines = [json.dumps(line, separators=(",", ":")) for line in _recorded(given.tree.resolve(), Path(folder))]
    given.file.write_bytes(gzip.compress("\n".join(lines).encode() + b"\n", mtime=0))
    print(f"{len(lines) - 1} messages, {given.file.stat().st_size} bytes: {lines[0]}")
    return 0


def _recorded(tree: Path, folder: Path) -> Iterator[dict[str, Any]]:
    """What was done, then each message of the stream."""
    key = secrets.token_hex(32)
    (folder / "key").write_text(key, encoding="utf-8")
    node = Node(provide("4.3"))
    env = {"PROVENANCE_KEY_FILE": str(folder / "key"), "JOURNAL": "required", "ID": "router-old"}
    urls = node.amqp_url, node.management_url
    log = folder / "router.log"
    router = Router(amqp_url=urls[0], management_url=urls[1], policies=POLICIES.parent, log=log, env=env, tree=tree)
    try:
        router.start(within=60)
        with Client(node.amqp_url) as client:
            expected = _lived(client, router)
            eventually(lambda: router.metric("in_flight") == 0, 30)
        yield {"key": key, "vhost": "/", "stream": STREAM, "expected": expected}
        yield from _stream(node)
    finally:
        router.close()
        node.close()


def _lived(client: Client, router: Router) -> dict[str, Any]:
    """Letters live and die; → by failed queue: in which states how many end, and how often one died there."""
    chance = random.Random(7)
    for queue in (*ORDERS, "mail.out", "stock.count", "lost.and.found"):
        client.queue(queue, "quorum", dead_letter_exchange=INBOX)
    client.queue("stock.late", message_ttl=0, dead_letter_exchange=INBOX)
    for queue in (*ORDERS, "mail.out", "stock.count", "lost.and.found", "stock.late"):
        for number in range(LETTERS):
            client.publish(_body(chance, number), key=queue, **_properties(chance, queue, number))
    died: Counter[str] = Counter({"stock.late": LETTERS})
    for queue, times in (("mail.out", 1), ("lost.and.found", 1), ("stock.count", 2), *((name, 3) for name in ORDERS)):
        fatal = LETTERS // 4 if queue in ORDERS else 0
        for turn in range(times):
            for _ in range(LETTERS - (fatal if turn else 0)):
                client.fail(queue, 30)
                died[queue] += 1
    client.publish(b"no letter at all", key="dlx-router.release")
    eventually(lambda: client.exists(QUARANTINE) and client.depth(QUARANTINE) == 1, 30)
    dead = {"orders.new": "dead", "orders.eu": "dead", "stock.count": "dead", "lost.and.found": "parked"}
    states = {queue: {state: LETTERS} for queue, state in dead.items()}
    for queue in (*ORDERS, "stock.count"):
        eventually(partial(_holds, client, f"DLQ.{queue}"), 30)
    eventually(lambda: client.depth(PARKING) == LETTERS, 30)
    sent = _redriven(client, router, "DLQ.mail.out", limit=LETTERS // 2)
    states["mail.out"] = {"dead": LETTERS - sent, "redriven": sent}
    states["stock.late"] = {"discarded": LETTERS}
    return {"states": states, "deaths": dict(died)}


def _holds(client: Client, queue: str) -> bool:
    return client.exists(queue) and client.depth(queue) == LETTERS


def _body(chance: random.Random, number: int) -> bytes:
    card = {"number": "4111", "holder": f"somebody {number}"}
    return json.dumps({"order": number, "card": card, "note": "é" * chance.randrange(9)}).encode()


def _properties(chance: random.Random, queue: str, number: int) -> dict[str, Any]:
    headers: dict[str, Any] = {"x-token": "secret", "x-tenant": chance.choice(("acme", "globex"))}
    if queue in ORDERS:
        headers["x-fatal"] = "yes" if number < LETTERS // 4 else "no"
    if chance.choice((True, False)):
        headers |= {"x-error-type": "OrderError", "x-error-message": chance.choice(ERRORS) % number}
    properties: dict[str, Any] = {
        "message_id": f"{queue}-{number}",
        "content_type": "application/json",
        "headers": headers,
    }
    if chance.choice((True, False, False)):
        properties |= {"correlation_id": f"c-{number % 5}", "type": "order", "app_id": "shop", "priority": 5}
    return properties


def _redriven(client: Client, router: Router, queue: str, limit: int) -> int:
    """So many are sent back; nobody takes them there."""
    eventually(partial(_holds, client, queue), 30)
    url, asked = (
        f"http://127.0.0.1:{router.port}/api/v1/tasks",
        {"vhost": "/", "queue": queue, "limit": limit, "rate": 0},
    )

    def begun() -> str | None:
        answer = httpx.post(url, json=asked, timeout=30, trust_env=False)
        return str(answer.json()["id"]) if answer.status_code == httpx.codes.CREATED else None

    task = eventually(begun, 30)

    def ended() -> bool:
        return bool(httpx.get(f"{url}/{task}", timeout=30, trust_env=False).json().get("state") == "done")

    eventually(ended, 60)
    return limit


def _stream(node: Node) -> Iterator[dict[str, Any]]:
    """From its start until nothing more comes."""
    time.sleep(1.0)  # what is confirmed may not be readable yet
    connection = pika.BlockingConnection(pika.URLParameters(node.amqp_url))
    for properties, body in stream(connection, STREAM, idle_s=3.0):
        yield {"headers": properties.headers, "encoding": properties.content_encoding, "body": body.decode()}
    connection.close()


if __name__ == "__main__":
    sys.exit(main())
