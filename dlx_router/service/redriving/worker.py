"""The worker: carries out one task, look after look through its queue, until all that is meant has gone.

Rules: a letter is acked after its copy was confirmed and not returned, and after the journal took its event; whatever
ends the work, what is unsettled goes back. A look lasts HOLD_S at most, so that no letter stays unacked for long: then
what is held is given back and the next look begins.
"""

import asyncio
import time
from collections import Counter, deque
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from enum import Enum
from typing import Any, Final

from dlx_router.broker.consumer import Consumer
from dlx_router.broker.link import ChannelClosed, Link, LinkError
from dlx_router.broker.publisher import NACKED, Publisher
from dlx_router.broker.topology import QueueExclusive, QueueMissing
from dlx_router.core.fingerprint import fingerprint
from dlx_router.core.letter import Arrival, Letter
from dlx_router.operate.redrive.choosing import Chooser, Verdict
from dlx_router.operate.redrive.editing import Edit
from dlx_router.operate.redrive.holding import Holding
from dlx_router.operate.redrive.pacing import Pace
from dlx_router.operate.redrive.task import Counts, Kind, Task
from dlx_router.service import intake
from dlx_router.service.doubt import UNWRITABLE
from dlx_router.service.job import Job
from dlx_router.service.redriving.copies import Copies
from dlx_router.service.redriving.facts import holding_of, room_of, version_of
from dlx_router.service.redriving.sieve import Sieve
from dlx_router.service.redriving.tools import Stopped, Tools
from dlx_router.service.render import Stationery
from dlx_router.service.session import LAST_DEATHS_SINCE
from dlx_router.wire import frames

HOLD_S: Final = 50.0
DRY_RUN_S: Final = 600.0  # it has to see all at once, and says so
WINDOW: Final = 1000
SIEVE_PREFETCH: Final = 65_535
AHEAD_S: Final = 20.0  # letters that wait for their turn are unacked for so long
MAX_AHEAD: Final = 2000
AHEAD_BYTES: Final = 32 << 20
TICK_S: Final = 0.02
LOOK_S: Final = 1.0
LOOK_AGAIN_S: Final = 0.1
GROUPS: Final = 200
NACKS_KEEP_ORDER: Final = (4, 0)


class End(Enum):
    """How a run of the worker ended, when nothing was wrong."""

    DONE = "done"
    CANARY = "canary"  # its letters are sent
    TOLD = "told"  # to stop


