"""Leases of a vhost: letters of its queues in the hands of callers, for as long as this router leads.

A letter is held unacknowledged on a connection of its queue, so whatever ends the router, the connection or the broker
gives it back. Rules: a letter is acked after the stream has what became of it; if that is in doubt it comes back;
nothing is waited for that would keep letters of the router waiting. Only the leader holds letters and answers.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial
from itertools import count
from typing import Any, Final

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.consumer import Consumer, Holder
from dlx_router.broker.stream import TASKS
from dlx_router.broker.topology import TopologyError
from dlx_router.core.bounded import MIB, Bounded
from dlx_router.core.leases import (
    Claims,
    Ended,
    Lease,
    LeaseError,
    LeaseOver,
    Leases,
    NoRoom,
    Removed,
    handle_of,
    verified,
)
from dlx_router.core.letter import Letter
from dlx_router.journal.audit import audit
from dlx_router.redrive.letter_edits import Edit, check
from dlx_router.redrive.selection import is_letter
from dlx_router.redrive.task import Destination, TaskError
from dlx_router.service.dispatch.settler import Ending
from dlx_router.service.inflight import decoder
from dlx_router.service.leases.events import ENDED, ended_line, leased_line, removals
from dlx_router.service.leases.holder import TROUBLE, HeldLetter, LeaseConnections, count_of, has_read_acks, key_of
from dlx_router.service.leases.removal import remove
from dlx_router.service.leases.scan import MARGIN, MAX_SCANNED, KnownQueues, LeaseScan, Match, QueueLimits
from dlx_router.service.redrive import replay
from dlx_router.service.redrive.context import Stopped, TaskContext, place_of
from dlx_router.service.redrive.task_log import WITHIN_S, NotLeader, UnknownTask
from dlx_router.service.redrive.tasks import Tasks
from dlx_router.telemetry.logs import Once, log
from dlx_router.telemetry.wall_clock import wall_ms
from dlx_router.wire import frames

TICK_S: Final = 0.25
AGAIN_S: Final = 1.0  # between two scans of a request, and two reads of the journal
ANSWER_BYTES: Final = 16 * MIB  # of bodies in one answer, but for a single larger letter
ANSWER_S: Final = 8.0
MAX_SCANS: Final = 200  # at once
RECENT_S: Final = 3600.0  # what was acked before, the broker has written
RECENT_UNFILTERED_S: Final = 300.0  # before 3.13 all events have to be read for it
AUDIT_S: Final = 3600.0  # between two audits of a token and a queue; each letter's events name the token
FORBIDDEN: Final = 403
EXPECTED: Final = (LeaseError, TaskError, NotLeader, *TROUBLE)
_ANOTHER_LEADER: Final = -1  # epoch


class NoHandle(LeaseError):
    """The text is no handle, or it is another token's."""


@dataclass(frozen=True, slots=True)
class ReceiveRequest:
    """What a caller wants to receive. `holds` None: any letter. `knowing`: the queue may hold living messages."""

    queue: str
    by: str
    limit: int
    wait_s: float
    visibility_s: float
    holds: Callable[[Letter], bool] | None = None
    knowing: bool = False


