"""Connections and channels that hold leased letters.

A queue has connections of its own: what ends one of them (541, say, as the broker delivers a message that it cannot
convert) ends no lease of another queue. While a queue has fewer than PER_QUEUE of them a scan shares none with leases,
so that a failed read ends no lease at all. The control connection holds no letter; while it lasts, the broker has not
been restarted.
"""

import asyncio
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.consumer import Consumer, Holder
from dlx_router.broker.link import Link
from dlx_router.core.dead_letter_queues import deletes, is_made
from dlx_router.core.leases import NoRoom
from dlx_router.core.letter import Letter
from dlx_router.core.policy import Effective
from dlx_router.core.record import HEADER
from dlx_router.service.dispatch.in_use import InUse
from dlx_router.service.dispatch.settler import returned
from dlx_router.service.inflight.decoder import Envelope
from dlx_router.service.redrive.context import TaskContext
from dlx_router.wire import table

MAX_CONNECTIONS: Final = 64  # of a vhost
PER_QUEUE: Final = 4
IDLE_S: Final = 30.0  # then a connection that holds nothing is closed
QUIET_S: Final = 1.0
TROUBLE: Final = (LinkError, ChannelClosed, TimeoutError, OSError)


@dataclass(slots=True, eq=False)
class HeldLetter:
    """A leased letter and the channel that holds it; the body is kept, because what is sent back is sent from here."""

    holder: Holder
    letter: Letter
    envelope: Envelope
    policy: Effective | None
    revision: str
    since_s: float  # by the monotonic clock
    epoch: int  # of the control connection
    turn: int = 0  # of the channel: the consumer that it was delivered to

    @property
    def queue(self) -> str:
        """The queue that it is in, unacknowledged."""
        return self.holder.queue

    def requeue(self) -> None:
        """Give it back; the broker already has it if the channel is closed."""
        returned(self.holder, self.envelope.delivery.tag)


def key_of(letter: Letter, envelope: Envelope) -> str:
    """Identify a letter in its queue by id, content and record; only letters that are equal share a key."""
    headers, at = envelope.props.headers, envelope.found.get(HEADER.encode())
    record = headers[at[1] : at[2]] if at is not None else b""
    text = f"{letter.source}\0{letter.id}\0{envelope.content.crc32}\0{envelope.content.size}\0"
    return blake2b(text.encode(errors="surrogateescape") + record, digest_size=16).hexdigest()


def count_of(envelope: Envelope, header: bytes) -> int:
    """Return x-acquired-count or x-delivery-count of a quorum queue; 0 if the broker does not count."""
    at = envelope.found.get(header)
    value = 0 if at is None else table.decode_value(envelope.props.headers, at[1])
    return value if isinstance(value, int) else 0


@dataclass(slots=True, eq=False)
class _Connection:
    """Of one queue. `users`: scans and leases on it."""

    link: Link
    queue: str
    users: int = 0
    free_since_s: float = field(default_factory=time.monotonic)
    idle: list[Holder] = field(default_factory=list)
    in_use: InUse | None = None

    def release(self) -> None:
        self.users -= 1
        self.free_since_s = time.monotonic()


