"""The load of a chaos run: a publisher, a consumer that fails, and an auditor that empties the last places.

Plain pika on one event loop in a thread; it shares no code with the router. Each has a connection of its own, straight
to the broker (faults of the line between broker and router are none of theirs), and connects anew when it is lost.
"""
# ruff: noqa: ANN401 - pika ships no types

import asyncio
import threading
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import cycle
from typing import Any, Final

import pika
from pika.adapters.asyncio_connection import AsyncioConnection
from pika.exceptions import AMQPError

from tools.chaos.accounting import ALL, BROKEN, CONSUMER, FLAKY, HOSTILE, LAST, Books, body_of, way_of

AGAIN_S: Final = 0.3
TICK_S: Final = 0.02
WINDOW: Final = 1500
BURST: Final = 3
PREFETCH: Final = 500
HEARTBEAT_S: Final = 30
RECORD: Final = "dlx-router"

Take = Callable[[Any, Any, Any, bytes], None]  # channel, method, properties, body


class Station:
    """A connection that is made anew for as long as it is wanted; `on_open` gets it each time.

    `url` may name several brokers of a cluster, with spaces between: each connection goes to the next one.
    """

    def __init__(self, url: str, on_open: Callable[[Any], None], *, heartbeat_s: int = HEARTBEAT_S) -> None:
        self._brokers = cycle([_patient(pika.URLParameters(address), heartbeat_s) for address in url.split()])
        self._on_open = on_open
        self._link: Any = None
        self._wanted = False

    def open(self) -> None:
        """Connect, in the loop's thread."""
        self._wanted = True
        self._connect()

    def close(self) -> None:
        """For good."""
        self._wanted = False
        if self._link is not None and not (self._link.is_closing or self._link.is_closed):
            self._link.close()

    def _connect(self) -> None:
        if self._wanted:
            loop = asyncio.get_running_loop()
            self._link = AsyncioConnection(
                next(self._brokers), self._on_open, self._lost, self._lost, custom_ioloop=loop
            )

    def _lost(self, _link: Any, _error: Any) -> None:
        asyncio.get_running_loop().call_later(AGAIN_S, self._connect)


def _patient(parameters: Any, heartbeat_s: int) -> Any:
    parameters.heartbeat = heartbeat_s
    return parameters


class Publisher:
    """Publishes letters at a rate; what a lost connection left unconfirmed is in doubt, and never sent again."""

    def __init__(self, url: str, books: Books, rate: float) -> None:
        self._books = books
        self.rate = rate
        self._owed = 0.0
        self._channel: Any = None
        self._unconfirmed: dict[int, int] = {}  # delivery tag → number
        self._tag = 0
        self._oldest = 1
        self._station = Station(url, self._opened)

    def open(self) -> None:
        self._station.open()
        self._tick()

    def close(self) -> None:
        """Nothing more is published."""
        self.rate = 0.0

    @property
    def unconfirmed(self) -> int:
        """Not yet answered."""
        return len(self._unconfirmed)

    def end(self) -> None:
        """The connection is closed."""
        self._station.close()

    def _opened(self, link: Any) -> None:
        self._channel, self._tag, self._oldest = None, 0, 1
        self._unconfirmed.clear()
        link.channel(on_open_callback=self._ready)

    def _ready(self, channel: Any) -> None:
        channel.confirm_delivery(self._answered, callback=lambda _ok: setattr(self, "_channel", channel))

    def _answered(self, frame: Any) -> None:
        method = frame.method
        ok = isinstance(method, pika.spec.Basic.Ack)
        first = self._oldest if method.multiple else method.delivery_tag
        for tag in range(first, method.delivery_tag + 1):
            number = self._unconfirmed.pop(tag, None)
            if ok and number is not None:
                self._books.confirm(number)
        if method.multiple:
            self._oldest = method.delivery_tag + 1

    def _tick(self) -> None:
        asyncio.get_running_loop().call_later(TICK_S, self._tick)
        self._owed += self.rate * TICK_S
        if self._channel is None or not self._channel.is_open:
            return
        room = min(WINDOW - len(self._unconfirmed), int(self.rate * TICK_S * BURST) + 1)
        for _ in range(min(int(self._owed), room) if self.rate else 0):
            self._publish()
            self._owed -= 1

    def _publish(self) -> None:
        number = self._books.next()
        self._tag += 1
        self._unconfirmed[self._tag] = number
        body = body_of(number)  # also its message id, by which the journal tells of it
        headers = {"tenant": "chaos", "number": 7}
        properties = pika.BasicProperties(delivery_mode=2, headers=headers, message_id=body.decode())
        with suppress(AMQPError):  # then it is in doubt
            self._channel.basic_publish("", way_of(number).source, body, properties)


