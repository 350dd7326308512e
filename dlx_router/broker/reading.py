"""Reading a stream over AMQP 0-9-1, from an offset on, for as long as the connection lives."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Any, Final, NamedTuple

from aio_pika.abc import AbstractIncomingMessage

from dlx_router.broker.control import Control, Lost, TopologyError

PREFETCH: Final = 200  # an ack is a credit; more than this is held on 3.10 only, which sends whole chunks
OFFSET: Final = "x-stream-offset"


class Read(NamedTuple):
    """A message of the stream."""

    offset: int
    body: bytes


class Reading:
    """Messages in the order of the stream. Acks are credits: the broker sends no more than a window beyond them."""

    def __init__(self) -> None:
        self._arrived: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
        self._taken: list[AbstractIncomingMessage] = []
        self._lost: asyncio.Future[TopologyError] = asyncio.get_running_loop().create_future()
        self._many = asyncio.Event()
        self._count = 0  # how many are many

    async def take(self, at_most: int, within_s: float) -> list[Read]:
        """What is there, and no more than that; [] when nothing comes in time. Raises TopologyError: lost."""
        if self._arrived.empty():
            await self._await(within_s)
        found: list[Read] = []
        while len(found) < at_most and not self._arrived.empty():
            message = self._arrived.get_nowait()
            self._taken.append(message)
            found.append(Read(int(message.headers[OFFSET]), message.body))  # type: ignore[arg-type]  # always a long
        return found

    async def gather(self, count: int, within_s: float) -> None:
        """Until so many are there, the time is over, or nothing more will come."""
        self._count = count
        self._many.clear()
        if self._arrived.qsize() < count and not self._lost.done():
            with suppress(TimeoutError):
                async with asyncio.timeout(within_s):
                    await self._many.wait()

    async def done(self) -> None:
        """What was taken is kept: the broker may send as much again."""
        taken, self._taken = self._taken, []
        if taken:
            await taken[-1].ack(multiple=True)

    async def _await(self, within_s: float) -> None:
        coming = asyncio.ensure_future(self._arrived.get())
        try:
            waiting: set[asyncio.Future[Any]] = {coming, self._lost}
            await asyncio.wait(waiting, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not coming.done():
                coming.cancel()
        if coming.done() and not coming.cancelled():
            self._put_first(coming.result())
        elif self._lost.done():
            raise self._lost.result()

    def _put_first(self, message: AbstractIncomingMessage) -> None:
        later = [self._arrived.get_nowait() for _ in range(self._arrived.qsize())]
        for one in (message, *later):
            self._arrived.put_nowait(one)

    async def arrived(self, message: AbstractIncomingMessage) -> None:
        """A delivery, as aio-pika hands it over."""
        self._arrived.put_nowait(message)
        if self._arrived.qsize() >= self._count:
            self._many.set()

    def lose(self, why: str) -> None:
        """Nothing more will come."""
        if not self._lost.done():
            self._lost.set_result(Lost(why))
            self._many.set()


@asynccontextmanager
async def reading(control: Control, stream: str, start: str | int) -> AsyncIterator[Reading]:
    """Messages from `start` (an offset, `first`, `next`) on. Raises TopologyError where there is no such stream.

    The connection is closed at the end, and not the consumer: RabbitMQ 3.10 ends the connection when a stream's
    delivery is given back.
    """
    found = Reading()
    arguments: dict[str, Any] = {OFFSET: start}
    try:
        async with control.translated(f"reading stream {stream!r}"), asyncio.timeout(15):
            connection = await control.connect()
            channel = connection.channel(publisher_confirms=False)
            await channel.initialize()
            channel.close_callbacks.add(lambda _channel, why: found.lose(f"the channel was closed: {why}"))
            underlay = await channel.get_underlay_channel()
            underlay.on_consumer_cancel_callbacks.add(lambda _frame: found.lose("the stream was deleted or moved"))
            await channel.set_qos(prefetch_count=PREFETCH)
            queue = await channel.get_queue(stream, ensure=False)
            await queue.consume(found.arrived, arguments=arguments)
        yield found
    finally:
        await control.close()
