"""Removal: a letter that is held → what is said becomes of it, and it leaves its queue.

By the way that tasks take: the copy is confirmed and not returned, the stream has the events, and only then is the
letter acked. `lease_ended` is among those events, so a letter whose ack is lost is known when it comes again.
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
from dlx_router.redrive.eligibility import is_homeless
from dlx_router.redrive.letter_edits import Edit
from dlx_router.redrive.task import Counts, Destination, Kind, Spec, TaskError, check, forbidden
from dlx_router.service.dispatch.in_use import InUse
from dlx_router.service.dispatch.settler import Ending, once_sure
from dlx_router.service.inflight.clock import now_ms
from dlx_router.service.inflight.job import Job
from dlx_router.service.leases.held_letter import HeldLetter
from dlx_router.service.leases.lease_events import ended_line
from dlx_router.service.redrive.bindings import Bindings
from dlx_router.service.redrive.context import Stopped, TaskContext
from dlx_router.service.redrive.copies import Copies
from dlx_router.service.redrive.counters import Counters
from dlx_router.service.redrive.sender import Sender
from dlx_router.service.redrive.task_log import NotLeader
from dlx_router.telemetry.wall_clock import wall_ms

KIND_OF: Final[Mapping[Ended, Kind]] = {
    Ended.DONE: Kind.DISCARD,
    Ended.REDRIVEN: Kind.REDRIVE,
    Ended.EDITED: Kind.REDRIVE,
    Ended.PARKED: Kind.PARK,
}
LOOK_S: Final = 0.5
UNTOLD: Final = "the journal is too far behind to take it; the letter is still leased; see /readyz, and ask again"


class _LeaseCopies(Copies):
    """Copies of a letter that is leased; their events tell of the lease too, to whoever looks for tasks as well."""

    tell_tasks = True

    def __init__(
        self, lease: Lease[HeldLetter], how: Ended, context: TaskContext, spec: Spec, *, edit: Edit | None
    ) -> None:
        names = context.names
        super().__init__(
            lease.id,
            spec,
            router_id=context.router_id,
            return_exchange=names.return_,
            parking=names.parking,
            in_force=context.in_force,
            edit=edit,
        )
        self._lease, self._how = lease, how

    def events(self, job: Job, now_ms: int) -> list[bytes]:
        """As of a task, and that the lease ended."""
        ended = ended_line(self._lease, self._how, self._router_id, wall_ms())  # by the clock that it began by
        return [*super().events(job, now_ms), ended]


def spec_of(lease: Lease[HeldLetter], how: Ended, context: TaskContext, to: Destination | None = None) -> Spec:
    """What a task of this one letter would be. TaskError."""
    letter, queue = lease.held.letter, lease.held.queue
    if why := forbidden(to, context.names):
        raise TaskError(why)
    spec = check(Spec(queue=queue, kind=KIND_OF[how], vhost=context.login.vhost, to=to))
    if spec.kind is Kind.PARK and queue == context.names.parking:
        raise TaskError("the letter is in parking already")
    if spec.kind is Kind.REDRIVE and to is None and is_homeless(letter):
        raise TaskError("nothing tells which queue the letter failed at; give a destination")
    return spec


class Remover:
    """One letter's removal. `copies` is the connection that its copy goes by; a letter that is done needs none."""

    def __init__(
        self,
        lease: Lease[HeldLetter],
        how: Ended,
        context: TaskContext,
        spec: Spec,
        *,
        edit: Edit | None = None,
    ) -> None:
        self._lease, self._context, self._spec = lease, context, spec
        self._copies = _LeaseCopies(lease, how, context, spec, edit=edit)
        held = lease.held
        self._job = self._copies.job(held.holder, held.job.delivery, held.letter, held.envelope)

    async def discard(self) -> Ending:
        """No copy: once the stream has its events it is acked. NotLeader: it never will have them."""
        ended: asyncio.Future[Ending] = asyncio.get_running_loop().create_future()
        record = partial(self._context.journal.record, of_task=self._copies.tell_tasks)
        self._job.batches = tuple(map(record, self._copies.events(self._job, now_ms())))

        def end(_job: Job, how: Ending) -> None:
            if not ended.done():  # the journal outlives who waits for it
                ended.set_result(how)

        once_sure(self._job, end)
        how = await ended
        if how is Ending.LOST:
            raise NotLeader(UNTOLD)
        return how

    async def send(self, out: Link) -> Ending:
        """A copy goes first. TaskError: it stays, and why; else what the broker did to us."""
        wake, counters = asyncio.Event(), Counters(Counts())
        in_use = InUse(lambda: out, self._context.names, lambda _queue: out.abort())
        held: list[str] = []

        async def keep(queue: str) -> None:
            in_force = self._context.in_force()
            if deletes(in_force.policies) and is_made(queue, in_force.policies, in_force.policies_of):
                await in_use.hold(queue)
                held.append(queue)

        ways = Bindings(self._spec, self._context, keep)
        sender = Sender(self._spec, self._context, self._copies, ways=ways, counters=counters, wake=wake.set)
        await sender.open(out)
        try:
            await ways.see_to_destination()
            await sender.send(self._job)
            await _sent(sender, wake)
        except Stopped as error:
            raise TaskError(str(error)) from None
        finally:
            with suppress(LinkError, ChannelClosed, TimeoutError):  # with the connection goes what was held
                await sender.close()
                for queue in held:
                    await in_use.release(queue)
        if counters.stays:
            raise TaskError(f"the letter stays leased: {next(iter(counters.stays))}")
        return Ending.SETTLED if counters.counts.sent else Ending.GONE


async def _sent(sender: Sender, wake: asyncio.Event) -> None:
    """Until nothing is on its way. Raises what failed."""
    while sender.pending and sender.failure is None:
        sender.check()
        wake.clear()
        with suppress(TimeoutError):
            async with asyncio.timeout(LOOK_S):
                await wake.wait()
    if sender.failure is not None:
        raise sender.failure
