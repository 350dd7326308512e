"""A fetching channel: takes single messages of a queue that others consume, and can give them back to their place."""

import asyncio
from collections.abc import Callable
from typing import Any, Final

from pamqp import commands

from dlx_router.broker.consumer import Consumer
from dlx_router.broker.link import Link
from dlx_router.wire import frames

_GET: Final = frames.lenient(commands.Basic.Get)


class Getter(Consumer):
    """Consumes nothing by itself; each `fetch` is answered by a delivery to the sink, or by `on_empty()`."""

    def __init__(
        self,
        link: Link,
        queue: str,
        *,
        sink: Callable[[Any, Consumer], None],
        on_lost: Callable[[Consumer, Exception, int], None],
        on_empty: Callable[[], None],
    ) -> None:
        super().__init__(link, queue, 0, sink=sink, on_lost=on_lost)
        self._on_empty = on_empty
        self.is_cancelled = False

    async def start(self) -> None:
        """Open the channel."""
        self._channel = await self._link.open_channel(self)

    async def lock(self, name: str) -> None:
        """Be the only one, as long as this connection lasts; ChannelClosed (405) where another is."""
        declare = frames.lenient(commands.Queue.Declare)
        await self._link.rpc(self._channel, declare(queue=name, exclusive=True, auto_delete=True))

    def fetch(self, count: int) -> None:
        """Ask for so many messages."""
        if self._channel:
            self._link.send(frames.method(self._channel, _GET(queue=self.queue)) * count)

    def cancel(self) -> None:
        """No more is to be asked for; what is here can still be settled."""
        self.is_cancelled = True

    async def end(self) -> None:
        """As `cancel`, and what was asked for is here when this returns."""
        self.cancel()
        await self._ask_until_answered(self._look())

    def on_event(self, event: Any) -> None:
        """A message, or word that there is none."""
        if event.__class__ is frames.Got:
            where = event.exchange, event.routing_key
            came = frames.Delivery(event.channel, b"", event.tag, event.redelivered, *where, event.header, event.body)
            super().on_event(came)
        elif event.__class__ is frames.Method:
            self._on_empty()
        else:
            super().on_event(event)


class Peek:
    """Looks at the head of a queue and leaves it there.

    `basic.get` and the `basic.nack` that gives back what it brings go in one write, so the broker does both in one go:
    a consumer has no time for the next message between them. Of an empty queue there is nothing to be given back, and
    the broker closes the channel; the next look opens another.
    """

    def __init__(self, link: Link, queue: str) -> None:
        self._link, self._queue = link, queue
        self._channel: _PeekChannel | None = None

    async def look(self, within: float = 3.0) -> frames.Got | None:
        """The head as it is now; None where the queue is empty. ChannelClosed, LinkError or TimeoutError otherwise."""
        if self._channel is None or not self._channel.number:
            self._channel = _PeekChannel()
            self._channel.number = await self._link.open_channel(self._channel)
        channel = self._channel
        channel.tag += 1
        channel.answer = asyncio.get_running_loop().create_future()
        get = frames.method(channel.number, _GET(queue=self._queue))
        self._link.send(get + frames.nack(channel.number, channel.tag, False, True))  # noqa: FBT003 - AMQP order
        try:
            async with asyncio.timeout(within):
                return await channel.answer
        except TimeoutError:
            self._channel = None  # its late answer is for nobody
            self._link.drop_channel(channel.number)
            raise

    def close(self) -> None:
        """Close the channel; the next look opens another."""
        if self._channel is not None and self._channel.number:
            self._link.drop_channel(self._channel.number)
        self._channel = None


class _PeekChannel:
    """One channel of a Peek; `number` 0: it is not to be used any more. Tags count what was delivered on it."""

    def __init__(self) -> None:
        self.number = self.tag = 0
        self.answer: asyncio.Future[frames.Got | None] | None = None

    def on_event(self, event: Any) -> None:
        if event.__class__ is frames.Got:
            self._resolve(event)
        elif event.__class__ is frames.Method:
            self.number = 0
            self._resolve(None)

    def on_closed(self, error: Exception) -> None:
        self.number = 0
        if self.answer is not None and not self.answer.done():
            self.answer.set_exception(error)

    def _resolve(self, got: frames.Got | None) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(got)
