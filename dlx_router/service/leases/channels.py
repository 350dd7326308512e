"""Channels of leases: a connection that holds letters, one that copies go by, and a channel for each look.

A channel is used again once nothing is held on it. Whatever ends one gives its letters back.
"""

import asyncio
from collections import Counter
from collections.abc import Callable, Container
from contextlib import suppress
from typing import Final

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.holder import Holder
from dlx_router.broker.link import Link
from dlx_router.core.dead_letter_queues import deletes, is_made
from dlx_router.service.dispatch.in_use import InUse
from dlx_router.service.redrive.context import TaskContext

IDLE: Final = 64  # channels that are kept for the next look
QUIET_S: Final = 1.0
TROUBLE: Final = (LinkError, ChannelClosed, TimeoutError, OSError)
"""What the broker may do to us."""


class LeaseChannels:
    """`on_lost(holder, error)`: the broker has again what it held. `epoch()` counts connections."""

    def __init__(
        self, context: TaskContext, epoch: Callable[[], int], on_lost: Callable[[Consumer, Exception], None]
    ) -> None:
        self.epoch = 0  # of the connection that holds now
        self._context, self._next_epoch, self._on_lost = context, epoch, on_lost
        self._link: Link | None = None
        self._out: Link | None = None
        self._linking = asyncio.Lock()
        self._held: Counter[Holder] = Counter()
        self._idle: list[Holder] = []
        self._closing: set[asyncio.Task[None]] = set()
        self._in_use: InUse | None = None
        self._kept: set[str] = set()
        self._is_over = False

    async def linked(self) -> Link:
        """The connection that holds letters. LinkError: no letter is taken any more."""
        async with self._linking:
            self._see_leading()
            if self._link is None or not self._link.is_open:
                link = self._link = await self._context.link("leases")
                self._in_use = InUse(lambda: link, self._context.names, lambda _queue: link.abort())
                self._kept.clear()
                self.epoch = self._next_epoch()
            return self._link

    async def keep(self, queue: str) -> None:
        """No router deletes it as an idle one: letters that are leased are none that the broker counts for that."""
        in_force = self._context.in_force()
        if deletes(in_force.policies) and is_made(queue, in_force.policies, in_force.policies_of):
            await self.linked()
            assert self._in_use is not None
            await self._in_use.hold(queue)
            self._kept.add(queue)

    async def keep_only(self, queues: Container[str]) -> None:
        """Of the others nothing is held any more."""
        for queue in [queue for queue in self._kept if queue not in queues]:
            self._kept.discard(queue)
            if self._in_use is not None:
                with suppress(*TROUBLE):
                    await self._in_use.release(queue)

    async def publishing(self) -> Link:
        """Another one: behind an alarm the broker reads no ack from a connection that publishes. LinkError."""
        async with self._linking:
            self._see_leading()
            if self._out is None or not self._out.is_open:
                self._out = await self._context.link("lease copies")
            return self._out

    async def holder(self, queue: str) -> Holder:
        """A channel for a look; it holds nothing yet. `free` it once."""
        link = await self.linked()
        self._idle = [holder for holder in self._idle if holder.is_open]
        if self._idle:
            holder = self._idle.pop()
            holder.queue = queue
        else:
            holder = Holder(link, queue, 0, sink=lambda _delivery, _consumer: None, on_lost=self._lost)
            await holder.start()
        self.hold(holder)
        return holder

    def hold(self, holder: Holder) -> None:
        """One thing more is held on it."""
        self._held[holder] += 1

    def free(self, holder: Holder) -> None:
        """One less; the last makes it free for another look. Not at the end: `close` gives back what it holds."""
        if self._is_over:
            return
        self._held[holder] -= 1
        if self._held[holder] > 0:
            return
        del self._held[holder]
        if not holder.is_open:
            return
        if len(self._idle) < IDLE:
            self._idle.append(holder)
        else:
            task = asyncio.create_task(self._closed(holder))
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)

    async def _closed(self, holder: Holder) -> None:
        """The broker keeps acks that come fast waiting in the channel, where they would be lost with it."""
        await asyncio.sleep(QUIET_S)
        with suppress(*TROUBLE):
            await holder.counted()
            await holder.close()

    def _lost(self, holder: Consumer, error: Exception, _unsettled: int) -> None:
        self._on_lost(holder, error)

    @property
    def is_over(self) -> bool:
        """No letter is taken any more: another router may lead."""
        return self._is_over

    def end(self) -> None:
        """From now on nobody gets a channel, whoever waits for one; what is held is held until `close`."""
        self._is_over = True

    async def close(self, within_s: float) -> None:
        """What is held goes back, by nack: a connection that is lost counts as a failed delivery.

        The broker has `within_s` seconds to answer, then the connections are dropped.
        """
        self.end()
        for task in self._closing:
            task.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s), self._linking:  # a connection that is being made is closed, too
                await asyncio.gather(*map(self._given_back, [*self._held]))
                await asyncio.gather(*(link.close() for link in self._links))
        for link in self._links:
            link.abort()

    @property
    def _links(self) -> list[Link]:
        return [link for link in (self._link, self._out) if link is not None]

    async def _given_back(self, holder: Holder) -> None:
        with suppress(*TROUBLE):
            await holder.halt()
            await holder.give_all_back()

    def _see_leading(self) -> None:
        if self._is_over:
            raise LinkError("this router stops, or leads no more")


async def is_seen(holder: Holder) -> bool:
    """Whether the broker has read the acks of this channel; False where it is lost."""
    with suppress(*TROUBLE):
        return await holder.seen()
    return False
