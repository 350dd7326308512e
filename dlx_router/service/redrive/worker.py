"""The worker: carries out one task, look after look through its queue, until all that is meant has gone.

Rules: a letter is acked after its copy was confirmed and not returned, and after the journal took its event; whatever
ends the work, what is unsettled goes back. A look ends before the broker would end its consumer: then what is held is
given back and the next look begins.
"""

import asyncio
import math
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum
from functools import partial
from typing import Final

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.link import Link
from dlx_router.core.dead_letter_queues import deletes, is_made
from dlx_router.core.letter import Letter
from dlx_router.journal.privacy import Rule, rule_of
from dlx_router.redrive.export_format import line
from dlx_router.redrive.letter_edits import Edit
from dlx_router.redrive.rate_limit import Pace
from dlx_router.redrive.selection import Chooser, Verdict
from dlx_router.redrive.task import Kind, Task, TaskError
from dlx_router.service.dispatch.in_use import InUse
from dlx_router.service.inflight import decoder
from dlx_router.service.inflight.decoder import Envelope
from dlx_router.service.inflight.job import Job
from dlx_router.service.queue_reads import ReadCrashed
from dlx_router.service.redrive.bindings import (
    Bindings,
    Bounds,
    TargetRoom,
    depth_of,
    others_at,
    ready_in,
    see_to_holding,
)
from dlx_router.service.redrive.context import Stopped, TaskContext, place_of
from dlx_router.service.redrive.export_stream import ExportStream
from dlx_router.service.redrive.scan import MAX_CHANNELS, MAX_HELD, MAX_PREFETCH, SETTLED_S, Over, Scan, ScanPass
from dlx_router.service.redrive.sender import WINDOW, Attempt, Copies, Counters, ReadAhead, Sender, group_of
from dlx_router.telemetry.logs import Once
from dlx_router.wire import frames

TICK_S: Final = 0.02
HALTED_S: Final = 1.0
PATIENCE_S: Final = 10.0
NACKS_KEEP_ORDER: Final = (4, 0)
TAKEN: Final = 1000  # letters that a task that takes all holds at most
LOOK_S: Final = 0.25
GONE_S: Final = 5.0  # behind two heartbeats the broker has ended a connection that is dead


class End(Enum):
    """How a run of the worker ended, when nothing was wrong."""

    DONE = "done"
    CANARY = "canary"  # its letters are sent
    TOLD = "told"  # to stop


