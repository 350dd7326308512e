"""Modes: how one queue that is not an inbox of ours is attended, or why it cannot be."""

import contextlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from dlx_router.broker.answers import ChannelClosed
from dlx_router.broker.management import Management, ManagementError
from dlx_router.config.attachments import GUARD, RELAY, Attachment
from dlx_router.config.delayed import Delayed
from dlx_router.core import attending
from dlx_router.core.attending import QueueFacts, Version
from dlx_router.core.letter import Arrival
from dlx_router.core.names import Names
from dlx_router.core.passing import Target
from dlx_router.core.selector import Selector
from dlx_router.service.consumers import Consumers
from dlx_router.service.delayed import Delay
from dlx_router.service.guarded import Guarded
from dlx_router.service.lane import Lane
from dlx_router.service.probe import Probe
from dlx_router.service.relay import Relay
from dlx_router.service.settling import Owner
from dlx_router.telemetry.readiness import Readiness

_FORBIDDEN: Final = 403
_LOCKED: Final = 405
STRICT_PREFETCH: Final = 16  # it sends one at a time: the others only take up bytes that are the room of all letters


class Attending(Owner, Protocol):
    """What sources ask of their session."""

    is_draining: bool
    consumers: Consumers


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
    prefetch: int
    is_resting: Callable[[str], bool]
    declare: bool
    shared: bool

    @property
    def attachments(self) -> list[Attachment]:
        """Those that name queues of others."""
        return [one for one in self.wanted if isinstance(one, Attachment)]

    @property
    def named(self) -> dict[str, Wanted]:
        """All of which the queue is known by its name."""
        delayed = {self.names.delayed(one.exchange): one for one in self.wanted if isinstance(one, Delayed)}
        return {**{one.queue: one for one in self.attachments if one.named}, **delayed}


def leads(wanted: Sequence[Wanted]) -> list[tuple[Selector, Target]]:
    """Which queues the relays among these attend, and where they lead; those that name a queue more narrowly first."""
    relays = [(one.selector, one.forward) for one in wanted if isinstance(one, Attachment) and one.mode == RELAY]
    found = [(selector, forward) for selector, forward in relays if forward is not None]
    return sorted(found, key=lambda one: one[0].rank)


class Taken(Exception):
    """Somebody else has what only one can have; another router of ours, maybe."""


class NotAttended(Exception):
    """The queue stays as it is, for now; the text says why and what now."""


class Missing(NotAttended):
    """There is no such queue."""