class LeaseConnections:
    """Connections of one leader's term. `on_lost(holder, error)`: the broker has again what that channel held."""

    def __init__(
        self, context: TaskContext, new_epoch: Callable[[], int], on_lost: Callable[[Consumer, Exception], None]
    ) -> None:
        self.epoch = 0  # changes if the broker may have been restarted, and may have lost acks
        self.is_over = False  # no letter is taken any more: another router may lead
        self._context, self._new_epoch, self._on_lost = context, new_epoch, on_lost
        self._control: Link | None = None
        self._publishing: Link | None = None
        self._opening = asyncio.Lock()
        self._connections: list[_Connection] = []
        self._connection_of: dict[Holder, _Connection] = {}
        self._held: Counter[Holder] = Counter()
        self._closing: set[asyncio.Task[None]] = set()

    async def control(self) -> Link:
        """Return the connection that holds no letters. LinkError if this router leads no more."""
        async with self._opening:
            self._require_leading()
            if self._control is None or not self._control.is_open:
                self._control = await self._context.link("lease control")
                self.epoch = self._new_epoch()
            return self._control

    async def publishing(self) -> Link:
        """Return the connection for copies: behind an alarm the broker reads no ack from one that publishes."""
        async with self._opening:
            self._require_leading()
            if self._publishing is None or not self._publishing.is_open:
                self._publishing = await self._context.link("lease copies")
            return self._publishing

    def tidy(self) -> None:
        """Close connections that have held nothing for some time."""
        for connection in self._unused_for(IDLE_S):
            self._drop(connection)

    async def channel(self, queue: str, consumer_timeout_ms: int | None = None) -> Holder:
        """Return a channel for a scan, which holds nothing yet; `free` it once. NoRoom, LinkError."""
        await self.control()
        async with self._opening:
            self._require_leading()
            connection = self._available(queue) or await self._open(queue)
            await self._keep(connection)
            connection.users += 1
        try:
            connection.idle = [holder for holder in connection.idle if holder.is_open]
            if connection.idle:
                holder = connection.idle.pop()
            else:
                arguments = {} if consumer_timeout_ms is None else {"x-consumer-timeout": consumer_timeout_ms}
                link, ignored = connection.link, lambda *_: None
                holder = Holder(link, queue, 0, sink=ignored, on_lost=self._lost, arguments=arguments)
                await holder.start()
        except BaseException:
            connection.release()
            raise
        self._connection_of[holder] = connection
        self._held[holder] += 1
        return holder

    def _available(self, queue: str) -> _Connection | None:
        """Choose an open connection of the queue; None if another one is to be opened."""
        self._connections = [item for item in self._connections if item.link.is_open]
        owned = sorted((item for item in self._connections if item.queue == queue), key=lambda item: item.users)
        is_full = len(owned) >= PER_QUEUE or len(self._connections) >= MAX_CONNECTIONS
        return owned[0] if owned and (is_full or not owned[0].users) else None

    async def _open(self, queue: str) -> _Connection:
        if len(self._connections) >= MAX_CONNECTIONS:
            if not (unused := self._unused_for(QUIET_S)):
                raise NoRoom(f"letters of {MAX_CONNECTIONS} queues are leased, which is the limit; end some leases")
            self._drop(min(unused, key=lambda item: item.free_since_s))
        self._connections.append(connection := _Connection(await self._context.link("leases"), queue))
        return connection

    async def _keep(self, connection: _Connection) -> None:
        """Let no router delete the queue as an idle one: the broker does not count what is unacknowledged."""
        in_force, link = self._context.in_force(), connection.link
        if connection.in_use is not None or not deletes(in_force.policies):
            return
        if is_made(connection.queue, in_force.policies, in_force.policies_of):
            in_use = InUse(lambda: link, self._context.names, lambda _queue: link.abort())
            await in_use.hold(connection.queue)
            connection.in_use = in_use

    def hold(self, holder: Holder) -> None:
        """Count one more lease on the channel."""
        self._held[holder] += 1
        self._connection_of[holder].users += 1

    def free(self, holder: Holder) -> None:
        """Count one less; a channel that holds nothing is reused. At the end `close` requeues what it holds."""
        if self.is_over:
            return
        connection = self._connection_of[holder]
        connection.release()
        self._held[holder] -= 1
        if self._held[holder] > 0:
            return
        del self._held[holder], self._connection_of[holder]
        if holder.is_open:
            connection.idle.append(holder)

    def _unused_for(self, seconds: float) -> list[_Connection]:
        until_s = time.monotonic() - seconds
        return [item for item in self._connections if not item.users and item.free_since_s < until_s]

    def _drop(self, connection: _Connection) -> None:
        self._connections.remove(connection)
        closing = asyncio.create_task(connection.link.close())
        self._closing.add(closing)
        closing.add_done_callback(self._closing.discard)

    def _lost(self, holder: Consumer, error: Exception, _unsettled: int) -> None:
        self._on_lost(holder, error)

    async def close(self, within_s: float) -> None:
        """Requeue all by nack: a lost connection counts as a failed delivery. After that time drop the connections."""
        self.is_over = True
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s), self._opening:  # a connection that is being made is closed, too
                await asyncio.gather(*map(_requeue_all, [*self._held]))
                await asyncio.gather(*self._closing, *(link.close() for link in self._links))
        for link in self._links:
            link.abort()

    @property
    def _links(self) -> list[Link]:
        links = (self._control, self._publishing, *(item.link for item in self._connections))
        return [link for link in links if link is not None]

    def _require_leading(self) -> None:
        if self.is_over:
            raise LinkError("this router stops, or leads no more")


async def _requeue_all(holder: Holder) -> None:
    with suppress(*TROUBLE):
        await holder.halt()
        await holder.give_all_back()


async def has_read_acks(holder: Holder) -> bool:
    """Return whether the broker has read the acks of this channel; False if it is lost."""
    with suppress(*TROUBLE):
        return await holder.seen()
    return False