class TaskWorker:
    """Works until `run` returns; `halt` makes it return soon. `tally` may be read at any time."""

    def __init__(
        self,
        task: Task,
        context: TaskContext,
        holds: Callable[[Letter], bool],
        attempt: Attempt,
        edit: Edit | None = None,
        export: ExportStream | None = None,
    ) -> None:
        """`edit`: of a task that changes its letter. `export`: where an export's letters go."""
        self.task = task
        self.counters = Counters(task.counts)
        self._context = context
        self._wake, self._halt = asyncio.Event(), asyncio.Event()
        self._todo = ReadAhead(task.spec.rate)
        self._later = False
        self._sifting = not task.spec.takes_all or task.spec.not_a_dead_letter_queue  # there most of it stays
        self._prefetch = 0
        self._bounds = Bounds()
        self._follows = attempt.follows
        self._given_back = 0  # by the last look; the queue may not have taken all of it yet
        self._may_hold = False  # it was asked, and no look can end what stays
        self._once = Once()
        self._export = export
        if export is not None:
            export.on_room = self._wake.set
        self._patient_s = math.inf  # until when a copy on its way is waited for, once we are halted
        self._links: list[Link] = []  # both of these, as soon as they are there
        self._link: Link
        self._out: Link
        self._scan: Scan
        spec = task.spec
        self._chooser = Chooser(task.id, spec, holds, self._group_of)
        self._by_id: list[Job] = []  # letters that were asked for by id and chosen
        self._moved = set(spec.ids) if 0 < len(set(spec.ids)) <= task.counts.sent else set[str]()
        self._pace = Pace(spec.rate)
        self._copies = Copies(task.id, spec, context, edit)
        self._ways, self._room = Bindings(spec, context, self._keep), TargetRoom(context)
        self._in_use: InUse
        self._sender = Sender(spec, context, self._copies, ways=self._ways, counters=self.counters, wake=self._wake.set)
        self._sender.window = 1 if attempt.is_careful else WINDOW
        self._places: dict[Consumer, decoder.Place] = {}  # of each channel, for the serials of its deliveries

    def halt(self, patience_s: float = PATIENCE_S) -> None:
        """End soon; what is not settled goes back, once what is on its way was waited for so long at most."""
        self._patient_s = min(self._patient_s, time.monotonic() + patience_s)
        self._halt.set()
        self._wake.set()

    def abort(self) -> None:
        """Drop the connections: nothing of this waits for the broker any more, which gives back what is unsettled."""
        for link in self._links:
            link.abort()

    async def run(self) -> End:
        """Work. Raises Stopped, or what the broker did to us: then all may be tried again."""
        self._link = await self._context.link("consume")
        self._links.append(self._link)
        try:
            self._out = await self._context.link("publish")
            self._links.append(self._out)
            try:
                return await self._connected()
            except LinkError as error:
                if error.is_crash and self._link.closed.done() and self._link.closed.result() is error:
                    raise ReadCrashed(error, self._scan.failed if hasattr(self, "_scan") else 0) from error
                raise
            finally:
                await self._out.close()
        finally:
            await self._link.close()

    async def _connected(self) -> End:
        def lost(queue: str) -> None:
            self._sender.failure = LinkError(f"queue {queue!r} may be deleted as an idle one: its lock was lost")

        self._in_use = InUse(lambda: self._out, self._context.names, lost)
        await self._sender.open(self._out)
        self._bounds = await see_to_holding(self._context, self._link, self.task.spec.queue, sifting=self._sifting)
        await self._ways.see_to_destination()
        if self._follows:
            await self._others_gone()
        while (end := await self._look()) is None:
            pass
        return end

    async def _others_gone(self) -> None:
        """Wait until nobody consumes the queue: the broker holds letters for a dead connection until it misses it."""
        began_s = last_s = now = time.monotonic()
        until_s = began_s + 2 * self._context.heartbeat_s + GONE_S
        while now < until_s and now - last_s < SETTLED_S and not self._halt.is_set():
            await asyncio.sleep(LOOK_S)
            now = time.monotonic()
            last_s = now if await self._others(own=0) else last_s

    async def _others(self, own: int) -> int:
        return await others_at(self._context, self.task.spec.queue, own)

    async def _keep(self, queue: str) -> None:
        """Where routers delete idle dead-letter queues, they leave this one alone until our connection ends."""
        in_force = self._context.in_force()
        if deletes(in_force.policies) and is_made(queue, in_force.policies, in_force.policies_of):
            await self._in_use.hold(queue)

    # -- one look -----------------------------------------------------------------------------------------------

    async def _look(self) -> End | None:
        """Through the queue once; None: once more."""
        expected = max(await depth_of(self._context, self.task.spec.queue), self._given_back)
        self.counters.begin(expected, anew=self._is_once)
        self._places.clear()
        self._moved |= {job.letter.id for job in self._by_id if job.letter is not None and job.batches}
        self._by_id, self._chooser.chosen = [], set(self._moved)
        self._later = False
        self._prefetch = self._most_held(expected)
        self._scan = Scan(
            self._link, self.task.spec.queue, self._prefetch, self._take, changes=self._sifting, wake=self._wake.set
        )
        self._sender.rests()
        await self._scan.start()
        self._out.on_batch = self._scan.flush
        try:
            return await self._working(expected)
        finally:
            await self._finish()

    def _most_held(self, expected: int) -> int:
        """How many letters a channel may hold."""
        if self._sifting:
            return min(max(MAX_HELD, expected // MAX_CHANNELS), MAX_PREFETCH)
        return min(self._todo.most, TAKEN)

    async def _working(self, expected: int) -> End | None:
        look = ScanPass(expected, partial(ready_in, self._context, self.task.spec.queue))
        sent, began_s = self.counters.counts.sent, time.monotonic()
        while True:
            self._raise_failure()
            now = time.monotonic()
            is_late = self._sifting and now - began_s > self._bounds.most_s
            if self._halt.is_set():
                return End.TOLD
            if not is_late:
                await self._send(now)
            if self._is_enough():
                return End.CANARY if self.task.canary_left else End.DONE
            over = await self._is_over(look, now)
            if over is not Over.NO:  # where fewer came, what is held goes back and is counted anew
                return None if over is Over.FEWER and not self._is_once else End.DONE
            if await self._is_full():
                return None
            if is_late and not self._sender.pending:  # else a letter goes back whose copy may arrive
                self._require_progress(sent)
                return None
            if self._export is not None:
                self._export.check()
                self._scan.pause(paused=self._export.is_full)
            await self._rest()

    def _require_progress(self, sent_before: int) -> None:
        """Stopped where the next look could come no further than this one."""
        most_s, counts = self._bounds.most_s, self.counters.counts
        if self._is_once:
            raise Stopped(f"the queue was not looked through within {most_s:g} s; use a limit")
        if counts.sent == sent_before and not self._todo:
            why = f"{counts.left} letters that stay lie in front, and {most_s:g} s are not enough to pass them"
            raise Stopped(f"{why}; park them first")

    @property
    def _is_once(self) -> bool:
        """Whether one look has to see all: nothing leaves the queue, so the next would see the same again."""
        return self.task.spec.dry_run or self._export is not None

    async def _is_over(self, look: ScanPass, now: float) -> Over:
        seen = self.counters.counts.seen
        over = await look.over(now, seen, busy=self._is_busy, later=self._later)
        if over is not Over.NO:
            self.counters.others = await self._others(own=1 + self._scan.holding)
        is_early = self._is_busy or seen != self.counters.counts.seen  # it takes a moment to ask
        return Over.NO if is_early else over

    @property
    def waits_for(self) -> str:
        """What keeps the task from moving, as far as it is known here."""
        sender = self._sender
        reasons = {
            "the queue is not read yet": not self._prefetch,
            "the journal cannot be written": not self._context.journal.is_working,
            f"the broker has not confirmed {sender.flying} copies": sender.flying,
            f"the journal has not confirmed {sender.pending} events": sender.pending,
            "the broker has not read the acks of messages that were sent": self._prefetch and self._scan.unread,
            f"{len(self._todo)} messages wait for their turn, or for room at their target": self._todo,
            "the broker delivers nothing more": True,
        }
        return next(reason for reason, holds in reasons.items() if holds)

    @property
    def _is_busy(self) -> bool:
        """Whether letters wait or are on their way; of a full outlet more may have been read than was looked at."""
        return bool(self._todo or self._sender.pending or (self._export is not None and self._export.is_full))

    async def _is_full(self) -> bool:
        """What stays fills the window of a run that was to take all: from now on it is held.

        Stopped where there is what never died, and the broker counts how often that is looked at.
        """
        counts = self.counters.counts
        if self._sifting or not (counts.not_letters or self._stays > self._prefetch // 2):
            return False
        if not self._may_hold:
            self._bounds = await see_to_holding(self._context, self._link, self.task.spec.queue, sifting=True)
            self._may_hold = True
        self._sifting = self._stays > self._prefetch // 2
        return self._sifting

    @property
    def _stays(self) -> int:
        return self.counters.counts.stays

    def _is_enough(self) -> bool:
        """The limit, or the canary, is used up."""
        allowed = self._allowed()
        return allowed is not None and allowed <= 0 and not self._sender.pending

    def _allowed(self) -> int | None:
        """How many more may be sent, those on their way taken off; None: no limit."""
        spec, sent = self.task.spec, self.counters.counts.sent
        limits = [spec.limit - sent] if spec.limit else []
        if self.task.canary_left:
            assert spec.canary is not None
            limits.append(self.task.canary_from + spec.canary.first - sent)
        return min(limits) - self._sender.pending if limits else None

    async def _rest(self) -> None:
        self._scan.flush()
        self._wake.clear()
        wait = TICK_S if not self._todo else min(max(self._pace.wait_s(), 0.001), TICK_S)
        with suppress(TimeoutError):
            async with asyncio.timeout(wait):
                await self._wake.wait()

    def _raise_failure(self) -> None:
        failure = self._sender.failure or self._scan.lost
        if failure is not None:
            raise failure
        self._sender.check()

    async def _finish(self) -> None:
        """What is on its way is waited for; everything else goes back."""
        if not self._link.is_open:
            return
        begun = time.monotonic()
        while self._sender.pending and self._sender.is_open and time.monotonic() < self._patient_until(begun):
            await self._rest()
        self._todo.clear()
        self._given_back = 0
        with suppress(LinkError, ChannelClosed, TimeoutError):
            self._given_back = await self._scan.give_back(by_closing=self._link.version < NACKS_KEEP_ORDER)

    def _patient_until(self, begun: float) -> float:
        """Who halted us waits for an answer, so a journal that stands still is not waited for; a copy on its way is."""
        if self._sender.is_held_up and not self._halt.is_set() and self._scan.lost is None:
            return math.inf  # under an alarm; they will be read, and must not be sent again
        last = min(begun + min(self._context.confirm_timeout_s, PATIENCE_S), self._patient_s)
        if self._halt.is_set() and not self._sender.flying:
            return min(last, max(begun, self._sender.answered_s) + HALTED_S)
        return last

    # -- in -----------------------------------------------------------------------------------------------------

    def _take(self, delivery: frames.Delivery, consumer: Consumer) -> None:
        self._wake.set()
        self.counters.count("seen")
        try:
            self._consider(delivery, consumer)
        except decoder.Malformed:
            self.counters.count("unreadable")
        except TaskError as error:
            self._sender.failure = Stopped(str(error))
        except Exception as error:  # noqa: BLE001 - a letter that nobody foresaw must not stop the others
            self._once.warn("read", "redrive.unreadable", task=self.task.id, error=repr(error), fate="it stays")
            self.counters.count("unreadable")

    def _consider(self, delivery: frames.Delivery, consumer: Consumer) -> None:
        self._check_returns(delivery)
        place = self._places.get(consumer)
        if place is None:
            place = self._places[consumer] = place_of(self._context, self.task.spec.queue)
        letter, envelope = decoder.read(delivery, place)
        if self._is_meant(letter, envelope):
            self._work_on(letter, envelope, consumer)

    def _check_returns(self, delivery: frames.Delivery) -> None:
        """Stop where the queue's delivery limit is too near: what is held must go back, and each return may count."""
        returns, queue = self._bounds.returns, self.task.spec.queue
        if returns.limit is None:
            return
        count = returns.here(decoder.returns(delivery))
        if returns.is_near(count):
            self._context.reads.near_limit.add((queue, returns.limit))
            self._sender.failure = Stopped(
                f"letters of {queue!r} were returned {count} times, and the broker ends what is returned more than "
                f"{returns.limit} times: {returns.remedy}, and resume once what interrupted the task is mended"
            )

    def _work_on(self, letter: Letter, envelope: Envelope, consumer: Consumer) -> None:
        if self.task.spec.dry_run:
            self._count(letter)
        elif self._export is not None:
            self._write_line(letter, envelope, self._export)
        else:
            self.counters.count("meant")
            self._todo.put(job := self._copies.job(consumer, envelope.delivery, letter, envelope))
            if self.task.spec.ids:
                self._by_id.append(job)
            if self._todo.is_full:
                self._scan.pause(paused=True)

    def _is_meant(self, letter: Letter, envelope: Envelope) -> bool:
        """Whether it goes; where not it is counted."""
        verdict = self._chooser.verdict(letter, None if envelope.record is None else envelope.record.redrive_id)
        self._later = verdict in {Verdict.LATER, Verdict.NO_LETTER}
        if verdict is Verdict.NO_LETTER:
            self.counters.count("not_letters")
            return False
        why = self._ways.why_stays(letter, verdict)
        if verdict is Verdict.TAKE and not why:
            return True
        self.counters.left(why)
        return False

    # -- out ----------------------------------------------------------------------------------------------------

    async def _send(self, now: float) -> None:
        room = min(len(self._todo), self._sender.room - self._scan.unread)
        allowed = self._allowed()
        room = room if allowed is None else min(room, allowed)
        if room <= 0:
            return
        room = self._todo.fitting(room, self._sender.room_bytes)
        for _ in range(self._pace.take(now, room)):
            target = self._target(self._todo.first)
            if target and not await self._room.admits(target, self._sender.pending, now):
                return
            job = self._todo.next()
            if self._todo.has_room:
                self._scan.pause(paused=False)
            await self._sender.send(job)

    def _target(self, job: Job) -> str:
        """The queue that it goes to; "" where an exchange decides, or nothing is sent."""
        to, letter = self.task.spec.to, job.letter
        if self.task.spec.kind is not Kind.REDRIVE or letter is None:
            return ""
        if to is None:
            return letter.failed_queue
        return "" if to.exchange else to.routing_key

    def _count(self, letter: Letter) -> None:
        """More may be delivered at once than the limit lets go: the rest stays, as it would in earnest."""
        if self._is_enough():
            self.counters.left()
        else:
            self.counters.would_send(letter, self._group_of(letter))

    def _write_line(self, letter: Letter, envelope: Envelope, export: ExportStream) -> None:
        if self._is_enough():
            self.counters.left()
            return
        rule, body, group = self._rule(letter), envelope.delivery.body, self._group_of(letter)
        export.put(line(letter, envelope.props, envelope.content.props, body, group=group, rule=rule))
        self.counters.count("meant", "sent")
        if export.is_full:
            self._scan.pause(paused=True)

    def _rule(self, letter: Letter) -> Rule:
        return rule_of(self._context.in_force().resolve(letter))

    def _group_of(self, letter: Letter) -> str:
        return group_of(letter, self._rule(letter))
