"""The load on three nodes: each vhost has publishers, consumers and an auditor at each node, plain pika in one thread.

A node that is frozen stops its own clients only. Letters for classic queues have connections of their own: the broker
stops reading a connection whose letters a queue does not take.
"""
# ruff: noqa: ANN401 - pika ships no types

import asyncio
import random
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from itertools import cycle
from typing import Any, Final

import pika
from pika.exceptions import AMQPError

from tools.chaos.cluster.accounting import ATTACHED, CLASSIC, CONSUMER, ENDS, QUORUM, RETRY, WAYS, Books, Way, body_of
from tools.chaos.cluster.schedule import NODES
from tools.chaos.cluster.testbed import CONTROL, HEARTBEAT_S, ROUTER_INBOX, VHOST
from tools.chaos.load import TICK_S, Consumer, Station, Take

WINDOW: Final = 1000
FRESH_S: Final = 3.0
FAILS_WITHIN_S: Final = 0.5
LOOKED_AT: Final = (ROUTER_INBOX, *(way.source for way in WAYS if way.route == ATTACHED))

Url = Callable[[str, int], str]  # vhost, node


class Publisher:
    """Publishes letters of some ways at a rate to one node, mandatory and confirmed; what is unanswered is in doubt."""

    def __init__(self, url: str, books: Books, ways: tuple[Way, ...], rate: float) -> None:
        self._books = books
        self._ways = cycle(ways)
        self._rate = rate
        self._owed = 0.0
        self._channel: Any = None
        self._unanswered: dict[int, int] = {}  # delivery tag → number
        self._tag = 0
        self._station = Station(url, self._opened, heartbeat_s=HEARTBEAT_S)

    def open(self) -> None:
        self._station.open()
        self._tick()

    def quiet(self) -> None:
        """Nothing more is published."""
        self._rate = 0.0

    def close(self) -> None:
        """The connection is closed."""
        self._station.close()

    @property
    def serves(self) -> bool:
        """The node talks AMQP with us."""
        return self._channel is not None and bool(self._channel.is_open)

    @property
    def unanswered(self) -> int:
        """Published, and neither confirmed nor refused."""
        return len(self._unanswered)

    def _opened(self, link: Any) -> None:
        self._channel, self._tag = None, 0
        self._unanswered.clear()
        link.channel(on_open_callback=self._ready)

    def _ready(self, channel: Any) -> None:
        channel.add_on_return_callback(self._returned)
        channel.confirm_delivery(self._answered, callback=lambda _ok: setattr(self, "_channel", channel))

    def _returned(self, _channel: Any, _method: Any, _properties: Any, body: bytes) -> None:
        self._books.returned(int(body.rpartition(b":")[2]))

    def _answered(self, frame: Any) -> None:
        method, now_s = frame.method, time.time()
        last = method.delivery_tag
        tags = [tag for tag in self._unanswered if tag <= last] if method.multiple else [last]
        for tag in tags:
            number = self._unanswered.pop(tag, None)
            if number is not None and isinstance(method, pika.spec.Basic.Ack):
                self._books.confirm(number, now_s)
            elif number is not None:
                self._books.refuse(number)

    def _tick(self) -> None:
        asyncio.get_running_loop().call_later(TICK_S, self._tick)
        if not self.serves:
            return
        self._owed = min(self._owed + self._rate * TICK_S, self._rate)  # what a stop left out is not made up for
        while self._owed >= 1 and len(self._unanswered) < WINDOW:
            self._owed -= 1
            self._publish(next(self._ways))

    def _publish(self, way: Way) -> None:
        number = self._books.next(way)
        self._tag += 1
        self._unanswered[self._tag] = number
        body = body_of(way, number)
        properties = pika.BasicProperties(delivery_mode=2, message_id=body.decode())
        with suppress(AMQPError):  # then it is in doubt
            self._channel.basic_publish("", way.source, body, properties, mandatory=True)


class Depths:
    """Asks one node for the ready letters of some queues, each on a channel of its own: one that hangs hangs alone."""

    def __init__(self, url: str, queues: tuple[str, ...]) -> None:
        self._queues = queues
        self.known: dict[str, tuple[float, int]] = {}  # queue → when, how many
        self._asked: set[str] = set()
        self._link: Any = None
        self._station = Station(url, self._opened, heartbeat_s=HEARTBEAT_S)

    def open(self) -> None:
        self._station.open()
        self._tick()

    def close(self) -> None:
        """The connection is closed."""
        self._station.close()

    def _opened(self, link: Any) -> None:
        self._link = link
        self._asked.clear()

    def _tick(self) -> None:
        asyncio.get_running_loop().call_later(1.0, self._tick)
        if self._link is not None and self._link.is_open:
            for queue in set(self._queues) - self._asked:
                self._asked.add(queue)
                with suppress(AMQPError):
                    self._link.channel(on_open_callback=partial(self._ask, queue))

    def _ask(self, queue: str, channel: Any) -> None:
        channel.add_on_close_callback(lambda *_: self._asked.discard(queue))
        with suppress(AMQPError):
            channel.queue_declare(queue, passive=True, callback=partial(self._answer, queue, channel))

    def _answer(self, queue: str, channel: Any, frame: Any) -> None:
        self.known[queue] = (time.time(), int(frame.method.message_count))
        with suppress(AMQPError):
            channel.close()