class LeaseTerm:
    """The leases of one term of this router as leader. `removed` outlives it."""

    def __init__(self, context: TaskContext, removed: Removed, new_epoch: Callable[[], int]) -> None:
        self.leases: Leases[HeldLetter] = Leases()
        self._context, self._removed = context, removed
        self._connections = LeaseConnections(context, new_epoch, self._lost)
        self._known = KnownQueues(context)
        self._scanning: Counter[str] = Counter()
        self._scans: dict[Holder, LeaseScan] = {}
        self._filtering: dict[str, asyncio.Lock] = {}
        self._receives: Bounded[str, int] = Bounded(most=100_000, most_bytes=32 * MIB)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._once = Once()

    @property
    def queues(self) -> set[str]:
        """The queues whose letters are held."""
        return {lease.held.queue for lease in self.leases}

    def consumers(self, queue: str) -> int:
        """Return how many consumers of the queue are ours, as the broker counts them, or more.

        A consumer that was cancelled counts in a quorum queue until all that it held is settled.
        """
        if self._known.kind(queue) == "classic":
            return self._scanning[queue]
        turns = {(lease.held.holder, lease.held.turn) for lease in self.leases if lease.held.queue == queue}
        return self._scanning[queue] + len(turns)

    def awaited(self, queue: str) -> int:
        """Return how many requests scan the queue now, and take what they match."""
        return self._scanning[queue]

    # -- receiving ----------------------------------------------------------------------------------------------

    async def receive(self, request: ReceiveRequest) -> list[Lease[HeldLetter]]:
        """Lease letters, the oldest first; none if none came in time. TaskError, NoRoom, NotLeader, TROUBLE."""
        self._require_journal()
        await self._context.reads.require_readable(self._context.topology, request.queue)
        version = (await self._connections.control()).version
        limits = await self._known.limits(request.queue, version, knowing=request.knowing)
        if request.visibility_s > limits.longest_s:
            raise TaskError(_too_long(request.queue, limits))
        if sum(self._scanning.values()) >= MAX_SCANS:
            raise NoRoom(f"{MAX_SCANS} requests wait for letters; ask again")
        until_s = time.monotonic() + request.wait_s
        while True:
            leases = await self._scan_in_turn(request, limits, until_s)
            if leases or time.monotonic() + AGAIN_S > until_s:
                return leases
            await asyncio.sleep(AGAIN_S)

    async def _scan_in_turn(
        self, request: ReceiveRequest, limits: QueueLimits, until_s: float
    ) -> list[Lease[HeldLetter]]:
        """Scans with a filter take turns at a queue, because each holds what the next one may match."""
        turn = asyncio.Lock() if request.holds is None else self._filtering.setdefault(request.queue, asyncio.Lock())
        try:
            async with asyncio.timeout(max(until_s - time.monotonic(), AGAIN_S)):
                await turn.acquire()
        except TimeoutError:
            return []
        try:
            return await self._scan(request, limits, until_s)
        finally:
            turn.release()

    async def _scan(self, request: ReceiveRequest, limits: QueueLimits, until_s: float) -> list[Lease[HeldLetter]]:
        if reason := self.leases.why_full(request.by):
            raise NoRoom(reason)
        holder = await self._connections.channel(request.queue, limits.consumer_timeout_ms)
        leases: list[Lease[HeldLetter]] = []
        match, is_careful = partial(self._match, request, limits, leases), limits.fatal is not None
        scan = self._scans[holder] = LeaseScan(holder, request.limit, match, first=1 if is_careful else request.limit)
        self._scanning[request.queue] += 1
        is_complete = is_crash = False
        try:
            await scan.run(until_s)
            is_complete = True
        except LinkError as error:
            if not (is_crash := error.is_crash):
                raise
        finally:
            self._scanning[request.queue] -= 1
            self._scans.pop(holder, None)
            if not is_complete:
                holder.drop("the scan was ended")
            self._connections.free(holder)
        if is_crash:
            raise await self._context.reads.crashed(request.queue, window=MAX_SCANNED, held=scan.received)
        leases = [lease for lease in leases if holder.is_open and lease.id in self.leases]
        if scan.refused is not None:
            await self.release_all(leases)
            raise scan.refused
        now, visibility_ms = wall_ms(), int(request.visibility_s * 1000)
        for lease in leases:  # until now they had until the end of the scan, and more
            lease.until_ms = _now_ms() + visibility_ms
            line = leased_line(lease, self._context.router_id, now_ms=now, due_ms=now + visibility_ms)
            self._context.journal.record(line)
        self._context.metrics.lease_letters["received"] += len(leases)
        return leases

    def _match(
        self,
        request: ReceiveRequest,
        limits: QueueLimits,
        leases: list[Lease[HeldLetter]],
        delivery: frames.Delivery,
        holder: Holder,
    ) -> Match:
        if self._connections.is_over:
            return Match.SKIP
        try:
            letter, envelope = decoder.read(delivery, place_of(self._context, request.queue))
            in_force, now, epoch = self._context.in_force(), time.monotonic(), self._connections.epoch
            policy, revision = in_force.resolve(letter), in_force.policies.revision
            held = HeldLetter(holder, letter, envelope, policy, revision, now, epoch, holder.turn)
            return self._hold(request, limits, leases, held)
        except decoder.Malformed:
            return Match.SKIP
        except NoRoom:
            return Match.FULL
        except TaskError as error:
            self._scans[holder].refused = error
            return Match.FULL
        except Exception as error:  # noqa: BLE001 - an unforeseen letter must not stop the others
            self._once.warn("read", "lease.unreadable", queue=request.queue, error=repr(error), fate="it stays")
            return Match.SKIP

    def _hold(
        self, request: ReceiveRequest, limits: QueueLimits, leases: list[Lease[HeldLetter]], held: HeldLetter
    ) -> Match:
        letter, envelope, delivery = held.letter, held.envelope, held.envelope.delivery
        failed = count_of(envelope, b"x-delivery-count")
        if limits.fatal is not None and failed >= limits.fatal:
            if leases:
                return Match.FULL
            raise self._context.reads.too_near(request.queue, failed, limits.fatal + MARGIN)
        if not is_letter(letter):
            return Match.SKIP
        key = key_of(letter, envelope)
        lease_id = self._removed.redelivered_by(key, held.epoch, redelivered=delivery.redelivered)
        if lease_id is not None and request.queue != self._context.names.parking:  # there it is handed out again
            self._connections.hold(held.holder)
            self._tasks.add(self._spawn(self._park_redelivered(Lease(lease_id, request.by, key, 0, 0, held))))
            return Match.HANDLED
        if request.holds is not None and not request.holds(letter):
            return Match.SKIP
        size = len(delivery.body) + len(delivery.header)
        if leases and sum(lease.size for lease in leases) + size > ANSWER_BYTES:
            return Match.FULL
        until_ms = _now_ms() + int((request.wait_s + request.visibility_s) * 1000)
        lease = Lease(secrets.token_hex(12), request.by, key, size, until_ms, held)
        lease.receives = 1 + max(self._receives.get(key, 0), count_of(envelope, b"x-acquired-count"), failed)
        self.leases.hold(lease)
        self._receives[key] = lease.receives
        self._connections.hold(held.holder)
        leases.append(lease)
        return Match.KEEP

    # -- ending -------------------------------------------------------------------------------------------------

    async def remove(
        self, lease_id: str, how: Ended, *, to: Destination | None = None, edit: Edit | None = None
    ) -> None:
        """Remove the letter from its queue. LeaseError, TaskError: it stays; NotLeader: what became of it is open."""
        self._require_journal()
        if edit is not None:
            check(edit)
        removing = self._spawn(self._remove(self.leases.begin_end(lease_id), how, to, edit))
        done, _ = await asyncio.wait([removing], timeout=ANSWER_S)
        if not done:
            raise NotLeader("it takes long; the lease is being ended, ask again")
        if removing.cancelled():
            raise NotLeader("this router leads no more; ask what became of the lease")
        removing.result()

    async def _remove(self, lease: Lease[HeldLetter], how: Ended, to: Destination | None, edit: Edit | None) -> None:
        try:
            publishing = None if how is Ended.DONE else await self._connections.publishing()
            ending = await remove(lease, how, self._context, publishing, to=to, edit=edit)
        except BaseException:
            self.leases.keep(lease)
            if not lease.held.holder.is_open:
                self._end(lease, Ended.LOST)
            raise
        self._removed.add(lease.key, lease.id, lease.held.epoch)
        is_certain = ending is Ending.SETTLED and await has_read_acks(lease.held.holder)
        self._end(lease, how, is_recorded=True)
        if not is_certain:
            raise NotLeader("the journal has it, but the broker was lost as the letter was acked; it is parked later")

    async def _park_redelivered(self, lease: Lease[HeldLetter]) -> None:
        """Park a letter that looks like one that a lease removed; it may be an equal one that was never received."""
        is_parked = False
        try:
            ending = await remove(lease, Ended.PARKED, self._context, await self._connections.publishing())
            is_parked = ending is Ending.SETTLED and await has_read_acks(lease.held.holder)
        except Exception as error:  # noqa: BLE001 - no request waits for it, and it must not be held for ever
            self._once.warn("again", "lease.redelivered", error=repr(error), fate="it is requeued, and parked later")
            lease.held.requeue()
        finally:
            self._context.metrics.lease_letters["redelivered"] += is_parked
            if not is_parked:
                self._removed.not_again(lease.key, lease.id)
            self._connections.free(lease.held.holder)

    async def release(self, lease_id: str) -> None:
        """Requeue the letter now. LeaseError."""
        lease = self.leases.begin_end(lease_id)
        lease.held.requeue()
        self._end(lease, Ended.RELEASED)
        await has_read_acks(lease.held.holder)

    async def release_all(self, leases: list[Lease[HeldLetter]]) -> None:
        """Requeue letters that no caller gets."""
        for lease in leases:
            with suppress(LeaseError, *TROUBLE):
                await self.release(lease.id)

    async def extend(self, lease_id: str, visibility_s: float) -> int:
        """Let the lease end so long from now; return when, ms since 1970. LeaseError, TaskError, TROUBLE."""
        held = self.leases.find(lease_id).held
        version = (await self._connections.control()).version
        limits = await self._known.limits(held.queue, version, knowing=True)
        held_s = time.monotonic() - held.since_s
        if held_s + visibility_s > limits.longest_s:
            raise TaskError(_too_long(held.queue, limits, f", {held_s:.0f} s of them are over"))
        self.leases.extend(lease_id, _now_ms() + int(visibility_s * 1000))
        return wall_ms() + int(visibility_s * 1000)

    def _end(self, lease: Lease[HeldLetter], how: Ended, *, is_recorded: bool = False) -> None:
        if not self.leases.end(lease, how):
            return
        self._context.metrics.lease_letters[how.value] += 1
        if not is_recorded:
            self._context.journal.record(ended_line(lease, how, self._context.router_id, wall_ms()))
        self._connections.free(lease.held.holder)

    # -- life ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """End leases whose time is over; until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            try:
                self.expire()
            except Exception as error:  # noqa: BLE001 - or no lease would ever end again
                self._once.warn("expire", "lease.fault", error=repr(error), fate="it is tried again")
            self._connections.tidy()

    def expire(self) -> None:
        """End the leases whose time is over."""
        for lease in self.leases.due(_now_ms()):
            lease.held.requeue()
            self._end(lease, Ended.EXPIRED)

    async def stop(self, within_s: float = WITHIN_S) -> None:
        """Requeue all that is held by nack; after that time the connections are dropped."""
        self._connections.is_over = True  # a request that sleeps between two scans must find no channel
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for scan in self._scans.values():
            scan.fail(LinkError("the router stops, or leads no more"))
        for lease in self.leases:
            self._end(lease, Ended.LOST)
        await self._connections.close(within_s)

    def _lost(self, holder: Consumer, error: Exception) -> None:
        """The broker has again what the channel held."""
        self._known.learn(holder.queue, error)
        for lease in self.leases:
            if lease.held.holder is holder and not lease.is_busy:
                self._end(lease, Ended.LOST)
        for scanning, scan in self._scans.items():
            if scanning is holder:
                scan.fail(error)

    def _require_journal(self) -> None:
        if not self._context.journal.is_working:
            raise NotLeader("the journal cannot be written just now; see /readyz, and ask again")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)
        return task

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, EXPECTED):  # else the caller got it, if they still wait
            log.error("lease.fault", error=repr(error), fate="the letter is leased as before, or back in its queue")


