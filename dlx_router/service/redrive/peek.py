"""Peek: which letters lie in a queue that somebody filled before the router came.

Nothing is moved, and no delivery is counted that could kill a letter: it is refused where the broker counts (quorum
queues before RabbitMQ 4.3), where looking is not given back at all (streams), and where others consume. Letters are
held unacked for the moment of the look, and given back in their order.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from pamqp import commands

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.link import Link, open_link
from dlx_router.config.units import number_of
from dlx_router.service.queue_reads import QueueReads
from dlx_router.wire import frames

MOST: Final = 65_535  # a prefetch has 16 bits
QUIET_S: Final = 2.0  # nothing more came: this was all
LONGEST_S: Final = 60.0  # nothing stays unacked for longer
MAX_BYTES: Final = 256 << 20
COUNTS_NOT_SINCE: Final = (4, 3)


class PeekError(Exception):
    """The queue cannot be looked into; says why, and what to do instead."""


@dataclass(frozen=True, slots=True)
class Kind:
    """What has to be known of the queue before: its type, and how many consume it."""

    type: str
    consumers: int


class _Peek:
    """The handler of the channel: keeps what comes until it is enough."""

    def __init__(self, limit: int) -> None:
        self.found: list[frames.Delivery] = []
        self.lost: Exception | None = None
        self.came = asyncio.Event()
        self._limit, self._bytes = limit, 0

    @property
    def is_full(self) -> bool:
        return len(self.found) >= self._limit or self._bytes > MAX_BYTES

    def on_event(self, event: Any) -> None:  # noqa: ANN401 - a frame is anything until it is matched
        if event.__class__ is frames.Delivery:
            self.found.append(event)
            self._bytes += len(event.body)
        elif event.__class__ is frames.Cancelled:
            self.lost = LinkError("the broker cancelled the consumer: is the queue deleted?")
        self.came.set()

    def on_closed(self, error: Exception) -> None:
        self.lost = error
        self.came.set()


async def peek(  # noqa: PLR0913 - where, what, how many
    place: tuple[Host, Login, Tls | None],
    queue: str,
    kind: Kind,
    reads: QueueReads,
    facts: Mapping[str, Any],
    *,
    limit: int,
    keep: Callable[[Any], None],
) -> int:
    """`keep(delivery)` for each of the first letters of the queue; → how many. Raises PeekError, ReadRefused.

    `facts`: as `reads` admitted it.
    """
    host, login, tls = place
    link = await _linked(host, login, tls)
    handler = _Peek(min(limit, MOST))
    try:
        _refuse(link, queue, kind)
        await reads.check_head(link, queue, facts)
        channel = await link.open_channel(handler)
        await link.rpc(channel, commands.Basic.Qos(0, min(limit, MOST), False))  # noqa: FBT003 - AMQP order
        consume = frames.lenient(commands.Basic.Consume)
        await link.rpc(channel, consume(queue=queue, consumer_tag="dlx-router-peek"))
        try:
            await _gather(handler)
        finally:
            await _give_back(link, channel, handler)
        for delivery in handler.found[:limit]:
            keep(delivery)
        return len(handler.found[:limit])
    except (LinkError, ChannelClosed, TimeoutError) as error:
        if isinstance(error, LinkError) and error.is_crash:
            raise await reads.crashed(queue, window=min(limit, MOST), held=len(handler.found)) from None
        raise PeekError(f"queue {queue!r}: {error}") from None
    finally:
        await link.close()


def _refuse(link: Link, queue: str, kind: Kind) -> None:
    instead = "attach it in a policy file (attachments: - queue: …), and the router takes its letters"
    if kind.type == "quorum" and link.version < COUNTS_NOT_SINCE:
        raise PeekError(f"queue {queue!r} is a quorum queue, and before 4.3 each look counts as a delivery; {instead}")
    if kind.type not in {"classic", "quorum"}:
        raise PeekError(f"queue {queue!r} is a {kind.type}; only classic and quorum queues can be looked into")
    if kind.consumers:
        consumers = number_of(kind.consumers, "consumer")
        raise PeekError(f"queue {queue!r} has {consumers}, which a look would disturb; stop what consumes it first")


async def _linked(host: Host, login: Login, tls: Tls | None) -> Link:
    try:
        return await open_link(host, login, tls=tls, heartbeat=10, name=f"dlx-router peek {login.vhost}")
    except LinkError as error:
        raise PeekError(str(error)) from None


async def _gather(handler: _Peek) -> None:
    """Until it is enough, nothing more comes, or it has lasted too long."""
    loop = asyncio.get_running_loop()
    end = loop.time() + LONGEST_S
    while not handler.is_full and handler.lost is None and loop.time() < end:
        handler.came.clear()
        try:
            async with asyncio.timeout(min(QUIET_S, end - loop.time())):
                await handler.came.wait()
        except TimeoutError:
            break
    if handler.lost is not None:
        raise handler.lost


async def _give_back(link: Link, channel: int, handler: _Peek) -> None:
    """By nack, which 4.3 does not count; closing the channel would count."""
    if handler.lost is None and link.is_open:
        await link.rpc(channel, commands.Basic.Cancel("dlx-router-peek"))
        if handler.found:
            link.send(frames.method(channel, commands.Basic.Nack(0, multiple=True, requeue=True)))
        await link.rpc(channel, commands.Basic.Qos(0, 1, False))  # noqa: FBT003 - its answer says that the nack was read
