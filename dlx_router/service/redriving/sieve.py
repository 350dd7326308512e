"""The sieve: looks through a queue, hands over what is meant and holds the rest, which goes back in its order.

A consumer holds at most 60,000 letters (prefetch has 16 bits); then it is ended, keeping what it holds, and the next
one goes on, so that giving back one after the other keeps the order. Source: rabbitmq.md §11.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from dlx_router.broker.consumer import Consumer
from dlx_router.broker.link import Link
from dlx_router.wire import frames

MAX_HELD: Final = 60_000
BACK_S: Final = 5.0
BACK_LOOK_S: Final = 0.05


class Sieve:
    """One look through one queue. `sink(delivery, consumer)` is called for each; `lost` holds why it ended early."""

    def __init__(
        self, link: Link, queue: str, prefetch: int, sink: Callable[[frames.Delivery, Consumer], None]
    ) -> None:
        self._link, self._queue, self._prefetch, self._sink = link, queue, prefetch, sink
        self._consumers: list[Consumer] = []
        self._came = 0
        self._closing = False
        self._changing: asyncio.Task[None] | None = None
        self.lost: Exception | None = None

    async def start(self) -> None:
        """Consume. ChannelClosed 404: there is no such queue."""
        consumer = Consumer(self._link, self._queue, self._prefetch, sink=self._take, on_lost=self._gone)
        self._came = 0
        self._consumers.append(consumer)
        await consumer.start()

    def _take(self, delivery: frames.Delivery, consumer: Consumer) -> None:
        if self._closing:
            return  # it goes back with the others
        self._came += 1
        self._sink(delivery, consumer)
        if self._came >= MAX_HELD and consumer is self._consumers[-1] and self._changing is None:
            self._link.pause(paused=False)  # or the answers would not come
            self._changing = asyncio.get_running_loop().create_task(self._change(consumer))

    async def _change(self, full: Consumer) -> None:
        try:
            await full.halt()
            await self.start()
        except Exception as error:  # noqa: BLE001 - told by `lost`, which the worker looks at
            self.lost = error
        finally:
            self._changing = None

    def _gone(self, _consumer: Consumer, error: Exception, _unsettled: int) -> None:
        if not self._closing:
            self.lost = error

    def flush(self) -> None:
        """Send the acks of what was settled."""
        for consumer in self._consumers:
            consumer.flush()

    def pause(self, *, paused: bool) -> None:
        """Read no more, or go on; in the moment of a change of consumers, which hold as many as they may, go on."""
        self._link.pause(paused=paused and self._changing is None)

    async def give_back(self, *, by_closing: bool) -> int:
        """End: all that is unsettled is given back in its order; → how many. `by_closing`: see Consumer."""
        self._closing = True
        self._link.pause(paused=False)
        if self._changing is not None:
            await self._changing
        for consumer in self._consumers[-1:]:
            await consumer.halt()
        total = 0
        for consumer, later in zip(self._consumers, [*self._consumers[1:], None], strict=True):
            ready = (await later.counted())[0] if by_closing and later is not None else 0
            total += (given := await consumer.give_all_back(by_closing=by_closing))
            if by_closing and later is not None:
                await _arrived(later, ready + given)
        return total


async def _arrived(consumer: Consumer, ready: int) -> None:
    """The queue has taken back what a channel held: it learns of its end later than we do."""
    with suppress(TimeoutError):
        async with asyncio.timeout(BACK_S):
            while (await consumer.counted())[0] < ready:  # noqa: ASYNC110 - the broker tells nobody
                await asyncio.sleep(BACK_LOOK_S)