class Modes:
    """Begins to attend queues, for the sources of one session."""

    def __init__(self, session: Attending, version: Version, letters: Lane, probe: Probe) -> None:
        self._session, self._version = session, version
        self._letters, self._probe = letters, probe
        self.lanes: list[Relay | Delay] = []

    def lane(self, one: Wanted, queue: str, setting: Setting) -> Lane:
        """The way that its messages go."""
        session = self._session
        if isinstance(one, Delayed):
            session.desk.delayed[queue] = one
            return self._added(Delay(session, self._probe, one, queue))
        if one.mode != RELAY or one.forward is None:
            return self._letters
        session.desk.relays[queue] = one.forward
        deaths, slack = self._letters, setting.prefetch
        relay = Relay(session, self._probe, queue=queue, target=one.forward, deaths=deaths, slack=slack)
        return self._added(relay)

    def _added(self, lane: Relay | Delay) -> Lane:
        self.lanes.append(lane)
        return lane

    async def left(self, lane: Lane) -> None:
        """Nothing comes by this lane any more, and nothing of it is in flight."""
        if isinstance(lane, Relay | Delay):
            self.lanes.remove(lane)
            await lane.close()

    async def begin(self, one: Wanted, queue: str, lane: Lane, setting: Setting) -> Guarded | None:
        """Attend it; → what guards it, where others consume. Raises NotAttended, Taken, or what the broker says."""
        if isinstance(one, Delayed):
            await self._delayed(one, queue, lane, setting)
            return None
        facts = await self._facts(one, queue, setting)
        if one.mode == GUARD:
            return await self._guarded(queue, setting)
        if isinstance(lane, Relay) and one.forward is not None:
            await self._relayed(queue, lane, one.forward, setting, facts or QueueFacts())
        else:
            limit = attending.deadly_limit(facts or QueueFacts(), self._version)
            await self._session.consumers.consume(lane, queue, Arrival.INBOX, setting.prefetch, limit=limit)
        return None

    async def _delayed(self, one: Delayed, queue: str, lane: Lane, setting: Setting) -> None:
        """The exchange is there first: what is published to it is kept, though it may lead nowhere yet."""
        if setting.names.is_own(one.exchange):
            raise NotAttended(f"exchange {one.exchange!r} is the router's own and cannot be delayed")
        await self._session.provision.topology.ensure_delayed(one.exchange)
        await self._reachable(one.to, "to", setting)
        assert isinstance(lane, Delay)
        await lane.prepare()
        consumer = await self._session.consumers.consume(lane, queue, Arrival.INBOX, setting.prefetch)
        if setting.management is not None:
            self._session.spawn(lane.watch(consumer, setting.management, setting.readiness))

    async def _relayed(self, queue: str, lane: Relay, target: Target, setting: Setting, facts: QueueFacts) -> None:
        await self._reachable(target.exchange, "forward-to", setting)
        await lane.prepare()
        prefetch, limit = setting.prefetch, attending.deadly_limit(facts, self._version)
        if facts.single or lane.limits.strict:
            prefetch = min(prefetch, STRICT_PREFETCH)
        consume = self._session.consumers.consume
        try:
            consumer = await consume(lane, queue, Arrival.INBOX, prefetch, exclusive=not facts.single, limit=limit)
        except ChannelClosed as error:
            if error.code != _FORBIDDEN:
                raise
            raise Taken(f"a relay keeps the order, so it must be alone there: {error}") from error
        lane.begin(consumer, strict=facts.single)

    async def _guarded(self, queue: str, setting: Setting) -> Guarded:
        async def sizes() -> float:
            with contextlib.suppress(ManagementError):
                facts = await self._told(queue, setting)
                return facts.ready_bytes / facts.ready if facts is not None and facts.ready else 0.0
            return 0.0

        names, guarded = setting.names, Guarded(self._session, queue, self._letters, sizes)
        try:
            getter = await self._session.consumers.fetch(queue, guarded, names.guard(queue) if setting.declare else "")
        except ChannelClosed as error:
            if error.code != _LOCKED:
                raise
            raise Taken(f"only one router may guard it: {error}") from error
        self._session.spawn(guarded.watch(getter))
        return guarded

    async def _reachable(self, exchange: str, key: str, setting: Setting) -> None:
        """A queue whose messages have nowhere to go keeps them all."""
        if setting.names.is_own(exchange):
            raise NotAttended(f"{key} names {exchange!r}, an exchange of the router itself")
        if exchange and not await self._session.provision.topology.exchange_exists(exchange):
            raise NotAttended(f"exchange {exchange!r} of {key} does not exist; declare it")

    async def _facts(self, one: Attachment, queue: str, setting: Setting) -> QueueFacts | None:
        """What the management API says; None where it cannot be had, and only a guard cannot do without."""
        if setting.names.is_own(queue):
            raise NotAttended("it is the router's own")
        note = f"unverified {self._session.vhost}/{queue}"
        try:
            facts = await self._told(queue, setting)
        except ManagementError as error:
            if one.mode == GUARD:
                raise NotAttended(f"a guard learns what the queue is from the management API: {error}") from error
            where = f"queue {queue!r} in vhost {self._session.vhost!r}"
            setting.readiness.note(note, f"{where}: its type and delivery limit are not verified ({error})")
            return None
        setting.readiness.drop_note(note)
        if facts is None:
            raise Missing("there is no such queue; declare it, or take it out of the attachments")
        if why := attending.refusal(one.mode, facts, self._version, accepts_limit=one.accepts_limit):
            raise NotAttended(f"mode {one.mode} is refused ({attending.CODE}): {why}")
        return facts

    async def _told(self, queue: str, setting: Setting) -> QueueFacts | None:
        if setting.management is None:
            raise ManagementError("no MANAGEMENT_URL")
        return await setting.management.facts(self._session.vhost, queue)
