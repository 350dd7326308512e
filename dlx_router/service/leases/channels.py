"""Connections and channels of leases.

A queue has connections of its own: what ends one of them (541, say, as the broker delivers a message that it cannot
convert) ends no lease of another queue. While a queue has fewer than PER_QUEUE of them a scan shares none with leases,
so that a failed read ends no lease at all. A channel is used again once nothing is held on it. `control` holds no
letter; while it lasts, the broker has not been restarted.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable, Container, Coroutine
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.holder import Holder
from dlx_router.broker.link import Link
from dlx_router.core.dead_letter_queues import deletes, is_made
from dlx_router.core.leases import NoRoom
from dlx_router.service.dispatch.in_use import InUse
from dlx_router.service.redrive.context import TaskContext

MAX_CONNECTIONS: Final = 64  # of a vhost
PER_QUEUE: Final = 4
IDLE_S: Final = 30.0  # then a connection that holds nothing is closed
IDLE_CHANNELS: Final = 64  # of a connection, kept for the next scan
QUIET_S: Final = 1.0
TROUBLE: Final = (LinkError, ChannelClosed, TimeoutError, OSError)
"""What the broker may do to us."""


@dataclass(slots=True, eq=False)
class _Connection:
    """Of one queue. `users`: scans and leases on it."""

    link: Link
    queue: str
    users: int = 0
    free_since_s: float = field(default_factory=time.monotonic)
    idle: list[Holder] = field(default_factory=list)


class LeaseChannels:
    """`on_lost(holder, error)`: the broker has again what it held. `epoch()` counts control connections."""

    def __init__(
        self, context: TaskContext, epoch: Callable[[], int], on_lost: Callable[[Consumer, Exception], None]
    ) -> None:
        self.epoch = 0  # changes where the broker may have been restarted, and may have lost acks
        self._context, self._next_epoch, self._on_lost = context, epoch, on_lost
        self._control: Link | None = None
        self._out: Link | None = None
        self._linking = asyncio.Lock()
        self._connections: list[_Connection] = []
        self._dropped: list[Link] = []  # they are being closed
        self._of: dict[Holder, _Connection] = {}
        self._held: Counter[Holder] = Counter()
        self._closing: set[asyncio.Task[None]] = set()
        self._in_use: InUse | None = None
        self._kept: set[str] = set()
        self._is_over = False

    async def control(self) -> Link:
        """The connection that holds no letters. LinkError: no letter is taken any more."""
        async with self._linking:
            self._see_leading()
            if self._control is None or not self._control.is_open:
                link = self._control = await self._context.link("lease control")
                self._in_use = InUse(lambda: link, self._context.names, self._abort)
                self._kept.clear()
                self.epoch = self._next_epoch()
            return self._control

    async def keep(self, queue: str) -> None:
        """No router deletes it as an idle one: letters that are leased are none that the broker counts for that."""
        in_force = self._context.in_force()
        if deletes(in_force.policies) and is_made(queue, in_force.policies, in_force.policies_of):
            await self.control()
            assert self._in_use is not None
            await self._in_use.hold(queue)
            self._kept.add(queue)

    async def tidy(self, queues: Container[str]) -> None:
        """Hold no other queues than these, and close connections that have held nothing for some time."""
        for queue in [queue for queue in self._kept if queue not in queues]:
            self._kept.discard(queue)
            if self._in_use is not None:
                with suppress(*TROUBLE):
                    await self._in_use.release(queue)
        until_s = time.monotonic() - IDLE_S
        for connection in [item for item in self._connections if not item.users and item.free_since_s < until_s]:
            self._drop(connection)

    async def publishing(self) -> Link:
        """Another one: behind an alarm the broker reads no ack from a connection that publishes. LinkError."""
        async with self._linking:
            self._see_leading()
            if self._out is None or not self._out.is_open:
                self._out = await self._context.link("lease copies")
            return self._out

    async def holder(self, queue: str, consumer_timeout_ms: int | None = None) -> Holder:
        """A channel for a scan; it holds nothing yet. `free` it once. NoRoom, LinkError."""
        await self.control()
        async with self._linking:
            self._see_leading()
            connection = self._free(queue) or await self._opened(queue)
            connection.users += 1
        try:
            holder = await self._started(connection, consumer_timeout_ms)
        except BaseException:
            self._unused(connection)
            raise
        self._of[holder] = connection
        self._held[holder] += 1
        return holder

    def _free(self, queue: str) -> _Connection | None:
        """The connection to use next; None: open another one."""
        self._connections = [item for item in self._connections if item.link.is_open]
        owned = sorted((item for item in self._connections if item.queue == queue), key=lambda item: item.users)
        is_full = len(owned) >= PER_QUEUE or (owned and len(self._connections) >= MAX_CONNECTIONS)
        return owned[0] if owned and (is_full or not owned[0].users) else None

    async def _opened(self, queue: str) -> _Connection:
        if len(self._connections) >= MAX_CONNECTIONS:
            until_s = time.monotonic() - QUIET_S
            unused = [item for item in self._connections if not item.users and item.free_since_s < until_s]
            if not unused:
                raise NoRoom(f"letters of {MAX_CONNECTIONS} queues are leased, which is the limit; end some leases")
            self._drop(min(unused, key=lambda item: item.free_since_s))
        self._connections.append(connection := _Connection(await self._context.link("leases"), queue))
        return connection

    async def _started(self, connection: _Connection, consumer_timeout_ms: int | None) -> Holder:
        connection.idle = [holder for holder in connection.idle if holder.is_open]
        if connection.idle:
            return connection.idle.pop()
        arguments = {"x-consumer-timeout": consumer_timeout_ms} if consumer_timeout_ms is not None else {}
        holder = Holder(
            connection.link, connection.queue, 0, sink=lambda *_: None, on_lost=self._lost, arguments=arguments
        )
        await holder.start()
        return holder

    def hold(self, holder: Holder) -> None:
        """One thing more is held on it."""
        self._held[holder] += 1
        self._of[holder].users += 1

    def free(self, holder: Holder) -> None:
        """One less; the last makes it free for another scan. Not at the end: `close` gives back what it holds."""
        if self._is_over:
            return
        connection = self._of[holder]
        self._unused(connection)
        self._held[holder] -= 1
        if self._held[holder] > 0:
            return
        del self._held[holder], self._of[holder]
        if not holder.is_open:
            return
        if len(connection.idle) < IDLE_CHANNELS:
            connection.idle.append(holder)
        else:
            self._spawn(self._closed(holder))

    def _unused(self, connection: _Connection) -> None:
        connection.users -= 1
        connection.free_since_s = time.monotonic()

    def _drop(self, connection: _Connection) -> None:
        self._connections.remove(connection)
        self._dropped = [*(link for link in self._dropped if link.is_open), connection.link]
        self._spawn(connection.link.close())

    def _spawn(self, closing: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(closing)
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def _closed(self, holder: Holder) -> None:
        """The broker keeps acks that come fast waiting in the channel, where they would be lost with it."""
        await asyncio.sleep(QUIET_S)
        with suppress(*TROUBLE):
            await holder.counted()
            await holder.close()

    def _abort(self, queue: str) -> None:
        """Give back what is held of a queue that another router may delete now."""
        self._kept.discard(queue)
        for connection in self._connections:
            if connection.queue == queue:
                connection.link.abort()

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
        links = (self._control, self._out, *self._dropped, *(item.link for item in self._connections))
        return [link for link in links if link is not None]

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