class Side:
    """All clients of one vhost."""

    def __init__(self, vhost: str, url: Url, rate: float) -> None:
        self.books, self._chance = Books(), random.Random(vhost)
        each = rate / NODES / 2
        self.publishers = [
            Publisher(url(vhost, node), self.books, ways, each) for node in range(NODES) for ways in (QUORUM, CLASSIC)
        ]
        take: dict[str, Take] = {way.source: self._retry for way in WAYS if way.route == RETRY} | {
            ENDS: self._end(ENDS)
        }
        if vhost == CONTROL:
            take |= {way.source: self._end(CONSUMER) for way in WAYS if way.route == ATTACHED}
        self._urls, self._take = [url(vhost, node) for node in range(NODES)], take
        self.consumers = self._made()

    def connect_anew(self) -> None:
        """Other consumers on other connections; the broker takes back what it delivered on those before."""
        before, self.consumers = self.consumers, self._made()
        for old, new in zip(before, self.consumers, strict=True):
            with suppress(AMQPError):
                old.close()
            new.open()

    def _made(self) -> list[Consumer]:
        return [Consumer(url, self._take, heartbeat_s=HEARTBEAT_S) for url in self._urls]

    def serves(self, node: int) -> bool:
        """A publisher of this node has its channel."""
        return self.publishers[2 * node].serves

    def _end(self, place: str) -> Take:
        def take(channel: Any, method: Any, _properties: Any, body: bytes) -> None:
            self.books.find(place, body)
            channel.basic_ack(method.delivery_tag)

        return take

    def _retry(self, channel: Any, method: Any, properties: Any, body: bytes) -> None:
        if "x-death" in (properties.headers or {}):
            self.books.find(CONSUMER, body)
            channel.basic_ack(method.delivery_tag)
            return
        # A queue serves its consumers in turn: at an even beat each second delivery would be to a frozen one for ever.
        wait_s = self._chance.uniform(0, FAILS_WITHIN_S)
        asyncio.get_running_loop().call_later(wait_s, _reject, channel, method.delivery_tag)


def _reject(channel: Any, tag: int) -> None:
    with suppress(AMQPError):  # its connection is gone, and the letter comes again
        channel.basic_reject(tag, requeue=False)


class Load:
    """Both vhosts, in a thread of their own; the verbs may be called from any."""

    def __init__(self, url: Url, rate: float) -> None:
        self.main, self.control = Side(VHOST, url, rate), Side(CONTROL, url, rate)
        self._depths = [Depths(url(VHOST, node), LOOKED_AT) for node in range(NODES)]
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="load", daemon=True)

    @property
    def _clients(self) -> list[Any]:
        sides = (self.main, self.control)
        return [*(client for side in sides for client in (*side.consumers, *side.publishers)), *self._depths]

    def start(self) -> None:
        """Publishing, failing and looking."""
        self._thread.start()
        for client in self._clients:
            self._loop.call_soon_threadsafe(client.open)

    def quiet(self) -> None:
        """Nothing more is published; what is under way goes on."""
        for side in (self.main, self.control):
            for publisher in side.publishers:
                self._loop.call_soon_threadsafe(publisher.quiet)

    def connect_anew(self) -> None:
        """All consumers of both vhosts."""
        for side in (self.main, self.control):
            self._loop.call_soon_threadsafe(side.connect_anew)

    def held(self) -> int | None:
        """Ready letters in the inbox and the attended sources, as some node told within seconds; None: none did."""
        answers = [depths.known.get(queue, (0.0, 0)) for queue in LOOKED_AT for depths in self._depths]
        fresh = [many for when, many in answers if time.time() - when < FRESH_S]
        return max(fresh) if fresh else None

    def inbox(self) -> int | None:
        """Ready letters in the inbox; None: not known."""
        answers = [depths.known.get(ROUTER_INBOX, (0.0, 0)) for depths in self._depths]
        fresh = [many for when, many in answers if time.time() - when < FRESH_S]
        return max(fresh) if fresh else None

    def close(self) -> None:
        """Everything ended."""
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(20)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)

    async def _end(self) -> None:
        for client in self._clients:
            with suppress(AMQPError):
                client.close()
        await asyncio.sleep(1)  # pika says goodbye
