"""The shop of the demo: a publisher and four consumers, and its own record of each message, apart from the router."""

import json
import threading
import time
import uuid
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from urllib.parse import quote, unquote, urlsplit

import httpx
import pika
from pika.adapters.blocking_connection import BlockingChannel

from tools.brokers import Broker

INBOX: Final = "dlx-router.inbox"
OUTAGE: Final = "shop.shipments"  # the queue whose consumer fails for a while
ATTEMPTS: Final = 3
TICK_S: Final = 0.25
ALWAYS: Final = 1_000_000
_RIGHTS: Final = {"configure": ".*", "write": ".*", "read": ".*"}


@dataclass(frozen=True)
class Desk:
    """A queue and its consumer: a message every `ticks`; the n-th fails `fails(n)` times."""

    queue: str
    thing: str
    consumer: str
    ticks: int
    fails: Callable[[int], int]


DESKS: Final = (
    Desk("shop.orders", "order", "healthy", 1, lambda _: 0),
    Desk("shop.payments", "payment", "flaky", 2, lambda number: 1 + number % 2),
    Desk("shop.mails", "mail", "broken", 4, lambda _: ALWAYS),
    Desk(OUTAGE, "shipment", "has an outage", 2, lambda _: 0),
)


@dataclass
class Entry:
    """A message. `failed_at`: when its last delivery failed, None unless it is between two deliveries."""

    queue: str
    body: bytes
    failures: int = 0
    acks: int = 0
    failed_at: float | None = None


@dataclass(frozen=True)
class Vhost:
    """Where the demo runs: a vhost of its own."""

    name: str
    amqp_url: str
    api: httpx.Client

    def queues(self) -> list[str]:
        """Return the names of all queues but streams."""
        answer = self.api.get(f"queues/{self.name}", params={"columns": "name,type"}).raise_for_status()
        return sorted(queue["name"] for queue in answer.json() if queue.get("type") != "stream")


@contextmanager
def own_vhost(broker: Broker) -> Iterator[Vhost]:
    """Create a vhost, and remove it with all that is in it."""
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


@contextmanager
def connected(url: str) -> Iterator[BlockingChannel]:
    """Open a channel with confirms on a connection of its own."""
    connection = pika.BlockingConnection(pika.URLParameters(url))
    try:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
    finally:
        if connection.is_open:
            connection.close()


