"""Preview: what a task would meet in a queue, told before somebody lets it begin; and what it refuses without a word.

A task acts on letters only. But it looks at all that lies there, and holds it for as long as it looks: in a queue that
somebody consumes, those are messages that the consumer waits for.
"""

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Final

from dlx_router.broker.management import ManagementError
from dlx_router.config.units import number_of
from dlx_router.core.dead_letter_queues import Aim, aims, is_made, is_named
from dlx_router.redrive.task import Kind, Spec, TaskError
from dlx_router.service.redrive.context import TaskContext

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
