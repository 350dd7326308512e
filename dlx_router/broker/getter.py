"""A fetching channel: takes single messages of a queue that others consume, and can give them back to their place."""

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
        """There is no consumer to be cancelled."""

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