@dataclass
class Shop:
    """Publisher and consumers, each a thread. `down`: seconds after the opening between which shipments fail."""

    url: str
    down: tuple[float, float] | None
    errors: list[str] = field(default_factory=list)
    stories: deque[str] = field(default_factory=lambda: deque(maxlen=8))
    entries: dict[str, Entry] = field(default_factory=dict)
    opened_s: float = float("inf")
    _changed: set[str] = field(default_factory=set)
    _lock: threading.RLock = field(default_factory=threading.RLock)
    _closing: threading.Event = field(default_factory=threading.Event)
    _home: threading.Event = field(default_factory=threading.Event)
    _threads: list[threading.Thread] = field(default_factory=list)

    def open(self) -> None:
        """Declare the queues, start the threads."""
        with connected(self.url) as channel:
            for desk in DESKS:
                arguments = {"x-queue-type": "classic", "x-dead-letter-exchange": INBOX}
                channel.queue_declare(desk.queue, durable=True, arguments=arguments)
        for desk in DESKS:
            self._spawn(desk.queue, partial(self._consume, desk))
        self.opened_s = time.monotonic()
        self._spawn("publisher", self._publish)

    @property
    def is_down(self) -> bool:
        """Whether shipments fail now; never once the shop closes."""
        if self.down is None or self._closing.is_set():
            return False
        return self.down[0] <= time.monotonic() - self.opened_s < self.down[1]

    def stop_publishing(self) -> None:
        """Publish nothing more; consumers go on."""
        self._closing.set()

    def close(self) -> None:
        """Stop all threads."""
        self._closing.set()
        self._home.set()
        for thread in self._threads:
            thread.join(10)

    def counts(self, queue: str, dead: int) -> tuple[int, int, int, int, int]:
        """Return published, succeeded, failed deliveries, waiting and dead messages of a queue."""
        with self._lock:
            own = [entry for entry in self.entries.values() if entry.queue == queue]
            away = sum(entry.failed_at is not None for entry in own)
            acked = sum(entry.acks for entry in own)
            return len(own), acked, sum(entry.failures for entry in own), max(away - dead, 0), dead

    def unacked(self) -> int:
        """Return how many messages no consumer has acked: each should end in a dead-letter queue."""
        with self._lock:
            return sum(not entry.acks for entry in self.entries.values())

    def audit(self, lying: Iterable[tuple[str, bytes]]) -> dict[str, list[str]]:
        """Return names by what is wrong, given name and body of all that lies in dead-letter queues and parking."""
        bodies, places = list(lying), Counter({name: entry.acks for name, entry in self.entries.items()})
        places.update(name for name, _ in bodies)
        known = [(self.entries[name], name, body) for name, body in bodies if name in self.entries]
        return {
            "missing": [name for name in self.entries if not places[name]],
            "twice": [name for name, times in places.items() if times > 1],
            "changed": sorted(self._changed | {name for entry, name, body in known if entry.body != body}),
            "unknown": sorted({*places} - {*self.entries}),
            "dead by the outage": sorted({name for entry, name, _ in known if entry.queue == OUTAGE}),
        }

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        def guarded() -> None:
            try:
                work()
            except Exception as error:  # noqa: BLE001 - whatever it is, the demo must report it and end
                self.errors.append(f"{name}: {type(error).__name__}: {error}")

        self._threads.append(threading.Thread(target=guarded, name=name, daemon=True))
        self._threads[-1].start()

    def _publish(self) -> None:
        with connected(self.url) as channel:
            tick = 0
            while not self._closing.is_set():
                for desk in (desk for desk in DESKS if tick % desk.ticks == 0):
                    number = 1 + tick // desk.ticks
                    name = f"{desk.thing} {number}"
                    body = json.dumps({"name": name, "number": number, "amount": f"{number * 7 % 90 + 10}.00"}).encode()
                    with self._lock:  # before the publish: a consumer may be faster than the confirm
                        self.entries[name] = Entry(desk.queue, body)
                    how = pika.BasicProperties(delivery_mode=2, content_type="application/json")
                    channel.basic_publish("", desk.queue, body, how, mandatory=True)
                tick += 1
                channel.connection.sleep(TICK_S)

    def _consume(self, desk: Desk) -> None:
        with connected(self.url) as channel:
            channel.basic_qos(prefetch_count=10)
            for method, _, body in channel.consume(desk.queue, inactivity_timeout=0.1):
                if method is not None and self._is_handled(desk, body):
                    channel.basic_ack(method.delivery_tag)
                elif method is not None:
                    channel.basic_reject(method.delivery_tag, requeue=False)
                elif self._home.is_set():
                    return

    def _is_handled(self, desk: Desk, body: bytes) -> bool:
        """Record a delivery; return False if it fails."""
        message = json.loads(body)
        name, is_down = message["name"], desk.queue == OUTAGE and self.is_down
        with self._lock:
            entry = self.entries[name]
            if entry.body != body:
                self._changed.add(name)
            back = "" if entry.failed_at is None else f"back after {time.monotonic() - entry.failed_at:.1f} s, "
            entry.failed_at = None
            if not is_down and entry.failures >= desk.fails(message["number"]):
                entry.acks += 1
                if back:
                    self.stories.append(f"{name}: {back}succeeded")
                return True
            entry.failures += 1
            entry.failed_at = time.monotonic()
            then = "waits" if entry.failures < ATTEMPTS else f"out of tries: to DLQ.{desk.queue}"
            why = "the carrier is down" if is_down else f"{entry.failures} of {ATTEMPTS}, {then}"
            self.stories.append(f"{name}: {back}failed, {why}")
            return False