class VhostLeases:
    """The API's side of the leases of one vhost, for as long as the router runs."""

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
        self._term: LeaseTerm | None = None
        self._context: TaskContext | None = None
        self._number = 0
        self._known = asyncio.Event()  # what other leaders' leases removed
        self._audited: Bounded[tuple[str, str], float] = Bounded(most=10_000, most_bytes=8 * MIB)

    async def lead(self, context: TaskContext, term: int) -> None:
        """Hand out letters and run tasks; until cancelled."""
        async with self._led(context, term):
            await self._tasks.lead(context, term)

    @asynccontextmanager
    async def _led(self, context: TaskContext, number: int) -> AsyncIterator[None]:
        if not self._journal_is_on:
            yield
            return
        term = LeaseTerm(context, self._removed, lambda: next(self._epochs))
        self._term, self._context, self._number = term, context, number
        self._known.clear()
        running = [asyncio.create_task(term.run()), asyncio.create_task(self._learn(context, term))]
        try:
            yield
        finally:
            self._context = None
            for task in running:
                task.cancel()
            await asyncio.gather(*running, return_exceptions=True)
            await self.stop()

    async def stop(self, within_s: float = WITHIN_S) -> None:
        """Requeue all that is held, within that time; safe to repeat."""
        term, self._term = self._term, None
        if term is not None:
            await term.stop(within_s)

    @property
    def queues(self) -> set[str]:
        """The queues whose letters are held."""
        return set() if self._term is None else self._term.queues

    @property
    def held(self) -> int:
        """How many letters are held."""
        return 0 if self._term is None else len(self._term.leases)

    def consumers(self, queue: str) -> int:
        """Return how many consumers of the queue are leases' own."""
        return 0 if self._term is None else self._term.consumers(queue)

    def awaited(self, queue: str) -> int:
        """Return how many requests scan the queue now."""
        return 0 if self._term is None else self._term.awaited(queue)

    async def _learn(self, context: TaskContext, term: LeaseTerm) -> None:
        """Read what other leaders' leases removed, before the first letter is received."""
        once = Once()
        while not self._known.is_set():
            try:
                await self._read(context, term)
                self._known.set()
            except Exception as error:  # noqa: BLE001 - or no letter would ever be received here
                fate = "no letter is received until the journal was read; tried again"
                once.warn("read", "lease.unread", vhost=self.vhost, error=repr(error), fate=fate)
                await asyncio.sleep(AGAIN_S)

    async def _read(self, context: TaskContext, term: LeaseTerm) -> None:
        async with context.reading("lease replay") as link:
            recent_s = RECENT_S if link.version >= replay.FILTERS_SINCE else RECENT_UNFILTERED_S
            start = datetime.fromtimestamp(int(wall_ms() / 1000 - recent_s), UTC)
            async for message in replay.messages(link, context.journal, start, only=TASKS):
                if context.journal.verified(message.body, message.mac):
                    for removal in removals(context.journal.opened(message.body, message.version, ENDED)):
                        self._removed.add(removal.key, removal.lease_id, _ANOTHER_LEADER)
                        term.leases.learn(removal.lease_id, removal.how)

    async def await_known(self, within_s: float) -> None:
        """Wait until removed letters are known, or until that time is over."""
        with suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._known.wait()

    async def receive(self, request: ReceiveRequest, condition: str = "") -> list[tuple[str, Lease[HeldLetter]]]:
        """Lease letters, with their handles. TaskError (Conflict, UnknownTask), NoRoom, NotLeader."""
        term, context = self._leading()
        if context.names.is_own(request.queue) and request.queue != context.names.parking:
            reason = f"of those only {context.names.parking!r} keeps letters"
            raise TaskError(f"queue {request.queue!r} is the router's own; {reason}")
        self._tasks.see_free(request.queue)
        if condition:
            request = replace(request, holds=self._compile(condition))
        with translated(request.queue):
            if not await context.topology.queue_exists(request.queue):
                raise UnknownTask(f"queue {request.queue!r} does not exist in vhost {self.vhost!r}")
            leases = await term.receive(request)
        if leases:
            self._audit(request, context)
        key = context.sign_with()
        return [(handle_of(Claims(self.vhost, self._number, lease.id, lease.by), key), lease) for lease in leases]

    def claim(self, handle: str, by: str) -> tuple[LeaseTerm, str]:
        """Return the lease's id and what ends or extends it. NoHandle, LeaseOver, TaskError, NotLeader."""
        term, context = self._leading()
        claims = verified(handle, context.sign_with())
        if claims is None or claims.vhost != self.vhost or claims.by != by:
            raise NoHandle("there is no such lease; a handle is worth something only to the token that received it")
        if claims.term != self._number:
            how = term.leases.how_ended(claims.lease_id)
            raise LeaseOver(Ended.LOST if how is None else how)
        return term, claims.lease_id

    async def release_all(self, leases: list[Lease[HeldLetter]]) -> None:
        """Requeue letters whose caller is gone."""
        if self._term is not None:
            await self._term.release_all(leases)

    def _audit(self, request: ReceiveRequest, context: TaskContext) -> None:
        key, now = (request.by, request.queue), time.monotonic()
        if now < self._audited.get(key, 0.0):
            return
        self._audited[key] = now + AUDIT_S
        details, by = {"queue": request.queue, "filtered": request.holds is not None}, request.by
        line = audit(context.router_id, self.vhost, actor=by, action="lease.work", details=details, ts_ms=wall_ms())
        context.journal.record(line)

    def _leading(self) -> tuple[LeaseTerm, TaskContext]:
        if not self._journal_is_on:
            raise TaskError("JOURNAL=off: what becomes of a letter could not be recorded; set JOURNAL=best-effort")
        if self._context is None or self._term is None:
            raise NotLeader(self._not_leading())
        if not self._known.is_set():
            raise NotLeader(f"vhost {self.vhost!r}: the journal is being read; ask again")
        return self._term, self._context


@contextmanager
def translated(queue: str = "") -> Iterator[None]:
    """Raise errors of the broker as TaskError or NotLeader."""
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


def _too_long(queue: str, limits: QueueLimits, over: str = "") -> str:
    return (
        f"visibility: a letter of {queue!r} can be held for {limits.longest_s} s{over}, then the broker takes it back; "
        "raise consumer_timeout in rabbitmq.conf, or from 3.12 on by a policy with consumer-timeout, where "
        "MANAGEMENT_URL is set"
    )


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
