"""Preview: what a task would meet in a queue, told before somebody lets it begin; and what it refuses without a word.

A task acts on letters only. But it looks at all that lies there, and holds it for as long as it looks: in a queue that
somebody consumes, those are messages that the consumer waits for.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.consumer import Consumer, Holder
from dlx_router.broker.link import Link, open_link
from dlx_router.broker.management import ManagementError
from dlx_router.config.units import number_of
from dlx_router.core.dead_letter_queues import Aim, aims, is_made, is_named
from dlx_router.redrive.task import Kind, Spec, TaskError
from dlx_router.service.queue_reads import QueueReads
from dlx_router.service.redrive.context import TaskContext
from dlx_router.wire import frames

LEAVING_S: Final = 2.0  # a consumer that has just gone (of the task before, say) may still be counted
LOOK_S: Final = 0.1
KNOWING: Final = '--not-a-dead-letter-queue (API: "not_a_dead_letter_queue": true)'


@dataclass(frozen=True, slots=True)
class Preview:
    """A queue as the broker counts it; no message is read. `unacked` None: nobody can say."""

    queue: str
    messages: int
    unacked: int | None
    consumers: int
    is_dead_letter_queue: bool

    @property
    def objection(self) -> str:
        """Why nothing should be taken from it by somebody who does not know this; "" where nothing is against it."""
        return objection(self.queue, self.consumers, is_dead_letter_queue=self.is_dead_letter_queue)


def objection(queue: str, consumers: int, *, is_dead_letter_queue: bool) -> str:
    """What is against taking anything from this queue; "" for nothing."""
    reasons = (
        [] if is_dead_letter_queue else ["is no dead-letter queue: no policy makes it or sends dead letters there"]
    )
    if consumers:
        reasons.append(f"has {number_of(consumers, 'consumer')}")
    return f"queue {queue!r} {', and '.join(reasons)}" if reasons else ""


async def see_to_letters(context: TaskContext, spec: Spec) -> None:
    """TaskError where the queue seems to be one of living messages, and who asks does not say that this is known.

    What takes nothing away is refused beside consumers only, which would have to wait for what it holds.
    """
    if spec.not_a_dead_letter_queue:
        return
    takes = spec.kind is not Kind.EXPORT and not spec.dry_run
    is_ours = not takes or await _is_dead_letter_queue(context, spec.queue)
    consumers = await _consumers(context, spec.queue, context.awaited)
    why = objection(spec.queue, consumers, is_dead_letter_queue=is_ours)
    if why:
        raise TaskError(
            f"{why}; what lies there may be living messages. Nothing was done. A task takes letters only, and leaves "
            f"what never died, but holds all of it while it looks; to do it anyway: {KNOWING}"
        )


async def living(context: TaskContext, queue: str) -> str:
    """What is against receiving from this queue; "" for nothing."""
    is_ours = await _is_dead_letter_queue(context, queue)
    return objection(queue, await _consumers(context, queue), is_dead_letter_queue=is_ours)


async def previewed(context: TaskContext, queue: str) -> Preview:
    """What there is to know of a queue that exists. ReadRefused."""
    facts = await context.reads.admit(context.topology, queue)
    messages, counted = (await context.topology.censuses([queue])).get(queue, (0, 0))
    consumers = max(counted - context.leased(queue), 0)
    unacked = facts.get("messages_unacknowledged")
    return Preview(
        queue,
        messages,
        unacked if isinstance(unacked, int) else None,
        consumers,
        await _is_dead_letter_queue(context, queue),
    )


async def _consumers(context: TaskContext, queue: str, awaited: Callable[[str], int] = lambda _queue: 0) -> int:
    """How many consume it, but for our own leases, once those that are just going have gone.

    `awaited`: how many of ours count all the same, because they take letters that come.
    """
    loop = asyncio.get_running_loop()
    until = loop.time() + LEAVING_S
    while True:
        counted = (await context.topology.censuses([queue])).get(queue, (0, 0))[1]
        consumers = max(counted - context.leased(queue), 0) + awaited(queue)
        if not consumers or loop.time() > until:
            return consumers
        await asyncio.sleep(LOOK_S)


async def _is_dead_letter_queue(context: TaskContext, queue: str) -> bool:
    """Whether dead letters go there: parking, a queue of an active policy, or one where the index knows some.

    The latter is the dead-letter queue of a removed policy. False where that is unknown.
    """
    in_force, vhost = context.in_force(), context.login.vhost
    if queue in {context.names.parking, context.names.quarantine} or is_made(
        queue, in_force.policies, in_force.policies_of
    ):
        return True
    if is_named(queue, in_force.policies, vhost):
        return True
    for aim in aims(in_force.policies, vhost):
        if queue in await _led_to(context, aim):
            return True
    for exchange, key in await asyncio.to_thread(context.indexed):
        if queue == key if not exchange else queue in await _led_to(context, Aim(exchange, key)):
            return True
    return False


async def _led_to(context: TaskContext, aim: Aim) -> list[str]:
    """The queues that get what policies send to an exchange; none where the management API does not say."""
    if context.management is None:
        return []
    vhost = context.login.vhost
    with contextlib.suppress(ManagementError):
        queues = None if aim.key is None else await context.management.bound_queues(vhost, aim.exchange, aim.key)
        return await context.management.bound_to(vhost, aim.exchange) if queues is None else queues
    return []


MOST: Final = 65_535  # a prefetch has 16 bits
QUIET_S: Final = 2.0  # nothing more came: this was all
LONGEST_S: Final = 60.0  # nothing stays unacked for longer
MAX_BYTES: Final = 256 << 20
COUNTS_NOT_SINCE: Final = (4, 3)


class PeekError(Exception):
    """The queue cannot be looked into; says why, and what to do instead."""


@dataclass(frozen=True, slots=True)
class QueueKind:
    """What has to be known of the queue before: its type, and how many consume it."""

    type: str
    consumers: int


async def peek(  # noqa: PLR0913 - where, what, how many
    place: tuple[Host, Login, Tls | None],
    queue: str,
    kind: QueueKind,
    reads: QueueReads,
    facts: Mapping[str, Any],
    *,
    limit: int,
    keep: Callable[[Any], None],
) -> int:
    """Call `keep(delivery)` for each of the first letters of the queue; return how many. PeekError, ReadRefused.

    Nothing is moved, and no delivery is counted that could kill a letter: it is refused where the broker counts (quorum
    queues before RabbitMQ 4.3), where nothing can be given back (streams), and where others consume. Letters are held
    unacked for the moment of the look, and given back in their order. `facts`: as `reads` admitted it.
    """
    host, login, tls = place
    deliveries: list[frames.Delivery] = []
    lost: list[Exception] = []
    came, loop, size = asyncio.Event(), asyncio.get_running_loop(), 0

    def take(delivery: frames.Delivery, _consumer: Consumer) -> None:
        nonlocal size
        size += len(delivery.body)
        deliveries.append(delivery)
        came.set()

    def end(_consumer: Consumer, error: Exception, _unsettled: int) -> None:
        lost.append(error)
        came.set()

    try:
        link = await open_link(host, login, tls=tls, heartbeat=10, name=f"dlx-router peek {login.vhost}")
    except LinkError as error:
        raise PeekError(str(error)) from None
    try:
        _refuse(link, queue, kind)
        await reads.check_head(link, queue, facts)
        holder, until = Holder(link, queue, 0, sink=take, on_lost=end), loop.time() + LONGEST_S
        await holder.start()
        await holder.take(min(limit, MOST))
        try:
            with contextlib.suppress(TimeoutError):  # nothing more comes, or it has lasted too long
                while len(deliveries) < limit and size <= MAX_BYTES and not lost:
                    came.clear()
                    async with asyncio.timeout(min(QUIET_S, until - loop.time())):
                        await came.wait()
        finally:
            if holder.is_open and link.is_open:
                await holder.halt()
                await holder.give_all_back()  # by nack, which 4.3 does not count; closing the channel would count
        if lost:
            raise lost[0]
        for delivery in deliveries[:limit]:
            keep(delivery)
        return len(deliveries[:limit])
    except (LinkError, ChannelClosed, TimeoutError) as error:
        if isinstance(error, LinkError) and error.is_crash:
            raise await reads.crashed(queue, window=min(limit, MOST), held=len(deliveries)) from None
        raise PeekError(f"queue {queue!r}: {error}") from None
    finally:
        await link.close()


def _refuse(link: Link, queue: str, kind: QueueKind) -> None:
    instead = "attach it in a policy file (attachments: - queue: …), and the router takes its letters"
    if kind.type == "quorum" and link.version < COUNTS_NOT_SINCE:
        raise PeekError(f"queue {queue!r} is a quorum queue, and before 4.3 each look counts as a delivery; {instead}")
    if kind.type not in {"classic", "quorum"}:
        raise PeekError(f"queue {queue!r} is a {kind.type}; only classic and quorum queues can be looked into")
    if kind.consumers:
        consumers = number_of(kind.consumers, "consumer")
        raise PeekError(f"queue {queue!r} has {consumers}, which a look would disturb; stop what consumes it first")
