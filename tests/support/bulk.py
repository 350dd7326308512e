"""Many letters at once, and what is said about them: the record and the law of the metrics."""

import json
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from signal import SIGCONT, SIGSTOP
from typing import Any, Final

import pika

from tests.support.client import Client, Message
from tests.support.eventually import eventually, patience
from tests.support.router import Router

INBOX: Final = "dlx-router.inbox"
PARKING: Final = "dlx-router.parking"
DIED: Final = {"count": 1, "reason": "rejected", "queue": "work", "exchange": "", "routing-keys": ["work"]}
DEAD: Final = {"x-death": [DIED]}  # headers that make a letter of what is published into a dead-letter queue
QUARANTINE: Final = "dlx-router.quarantine"
TRANSACTION: Final = 5_000  # publishes; RabbitMQ 4 takes 10,000 at most


def dying_queue(client: Client, name: str, **arguments: Any) -> str:
    """Declare a queue where each message expires as it arrives, and becomes a letter in the inbox."""
    return client.queue(name, message_ttl=0, dead_letter_exchange=INBOX, **arguments)


def pour(
    client: Client,
    queue: str,
    bodies: Iterable[bytes | str],
    headers: Mapping[str, Any] | None = None,
    **properties: Any,
) -> None:
    """Publish to a queue, confirmed by transactions of some thousand: ten times as fast as one by one.

    Without: of 100 to a quorum queue that was just declared, 3.10 once lost 22 when the channel was closed behind them.
    """
    channel = client.connection.channel()
    channel.tx_select()
    given = pika.BasicProperties(**{"delivery_mode": 2, **properties}, headers=dict(headers) if headers else None)
    for number, body in enumerate(bodies, 1):
        channel.basic_publish("", queue, body, given)
        if number % TRANSACTION == 0:
            channel.tx_commit()
    channel.tx_commit()
    channel.close()


def take_many(client: Client, queue: str, count: int, within: float = 20) -> list[Message]:
    """The next `count` messages of the queue, acknowledged; AssertionError with those that came if it is fewer.

    The queue may be about to be declared.
    """
    eventually(lambda: client.exists(queue), within)
    channel = client.connection.channel()
    channel.basic_qos(prefetch_count=500)
    deadline = time.monotonic() + patience(within)
    taken: list[Message] = []
    if count:
        for method, properties, body in channel.consume(queue, inactivity_timeout=0.05):
            if method is not None:
                where = (method.exchange, method.routing_key, method.redelivered, channel, method.delivery_tag)
                taken.append(Message(body, properties.headers or {}, properties, *where).ack())
            if len(taken) == count or time.monotonic() > deadline:
                break
        channel.cancel()
    channel.close()
    assert len(taken) == count, f"{len(taken)} of {count} messages of {queue} within {patience(within):g} s"
    return taken


def every_body(client: Client, queue: str, count: int, within: float = 20) -> set[str]:
    """Different bodies until there are `count`; copies are allowed, for a channel that was closed leaves doubt."""
    seen: set[str] = set()

    def enough() -> bool:
        while (message := client.get(queue)) is not None:
            seen.add(message.ack().body.decode())
        assert len(seen) >= count, f"{len(seen)} of {count} in {queue}"
        return True

    eventually(enough, within)
    return seen


def bodies(messages: Iterable[Message]) -> list[str]:
    """What they say, sorted."""
    return sorted(message.body.decode() for message in messages)


def record(message: Message) -> dict[str, Any]:
    """Header `dlx-router`, decoded."""
    document = json.loads(message.headers["dlx-router"])
    assert isinstance(document, dict)
    return document


@contextmanager
def frozen(router: Router) -> Iterator[None]:
    """The router's process stands still while the block lasts; afterwards it finds all that happened at once."""
    router.signal(SIGSTOP)
    try:
        yield
    finally:
        router.signal(SIGCONT)


def law_holds(router: Router) -> bool:
    """Deliveries = settled + given back + in flight, for each vhost."""
    samples = router.metrics()

    def total(name: str, vhost: str) -> float:
        return sum(
            value for (key, labels), value in samples.items()
            if key == f"dlx_router_{name}" and dict(labels).get("vhost") == vhost
        )  # fmt: skip

    for vhost in {dict(labels)["vhost"] for (key, labels) in samples if key == "dlx_router_deliveries_total"}:
        deliveries = total("deliveries_total", vhost)
        parts = [total(name, vhost) for name in ("settled_total", "given_back_total", "in_flight")]
        assert deliveries == sum(parts), f"{vhost}: deliveries {deliveries} ≠ settled, given back, in flight {parts}"
    return True


def rests(router: Router, within: float = 10) -> None:
    """Nothing is in flight."""
    eventually(lambda: router.metric("in_flight") == 0, within)
