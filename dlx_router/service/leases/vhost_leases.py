"""The leases of one vhost: who asks, and the leader's answers. Only the leader holds letters and answers."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import replace
from datetime import UTC, datetime
from itertools import count
from typing import Final

from dlx_router.broker.answers import ChannelClosed
from dlx_router.broker.stream import TASKS
from dlx_router.broker.topology import TopologyError
from dlx_router.core.lease_handle import Claims, handle_of, verified
from dlx_router.core.leases import Ended, Lease, LeaseError, LeaseOver, Leases, Removed
from dlx_router.core.letter import Letter
from dlx_router.core.names import Names
from dlx_router.journal.audit import audit
from dlx_router.redrive.letter_edits import Edit
from dlx_router.redrive.letter_edits import check as checked
from dlx_router.redrive.task import Destination, TaskError
from dlx_router.service.leases.channels import TROUBLE
from dlx_router.service.leases.held_letter import HeldLetter
from dlx_router.service.leases.lease_events import ENDED, removals
from dlx_router.service.leases.worker import Asked, LeaseWorker
from dlx_router.service.redrive import replay
from dlx_router.service.redrive.binding_facts import version_of
from dlx_router.service.redrive.context import Stopped, TaskContext
from dlx_router.service.redrive.task_log import WITHIN_S, NotLeader, UnknownTask
from dlx_router.service.redrive.tasks import Tasks
from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.wall_clock import wall_ms

RECENT_S: Final = 3600.0  # what was acked before, the broker has written
RECENT_UNFILTERED_S: Final = 300.0  # before 3.13 all events have to be read for it
AUDITED_S: Final = 3600.0  # who works at a queue is told once an hour; each letter's events say who had it
MOST_AUDITED: Final = 10_000
AGAIN_S: Final = 1.0
FORBIDDEN: Final = 403
_OLD: Final = -1  # epoch of what another leader removed


class NoHandle(LeaseError):
    """It is no handle of ours, or another token's."""


