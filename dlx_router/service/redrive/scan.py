"""Scan a queue: hand over each delivery, hold what stays unacknowledged, and requeue it in its order at the end.

A channel holds MAX_HELD messages at most, because the broker searches its list of unacknowledged deliveries for each
ack. Then its consumer is cancelled and the next channel goes on; requeuing one channel after the other keeps the order.
See docs/architecture.md ("What the broker does").

An ack counts once the broker has read it: `unread` acks may be lost with the connection. Two more habits of quorum
queues, seen on 3.10: they requeue in any order what is on its way to a consumer that is cancelled, so a consumer is
cancelled once all that it may get is here, and no ack is sent meanwhile. And the broker keeps acks that come fast
waiting in the channel's process, where they are lost if the channel is closed: so that waits a second after many acks.
"""

import asyncio
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from enum import Enum
from typing import Final

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.link import Link
from dlx_router.core.settlement import PackedAcks
from dlx_router.wire import frames

MAX_HELD: Final = 2_000
MAX_CHANNELS: Final = 1_000  # of one scan; a longer queue has more messages on each
MAX_PREFETCH: Final = 60_000  # it has 16 bits
CONFIRM_AT: Final = 100  # unread acks, of which the broker is asked whether it has read them
CONFIRM_S: Final = 0.05  # or that the last question is so old
MANY: Final = 16  # frames of acks within QUIET_S; the broker makes them wait from 32 on
QUIET_S: Final = 1.0
NEAR_S: Final = 1.0  # then there are no more in the queue
BACK_S: Final = 30.0  # where others consume or messages expire, what was given back is not all counted
FIRST_LOOK_S: Final = 0.002
BACK_LOOK_S: Final = 0.05
AGAIN_S: Final = 0.1
MOST_S: Final = 1200.0  # of a look; RabbitMQ ends a consumer after 1,800, or after the queue's own time
SETTLED_S: Final = 2.0  # what was delivered is here by then


class _Holding(Consumer):
    """Its channel may hold thousands of messages, and there may be many of its kind."""

    new_acks = PackedAcks
    on_settled: Callable[["_Holding"], None]
    written = 0  # acks that were sent and may not have been read
    written_s = 0.0
    is_asked = False  # whether the broker has read them

    async def prepare(self) -> None:
        """Open the channel, for `consume`."""
        await self.open()
        await self._qos(self._prefetch)

    async def consume(self) -> None:
        """Consume. ChannelClosed 404: there is no such queue."""
        await self._consume()

    def settle(self, tag: int) -> bool:
        """As of any consumer, and tell the scan that there are acks to send."""
        self.on_settled(self)
        return super().settle(tag)

    @property
    def unflushed(self) -> int:
        """How many acks were not sent yet."""
        return self._acks.unflushed

    async def confirm_acks(self) -> None:
        """Wait until the broker has read the acks sent so far."""
        sent = self.written
        await self._qos(self._prefetch)
        self.written -= sent


