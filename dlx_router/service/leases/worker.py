"""The worker: letters of a vhost's queues in the hands of whoever received them, for as long as this router leads.

A letter is held unacknowledged on a connection of its own, so whatever ends the router, the connection or the broker
gives it back. Rules: a letter is acked after the stream has what became of it; what cannot be said to have ended well
comes back; nothing is waited for that would keep letters of the router waiting.
"""

import asyncio
import secrets
import time
from collections import Counter
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dlx_router.broker.answers import LinkError
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.holder import Holder
from dlx_router.core.bounded import MIB, Bounded
from dlx_router.core.leases import Ended, Lease, LeaseError, Leases, NoRoom, Removed
from dlx_router.core.letter import Letter
from dlx_router.redrive.eligibility import is_letter
from dlx_router.redrive.letter_edits import Edit
from dlx_router.redrive.task import Destination, TaskError
from dlx_router.service.dispatch.settler import Ending, returned
from dlx_router.service.inflight import decoder
from dlx_router.service.leases.channels import TROUBLE, LeaseChannels, is_seen
from dlx_router.service.leases.facts import KnownQueues, LeaseFacts
from dlx_router.service.leases.held_letter import HeldLetter, delivered_before, failed_before, held_letter, key_of
from dlx_router.service.leases.lease_events import begun_line, ended_line
from dlx_router.service.leases.look import Look, Meant
from dlx_router.service.leases.removal import Remover, spec_of
from dlx_router.service.redrive.binding_facts import version_of
from dlx_router.service.redrive.context import TaskContext, place_of
from dlx_router.service.redrive.task_log import WITHIN_S, NotLeader
from dlx_router.telemetry.logs import Once, log
from dlx_router.telemetry.wall_clock import wall_ms
from dlx_router.wire import frames

TICK_S: Final = 0.25
AGAIN_S: Final = 1.0  # between two looks of one request
ANSWER_BYTES: Final = 16 * MIB  # of bodies in one answer, but for a single larger letter
ANSWERED_S: Final = 8.0
LOOKS: Final = 200  # at once
KNOWN: Final = (LeaseError, TaskError, NotLeader, *TROUBLE)


@dataclass(frozen=True, slots=True)
class Asked:
    """What somebody wants to receive. `holds` None: any letter."""

    queue: str
    by: str
    most: int
    wait_s: float
    visibility_s: float
    holds: Callable[[Letter], bool] | None = None
    knowing: bool = False


