"""Sources: the queues that are not ours and that attachments name, each attended in its mode while it is there.

A queue that cannot be attended keeps its messages: readiness says why, and it is looked at again.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, Protocol

from dlx_router.broker.consumer import Consumer
from dlx_router.broker.getter import Getter
from dlx_router.broker.link import ChannelClosed
from dlx_router.broker.management import Management, ManagementError
from dlx_router.config.attachments import GUARD, RELAY, Attachment
from dlx_router.core import attending
from dlx_router.core.attending import QueueFacts, Version
from dlx_router.core.letter import Arrival
from dlx_router.core.names import Names
from dlx_router.core.passing import Target
from dlx_router.service.guarded import Guarded
from dlx_router.service.lane import Lane
from dlx_router.service.probe import Probe
from dlx_router.service.relay import Relay
from dlx_router.service.settling import Owner
from dlx_router.telemetry.readiness import Readiness

AGAIN_S: Final = 2.0
LOOK_S: Final = 5.0
_FORBIDDEN: Final = 403
_NOT_FOUND: Final = 404
_LOCKED: Final = 405


class Attending(Owner, Protocol):
    """What sources ask of their session."""

    is_draining: bool

    async def consume(
        self, lane: Lane, queue: str, arrival: Arrival, prefetch: int, *, exclusive: bool = False
    ) -> Consumer:
        """Consume a queue into a lane."""

    async def fetch(self, queue: str, guarded: Guarded, lock: str) -> Getter:
        """A channel to take single messages by."""

    async def leave(self, lane: Lane, source: str) -> None:
        """Stop consuming; what is in flight is finished."""


class Setting(NamedTuple):
    """What is in force for all sources of a session.

    `is_resting`: whether a name is that of a queue of ours or of an auto-created one; no pattern means those.
    `shared`: other routers attend the same queues, and one of them may have what only one can have.
    """

    attachments: Sequence[Attachment]
    names: Names
    management: Management | None
    readiness: Readiness
    prefetch: int
    is_resting: Callable[[str], bool]
    declare: bool
    shared: bool


class Taken(Exception):
    """Somebody else has what only one can have; another router of ours, maybe."""


class NotAttended(Exception):
    """The queue stays as it is, for now; the text says why and what now."""


class Kept:
    """A queue that is attended, or is to be; `wanted` None: not any more."""

    def __init__(self, wanted: Attachment) -> None:
        self.wanted: Attachment | None = wanted
        self.changed = asyncio.Event()
        self.guarded: Guarded | None = None


class Missing(NotAttended):
    """There is no such queue."""


class Sources:
    """The attached queues of one session."""

    def __init__(self, session: Attending, setting: Setting, version: Version) -> None:
        self._session, self._setting, self._version = session, setting, version
        self._kept: dict[str, Kept] = {}
        self._found: Sequence[str] = ()
        self._looking = False
        self._letters: Lane
        self._probe: Probe
        self.lanes: list[Lane] = []

    def begin(self, letters: Lane, probe: Probe) -> None:
        """Attend them all from now on."""
        self._letters, self._probe = letters, probe
        self.renew(self._setting)

    def renew(self, setting: Setting) -> None:
        """Attend these from now on, and leave all others. What stays as it is, is not touched."""
        self._setting = setting
        if any(not one.named for one in setting.attachments) and not self._looking:
            self._looking = True
            self._session.spawn(self._look())
        self._settle_on(self._found)

    def lost(self, queue: str) -> None:
        """Its consumer is gone; it is attended again."""
        if queue in self._kept:
            self._kept[queue].changed.set()

    def _settle_on(self, found: Sequence[str]) -> None:
        """Keep what is wanted of the queues that attachments name and of those that were found."""
        self._found = found
        wanted = {one.queue: one for one in self._setting.attachments if one.named}
        patterns = sorted((one for one in self._setting.attachments if not one.named), key=_rank)
        for queue in found:
            one = next((one for one in patterns if one.selector.fits(queue)), None)
            if one is not None and not self._setting.is_resting(queue):
                wanted.setdefault(queue, one)
        for queue, kept in self._kept.items():
            if (now := wanted.pop(queue, None)) is None or kept.wanted is None or not now.same_as(kept.wanted):
                kept.wanted = None
                kept.changed.set()
        for queue, one in wanted.items():
            self._keep(one, queue)

    def _keep(self, one: Attachment, queue: str) -> None:
        kept = self._kept[queue] = Kept(one)
        self._say(queue, "subscribing")
        self._session.spawn(self._attending(one, queue, kept))

    async def _look(self) -> None:
        """Find queues that attachments name by a pattern: those of today, and those that come later."""
        vhost, management, readiness = self._session.vhost, self._setting.management, self._setting.readiness
        reason = f"attachments {vhost}"
        while True:
            pattern = next((one for one in self._setting.attachments if not one.named), None)
            try:
                if pattern is None:
                    self._settle_on(())
                elif management is None:
                    raise ManagementError("match: and pattern: need MANAGEMENT_URL")  # noqa: TRY301 - told below
                else:
                    self._settle_on(await management.queues(vhost, "."))
                readiness.clear(reason)
            except ManagementError as error:
                where = f"attachment {pattern.queue if pattern else ''!r} in vhost {vhost!r}"
                readiness.set(reason, f"{where}: {error}")
            await asyncio.sleep(LOOK_S)

    async def _attending(self, one: Attachment, queue: str, kept: Kept) -> None:
        """As long as the session lives and the queue is wanted."""
        lane = self._lane(one, queue)
        while kept.wanted is not None and not self._session.is_draining:
            kept.changed.clear()
            if await self._begun(one, queue, lane, kept):
                self._fine(queue)
                await kept.changed.wait()
                if kept.wanted is not None:
                    self._say(queue, "its consumer is lost; subscribing again")
            elif kept.wanted is not None:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(AGAIN_S):
                        await kept.changed.wait()
        if kept.wanted is None:
            await self._left(queue, lane, kept)
            self._settle_on(self._found)  # it may be wanted in another way

    async def _begun(self, one: Attachment, queue: str, lane: Lane, kept: Kept) -> bool:
        """Whether it is attended now; else readiness says why."""
        try:
            await self._attended(one, queue, lane, kept)
        except Taken as error:
            self._taken(queue, str(error))
        except (NotAttended, ChannelClosed, TimeoutError) as error:
            gone = isinstance(error, Missing) or (isinstance(error, ChannelClosed) and error.code == _NOT_FOUND)
            if gone and not one.named:
                kept.wanted = None
                self._found = [other for other in self._found if other != queue]
            else:
                self._say(queue, f"cannot be consumed: {error}")
        else:
            return True
        return False

    async def _left(self, queue: str, lane: Lane, kept: Kept) -> None:
        if isinstance(lane, Relay):
            lane.give_back()
        if kept.guarded is not None:
            kept.guarded.is_over = True
        self._fine(queue)
        await self._session.leave(lane, queue)
        if isinstance(lane, Relay):
            self.lanes.remove(lane)
            await lane.close()
        del self._kept[queue]

    def _lane(self, one: Attachment, queue: str) -> Lane:
        if one.mode != RELAY or one.forward is None:
            return self._letters
        self._session.desk.relays[queue] = one.forward
        relay = Relay(
            self._session,
            self._probe,
            queue=queue,
            target=one.forward,
            deaths=self._letters,
            slack=self._setting.prefetch,
        )
        self.lanes.append(relay)
        return relay

    async def _attended(self, one: Attachment, queue: str, lane: Lane, kept: Kept) -> None:
        facts = await self._facts(one, queue)
        if one.mode == GUARD:
            kept.guarded = await self._guarded(queue)
        elif isinstance(lane, Relay) and one.forward is not None:
            await self._relayed(queue, lane, one.forward, single=facts is not None and facts.single)
        else:
            await self._session.consume(lane, queue, Arrival.INBOX, self._setting.prefetch)

    async def _relayed(self, queue: str, lane: Relay, target: Target, *, single: bool) -> None:
        await self._reachable(target)
        await lane.prepare()
        prefetch = self._setting.prefetch
        try:
            consumer = await self._session.consume(lane, queue, Arrival.INBOX, prefetch, exclusive=not single)
        except ChannelClosed as error:
            if error.code != _FORBIDDEN:
                raise
            raise Taken(f"a relay keeps the order, so it must be alone there: {error}") from error
        lane.begin(consumer, strict=single)

    async def _guarded(self, queue: str) -> Guarded:
        async def sizes() -> float:
            with contextlib.suppress(ManagementError):
                facts = await self._told(queue)
                return facts.ready_bytes / facts.ready if facts is not None and facts.ready else 0.0
            return 0.0

        names, guarded = self._setting.names, Guarded(self._session, queue, self._letters, sizes)
        try:
            getter = await self._session.fetch(queue, guarded, names.guard(queue) if self._setting.declare else "")
        except ChannelClosed as error:
            if error.code != _LOCKED:
                raise
            raise Taken(f"only one router may guard it: {error}") from error
        self._session.spawn(guarded.watch(getter))
        return guarded

    async def _reachable(self, target: Target) -> None:
        """A relay whose exchange is missing leaves everything where it is."""
        names, topology = self._setting.names, self._session.provision.topology
        if names.is_own(target.exchange):
            raise NotAttended(f"forward-to names {target.exchange!r}, an exchange of the router itself")
        if target.exchange and not await topology.exchange_exists(target.exchange):
            raise NotAttended(f"exchange {target.exchange!r} of forward-to does not exist; declare it")

    async def _facts(self, one: Attachment, queue: str) -> QueueFacts | None:
        """What the management API says; None where it cannot be had, and only a guard cannot do without."""
        if self._setting.names.is_own(queue):
            raise NotAttended("it is the router's own")
        note = f"unverified {self._session.vhost}/{queue}"
        try:
            facts = await self._told(queue)
        except ManagementError as error:
            if one.mode == GUARD:
                raise NotAttended(f"a guard learns what the queue is from the management API: {error}") from error
            where = f"queue {queue!r} in vhost {self._session.vhost!r}"
            self._setting.readiness.note(note, f"{where}: its type and delivery limit are not verified ({error})")
            return None
        self._setting.readiness.drop_note(note)
        if facts is None:
            raise Missing("there is no such queue; declare it, or take it out of the attachments")
        if why := attending.refusal(one.mode, facts, self._version, accepts_limit=one.accepts_limit):
            raise NotAttended(f"mode {one.mode} is refused ({attending.CODE}): {why}")
        return facts

    async def _told(self, queue: str) -> QueueFacts | None:
        if self._setting.management is None:
            raise ManagementError("no MANAGEMENT_URL")
        return await self._setting.management.facts(self._session.vhost, queue)

    def _reason(self, queue: str) -> str:
        return f"source {self._session.vhost}/{queue}"

    def _taken(self, queue: str, text: str) -> None:
        """Where replicas share the work this is how it should be; a single router is kept from it by a stranger."""
        if not self._setting.shared:
            self._say(queue, text)
            return
        self._setting.readiness.clear(self._reason(queue))
        where = f"queue {queue!r} in vhost {self._session.vhost!r}"
        self._setting.readiness.note(self._reason(queue), f"{where}: standing by; {text}")

    def _fine(self, queue: str) -> None:
        self._setting.readiness.clear(self._reason(queue))
        self._setting.readiness.drop_note(self._reason(queue))

    def _say(self, queue: str, text: str) -> None:
        self._setting.readiness.set(self._reason(queue), f"queue {queue!r} in vhost {self._session.vhost!r}: {text}")


def _rank(one: Attachment) -> tuple[int, int, int]:
    return one.selector.rank
