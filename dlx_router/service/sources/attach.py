"""Modes: how one queue that is not an inbox of ours is attended, or why it cannot be."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import Final, NamedTuple, Protocol

from dlx_router.broker.answers import ChannelClosed
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.control import CONFIRMS_S, time_to_confirm
from dlx_router.broker.management import Management, ManagementError
from dlx_router.config.policy_files.attachments import GUARD, RELAY, Attachment
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.core import attending
from dlx_router.core.attending import QueueFacts, Version
from dlx_router.core.bounded import Bounded
from dlx_router.core.letter import Arrival
from dlx_router.core.names import Names
from dlx_router.core.passing import Target
from dlx_router.core.selector import Selector
from dlx_router.service.dispatch.owner import Owner
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.dispatch.worker import Worker
from dlx_router.service.queue_reads import QueueReads, ReadRefused
from dlx_router.service.sources.consumers import Consumers
from dlx_router.service.sources.delayed_exchange import DelayedExchange
from dlx_router.service.sources.guard import GuardedQueue
from dlx_router.service.sources.relay import Relay
from dlx_router.telemetry.readiness import Readiness

AGAIN_S: Final = 2.0
_FORBIDDEN: Final = 403
_LOCKED: Final = 405
UNKNOWN: Final = QueueFacts()  # what nobody told
STRICT_PREFETCH: Final = 16  # it sends one at a time: the others only take up bytes that are the room of all letters


class Attending(Owner, Protocol):
    """What sources ask of their session."""

    is_draining: bool
    consumers: Consumers

    async def isolate(self, queue: str) -> None:
        """Open a connection of its own for the queue, if it needs one. LinkError."""


Wanted = Attachment | Delayed


class Setting(NamedTuple):
    """What is in force for all sources of a session.

    `is_resting`: whether a name is that of a queue of ours or of an auto-created one; no pattern means those.
    `shared`: other routers attend the same queues, and one of them may have what only one can have.
    """

    wanted: Sequence[Wanted]
    names: Names
    management: Management | None
    readiness: Readiness
    reads: QueueReads
    prefetch: int
    is_resting: Callable[[str], bool]
    declare: bool
    shared: bool

    @property
    def attachments(self) -> list[Attachment]:
        """Those that name queues of others."""
        return [attachment for attachment in self.wanted if isinstance(attachment, Attachment)]

    @property
    def named(self) -> dict[str, Wanted]:
        """All of which the queue is known by its name."""
        delayed = {self.names.delayed(source.exchange): source for source in self.wanted if isinstance(source, Delayed)}
        return {**{attachment.queue: attachment for attachment in self.attachments if attachment.named}, **delayed}


def leads(wanted: Sequence[Wanted]) -> list[tuple[Selector, Target]]:
    """Which queues the relays among these attend, and where they lead; those that name a queue more narrowly first."""
    relays = [
        (source.selector, source.forward)
        for source in wanted
        if isinstance(source, Attachment) and source.mode == RELAY
    ]
    routes = [(selector, forward) for selector, forward in relays if forward is not None]
    return sorted(routes, key=lambda route: route[0].rank)


def trusted(source: Wanted | None, names: Names) -> frozenset[bytes]:
    """The exchanges by which the broker brings dead letters to its queue, as deliveries name them; none of ours."""
    named = source.dead_letter_exchanges if isinstance(source, Attachment) else None
    return frozenset(exchange.encode() for exchange in named or () if not names.is_own(exchange))


class ConsumedElsewhere(Exception):
    """Somebody else has what only one can have; another router of ours, maybe."""


class NotAttended(Exception):
    """The queue stays as it is, for now; the text says why and what now."""


class SourceMissing(NotAttended):
    """There is no such queue."""


class Begun(NamedTuple):
    """How a queue is attended. `unverified`: its consumer, where what the queue is was not told and can be."""

    guarded: GuardedQueue | None = None
    unverified: Consumer | None = None


def unverified(vhost: str, queue: str) -> str:
    """The key of the note that nobody told what the queue is."""
    return f"unverified {vhost}/{queue}"


class Attach:
    """Begins to attend queues, for the sources of one session."""

    def __init__(self, session: Attending, version: Version, letters: Worker, probe: SerialPublisher) -> None:
        self._session, self._version = session, version
        self._letters, self._probe = letters, probe
        self.workers: list[Relay | DelayedExchange] = []
        self._asking, self._ask_again_s = asyncio.Lock(), 0.0
        self._unanswered: set[str] = set()  # queues of which nobody told in time, in this session

    def worker(self, source: Wanted, queue: str, setting: Setting) -> Worker:
        """The way that its messages go."""
        session = self._session
        if isinstance(source, Delayed):
            session.decider.in_force.attended.delayed[queue] = source
            return self._added(DelayedExchange(session, self._probe, source, queue))
        if source.mode != RELAY or source.forward is None:
            return self._letters
        session.decider.in_force.attended.relays[queue] = source.forward
        deaths, slack = self._letters, setting.prefetch
        relay = Relay(session, self._probe, queue=queue, target=source.forward, deaths=deaths, slack=slack)
        return self._added(relay)

    def _added(self, worker: Relay | DelayedExchange) -> Worker:
        self.workers.append(worker)
        return worker

    async def left(self, worker: Worker) -> None:
        """Nothing comes by this worker any more, and nothing of it is in flight."""
        if isinstance(worker, Relay | DelayedExchange):
            self.workers.remove(worker)
            await worker.close()

    async def begin(self, source: Wanted, queue: str, worker: Worker, setting: Setting) -> Begun:
        """Attend it. Raises NotAttended, ConsumedElsewhere, or what the broker says."""
        await self._session.isolate(queue)
        if isinstance(source, Delayed):
            await self._delayed(source, queue, worker, setting)
            return Begun()
        answer = await self._facts(source, queue, setting)
        facts = answer or self._last_facts.get(queue)
        if facts is not None:
            self._accept(source, facts)
        else:
            try:
                await setting.reads.require_lasting(self._session.provision.topology, queue, None)
            except ReadRefused as error:
                raise NotAttended(str(error)) from None
        if source.mode == GUARD:
            limit = None if facts is None else attending.deadly_limit(facts, self._version)
            return Begun(await self._guarded(source, queue, setting, limit))
        limit = attending.unknown_limit(self._version)
        if answer is not None:
            limit = attending.deadly_limit(answer, self._version)
        elif facts is not None:  # it may have been made anew since: what either would delete is spared
            believed = attending.deadly_limit(facts, self._version)
            limit = min((candidate for candidate in (limit, believed) if candidate is not None), default=None)
        consumer = await self._consumed(source, queue, worker, setting, facts or UNKNOWN, limit)
        return Begun(unverified=None if answer is not None or setting.management is None else consumer)

    async def verify(self, attachment: Attachment, consumer: Consumer, worker: Worker, setting: Setting) -> bool:
        """Ask again what the queue is, and spare what it would delete; → whether that is told.

        Raises NotAttended where it must not be attended so: what its next return would delete is spared before.
        """
        facts = await self._late_facts(attachment, consumer.queue, setting)
        if facts is None:
            return False
        limit = attending.deadly_limit(facts, self._version)
        worker.limit(consumer, limit)
        self._session.consumers.began[consumer.queue] = limit  # as if it had been told as it began
        if why := attending.vanishes(facts):  # to leave it would delete it
            where = f"queue {consumer.queue!r} in vhost {self._session.vhost!r}"
            setting.readiness.note(unverified(self._session.vhost, consumer.queue), f"{where}: {why}")
            return True
        self._accept(attachment, facts)
        if isinstance(worker, Relay) and facts.single:
            raise NotAttended("it has a single active consumer, and is relayed one message at a time")
        return True

    async def _late_facts(self, attachment: Attachment, queue: str, setting: Setting) -> QueueFacts | None:
        """As `_facts`. An API that does not answer is asked for one queue, not for each."""
        async with self._asking:
            if time.monotonic() < self._ask_again_s:
                return None
            facts = None
            with contextlib.suppress(SourceMissing):  # then its consumer is lost too, and that is told by the broker
                facts = await self._facts(attachment, queue, setting)
            if facts is None:
                self._ask_again_s = time.monotonic() + AGAIN_S
            return facts

    async def _consumed(
        self, attachment: Attachment, queue: str, worker: Worker, setting: Setting, facts: QueueFacts, limit: int | None
    ) -> Consumer:
        if isinstance(worker, Relay) and attachment.forward is not None:
            return await self._relayed(attachment, queue, worker, setting, facts, limit)
        believed, consume = trusted(attachment, setting.names), self._session.consumers.consume
        single = facts is UNKNOWN or facts.single
        return await consume(
            worker, queue, Arrival.INBOX, setting.prefetch, limit=limit, trusted=believed, single=single
        )

    async def _delayed(self, source: Delayed, queue: str, worker: Worker, setting: Setting) -> None:
        """The exchange is there first: what is published to it is kept, though it may lead nowhere yet."""
        if setting.names.is_own(source.exchange):
            raise NotAttended(f"exchange {source.exchange!r} is the router's own and cannot be delayed")
        await self._session.provision.topology.ensure_delayed(source.exchange)
        await self._reachable(source.to, "to", setting)
        assert isinstance(worker, DelayedExchange)
        await worker.open()
        consumer = await self._session.consumers.consume(worker, queue, Arrival.INBOX, setting.prefetch)
        if setting.management is not None:
            self._session.spawn(worker.watch(consumer, setting.management, setting.readiness))

    async def _relayed(
        self, attachment: Attachment, queue: str, worker: Relay, setting: Setting, facts: QueueFacts, limit: int | None
    ) -> Consumer:
        await self._reachable(
            attachment.forward.exchange if attachment.forward is not None else "", "forward-to", setting
        )
        await worker.open()
        prefetch = setting.prefetch
        if facts.single or worker.limits.strict:
            prefetch = min(prefetch, STRICT_PREFETCH)
        consume = partial(
            self._session.consumers.consume,
            limit=limit,
            trusted=trusted(attachment, setting.names),
            in_order=lambda: worker.limits.strict,
        )
        try:
            alone = not facts.single
            consumer = await consume(worker, queue, Arrival.INBOX, prefetch, exclusive=alone, single=facts.single)
        except ChannelClosed as error:
            if error.code != _FORBIDDEN:
                raise
            raise ConsumedElsewhere(f"a relay keeps the order, so it must be alone there: {error}") from error
        worker.begin(consumer, strict=facts.single)
        return consumer

    async def _guarded(self, attachment: Attachment, queue: str, setting: Setting, limit: int | None) -> GuardedQueue:
        async def sizes() -> float:
            with contextlib.suppress(ManagementError):
                facts = await self._api_facts(queue, setting)
                return facts.ready_bytes / facts.ready if facts is not None and facts.ready else 0.0
            return 0.0

        names, guarded = setting.names, GuardedQueue(self._session, queue, self._letters, sizes)
        try:
            lock = names.guard(queue) if setting.declare else ""
            getter = await self._session.consumers.fetch(queue, guarded, lock, trusted(attachment, names), limit=limit)
        except ChannelClosed as error:
            if error.code != _LOCKED:
                raise
            raise ConsumedElsewhere(f"only one router may guard it: {error}") from error
        self._session.spawn(guarded.watch(getter))
        return guarded

    async def _reachable(self, exchange: str, key: str, setting: Setting) -> None:
        """A queue whose messages have nowhere to go keeps them all."""
        if setting.names.is_own(exchange):
            raise NotAttended(f"{key} names {exchange!r}, an exchange of the router itself")
        if exchange and not await self._session.provision.topology.exchange_exists(exchange):
            raise NotAttended(f"exchange {exchange!r} of {key} does not exist; declare it")

    async def _facts(self, attachment: Attachment, queue: str, setting: Setting) -> QueueFacts | None:
        """What the management API says; None where it cannot be had, and only a guard cannot do without."""
        if own := sorted(filter(setting.names.is_own, attachment.dead_letter_exchanges or ())):
            raise NotAttended(f"dead-letter-exchanges names {own[0]!r}, an exchange of the router itself; take it out")
        if setting.names.is_own(queue):
            raise NotAttended("it is the router's own")
        note = unverified(self._session.vhost, queue)
        try:
            facts = await self._api_facts(queue, setting)
        except ManagementError as error:
            if attachment.mode == GUARD:
                raise NotAttended(f"a guard learns what the queue is from the management API: {error}") from error
            where = f"queue {queue!r} in vhost {self._session.vhost!r}"
            setting.readiness.note(note, f"{where}: its type and delivery limit are not verified ({error})")
            return None
        setting.readiness.drop_note(note)
        if facts is None:
            self._last_facts.forget(queue)
            raise SourceMissing("there is no such queue; declare it, or take it out of the attachments")
        self._last_facts[queue] = facts
        return facts

    def _accept(self, attachment: Attachment, facts: QueueFacts) -> None:
        if why := attending.refusal(attachment.mode, facts, self._version, accepts_limit=attachment.accepts_limit):
            raise NotAttended(f"mode {attachment.mode} is refused ({attending.CODE}): {why}")

    async def _api_facts(self, queue: str, setting: Setting) -> QueueFacts | None:
        if setting.management is None:
            raise ManagementError("no MANAGEMENT_URL")
        is_known = self._last_facts.get(queue) is not None and queue not in self._unanswered
        try:
            async with time_to_confirm(known=is_known):
                return await setting.management.facts(self._session.vhost, queue)
        except TimeoutError:
            self._unanswered.add(queue)  # the next question has all the time that it needs
            raise ManagementError(f"the management API gave no answer within {CONFIRMS_S:.0f} s") from None

    @property
    def _last_facts(self) -> Bounded[str, QueueFacts]:
        return self._session.decider.in_force.attended.facts
