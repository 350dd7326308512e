"""The shop: a publisher and four consumers, each a thread with a connection of its own, in a vhost of their own."""

import json
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final
from urllib.parse import quote, unquote, urlsplit

import httpx
import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import AMQPError, ChannelClosedByBroker

from tools.brokers import Broker
from tools.demo.accounting import Books
from tools.demo.outage import QUEUE

INBOX: Final = "dlx-router.inbox"
TICK_S: Final = 0.25
ALWAYS: Final = 1_000_000
_PREFETCH: Final = 10
_RIGHTS: Final = {"configure": ".*", "write": ".*", "read": ".*"}


@dataclass(frozen=True, slots=True)
class Desk:
    """One queue with its consumer: every `ticks` a message, the n-th of which fails `fails(n)` times."""

    queue: str
    thing: str
    consumer: str
    ticks: int
    fails: Callable[[int], int]


DESKS: Final = (
    Desk("shop.orders", "order", "healthy", 1, lambda _: 0),
    Desk("shop.payments", "payment", "flaky", 2, lambda number: 1 + number % 2),
    Desk("shop.mails", "mail", "broken", 4, lambda _: ALWAYS),
    Desk(QUEUE, "shipment", "has an outage", 2, lambda _: 0),
)


@dataclass(frozen=True, slots=True)
class Vhost:
    """Where the demo lives. `queues` by the management API, all else by AMQP."""

    name: str
    amqp_url: str
    api: httpx.Client

    def queues(self) -> list[str]:
        """Names of all queues with letters; the journal is a stream of events."""
        answer = self.api.get(f"queues/{self.name}", params={"columns": "name,type"}).raise_for_status()
        return sorted(queue["name"] for queue in answer.json() if queue.get("type") != "stream")


@contextmanager
def own_vhost(broker: Broker) -> Iterator[Vhost]:
    """A fresh vhost; removed with all that is in it, so that a broker of somebody else's is left as found."""
    parts = urlsplit(broker.management_url)
    user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
    base = f"{parts.scheme}://{parts.hostname}:{parts.port or 15672}/api/"
    name = f"dlx-router-demo-{uuid.uuid4().hex[:8]}"
    with httpx.Client(base_url=base, auth=(user, password), timeout=30, trust_env=False) as api:
        api.put(f"vhosts/{name}").raise_for_status()
        try:
            api.put(f"permissions/{name}/{quote(user, safe='')}", json=_RIGHTS).raise_for_status()
            yield Vhost(name, f"{broker.amqp_base}/{name}", api)
        finally:
            api.delete(f"vhosts/{name}").raise_for_status()


@dataclass
class Shop:
    """The people of the shop. What goes wrong with one of them is in `errors`, and `broken` says that it did."""

    url: str
    books: Books
    errors: list[str] = field(default_factory=list)
    _opened: float = float("inf")
    _closing: threading.Event = field(default_factory=threading.Event)
    _home: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def open(self) -> None:
        """Queues are declared, consumers wait, the publisher starts."""
        with connected(self.url) as channel:
            for desk in DESKS:
                arguments = {"x-queue-type": "classic", "x-dead-letter-exchange": INBOX}
                channel.queue_declare(desk.queue, durable=True, arguments=arguments)
        for desk in DESKS:
            self._spawn(desk.queue, partial(self._consume, desk))
        self._opened = time.monotonic()
        self._spawn("publisher", self._publish)

    @property
    def is_down(self) -> bool:
        """Now is the outage; it ends when the shop closes, so that all can be handled."""
        outage = self.books.plan.outage
        if outage is None or self._closing.is_set():
            return False
        return outage.begins_s <= time.monotonic() - self._opened < outage.ends_s

    def stop_publishing(self) -> None:
        """No new messages from now on; consumers go on."""
        self._closing.set()

    def close(self) -> None:
        """Everybody has gone home when this returns."""
        self._closing.set()
        self._home.set()
        for thread in self._threads:
            thread.join(10)

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - whatever it is, the demo must say it and end
                self.errors.append(f"{name}: {type(error).__name__}: {error}")

        thread = threading.Thread(target=guarded, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _publish(self) -> None:
        with connected(self.url) as channel:
            tick = 0
            while not self._closing.is_set():
                for desk in DESKS:
                    if tick % desk.ticks == 0:
                        self._send(channel, desk, 1 + tick // desk.ticks)
                tick += 1
                channel.connection.sleep(TICK_S)

    def _send(self, channel: BlockingChannel, desk: Desk, number: int) -> None:
        name = f"{desk.thing} {number}"
        body = json.dumps({"name": name, "number": number, "amount": f"{number * 7 % 90 + 10}.00"}).encode()
        properties = pika.BasicProperties(delivery_mode=2, content_type="application/json")
        self.books.published(name, desk.queue, body)
        channel.basic_publish("", desk.queue, body, properties, mandatory=True)

    def _consume(self, desk: Desk) -> None:
        with connected(self.url) as channel:
            channel.basic_qos(prefetch_count=_PREFETCH)
            for method, _, body in channel.consume(desk.queue, inactivity_timeout=0.1):
                if method is not None:
                    self._serve(desk, channel, method.delivery_tag, body)
                elif self._home.is_set():
                    return

    def _serve(self, desk: Desk, channel: BlockingChannel, tag: int, body: bytes) -> None:
        message = json.loads(body)
        name = message["name"]
        if desk.queue == QUEUE and self.is_down:
            self.books.failed(name, body, "the carrier is down")
            channel.basic_reject(tag, requeue=False)
        elif self.books.failures(name) < desk.fails(message["number"]):
            self.books.failed(name, body)
            channel.basic_reject(tag, requeue=False)
        else:
            self.books.handled(name, body)
            channel.basic_ack(tag)


@dataclass(frozen=True, slots=True)
class Lying:
    """A message that lies in a queue at the end."""

    queue: str
    name: str
    body: bytes
    headers: Mapping[str, Any]


class Watch:
    """Looks at queues without touching a message."""

    def __init__(self, vhost: Vhost) -> None:
        self._vhost = vhost
        self._connection = pika.BlockingConnection(pika.URLParameters(vhost.amqp_url))
        self._channel = self._connection.channel()

    def depths(self) -> dict[str, int]:
        """How many messages are ready in each queue of the vhost, by AMQP: the management API's numbers are old."""
        return {queue: depth for queue in self._vhost.queues() if (depth := self._depth(queue)) is not None}

    def lying(self) -> list[Lying]:
        """Every ready message of the vhost; they go back into their queues at `close`."""
        return [letter for queue, depth in self.depths().items() if depth for letter in self._read(queue)]

    def close(self) -> None:
        """Safe on a connection that is gone."""
        with suppress(AMQPError):
            self._connection.close()

    def _depth(self, queue: str) -> int | None:
        try:
            return int(self._channel.queue_declare(queue, passive=True).method.message_count)
        except ChannelClosedByBroker:  # gone between the two questions, or locked
            self._channel = self._connection.channel()
            return None

    def _read(self, queue: str) -> Iterator[Lying]:
        try:
            while (got := self._channel.basic_get(queue))[0] is not None:
                _, properties, body = got
                yield Lying(queue, _name(body), body, properties.headers or {})
        except ChannelClosedByBroker:  # not for others to read: the router's own state
            self._channel = self._connection.channel()


@contextmanager
def connected(url: str) -> Iterator[BlockingChannel]:
    """A channel with confirms on a connection of its own."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        if connection.is_open:
            connection.close()


def _name(body: bytes) -> str:
    try:
        return str(json.loads(body)["name"])
    except (ValueError, KeyError, TypeError):
        return repr(body)[:60]
