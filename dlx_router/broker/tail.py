"""A stream read from some place on, message by message.

Source: rabbitmq.com/docs/streams (consuming). The broker never says that the end is reached, nor that there is nothing:
silence is all that `last_offset` has to go by.
"""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import aclosing, asynccontextmanager
from typing import Any, Final, NamedTuple

from dlx_router.broker.answers import LinkError
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.link import Link
from dlx_router.broker.reading import Read, read_of
from dlx_router.wire import frames

PREFETCH: Final = 100
ACKED_AT_ONCE: Final = 32
QUIET_S: Final = 0.5
LOOKED_S: Final = 1.0
Message = Read


class Newest(NamedTuple):
    """The newest message, or one that came while we looked; None: none came. `is_last`: none came behind it."""

    message: Message | None
    is_last: bool


async def last_offset(link: Link, stream: str, first_s: float = QUIET_S, quiet_s: float = QUIET_S) -> int:
    """The offset of the newest message, or of one that came while we looked; −1 where none came within `first_s`.

    `quiet_s`: how long none came behind the newest. LinkError, ChannelClosed, TimeoutError: cannot be read.
    """
    message = (await newest(link, stream, first_s, quiet_s)).message
    return -1 if message is None else message.offset


async def newest(link: Link, stream: str, first_s: float, quiet_s: float) -> Newest:
    """The same, and whether others still came when we stopped looking. Raises the same."""
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


async def read(link: Link, stream: str, start: Any, only: str = "") -> AsyncGenerator[Message, None]:
    """Every message from `start` on, for ever. `start`: first, last, next, an offset or a time.

    `only` (3.13 or newer): the broker may leave out messages that have a filter value, and another. It need not.
    """
    async with opened(link, stream, start, only) as messages:
        async for message in messages:
            yield message


@asynccontextmanager
async def opened(link: Link, stream: str, start: Any, only: str = "") -> AsyncIterator[AsyncGenerator[Message, None]]:
    """As `read`; inside the block the broker has agreed to send. After it nothing is consumed, however it began."""
    arrived: asyncio.Queue[frames.Delivery | Exception] = asyncio.Queue()

    def lost(_consumer: Consumer, error: Exception, _unsettled: int) -> None:
        arrived.put_nowait(error)

    consumer = Consumer(
        link,
        stream,
        PREFETCH,
        sink=lambda delivery, _consumer: arrived.put_nowait(delivery),
        on_lost=lost,
        arguments={"x-stream-offset": start} | _filter(only),
    )
    try:
        await consumer.start()
        async with aclosing(_messages(consumer, arrived)) as messages:
            yield messages
    finally:
        consumer.drop()


async def _messages(
    consumer: Consumer, arrived: asyncio.Queue[frames.Delivery | Exception]
) -> AsyncGenerator[Message, None]:
    unacked = 0
    while True:
        delivery = await arrived.get()
        if isinstance(delivery, Exception):
            raise LinkError(f"stream {consumer.queue!r} is read no more: {delivery}") from delivery
        consumer.settle(delivery.tag)
        unacked += 1
        if arrived.empty() or unacked == ACKED_AT_ONCE:
            consumer.flush()
            unacked = 0
        yield read_of(delivery)


def _filter(only: str) -> dict[str, Any]:
    return {"x-stream-filter": only, "x-stream-match-unfiltered": True} if only else {}