class VhostLeases:
    """`lead` makes it the leader's until it is cancelled, of leases and of tasks."""

    def __init__(
        self,
        tasks: Tasks,
        compile_filter: Callable[[str], Callable[[Letter], bool]],
        *,
        journal_is_on: bool,
        not_leading: Callable[[], str],
    ) -> None:
        self.vhost = tasks.vhost
        self._compile, self._tasks, self._journal_is_on = compile_filter, tasks, journal_is_on
        self._not_leading = not_leading
        self._removed = Removed()  # outlives terms: what the broker brings back may come later
        self._epochs = count(1)
        self._worker: LeaseWorker | None = None
        self._context: TaskContext | None = None
        self._term = 0
        self._known = asyncio.Event()  # what other leaders' leases removed
        self._audited: dict[tuple[str, str], float] = {}  # token, queue: until when

    # -- leading ------------------------------------------------------------------------------------------------

    async def lead(self, context: TaskContext, term: int) -> None:
        """Letters may be received, and tasks go on; until cancelled."""
        async with self._led(context, term):
            await self._tasks.lead(context, term)

    @asynccontextmanager
    async def _led(self, context: TaskContext, term: int) -> AsyncIterator[None]:
        """At the end all that are held go back."""
        if not self._journal_is_on:
            yield
            return
        worker = LeaseWorker(context, self._removed, Leases(), lambda: next(self._epochs))
        self._worker, self._context, self._term = worker, context, term
        self._known.clear()
        running = [asyncio.create_task(worker.run()), asyncio.create_task(self._learn(context, worker))]
        try:
            yield
        finally:
            self._context = None
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self.stop()

    async def stop(self, within_s: float = WITHIN_S) -> None:
        """Nothing is held when this returns, after so long at most; safe to repeat."""
        worker, self._worker = self._worker, None
        if worker is not None:
            await worker.stop(within_s)

    @property
    def queues(self) -> set[str]:
        """Whose letters are held."""
        return set() if self._worker is None else self._worker.queues

    def consumers(self, queue: str) -> int:
        """How many consumers of the queue are leases' own."""
        return 0 if self._worker is None else self._worker.consumers(queue)

    def awaited(self, queue: str) -> int:
        """How many requests look for letters of the queue just now."""
        return 0 if self._worker is None else self._worker.awaited(queue)

    @property
    def held(self) -> int:
        """How many letters are held."""
        return 0 if self._worker is None else len(self._worker.book)

    async def _learn(self, context: TaskContext, worker: LeaseWorker) -> None:
        """What other leaders' leases removed, before the first letter is received."""
        once = Once()
        while True:
            try:
                await self._read(context, worker)
            except Exception as error:  # noqa: BLE001 - or nothing would ever be received here
                fate = "no letter is received until the journal was read; tried again"
                once.warn("read", "lease.unread", vhost=self.vhost, error=repr(error), fate=fate)
                await asyncio.sleep(AGAIN_S)
            else:
                self._known.set()
                return

    async def _read(self, context: TaskContext, worker: LeaseWorker) -> None:
        async with context.reading("lease replay") as link:
            recent_s = RECENT_S if version_of(link) >= replay.FILTERS_SINCE else RECENT_UNFILTERED_S
            start = datetime.fromtimestamp(int(wall_ms() / 1000 - recent_s), UTC)
            async for message in replay.messages(link, context.journal, start, only=TASKS):
                if context.journal.verified(message.body, message.mac):
                    for removal in removals(context.journal.opened(message.body, message.version, ENDED)):
                        self._removed.add(removal.key, removal.lease_id, _OLD)
                        worker.book.learn(removal.lease_id, removal.how)

    # -- asking -------------------------------------------------------------------------------------------------

    async def await_known(self, within_s: float) -> None:
        """Until what was removed is known; whoever asks after that time is told that the journal is being read."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._known.wait()

    async def receive(self, asked: Asked, condition: str = "") -> list[tuple[str, Lease[HeldLetter]]]:
        """Letters with their handles. TaskError (Conflict, UnknownTask), NoRoom, NotLeader."""
        worker, context = self._leading()
        _refuse_own(context.names, asked.queue)
        self._tasks.see_free(asked.queue)
        if condition:
            asked = replace(asked, holds=self._compile(condition))
        with _refusing(asked.queue):
            if not await context.topology.queue_exists(asked.queue):
                raise UnknownTask(f"queue {asked.queue!r} does not exist in vhost {self.vhost!r}")
            leases = await worker.receive(asked)
        if leases:
            self._audit(asked, context)
        return [(self._handle(lease, context), lease) for lease in leases]

    async def remove(
        self, handle: str, by: str, how: Ended, *, to: Destination | None = None, edit: Edit | None = None
    ) -> None:
        """The letter leaves its queue: done, redriven, parked, edited. LeaseError, TaskError, NotLeader."""
        worker, lease_id = self._claimed(handle, by)
        if edit is not None:
            checked(edit)
        with _refusing():
            await worker.remove(lease_id, how, to=to, edit=edit)

    async def release(self, handle: str, by: str) -> None:
        """The letter is back in its queue. LeaseError, NotLeader."""
        worker, lease_id = self._claimed(handle, by)
        with _refusing():
            await worker.release(lease_id)

    async def extend(self, handle: str, by: str, visibility_s: float) -> int:
        """It ends so long from now; → when, ms since 1970. LeaseError, TaskError, NotLeader."""
        worker, lease_id = self._claimed(handle, by)
        with _refusing():
            return await worker.extend(lease_id, visibility_s)

    async def release_all(self, leases: list[Lease[HeldLetter]]) -> None:
        """Nobody got them: who asked is gone."""
        worker = self._worker
        for lease in leases if worker is not None else ():
            with suppress(LeaseError, *TROUBLE):
                assert worker is not None
                await worker.release(lease.id)

    def _audit(self, asked: Asked, context: TaskContext) -> None:
        key, now = (asked.by, asked.queue), time.monotonic()
        if now < self._audited.get(key, 0.0):
            return
        if len(self._audited) >= MOST_AUDITED:
            self._audited.clear()
        self._audited[key] = now + AUDITED_S
        details = {"queue": asked.queue, "filtered": asked.holds is not None}
        line = audit(
            context.router_id, self.vhost, actor=asked.by, action="lease.work", details=details, ts_ms=wall_ms()
        )
        context.journal.record(line)

    def _leading(self) -> tuple[LeaseWorker, TaskContext]:
        if not self._journal_is_on:
            raise TaskError("JOURNAL=off: what becomes of a letter could not be told; set JOURNAL=best-effort")
        if self._context is None or self._worker is None:
            raise NotLeader(self._not_leading())
        if not self._known.is_set():
            raise NotLeader(f"vhost {self.vhost!r}: the journal is being read; ask again")
        return self._worker, self._context

    def _handle(self, lease: Lease[HeldLetter], context: TaskContext) -> str:
        return handle_of(Claims(self.vhost, self._term, lease.id, lease.by), context.sign_with())

    def _claimed(self, handle: str, by: str) -> tuple[LeaseWorker, str]:
        worker, context = self._leading()
        claims = verified(handle, context.sign_with())
        if claims is None or claims.vhost != self.vhost or claims.by != by:
            raise NoHandle("there is no such lease; a handle is worth something only to the token that received it")
        if claims.term != self._term:
            how = worker.book.how_ended(claims.lease_id)
            raise LeaseOver(Ended.LOST if how is None else how)
        return worker, claims.lease_id


def _refuse_own(names: Names, queue: str) -> None:
    if names.is_own(queue) and queue != names.parking:
        raise TaskError(f"queue {queue!r} is the router's own; of those only {names.parking!r} keeps letters")


@contextmanager
def _refusing(queue: str = "") -> Iterator[None]:
    """What the broker does to us, as who asks is told."""
    try:
        yield
    except Stopped as error:
        raise TaskError(str(error)) from None
    except ChannelClosed as error:
        if error.code == FORBIDDEN:
            raise TaskError(f"the broker does not let us take letters of {queue!r}: {error}") from None
        raise NotLeader(f"the broker ended it: {error}; ask again") from None
    except (*TROUBLE, TopologyError) as error:
        raise NotLeader(f"the broker is lost just now: {str(error) or 'no answer in time'}; ask again") from None