class Consumer:
    """Consumes some queues, each on a channel of its own; a queue that is not there is asked for again."""

    def __init__(self, url: str, take: dict[str, Take], *, heartbeat_s: int = HEARTBEAT_S) -> None:
        self._take = take
        self._held: set[str] = set()
        self._channels: dict[str, Any] = {}
        self._link: Any = None
        self._station = Station(url, self._opened, heartbeat_s=heartbeat_s)

    def open(self) -> None:
        self._station.open()

    def close(self) -> None:
        """The connection is closed."""
        self._station.close()

    def hold(self, queue: str) -> None:
        """Nothing is taken from this queue until `release`."""
        self._held.add(queue)
        channel = self._channels.pop(queue, None)
        if channel is not None and channel.is_open:
            channel.close()

    def release(self, queue: str) -> None:
        """As before."""
        self._held.discard(queue)
        self._attend(self._link, queue)

    def _opened(self, link: Any) -> None:
        self._link = link
        self._channels.clear()
        for queue in self._take:
            self._attend(link, queue)

    def _attend(self, link: Any, queue: str) -> None:
        if link is self._link and link is not None and link.is_open and queue not in self._held:
            with suppress(AMQPError):
                link.channel(on_open_callback=partial(self._consume, link, queue))

    def _consume(self, link: Any, queue: str, channel: Any) -> None:
        self._channels[queue] = channel
        channel.add_on_close_callback(lambda *_: self._later(link, queue))
        channel.add_on_cancel_callback(lambda _frame: channel.close())
        channel.basic_qos(prefetch_count=PREFETCH)
        channel.basic_consume(queue, self._take[queue])

    def _later(self, link: Any, queue: str) -> None:
        asyncio.get_running_loop().call_later(AGAIN_S, self._attend, link, queue)


class Load:
    """All of them, in a thread of their own; the verbs may be called from any."""

    def __init__(self, url: str, rate: float) -> None:
        self.books = Books()
        self.per_second = rate
        self._loop = asyncio.new_event_loop()
        self._publisher = Publisher(url, self.books, rate)
        failing: dict[str, Take] = {FLAKY.source: self._flaky, BROKEN.source: _reject}
        self._failing = Consumer(url, failing)
        self._auditor = Consumer(url, {place: self._find(place) for place in LAST if place != CONSUMER})
        self._thread = threading.Thread(target=self._loop.run_forever, name="load", daemon=True)

    def start(self) -> None:
        """Publishing, failing and looking."""
        self._thread.start()
        for station in (self._auditor, self._failing, self._publisher):
            self._loop.call_soon_threadsafe(station.open)

    def stop_publishing(self) -> None:
        """What is under way goes on."""
        self._loop.call_soon_threadsafe(self._publisher.close)

    @property
    def unconfirmed(self) -> int:
        """Published and not yet answered."""
        return self._publisher.unconfirmed

    def hold(self, queue: str) -> None:
        """The auditor leaves this queue alone, so that it fills."""
        self._loop.call_soon_threadsafe(self._auditor.hold, queue)

    def release(self, queue: str) -> None:
        """The auditor empties it again."""
        self._loop.call_soon_threadsafe(self._auditor.release, queue)

    def close(self) -> None:
        """Everything ended."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        self._publisher.end()
        self._failing.close()
        self._auditor.close()
        await asyncio.sleep(3 * AGAIN_S)  # pika says goodbye, or gives up what it was opening

    def _find(self, place: str) -> Take:
        def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            headers = properties.headers or {}
            key = RECORD if body.startswith(HOSTILE.encode()) else "dlx-router-id"  # equal messages share an id
            letter_id = str(headers.get(key) or "")
            self.books.find(place, body, letter_id, redelivered=method.redelivered)
            channel.basic_ack(method.delivery_tag)

        return take

    def _flaky(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        headers = properties.headers or {}
        if "x-death" not in headers:
            _reject(channel, method, properties, body)
            return
        self.books.find(CONSUMER, body, headers.get("dlx-router-id", ""), redelivered=method.redelivered)
        channel.basic_ack(method.delivery_tag)


def _reject(channel: Any, method: Any, _properties: Any, _body: bytes) -> None:
    channel.basic_reject(method.delivery_tag, requeue=False)


SOURCES: Final = tuple(way.source for way in ALL)