class Scan:
    """One look through one queue. `sink(delivery, consumer)` is called for each; `lost` holds why it ended early."""

    def __init__(
        self,
        link: Link,
        queue: str,
        prefetch: int,
        sink: Callable[[frames.Delivery, Consumer], None],
        *,
        changes: bool = False,
        wake: Callable[[], None] = lambda: None,
    ) -> None:
        """`changes`: a full channel is followed by another. `wake()` is called when acks were read."""
        self._link, self._queue, self._prefetch, self._sink = link, queue, prefetch, sink
        self._changes, self._wake = changes, wake
        self._consumers: list[_Holding] = []
        self._unread: set[_Holding] = set()  # with acks that were not sent, or may not have been read
        self._came = 0
        self._acks, self._acks_s, self._many_s, self._confirm_s = 0, 0.0, 0.0, 0.0
        self._next: _Holding | None = None  # open, and not consuming yet
        self._full: _Holding | None = None  # gets no ack until its consumer is cancelled
        self._closing = False
        self._changing: asyncio.Task[None] | None = None
        self._confirming: set[asyncio.Task[None]] = set()
        self.lost: Exception | None = None
        self.failed = 0  # deliveries that were held as the connection ended

    async def start(self) -> None:
        """Consume. ChannelClosed 404: there is no such queue."""
        await self._continue(await self._prepared())

    async def _prepared(self) -> _Holding:
        consumer, self._next = self._next, None
        if consumer is None:
            consumer = _Holding(self._link, self._queue, self._prefetch, sink=self._take, on_lost=self._gone)
            consumer.on_settled = self._unread.add
            await consumer.prepare()
        return consumer

    async def _continue(self, consumer: _Holding) -> None:
        self._came = 0
        self._consumers.append(consumer)
        await consumer.consume()

    def _take(self, delivery: frames.Delivery, consumer: Consumer) -> None:
        self._came += consumer is self._consumers[-1]
        if self._closing:
            return  # it goes back with the others
        self._sink(delivery, consumer)
        if self._changes and self._changing is None and self._is_full:
            self._link.pause(paused=False)  # or the answers would not come
            self._changing = asyncio.get_running_loop().create_task(self._change())

    @property
    def _is_full(self) -> bool:
        return self._came >= self._prefetch + self._consumers[-1].acked

    async def _change(self) -> None:
        """Go on with the next channel, which is open already: a full one gets nothing more until it is sent an ack."""
        try:
            while self._is_full and not self._closing:
                full = self._full = self._consumers[-1]
                await asyncio.gather(self._continue(await self._prepared()), full.halt())
                self._full = None
                self._next = await self._prepared()
                await self._close_empty(time.monotonic())
        except Exception as error:  # noqa: BLE001 - told by `lost`, which the worker looks at
            self.lost = error
        finally:
            self._changing = self._full = None

    async def _close_empty(self, now: float) -> None:
        """Close the channels that hold nothing any more: a connection has 2,047."""
        for consumer in self._consumers[:-1]:
            if not (len(consumer) or consumer in self._unread) and now - consumer.written_s > QUIET_S:
                self._consumers.remove(consumer)
                await consumer.give_all_back(by_closing=True)

    @property
    def unread(self) -> int:
        """How many acks the broker may not have read."""
        return sum(consumer.unflushed + consumer.written for consumer in self._unread)

    @property
    def holding(self) -> int:
        """How many channels hold messages and have no consumer any more, which a quorum queue counts all the same."""
        return sum(len(consumer) > 0 for consumer in self._consumers[:-1])

    def _gone(self, _consumer: Consumer, error: Exception, unsettled: int) -> None:
        self.failed += unsettled
        if not self._closing:
            self.lost = error

    def flush(self) -> None:
        """Send the acks of what was settled, and find out whether the broker has read them."""
        now = time.monotonic()
        if now - self._acks_s > QUIET_S:
            self._acks, self._acks_s = 0, now
        for consumer in self._unread:
            if consumer.unflushed and consumer is not self._full:
                consumer.written += consumer.unflushed
                consumer.written_s = now
                self._acks += consumer.flush()
        if self._acks >= MANY:
            self._many_s = now
        if now - self._confirm_s < CONFIRM_S and self.unread < CONFIRM_AT:
            return
        self._confirm_s = now
        for consumer in self._unread:
            if consumer.written and not consumer.is_asked and consumer.is_open:
                consumer.is_asked = True
                task = asyncio.get_running_loop().create_task(self._confirm(consumer))
                self._confirming.add(task)
                task.add_done_callback(self._confirming.discard)

    async def _confirm(self, consumer: _Holding) -> None:
        with suppress(LinkError, ChannelClosed, TimeoutError):  # what ended the channel is told by `lost`
            await consumer.confirm_acks()
        consumer.is_asked = False
        if not (consumer.written or consumer.unflushed):
            self._unread.discard(consumer)
        self._wake()

    def pause(self, *, paused: bool) -> None:
        """Read no more, or go on; while channels change, go on."""
        self._link.pause(paused=paused and self._changing is None)

    async def give_back(self, *, by_closing: bool) -> int:
        """End: all that is unsettled is given back in its order; → how many. `by_closing`: see Consumer."""
        self._closing = True
        self._link.pause(paused=False)
        if self._changing is not None:
            await self._changing
        self.flush()
        await self._quiet()
        if self._next is not None:
            await self._next.give_all_back(by_closing=True)
        if by_closing and len(self._consumers) > 1:
            await self._all_here()
        if not by_closing or len(self._consumers) > 1:  # else all goes back in its order, with its channel
            await self._consumers[-1].halt()
        total, until_s = 0, time.monotonic() + BACK_S
        for consumer, later in zip(self._consumers, [*self._consumers[1:], None], strict=True):
            ready = (await later.counted())[0] if later is not None else 0
            total += (given := await consumer.give_all_back(by_closing=by_closing))
            if later is not None and given:
                await _arrived(later, ready + given, until_s)
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


async def _arrived(consumer: Consumer, ready: int, until_s: float) -> None:
    """Wait until the queue has taken back what a channel held; that may be later than the end of the channel."""
    pause_s = FIRST_LOOK_S
    while time.monotonic() < until_s and (await consumer.counted())[0] < ready:
        await asyncio.sleep(pause_s)
        pause_s = min(2 * pause_s, BACK_LOOK_S)


class Over(Enum):
    """How far a look is."""

    NO = "no"
    ALL = "all"  # what was counted at its start was seen, and nothing is left that is meant
    FEWER = "fewer"  # nothing comes any more: some of what was counted went another way (expired, purged, consumed)


class ScanPass:
    """`expected`: letters in the queue as it began; `ready()`: how many wait now, None where that is not known."""

    def __init__(self, expected: int, ready: Callable[[], Awaitable[int | None]]) -> None:
        self._expected, self._ready = expected, ready
        self._seen = -1
        self._moved_s = self._asked_s = 0.0

    async def over(self, now: float, seen: int, *, busy: bool, later: bool) -> Over:
        """Asked often. `busy`: letters wait or are on their way; `later`: what comes now died after the cutoff."""
        if busy or seen != self._seen:
            self._seen, self._moved_s = seen, now
        is_all = seen >= self._expected
        if busy or now - self._asked_s < AGAIN_S or not (is_all or now - self._moved_s >= SETTLED_S):
            return Over.NO
        self._asked_s = now
        if not (is_all and later) and await self._ready() != 0:
            return Over.NO
        return Over.ALL if is_all else Over.FEWER