class Worker:
    """Works until `run` returns; `halt` makes it return soon. `counts` may be read at any time."""

    def __init__(self, task: Task, tools: Tools, holds: Callable[[Letter], bool], edit: Edit | None = None) -> None:
        self.task = task
        self.counts: Counts = replace(task.counts, seen=0, left=0, unreadable=0)
        self.groups: Counter[tuple[str, str, str]] = Counter()
        self.stays: Counter[str] = Counter()  # why letters that are meant stay
        self._tools = tools
        self._chooser = Chooser(task.spec, holds, group_of)
        self._pace = Pace(task.spec.rate, task.spec.ramp, task.spec.ramp_step_s)
        self._todo: deque[Job] = deque()
        self._todo_bytes = 0
        self._pending = 0  # sent or told, not settled
        self._ways: dict[str, str | None] = {}
        self._rooms: dict[str, int | None] = {}
        self._full = False
        self._wake, self._halt = asyncio.Event(), asyncio.Event()
        self._failure: Exception | None = None
        self._later = False
        self._sifting = not task.spec.takes_all
        self._prefetch = 0
        self._moved_s = self._looked_s = self._minded_s = 0.0
        self._link: Link
        self._out: Link
        self._publisher: Publisher[Job]
        self._stationery: Stationery
        self._sieve: Sieve
        spec = task.spec
        self._copies = Copies(
            task.id,
            spec,
            router_id=tools.router_id,
            return_exchange=tools.names.return_,
            parking=tools.names.parking,
            desk=tools.desk,
            edit=edit,
        )
        self._place = intake.Place(tools.login.vhost, spec.queue, Arrival.INBOX, tools.names, tools.sign_with())
        self._ahead = MAX_AHEAD if not spec.rate else max(2, min(MAX_AHEAD, int(spec.rate * AHEAD_S)))

    def halt(self) -> None:
        """End soon; what is not settled goes back."""
        self._halt.set()
        self._wake.set()

    async def run(self) -> End:
        """Work. Raises Stopped, or what the broker did to us: then all may be tried again."""
        self._link = await self._tools.link("consume")
        try:
            self._out = await self._tools.link("publish")
            try:
                return await self._connected()
            finally:
                await self._out.close()
        finally:
            await self._link.close()

    async def _connected(self) -> End:
        login, names = self._tools.login, self._tools.names
        self._stationery = Stationery(
            user=login.user,
            last_deaths=version_of(self._out) >= LAST_DEATHS_SINCE,
            key=self._tools.sign_with(),
            quarantine=names.quarantine,
        )
        self._publisher = Publisher(
            self._out, on_answer=self._answered, on_done=self._confirmed, on_doubt=self._in_doubt
        )
        await self._publisher.open()
        if self._sifting:
            await self._see_to_holding()
        await self._see_to_destination()
        while True:
            end = await self._look()
            if end is not None:
                return end

    async def _see_to_holding(self) -> None:
        queue = self.task.spec.queue
        if await holding_of(self._tools, self._link, queue) is Holding.ASIDE:
            raise Stopped(
                f"{queue!r} counts each look as a delivery, and could end letters by it: raise its delivery-limit by a "
                "policy, set MANAGEMENT_URL where it is a classic queue, or redrive all of it"
            )

    async def _see_to_destination(self) -> None:
        to = self.task.spec.to
        if to is None or self.task.spec.dry_run:
            return
        there = await (
            self._tools.topology.exchange_exists(to.exchange)
            if to.exchange
            else self._tools.topology.queue_exists(to.routing_key)
        )
        if not there:
            kind, name = ("exchange", to.exchange) if to.exchange else ("queue", to.routing_key)
            raise Stopped(f"the destination, {kind} {name!r}, does not exist; all letters stay")

    # -- one look -----------------------------------------------------------------------------------------------

    async def _look(self) -> End | None:
        """Through the queue once; None: once more."""
        spec = self.task.spec
        expected = await self._depth()
        sent = 0 if spec.dry_run else self.counts.sent
        self.counts = Counts(sent=sent)
        self.groups.clear()
        self.stays.clear()
        self._later = False
        self._prefetch = SIEVE_PREFETCH if self._sifting else min(self._ahead, WINDOW)
        self._sieve = Sieve(self._link, spec.queue, self._prefetch, self._take)
        self._moved_s = time.monotonic()
        until = self._moved_s + (DRY_RUN_S if spec.dry_run else HOLD_S) if self._sifting else None
        await self._sieve.start()
        self._out.on_batch = self._sieve.flush
        try:
            return await self._working(expected, until)
        finally:
            await self._finish()

    async def _working(self, expected: int, until: float | None) -> End | None:
        while True:
            self._raise_failure()
            now = time.monotonic()
            if self._halt.is_set():
                return End.TOLD
            await self._send(now)
            if self._is_enough():
                return End.CANARY if self.task.canary_left else End.DONE
            if self.counts.seen >= expected and await self._is_through(now):
                return End.DONE
            if await self._is_full() or (until is not None and now > until):
                return None
            await self._mind_the_target(now)
            await self._rest()

    async def _is_through(self, now: float) -> bool:
        """Nothing is left to look at, or what comes now died after the cutoff."""
        if self._todo or self._pending or now - self._looked_s < LOOK_AGAIN_S:
            return False
        self._looked_s = now
        return self._later or not await self._depth()

    async def _is_full(self) -> bool:
        """What stays fills the window of a run that was to take all: from now on it is held."""
        if self._sifting or self.counts.left + self.counts.unreadable <= self._prefetch // 2:
            return False
        await self._see_to_holding()
        self._sifting = True
        return True

    def _is_enough(self) -> bool:
        """The limit, or the canary, is used up."""
        allowed = self._allowed()
        return allowed is not None and allowed <= 0 and not self._pending

    def _allowed(self) -> int | None:
        """How many more may be sent, those on their way taken off; None: no limit."""
        spec, limits = self.task.spec, []
        if spec.limit:
            limits.append(spec.limit - self.counts.sent)
        if self.task.canary_left:
            assert spec.canary is not None
            limits.append(spec.canary.first - self.counts.sent)
        return min(limits) - self._pending if limits else None

    async def _rest(self) -> None:
        self._sieve.flush()
        self._wake.clear()
        wait = TICK_S if not self._todo else min(max(self._pace.wait_s(time.monotonic()), 0.001), TICK_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._wake.wait()

    def _raise_failure(self) -> None:
        failure = self._failure or self._sieve.lost
        if failure is not None:
            if isinstance(failure, LinkError) and "is the queue deleted" in str(failure):
                raise Stopped(f"queue {self.task.spec.queue!r} was deleted")
            raise failure
        if self._pending and not self._out.blocked:
            if time.monotonic() - self._moved_s > self._tools.confirm_timeout_s:
                raise LinkError("the broker confirms no more")
        else:
            self._moved_s = time.monotonic()

    async def _depth(self) -> int:
        queue = self.task.spec.queue
        found = await self._tools.topology.depths([queue])
        if queue not in found:
            raise Stopped(f"queue {queue!r} does not exist, or cannot be looked at")
        return found[queue]

    async def _finish(self) -> None:
        """What is on its way is waited for; everything else goes back."""
        if not self._link.is_open:
            return
        deadline = time.monotonic() + min(self._tools.confirm_timeout_s, 10.0)
        while self._pending and self._publisher.is_open and time.monotonic() < deadline:
            await self._rest()
        self._todo.clear()
        self._todo_bytes = 0
        with suppress(LinkError, ChannelClosed, TimeoutError):
            await self._sieve.give_back(by_closing=version_of(self._link) < NACKS_KEEP_ORDER)

    # -- in -----------------------------------------------------------------------------------------------------

    def _take(self, delivery: frames.Delivery, consumer: Consumer) -> None:
        self._wake.set()
        try:
            letter, envelope = intake.read(delivery, self._place)
        except intake.Malformed:
            self.counts = replace(self.counts, seen=self.counts.seen + 1, unreadable=self.counts.unreadable + 1)
            return
        verdict = self._verdict(letter)
        counts = self.counts = replace(self.counts, seen=self.counts.seen + 1)
        if verdict is Verdict.TAKE and self.task.spec.dry_run:
            self.counts = replace(counts, sent=counts.sent + 1)
            self._count(letter)
        elif verdict is Verdict.TAKE:
            self._todo.append(self._copies.job(consumer, delivery, letter, envelope))
            self._weigh(len(delivery.body) + len(delivery.header))
        else:
            self.counts = replace(counts, left=counts.left + 1)

    def _verdict(self, letter: Letter) -> Verdict:
        verdict = self._chooser.verdict(letter)
        self._later = verdict is Verdict.LATER
        if verdict is Verdict.HOMELESS:
            self.stays["nothing tells which queue they failed at; give a destination"] += 1
        if verdict is Verdict.TAKE and self._ways.get(letter.failed_queue, "") is None:
            self.stays[f"queue {letter.failed_queue!r} does not exist"] += 1
            return Verdict.LEAVE
        return verdict

    def _count(self, letter: Letter) -> None:
        key = (group_of(letter), letter.failed_queue, letter.reason)
        if key in self.groups or len(self.groups) < GROUPS:
            self.groups[key] += 1

    def _weigh(self, size: int) -> None:
        self._todo_bytes += size
        if not self._sifting:
            return  # the prefetch bounds it
        if size > 0 and (len(self._todo) > self._ahead or self._todo_bytes > AHEAD_BYTES):
            self._sieve.pause(paused=True)
        elif size < 0 and len(self._todo) <= self._ahead // 2 and self._todo_bytes <= AHEAD_BYTES // 2:
            self._sieve.pause(paused=False)

    # -- out ----------------------------------------------------------------------------------------------------

    async def _send(self, now: float) -> None:
        if self._out.blocked or not self._todo:
            return
        room = min(len(self._todo), WINDOW - self._pending)
        allowed = self._allowed()
        room = room if allowed is None else min(room, allowed)
        if room <= 0:
            return
        for _ in range(self._pace.take(now, room)):
            await self._one(self._todo.popleft())

    async def _one(self, job: Job) -> None:
        self._weigh(-len(job.delivery.body) - len(job.delivery.header))
        self._moved_s = self._moved_s if self._pending else time.monotonic()
        if self.task.spec.kind is Kind.DISCARD:
            self._pending += 1
            self._tell(job)
            return
        key = ""
        if self.task.spec.kind is Kind.REDRIVE and self.task.spec.to is None:
            assert job.letter is not None
            way = await self._way(job.letter.failed_queue)
            if way is None:
                self._leave(job.letter.failed_queue)
                return
            key = way
        self._copies.address(job, key)
        self._publish(job)

    def _leave(self, queue: str) -> None:
        self._keep(f"queue {queue!r} does not exist")

    def _publish(self, job: Job) -> None:
        try:
            exchange, key, section = self._stationery.write(job, self._publisher.stamp())
            self._publisher.publish(job, exchange, key, section, job.delivery.body)
            self._pending += 1
        except frames.FrameTooLarge:
            self._keep("their headers fill a frame")
        except UNWRITABLE as error:
            self._keep(f"they cannot be written: {error}")

    def _keep(self, why: str) -> None:
        self.stays[why] += 1
        self.counts = replace(self.counts, left=self.counts.left + 1)

    async def _way(self, queue: str) -> str | None:
        """The binding key that leads to a failed queue, "" by its name; None where there is no such queue."""
        if queue not in self._ways:
            try:
                await self._tools.topology.ensure_return_binding(queue)
                self._ways[queue] = self._tools.names.return_key(queue)
            except QueueMissing:
                self._ways[queue] = None
            except QueueExclusive:
                self._ways[queue] = ""
        return self._ways[queue]

    # -- answers ------------------------------------------------------------------------------------------------

    def _confirmed(self, jobs: list[Job]) -> None:
        self._moved_s = time.monotonic()
        for job in jobs:
            self._tell(job)

    def _tell(self, job: Job) -> None:
        lines = self._copies.events(job, int(time.time() * 1000))
        batches = [self._tools.journal.record(line) for line in lines]
        batches[-1].wait(self._settled, job)  # batches are written in their order

    def _settled(self, job: Job) -> None:
        self._pending -= 1
        if job.consumer.settle(job.delivery.tag):
            self.counts = replace(self.counts, sent=self.counts.sent + 1)
            self._tools.metrics.redrive_letters["sent"] += 1
        self._wake.set()

    def _answered(self, job: Job, why: str) -> None:
        self._moved_s = time.monotonic()
        if not why:
            self._tell(job)
            return
        self._pending -= 1
        self._tools.metrics.redrive_letters[why] += 1
        assert job.copy is not None and job.letter is not None  # noqa: PT018 - it was published
        if why == NACKED:
            self._failure = Stopped(f"{_target(job)} takes no more; what was not sent stays; resume when it has room")
        elif self.task.spec.to is not None or self.task.spec.kind is Kind.PARK:
            self._failure = Stopped(f"{_target(job)} leads to no queue; what was not sent stays")
        else:
            self._ways[job.letter.failed_queue] = None
            self._leave(job.letter.failed_queue)
        self._wake.set()

    def _in_doubt(self, jobs: list[Job], error: Exception) -> None:
        self._pending -= len(jobs)
        if isinstance(error, ChannelClosed):
            self._failure = Stopped(f"the broker refuses the destination: {error}; what was not sent stays")
        else:
            self._failure = error
        self._wake.set()

    # -- the target's room --------------------------------------------------------------------------------------

    async def _mind_the_target(self, now: float) -> None:
        """Stopped where a target nears its limit: what it refuses or drops was better left here."""
        if now - self._minded_s < LOOK_S or self.task.spec.kind is not Kind.REDRIVE:
            return
        self._minded_s = now
        for queue in self._targets:
            room = await self._room(queue)
            depth = 0 if room is None else (await self._tools.topology.depths([queue])).get(queue, 0)
            if room is not None and depth >= room:
                raise Stopped(f"queue {queue!r} holds {depth} messages, its bound is {room}; resume when it has room")

    async def _room(self, queue: str) -> int | None:
        if queue not in self._rooms:
            found = await room_of(self._tools.management, self._tools.login.vhost, queue)
            bounds = [one for one in (found, self.task.spec.max_target_depth or None) if one is not None]
            self._rooms[queue] = min(bounds) if bounds else None
        return self._rooms[queue]

    @property
    def _targets(self) -> list[str]:
        """Queues that letters went to."""
        to = self.task.spec.to
        if to is not None:
            return [] if to.exchange else [to.routing_key]
        return [queue for queue, way in self._ways.items() if way is not None]


def group_of(letter: Letter) -> str:
    """The letter's group, as the index says."""
    error: Any = letter.error or {}
    return fingerprint(
        letter.vhost,
        letter.failed_queue,
        letter.reason,
        error_type=str(error.get("type") or ""),
        frame=str(error.get("frame") or ""),
        message=str(error.get("message") or ""),
    ).id


def _target(job: Job) -> str:
    assert job.copy is not None
    if job.copy.bcc is not None or not job.copy.exchange:
        return f"queue {job.letter.failed_queue if job.copy.bcc and job.letter else job.copy.routing_key!r}"
    return f"exchange {job.copy.exchange!r} with key {job.copy.routing_key!r}"
