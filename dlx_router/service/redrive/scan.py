"""A scan: looks through a queue, hands over what is meant and holds the rest, which goes back in its order.

A consumer holds at most 60,000 letters (prefetch has 16 bits); then it is ended, keeping what it holds, and the next
one goes on, so that giving back one after the other keeps the order. See docs/architecture.md
("What the broker does").

Two habits of quorum queues, seen on 3.10. What is on its way to a consumer that ends is taken back in any order: so no
ack is sent while a consumer comes near its end, because the broker then sends exactly as many as it may, and it ends
when they are here. And the broker keeps acks that come fast waiting in the channel's process, where they are lost if
the channel ends: so a channel ends some time after the last of many.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from dlx_router.broker.consumer import Consumer
from dlx_router.broker.link import Link
from dlx_router.core.settlement import PackedAcks
from dlx_router.wire import frames

MAX_HELD: Final = 60_000
NEAR: Final = 100  # letters that a consumer may still get
NEAR_S: Final = 1.0  # then there are no more in the queue
MANY: Final = 16  # frames of acks within QUIET_S; the broker makes them wait from 32 on
QUIET_S: Final = 1.0
BACK_S: Final = 30.0
BACK_LOOK_S: Final = 0.05


class _Holding(Consumer):
    """All that it holds may be millions of letters, with others of its kind."""

    new_acks = PackedAcks


class Scan:
    """One look through one queue. `sink(delivery, consumer)` is called for each; `lost` holds why it ended early."""

    def __init__(
        self, link: Link, queue: str, prefetch: int, sink: Callable[[frames.Delivery, Consumer], None]
    ) -> None:
        self._link, self._queue, self._prefetch, self._sink = link, queue, prefetch, sink
        self._consumers: list[Consumer] = []
        self._came = 0
        self._near_s: float | None = None  # since when no ack is sent
        self._thawed = 0  # how many had come when acks were sent again
        self._acks, self._acks_s, self._many_s = 0, 0.0, 0.0
        self._closing = False
        self._changing: asyncio.Task[None] | None = None
        self.lost: Exception | None = None

    async def start(self) -> None:
        """Consume. ChannelClosed 404: there is no such queue."""
        consumer = _Holding(self._link, self._queue, self._prefetch, sink=self._take, on_lost=self._gone)
        self._came = self._thawed = 0
        self._consumers.append(consumer)
        await consumer.start()

    def _take(self, delivery: frames.Delivery, consumer: Consumer) -> None:
        self._came += consumer is self._consumers[-1]
        if self._closing:
            return  # it goes back with the others
        self._sink(delivery, consumer)
        if consumer is self._consumers[-1] and self._prefetch >= MAX_HELD and self._changing is None:
            self._see_to_the_end_of(consumer)

    def _see_to_the_end_of(self, consumer: Consumer) -> None:
        left = self._prefetch + consumer.acked - self._came
        if left > NEAR or (self._near_s is None and self._came - self._thawed < NEAR and left):
            return
        if self._near_s is None:
            self._near_s = time.monotonic()
        self._link.pause(paused=False)  # or they, and the answers, would not come
        if not left:
            self._changing = asyncio.get_running_loop().create_task(self._change(consumer))

    async def _change(self, full: Consumer) -> None:
        try:
            await full.halt()
            await self.start()
        except Exception as error:  # noqa: BLE001 - told by `lost`, which the worker looks at
            self.lost = error
        finally:
            self._changing = self._near_s = None

    @property
    def is_changing(self) -> bool:
        """Whether a consumer is at its end: nothing should be settled for a moment."""
        return self._near_s is not None

    def _gone(self, _consumer: Consumer, error: Exception, _unsettled: int) -> None:
        if not self._closing:
            self.lost = error

    def flush(self) -> None:
        """Send the acks of what was settled."""
        now = time.monotonic()
        if self._near_s is not None and self._changing is None and now - self._near_s > NEAR_S:
            self._near_s, self._thawed = None, self._came
        if self._near_s is None:
            self._flush(now)

    def _flush(self, now: float) -> None:
        if now - self._acks_s > QUIET_S:
            self._acks, self._acks_s = 0, now
        for consumer in self._consumers:
            self._acks += consumer.flush()
        if self._acks >= MANY:
            self._many_s = now

    def pause(self, *, paused: bool) -> None:
        """Read no more, or go on; while a consumer is at its end, go on."""
        self._link.pause(paused=paused and not self.is_changing)

    async def give_back(self, *, by_closing: bool) -> int:
        """End: all that is unsettled is given back in its order; → how many. `by_closing`: see Consumer."""
        self._closing = True
        self._link.pause(paused=False)
        if self._changing is not None:
            await self._changing
        self._flush(time.monotonic())
        await self._quiet()
        if by_closing and len(self._consumers) > 1:
            await self._all_here()
        if not by_closing or len(self._consumers) > 1:  # else all goes back in its order, with its channel
            await self._consumers[-1].halt()
        total = 0
        for consumer, later in zip(self._consumers, [*self._consumers[1:], None], strict=True):
            ready = (await later.counted())[0] if by_closing and later is not None else 0
            total += (given := await consumer.give_all_back(by_closing=by_closing))
            if by_closing and later is not None:
                await _arrived(later, ready + given)
        return total

    async def _all_here(self) -> None:
        """The last consumer has what it may get, or nothing more comes: it must not take what others give back."""
        last, came, since = self._consumers[-1], -1, time.monotonic()
        while self._came < self._prefetch + last.acked and time.monotonic() - since < NEAR_S:
            if self._came != came:
                came, since = self._came, time.monotonic()
            await asyncio.sleep(BACK_LOOK_S)

    async def _quiet(self) -> None:
        """Until the broker has seen to the acks."""
        while time.monotonic() - self._many_s < QUIET_S:
            await self._consumers[-1].counted()  # its channel's process is at work, and so looks at what waits
            await asyncio.sleep(BACK_LOOK_S)


async def _arrived(consumer: Consumer, ready: int) -> None:
    """The queue has taken back what a channel held: it learns of its end later than we do."""
    with suppress(TimeoutError):
        async with asyncio.timeout(BACK_S):
            while (await consumer.counted())[0] < ready:  # noqa: ASYNC110 - the broker tells nobody
                await asyncio.sleep(BACK_LOOK_S)
