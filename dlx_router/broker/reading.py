"""Reading a stream over AMQP 0-9-1, from an offset on, for as long as the connection lives.

By a link of ours that decodes no header: whoever may write into the stream would else end every reader with a property
that no library can read. The broker never says that the end is reached, nor that there is nothing: silence is all that
`last_offset` has to go by. Source: rabbitmq.com/docs/streams (consuming).
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager, suppress
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
AT_ONCE: Final = 32  # messages that one ack of `read` is for
QUIET_S: Final = 0.5
LOOKED_S: Final = 1.0
_OFFSET: Final = OFFSET.encode()
_MAC: Final = signature.HEADER.encode()


class Read(NamedTuple):
    """A message of the stream. `mac`, `version` (header `v`) None: it has none."""

    offset: int
    body: bytes
    mac: bytes | None = None
    version: int | None = None


class Newest(NamedTuple):
    """The newest message, or one that came while we looked; None: none came. `is_last`: none came behind it."""

    message: Read | None
    is_last: bool


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
            await self.gather(1, within_s)
            if self._arrived.empty() and self._lost.done():
                raise self._lost.result()
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

    async def start(self, stream: str, start: Any, only: str = "", prefetch: int = PREFETCH, where: str = "") -> None:
        """Consume. ChannelClosed, LinkError. `only`: see `read`."""
        arguments = {OFFSET: start} | _filter(only)
        self.consumer = Consumer(
            self.link,
            stream,
            prefetch,
            sink=self.arrived,
            on_lost=lambda _consumer, error, _unsettled: self.lose(f"{where}{error}"),
            arguments=arguments,
        )
        await self.consumer.start()

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
    reader = Reading(link)
    try:
        try:
            async with asyncio.timeout(WITHIN_S):
                await reader.start(stream, start, where=f"{where}: ")
        except (LinkError, ChannelClosed, TimeoutError) as error:
            raise TopologyError(f"{where}: {str(error) or 'no answer in time'}; it is tried again") from None
        yield reader
    finally:
        await link.close()


async def last_offset(link: Link, stream: str, first_s: float = QUIET_S, quiet_s: float = QUIET_S) -> int:
    """Return the offset of the newest message, or of one that came while we looked; −1 if none came within `first_s`.

    `quiet_s`: how long none came behind the newest. LinkError, ChannelClosed, TimeoutError: cannot be read.
    """
    message = (await newest(link, stream, first_s, quiet_s)).message
    return -1 if message is None else message.offset


async def newest(link: Link, stream: str, first_s: float, quiet_s: float) -> Newest:
    """Return the same, and whether others still came when we stopped looking. Raises the same."""
    message, loop = None, asyncio.get_running_loop()
    async with opened(link, stream, "last") as messages:  # how long that takes says nothing about the stream
        longest = loop.time() + first_s + LOOKED_S
        end = longest - LOOKED_S
        try:
            while True:
                async with asyncio.timeout_at(min(longest, end)):
                    message = await anext(messages)
                end = loop.time() + quiet_s
        except TimeoutError:
            return Newest(message, is_last=message is not None and end <= longest)


async def read(link: Link, stream: str, start: Any, only: str = "") -> AsyncGenerator[Read, None]:
    """Yield every message from `start` on, for ever. `start`: first, last, next, an offset or a time.

    `only` (3.13 or newer): the broker may leave out messages that have a filter value, and another. It need not.
    """
    async with opened(link, stream, start, only) as messages:
        async for message in messages:
            yield message


@asynccontextmanager
async def opened(link: Link, stream: str, start: Any, only: str = "") -> AsyncIterator[AsyncGenerator[Read, None]]:
    """As `read`; inside the block the broker has agreed to send. After it nothing is consumed, however it began."""
    reader = Reading(link)
    try:
        await reader.start(stream, start, only, PREFETCH // 2)
        async with aclosing(_messages(reader, stream)) as messages:
            yield messages
    finally:
        if reader.consumer is not None:
            reader.consumer.drop()


async def _messages(reader: Reading, stream: str) -> AsyncGenerator[Read, None]:
    while True:
        try:
            messages = await reader.take(AT_ONCE, WITHIN_S)
        except TopologyError as error:
            raise LinkError(f"stream {stream!r} is read no more: {error}") from error
        reader.done()
        for message in messages:
            yield message


def read_of(delivery: frames.Delivery) -> Read:
    """A delivery of a stream; offset −1 where it has none."""
    headers = properties.parse(delivery.header, properties.PROPERTIES_AT).headers
    entries = table.entries(headers)
    at = entries.get(_OFFSET)
    offset = -1 if at is None else int(table.decode_value(headers, at[1]))
    mac, version = _value(headers, entries.get(_MAC)), _value(headers, entries.get(b"v"))
    is_number = version.__class__ is int
    return Read(offset, delivery.body, mac if isinstance(mac, bytes) else None, version if is_number else None)


def _filter(only: str) -> dict[str, Any]:
    return {"x-stream-filter": only, "x-stream-match-unfiltered": True} if only else {}


def _value(headers: bytes, at: Any) -> Any:
    return None if at is None else table.decode_value(headers, at[1])
