"""Reading a stream over AMQP 0-9-1, from an offset on, for as long as the connection lives.

By a link of ours that decodes no header: whoever may write into the stream would else end every reader with a property
that no library can read.
"""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.control import HEARTBEAT_S, Lost, TopologyError
from dlx_router.broker.link import Link, open_link
from dlx_router.core import signature
from dlx_router.wire import frames, properties, table

PREFETCH: Final = 200  # an ack is a credit; more than this is held on 3.10 only, which sends whole chunks
OFFSET: Final = "x-stream-offset"
WITHIN_S: Final = 15.0
_OFFSET: Final = OFFSET.encode()
_MAC: Final = signature.HEADER.encode()


class Read(NamedTuple):
    """A message of the stream. `mac`, `version` (header `v`) None: it has none."""

    offset: int
    body: bytes
    mac: bytes | None = None
    version: int | None = None


class Reading:
    """Messages in the order of the stream. Acks are credits: the broker sends no more than a window beyond them."""

    def __init__(self, link: Link) -> None:
        self.link = link
        self._arrived: asyncio.Queue[frames.Delivery] = asyncio.Queue()
        self._taken: list[int] = []
        self._lost: asyncio.Future[TopologyError] = asyncio.get_running_loop().create_future()
        self._many = asyncio.Event()
        self._count = 0  # how many are many
        self.consumer: Consumer | None = None

    async def take(self, at_most: int, within_s: float) -> list[Read]:
        """What is there, and no more than that; [] when nothing comes in time. Raises TopologyError: lost."""
        if self._arrived.empty():
            await self._await(within_s)
        messages: list[Read] = []
        while len(messages) < at_most and not self._arrived.empty():
            delivery = self._arrived.get_nowait()
            self._taken.append(delivery.tag)
            messages.append(read_of(delivery))
        return messages

    @property
    def is_lost(self) -> bool:
        """Whether nothing more will come."""
        return self._lost.done()

    async def gather(self, count: int, within_s: float) -> None:
        """Until so many are there, the time is over, or nothing more will come."""
        self._count = count
        self._many.clear()
        if self._arrived.qsize() < count and not self._lost.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._many.wait()

    def done(self) -> None:
        """What was taken is kept: the broker may send as much again."""
        taken, self._taken = self._taken, []
        if self.consumer is not None:
            for tag in taken:
                self.consumer.settle(tag)
            self.consumer.flush()

    async def _await(self, within_s: float) -> None:
        self._count = 1
        self._many.clear()
        if not self._lost.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._many.wait()
        if self._arrived.empty() and self._lost.done():
            raise self._lost.result()

    def arrived(self, delivery: frames.Delivery, _consumer: Consumer) -> None:
        """A delivery."""
        self._arrived.put_nowait(delivery)
        if self._arrived.qsize() >= self._count:
            self._many.set()

    def lose(self, why: str) -> None:
        """Nothing more will come."""
        if not self._lost.done():
            self._lost.set_result(Lost(why))
            self._many.set()


@asynccontextmanager
async def reading(place: tuple[Host, Login, Tls | None], stream: str, start: str | int) -> AsyncIterator[Reading]:
    """Messages from `start` (an offset, `first`, `next`) on. Raises TopologyError where there is no such stream.

    The connection is closed at the end, and not the consumer: RabbitMQ 3.10 ends the connection when a stream's
    delivery is given back.
    """
    host, login, tls = place
    where = f"reading stream {stream!r} (vhost {login.vhost!r} on {host.name}:{host.port})"
    try:
        link = await open_link(host, login, tls=tls, heartbeat=HEARTBEAT_S, name=f"dlx-router index {login.vhost}")
    except (LinkError, ChannelClosed) as error:
        raise Lost(f"{where}: {error}; it is tried again") from None
    reader, arguments = Reading(link), {OFFSET: start}
    try:
        consumer = reader.consumer = Consumer(
            link,
            stream,
            PREFETCH,
            sink=reader.arrived,
            on_lost=lambda _consumer, error, _unsettled: reader.lose(f"{where}: {error}"),
            arguments=arguments,
        )
        try:
            async with asyncio.timeout(WITHIN_S):
                await consumer.start()
        except (LinkError, ChannelClosed, TimeoutError) as error:
            raise TopologyError(f"{where}: {str(error) or 'no answer in time'}; it is tried again") from None
        yield reader
    finally:
        await link.close()


def read_of(delivery: frames.Delivery) -> Read:
    """A delivery of a stream; offset −1 where it has none."""
    headers = properties.parse(delivery.header, properties.PROPERTIES_AT).headers
    entries = table.entries(headers)
    at = entries.get(_OFFSET)
    offset = -1 if at is None else int(table.decode_value(headers, at[1]))
    mac, version = _value(headers, entries.get(_MAC)), _value(headers, entries.get(b"v"))
    is_number = version.__class__ is int
    return Read(offset, delivery.body, mac if isinstance(mac, bytes) else None, version if is_number else None)


def _value(headers: bytes, at: Any) -> Any:
    return None if at is None else table.decode_value(headers, at[1])
