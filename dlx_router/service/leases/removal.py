"""Removal: send a leased letter on, or discard it, and ack it.

As tasks do: the copy is confirmed and not returned, the stream has the events, and only then is the letter acked.
`lease_ended` is among those events, so that a letter whose ack is lost is recognised when it is redelivered.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from functools import partial
from typing import Final

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.link import Link
from dlx_router.core.dead_letter_queues import deletes, is_made
from dlx_router.core.leases import Ended, Lease
from dlx_router.redrive.letter_edits import Edit
from dlx_router.redrive.selection import is_homeless
from dlx_router.redrive.task import Counts, Destination, Kind, Spec, TaskError, check, forbidden
from dlx_router.service.dispatch.in_use import InUse
from dlx_router.service.dispatch.settler import Ending, once_sure
from dlx_router.service.inflight.clock import now_ms
from dlx_router.service.inflight.job import Job
from dlx_router.service.leases.events import ended_line
from dlx_router.service.leases.holder import HeldLetter
from dlx_router.service.redrive.bindings import Bindings
from dlx_router.service.redrive.context import Stopped, TaskContext
from dlx_router.service.redrive.sender import Copies, Counters, Sender
from dlx_router.service.redrive.task_log import NotLeader
from dlx_router.telemetry.wall_clock import wall_ms

KIND_OF: Final[Mapping[Ended, Kind]] = {
    Ended.DONE: Kind.DISCARD,
    Ended.REDRIVEN: Kind.REDRIVE,
    Ended.EDITED: Kind.REDRIVE,
    Ended.PARKED: Kind.PARK,
}
CHECK_S: Final = 0.5
LOST: Final = "the journal is too far behind to take it; the letter is still leased; see /readyz, and ask again"


class _Copies(Copies):
    """Copies of a leased letter; their events include the lease's end."""

    tell_tasks = True

    def __init__(
        self, lease: Lease[HeldLetter], how: Ended, context: TaskContext, spec: Spec, edit: Edit | None
    ) -> None:
        super().__init__(lease.id, spec, context, edit)
        self._lease, self._how = lease, how

    def events(self, job: Job, now_ms: int) -> list[bytes]:
        """Return a task's events, and that the lease ended."""
        ended = ended_line(self._lease, self._how, self._context.router_id, wall_ms())  # by the clock that it began by
        return [*super().events(job, now_ms), ended]


async def remove(
    lease: Lease[HeldLetter],
    how: Ended,
    context: TaskContext,
    publishing: Link | None,
    *,
    to: Destination | None = None,
    edit: Edit | None = None,
) -> Ending:
    """Remove a leased letter from its queue; `publishing` None: discard it, without a copy.

    TaskError: it stays leased, and why. NotLeader: the journal does not take it. Else what ended the connection.
    """
    spec, held = _spec(lease, how, context, to), lease.held
    copies = _Copies(lease, how, context, spec, edit)
    job = copies.job(held.holder, held.envelope.delivery, held.letter, held.envelope)
    if publishing is None:
        return await _discard(job, copies, context)
    return await _send(job, copies, context, spec, publishing)


def _spec(lease: Lease[HeldLetter], how: Ended, context: TaskContext, to: Destination | None) -> Spec:
    """Describe the task of this single letter. TaskError."""
    letter, queue = lease.held.letter, lease.held.queue
    if reason := forbidden(to, context.names):
        raise TaskError(reason)
    spec = check(Spec(queue=queue, kind=KIND_OF[how], vhost=context.login.vhost, to=to))
    if spec.kind is Kind.PARK and queue == context.names.parking:
        raise TaskError("the letter is in parking already")
    if spec.kind is Kind.REDRIVE and to is None and is_homeless(letter):
        raise TaskError("nothing tells which queue the letter failed at; give a destination")
    return spec


async def _discard(job: Job, copies: Copies, context: TaskContext) -> Ending:
    ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
    record = partial(context.journal.record, of_task=copies.tell_tasks)
    job.batches = tuple(map(record, copies.events(job, now_ms())))

    def end(_job: Job, ending: Ending) -> None:
        if not ended.done():  # the journal outlives the request
            ended.set_result(ending)

    once_sure(job, end)
    ending = await ended
    if ending is Ending.LOST:
        raise NotLeader(LOST)
    return ending


async def _send(job: Job, copies: Copies, context: TaskContext, spec: Spec, publishing: Link) -> Ending:
    wake, counters = asyncio.Event(), Counters(Counts())
    in_use = InUse(lambda: publishing, context.names, lambda _queue: publishing.abort())
    kept: list[str] = []

    async def keep(queue: str) -> None:
        in_force = context.in_force()
        if deletes(in_force.policies) and is_made(queue, in_force.policies, in_force.policies_of):
            await in_use.hold(queue)
            kept.append(queue)

    bindings = Bindings(spec, context, keep)
    sender = Sender(spec, context, copies, ways=bindings, counters=counters, wake=wake.set)
    await sender.open(publishing)
    try:
        await bindings.see_to_destination()
        await sender.send(job)
        while sender.pending and sender.failure is None:
            sender.check()
            wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(CHECK_S):
                    await wake.wait()
        if sender.failure is not None:
            raise sender.failure
    except Stopped as error:
        raise TaskError(str(error)) from None
    finally:
        with suppress(LinkError, ChannelClosed, TimeoutError):  # a lost connection releases the locks, too
            await sender.close()
            for queue in kept:
                await in_use.release(queue)
    if counters.stays:
        raise TaskError(f"the letter stays leased: {next(iter(counters.stays))}")
    return Ending.SETTLED if counters.counts.sent else Ending.GONE