class LeaseWorker:
    """Of one leader's time. `removed` outlives it; `epoch` counts connections, of all leaders' times."""

    def __init__(
        self, context: TaskContext, removed: Removed, book: Leases[HeldLetter], epoch: Callable[[], int]
    ) -> None:
        self.book = book
        self._context, self._removed = context, removed
        self._channels = LeaseChannels(context, epoch, self._lost)
        self._known = KnownQueues(context)
        self._looking: Counter[str] = Counter()
        self._looks: dict[Holder, Look] = {}
        self._sifting: dict[str, asyncio.Lock] = {}
        self._receives: Bounded[str, int] = Bounded(most=100_000, most_bytes=32 * MIB)
        self._tasks: set[asyncio.Task[Any]] = set()
        self._once = Once()

    @property
    def queues(self) -> set[str]:
        """Whose letters are held."""
        return {lease.held.queue for lease in self.book}

    def consumers(self, queue: str) -> int:
        """How many consumers of the queue are ours, as the broker counts them, or more.

        A consumer that was cancelled counts in a quorum queue until all that it held is settled.
        """
        if self._known.kinds.get(queue) == "classic":
            return self._looking[queue]
        turns = {(lease.held.holder, lease.held.turn) for lease in self.book if lease.held.queue == queue}
        return self._looking[queue] + len(turns)

    def awaited(self, queue: str) -> int:
        """How many requests look for letters of the queue just now, and take what they find."""
        return self._looking[queue]

    # -- receiving ----------------------------------------------------------------------------------------------

    async def receive(self, asked: Asked) -> list[Lease[HeldLetter]]:
        """Letters, the oldest first; none where none came in time. TaskError, NoRoom, NotLeader, broker's trouble."""
        self._see_working()
        link = await self._channels.control()
        facts = await self._known.facts(asked.queue, version_of(link), knowing=asked.knowing)
        if asked.visibility_s > facts.longest_s:
            raise TaskError(_too_long(asked.queue, facts))
        if sum(self._looking.values()) >= LOOKS:
            raise NoRoom(f"{LOOKS} requests wait for letters; ask again")
        await self._channels.keep(asked.queue)
        until_s = time.monotonic() + asked.wait_s
        while True:
            leases = await self._in_turn(asked, facts, until_s)
            if leases or time.monotonic() + AGAIN_S > until_s:
                return leases
            await asyncio.sleep(AGAIN_S)

    async def _in_turn(self, asked: Asked, facts: LeaseFacts, until_s: float) -> list[Lease[HeldLetter]]:
        """Filters of one queue look in turns: each holds what the next one may mean."""
        if asked.holds is None:
            return await self._look(asked, facts, until_s)
        turn = self._sifting.setdefault(asked.queue, asyncio.Lock())
        try:
            async with asyncio.timeout(max(until_s - time.monotonic(), AGAIN_S)):
                await turn.acquire()
        except TimeoutError:
            return []
        try:
            return await self._look(asked, facts, until_s)
        finally:
            turn.release()

    async def _look(self, asked: Asked, facts: LeaseFacts, until_s: float) -> list[Lease[HeldLetter]]:
        if why := self.book.why_full(asked.by):
            raise NoRoom(why)
        holder = await self._channels.holder(asked.queue, facts.consumer_timeout_ms)
        leases = list[Lease[HeldLetter]]()
        look = self._looks[holder] = Look(holder, asked.most, partial(self._consider, asked, facts, leases))
        self._looking[asked.queue] += 1
        is_well = False
        try:
            await look.run(until_s)
            is_well = True
        except LinkError as error:
            if error.is_crash:
                raise TaskError(_unreadable(asked.queue, error)) from None
            raise
        finally:
            self._looking[asked.queue] -= 1
            self._looks.pop(holder, None)
            if not is_well:
                holder.drop("the look was ended")
            self._channels.free(holder)
        if look.refused is not None:
            await self._release_all(leases)
            raise look.refused
        return self._begun(asked, [lease for lease in leases if self._is_held(lease)])

    def _begun(self, asked: Asked, leases: list[Lease[HeldLetter]]) -> list[Lease[HeldLetter]]:
        """From now on it counts: until then they had until the end of the look, and more."""
        now, due = wall_ms(), wall_ms() + int(asked.visibility_s * 1000)
        for lease in leases:
            lease.until_ms = _now_ms() + int(asked.visibility_s * 1000)
            self._context.journal.record(begun_line(lease, self._context.router_id, now_ms=now, due_ms=due))
        self._context.metrics.lease_letters["received"] += len(leases)
        return leases

    def _consider(
        self,
        asked: Asked,
        facts: LeaseFacts,
        leases: list[Lease[HeldLetter]],
        delivery: frames.Delivery,
        holder: Holder,
    ) -> Meant:
        if self._channels.is_over:
            return Meant.LEFT
        try:
            letter, envelope = decoder.read(delivery, place_of(self._context, asked.queue))
            in_force = self._context.in_force()
            held = held_letter(holder, letter, envelope, in_force, since_s=time.monotonic(), epoch=self._channels.epoch)
            return self._meant(asked, facts, leases, held)
        except decoder.Malformed:
            return Meant.LEFT
        except NoRoom:
            return Meant.FULL
        except TaskError as error:
            self._looks[holder].refused = error
            return Meant.FULL
        except Exception as error:  # noqa: BLE001 - a letter that nobody foresaw must not stop the others
            self._once.warn("read", "lease.unreadable", queue=asked.queue, error=repr(error), fate="it stays")
            return Meant.LEFT

    def _meant(self, asked: Asked, facts: LeaseFacts, leases: list[Lease[HeldLetter]], held: HeldLetter) -> Meant:
        letter, envelope = held.letter, held.envelope
        if not is_letter(letter) or (facts.fatal is not None and failed_before(envelope) >= facts.fatal):
            return Meant.LEFT
        key, delivery = key_of(letter, envelope), envelope.delivery
        lease_id = self._removed.came_back(key, self._channels.epoch, redelivered=delivery.redelivered)
        if lease_id is not None and asked.queue != self._context.names.parking:  # there it is handed out again
            self._channels.hold(held.holder)
            self._tasks.add(self._spawn(self._park_redelivered(Lease(lease_id, asked.by, key, 0, 0, held))))
            return Meant.SEEN_TO
        if asked.holds is not None and not asked.holds(letter):
            return Meant.LEFT
        size = len(delivery.body) + len(delivery.header)
        if leases and sum(lease.size for lease in leases) + size > ANSWER_BYTES:
            return Meant.FULL
        until_ms = _now_ms() + int((asked.wait_s + asked.visibility_s) * 1000)
        lease = Lease(secrets.token_hex(12), asked.by, key, size, until_ms, held)
        lease.receives = 1 + max(self._receives.get(key, 0), delivered_before(envelope))
        self.book.hold(lease)
        self._receives[key] = lease.receives
        self._channels.hold(held.holder)
        leases.append(lease)
        return Meant.KEPT

    # -- ending -------------------------------------------------------------------------------------------------

    async def remove(
        self, lease_id: str, how: Ended, *, to: Destination | None = None, edit: Edit | None = None
    ) -> None:
        """The letter leaves its queue. LeaseError, TaskError: it does not; NotLeader: ask what became of it."""
        self._see_working()
        lease = self.book.begin_end(lease_id)
        removing = self._spawn(self._removing(lease, how, to, edit))
        done, _ = await asyncio.wait([removing], timeout=ANSWERED_S)
        if not done:
            raise NotLeader("it takes long; the lease is being ended, ask again")
        if removing.cancelled():
            raise NotLeader("this router leads no more; ask what became of the lease")
        removing.result()

    async def _removing(self, lease: Lease[HeldLetter], how: Ended, to: Destination | None, edit: Edit | None) -> None:
        try:
            ending = await self._removed_by(lease, how, to, edit)
        except BaseException:
            self.book.keep(lease)
            if not lease.held.holder.is_open:
                self._ended(lease, Ended.LOST)
            raise
        self._removed.add(lease.key, lease.id, lease.held.epoch)
        is_certain = ending is Ending.SETTLED and await is_seen(lease.held.holder)
        self._ended(lease, how, is_recorded=True)
        if not is_certain:
            raise NotLeader("it is told, but the broker was lost as the letter was acked; it goes when it comes again")

    async def _removed_by(
        self, lease: Lease[HeldLetter], how: Ended, to: Destination | None, edit: Edit | None
    ) -> Ending:
        remover = Remover(lease, how, self._context, spec_of(lease, how, self._context, to), edit=edit)
        return await (remover.discard() if how is Ended.DONE else remover.send(await self._channels.publishing()))

    async def _park_redelivered(self, lease: Lease[HeldLetter]) -> None:
        """Park a letter that looks like one that a lease removed; it may be an equal one that nobody received."""
        held = lease.held
        try:
            ending = await self._removed_by(lease, Ended.PARKED, None, None)
        except Exception as error:  # noqa: BLE001 - no request waits for it, and it must not be held for ever
            self._removed.not_again(lease.key, lease.id)
            self._once.warn("again", "lease.came_back", error=repr(error), fate="it is given back, and parked later")
            returned(held.holder, held.job.delivery.tag)
        else:
            self._context.metrics.lease_letters["came_back"] += ending is Ending.SETTLED
            if ending is not Ending.SETTLED or not await is_seen(held.holder):
                self._removed.not_again(lease.key, lease.id)
        finally:
            self._channels.free(held.holder)

    async def release(self, lease_id: str) -> None:
        """Back to its place, now. LeaseError."""
        lease = self.book.begin_end(lease_id)
        returned(lease.held.holder, lease.held.job.delivery.tag)
        self._ended(lease, Ended.RELEASED)
        await is_seen(lease.held.holder)

    async def _release_all(self, leases: list[Lease[HeldLetter]]) -> None:
        for lease in leases:
            with suppress(LeaseError, *TROUBLE):
                await self.release(lease.id)

    async def extend(self, lease_id: str, visibility_s: float) -> int:
        """It ends so long from now; → when, ms since 1970. LeaseError, TaskError: the broker takes it back before."""
        held = self.book.find(lease_id).held
        facts = await self._known.facts(held.queue, version_of(await self._channels.control()), knowing=True)
        if time.monotonic() + visibility_s > held.since_s + facts.longest_s:
            raise TaskError(_too_long(held.queue, facts, f", {time.monotonic() - held.since_s:.0f} s of them are over"))
        self.book.extend(lease_id, _now_ms() + int(visibility_s * 1000))
        return wall_ms() + int(visibility_s * 1000)

    def _ended(self, lease: Lease[HeldLetter], how: Ended, *, is_recorded: bool = False) -> None:
        if not self.book.end(lease, how):
            return
        self._context.metrics.lease_letters[how.value] += 1
        if not is_recorded:
            self._context.journal.record(ended_line(lease, how, self._context.router_id, wall_ms()))
        self._channels.free(lease.held.holder)

    # -- life ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Leases whose time is over end; until cancelled."""
        while True:
            await asyncio.sleep(TICK_S)
            try:
                self._expire()
            except Exception as error:  # noqa: BLE001 - or no lease would ever end again
                self._once.warn("expire", "lease.fault", error=repr(error), fate="it is tried again")
            await self._channels.tidy(self.queues | {queue for queue, looks in self._looking.items() if looks})

    def _expire(self) -> None:
        for lease in self.book.due(_now_ms()):
            returned(lease.held.holder, lease.held.job.delivery.tag)
            self._ended(lease, Ended.EXPIRED)

    async def stop(self, within_s: float = WITHIN_S) -> None:
        """Everything that is held goes back, by nack: a connection that is lost counts as a failed delivery.

        So it is only after `within_s` seconds of a broker that does not answer.
        """
        self._channels.end()  # a request that sleeps between two looks must find nothing to take letters by
        for task in [*self._tasks]:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for look in self._looks.values():
            look.lose(LinkError("the router stops, or leads no more"))
        for lease in self.book:
            self._ended(lease, Ended.LOST)
        await self._channels.close(within_s)

    def _lost(self, holder: Consumer, error: Exception) -> None:
        """The broker has them again."""
        self._known.learn(holder.queue, error)
        for lease in self.book:
            if lease.held.holder is holder and not lease.is_busy:
                self._ended(lease, Ended.LOST)
        for candidate, look in self._looks.items():
            if candidate is holder:
                look.lose(error)

    def _is_held(self, lease: Lease[HeldLetter]) -> bool:
        return lease.held.holder.is_open and lease.id in self.book

    def _see_working(self) -> None:
        if not self._context.journal.is_working:
            raise NotLeader("the journal cannot be written just now; see /readyz, and ask again")

    def _spawn(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None and not isinstance(error, KNOWN):  # else it is told to who asked, if they still wait
            log.error("lease.fault", error=repr(error), fate="the letter is leased as before, or back in its queue")


def _unreadable(queue: str, error: LinkError) -> str:
    return (
        f"queue {queue!r} cannot be read: RabbitMQ crashed as it delivered a message of it, one that came by AMQP 1.0, "
        f"say, and has no form in AMQP 0-9-1. Each further read counts as a failed delivery of the messages beside it, "
        f"so move that message first, by a client of AMQP 1.0 ({error})"
    )


def _too_long(queue: str, facts: LeaseFacts, over: str = "") -> str:
    return (
        f"visibility: a letter of {queue!r} can be held for {facts.longest_s} s{over}, then the broker takes it back; "
        "raise consumer_timeout in rabbitmq.conf, or from 3.12 on by a policy with consumer-timeout, where "
        "MANAGEMENT_URL is set"
    )


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
