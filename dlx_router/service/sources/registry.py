"""Sources: the queues that attachments and delayed exchanges name, each attended in its mode while it is there.

A queue that cannot be attended keeps its messages: readiness says why, and it is looked at again.
"""

import asyncio
import contextlib
from collections.abc import Sequence
from typing import Final

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.management import ManagementError
from dlx_router.broker.topology import TopologyError
from dlx_router.config.policy_files.attachments import INBOX, Attachment
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.core.attending import Version
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.dispatch.worker import Worker
from dlx_router.service.queue_reads import ReadRefused
from dlx_router.service.sources.attach import (
    AGAIN_S,
    Attach,
    Attending,
    Begun,
    ConsumedElsewhere,
    NotAttended,
    Setting,
    SourceMissing,
    Wanted,
    unverified,
)
from dlx_router.service.sources.relay import Relay

__all__ = ["Setting", "Sources"]

LOOK_S: Final = 5.0
_NOT_FOUND: Final = 404


class KeptSource:
    """A queue that is attended, or is to be; `wanted` None: not any more."""

    def __init__(self, wanted: Wanted) -> None:
        self.wanted: Wanted | None = wanted
        self.changed = asyncio.Event()
        self.begun = Begun()
        self.room = 0  # letters that may be here at once
        self.is_lost = False


class Sources:
    """The attached queues of one session."""

    def __init__(self, session: Attending, setting: Setting, version: Version) -> None:
        self._session, self._setting, self._version = session, setting, version
        self._kept: dict[str, KeptSource] = {}
        self._refusals = session.provision.refusals
        self._found_queues: Sequence[str] = ()
        self._looking = False
        self._modes: Attach

    @property
    def workers(self) -> Sequence[Worker]:
        """Those that only sources have."""
        return self._modes.workers

    @property
    def held_bytes(self) -> int:
        """Of the bytes in flight, those that wait for targets of relays to take messages again."""
        return sum(worker.held_bytes for worker in self._modes.workers if isinstance(worker, Relay))

    def begin(self, letters: Worker, probe: SerialPublisher) -> None:
        """Attend them all from now on."""
        self._modes = Attach(self._session, self._version, letters, probe)
        self._refusals.listen(self._refusals_changed)
        unattended, vhost = self._session.metrics.sources_unattended, self._session.vhost
        unattended -= {key for key in unattended if key[0] == vhost}  # of attachments that went between two sessions
        self.renew(self._setting)

    def renew(self, setting: Setting) -> None:
        """Attend these from now on, and leave all others. What stays as it is, is not touched."""
        self._setting = setting
        if any(not attachment.named for attachment in setting.attachments) and not self._looking:
            self._looking = True
            self._session.spawn(self._look())
        self._settle_on(self._found_queues)

    def lost(self, queue: str) -> None:
        """Its consumer is gone; it is attended again."""
        if queue in self._kept:
            self._kept[queue].is_lost = True
            self._kept[queue].changed.set()

    def resubscribe(self, queue: str) -> None:
        """Its consumer stands still: it is left as if the queue were not wanted any more, and begun anew."""
        if queue in self._kept:
            self._kept[queue].changed.set()

    def rest(self, queue: str, why: str) -> None:
        """Leave the queue alone: what is in it cannot be carried out, and each look at it may count as a failure.

        For as long as the router runs: a session that begins anew would look again.
        """
        if queue in self._kept:
            self._refusals.alone[queue] = why

    def _settle_on(self, queues: Sequence[str]) -> None:
        """Keep what is wanted of the queues that attachments name and of those that were found."""
        self._found_queues = queues
        wanted = self._setting.named
        patterns = sorted((attachment for attachment in self._setting.attachments if not attachment.named), key=_rank)
        for queue in queues:
            attachment = next((pattern for pattern in patterns if pattern.selector.fits(queue)), None)
            if attachment is not None and not self._setting.is_resting(queue):
                wanted.setdefault(queue, attachment)
        for queue, kept in self._kept.items():
            if (now := wanted.pop(queue, None)) is None or kept.wanted is None or not now.same_as(kept.wanted):
                kept.wanted = None
                kept.changed.set()
        for queue, source in wanted.items():
            if not self._is_inbox(source, queue):
                self._keep(source, queue)

    def _is_inbox(self, source: Wanted, queue: str) -> bool:
        """An inbox of ours is attended anyway; its attachment only says by which exchanges dead letters come there."""
        names, is_inbox = self._setting.names, isinstance(source, Attachment) and source.mode == INBOX
        return is_inbox and queue in names.inlets and not any(map(names.is_own, _exchanges(source)))

    def _keep(self, source: Wanted, queue: str) -> None:
        kept = self._kept[queue] = KeptSource(source)
        self._setting.readiness.set(self._reason(queue), f"{self._where(queue)}: subscribing")
        self._session.spawn(self._attending(source, queue, kept))

    async def _look(self) -> None:
        """Find queues that attachments name by a pattern: those of today, and those that come later."""
        vhost, management, readiness = self._session.vhost, self._setting.management, self._setting.readiness
        reason = f"attachments {vhost}"
        while True:
            pattern = next((attachment for attachment in self._setting.attachments if not attachment.named), None)
            try:
                if pattern is None:
                    self._settle_on(())
                elif management is None:
                    raise ManagementError("match: and pattern: need MANAGEMENT_URL")  # noqa: TRY301 - told below
                else:
                    self._settle_on(await management.queues(vhost, "."))
                readiness.drop_note(reason)
            except ManagementError as error:
                where = f"attachment {pattern.queue if pattern else ''!r} in vhost {vhost!r}"
                readiness.note(reason, f"{where}: {error}")
            await asyncio.sleep(LOOK_S)

    async def _attending(self, source: Wanted, queue: str, kept: KeptSource) -> None:
        """As long as the session lives and the queue is wanted."""
        worker = self._modes.worker(source, queue, self._setting)
        while kept.wanted is not None and not self._session.is_draining:
            kept.changed.clear()
            kept.is_lost, kept.room = False, self._room(source, queue)
            if why := self._refusals.alone.get(queue):
                self._not_attended(queue, f"left alone: {why}; take that letter out by hand, and restart the router")
                await kept.changed.wait()
            elif not await self._is_readable(queue):
                await self._changes(kept)
            elif not kept.room:
                self._not_attended(queue, self._refusals.why_not(queue))
                await kept.changed.wait()
            elif await self._begun(source, queue, worker, kept):
                self._fine(queue)
                await self._attended(source, worker, kept)
                await self._ended(queue, worker, kept)
            elif kept.wanted is not None:
                await self._changes(kept)
        if kept.wanted is None:
            await self._left(queue, worker, kept)
            self._settle_on(self._found_queues)  # it may be wanted in another way

    async def _is_readable(self, queue: str) -> bool:
        """Whether no read of the queue failed (541); else readiness says why, and the queue is searched again."""
        reads = self._setting.reads
        if reads.is_readable(queue):
            return True
        try:
            await reads.require_readable(self._session.provision.topology, queue)
        except (ReadRefused, TopologyError) as error:
            self._not_attended(queue, str(error))
        return reads.is_readable(queue)

    def _room(self, source: Wanted, queue: str) -> int:
        """Queues of ours never delete what is returned."""
        prefetch = self._setting.prefetch
        return prefetch if isinstance(source, Delayed) else self._refusals.room(queue, prefetch)

    def _refusals_changed(self) -> None:
        for queue, kept in self._kept.items():
            if kept.wanted is not None and self._room(kept.wanted, queue) != kept.room:
                kept.changed.set()

    async def _ended(self, queue: str, worker: Worker, kept: KeptSource) -> None:
        """Nothing more is taken by this consumer."""
        if kept.wanted is not None and kept.is_lost:
            self._not_attended(queue, "its consumer is lost; subscribing again")
        elif kept.wanted is not None:
            await self._paused(queue, worker, kept)

    async def _paused(self, queue: str, worker: Worker, kept: KeptSource) -> None:
        """Take nothing more, and give nothing back: what is here stays until it is settled, or the queue not wanted."""
        if why := self._refusals.why_not(queue):
            self._not_attended(queue, why)
        leaving = asyncio.create_task(self._over(queue, kept))
        try:
            while kept.wanted is not None and not leaving.done():
                kept.changed.clear()
                changing = asyncio.create_task(kept.changed.wait())
                await asyncio.wait({leaving, changing}, return_when=asyncio.FIRST_COMPLETED)
                changing.cancel()
            if kept.wanted is None and isinstance(worker, Relay):
                worker.give_back()
            await leaving
        finally:
            leaving.cancel()

    async def _over(self, queue: str, kept: KeptSource) -> None:
        if kept.begun.guarded is not None:
            kept.begun.guarded.is_over = True
        await self._session.consumers.leave(queue)

    async def _attended(self, source: Wanted, worker: Worker, kept: KeptSource) -> None:
        """Until the consumer is lost or the queue not wanted so; what was not told of the queue is asked for again."""
        consumer = kept.begun.unverified
        while consumer is not None and isinstance(source, Attachment) and not await self._changes(kept):
            try:
                if await self._modes.verify(source, consumer, worker, self._setting):
                    consumer = None
            except NotAttended:  # it is left, and begun anew: then readiness says why
                kept.wanted = None
                return
        await kept.changed.wait()

    async def _changes(self, kept: KeptSource) -> bool:
        """Whether the queue is lost or not wanted so, within the time after which it is looked at again."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(AGAIN_S):
                await kept.changed.wait()
        return kept.changed.is_set()

    async def _begun(self, source: Wanted, queue: str, worker: Worker, kept: KeptSource) -> bool:
        """Whether it is attended now; else readiness says why."""
        try:
            setting = self._setting._replace(prefetch=min(kept.room, self._setting.prefetch))
            kept.begun = await self._modes.begin(source, queue, worker, setting)
        except ConsumedElsewhere as error:
            self._taken(queue, str(error))
        except (NotAttended, ChannelClosed, LinkError, TopologyError, TimeoutError) as error:
            gone = isinstance(error, SourceMissing) or (isinstance(error, ChannelClosed) and error.code == _NOT_FOUND)
            if gone and isinstance(source, Attachment) and not source.named:
                kept.wanted = None
                self._found_queues = [other for other in self._found_queues if other != queue]
            else:
                self._not_attended(queue, f"cannot be consumed: {error}")
        else:
            return True
        return False

    async def _left(self, queue: str, worker: Worker, kept: KeptSource) -> None:
        if isinstance(worker, Relay):
            worker.give_back()
        self._fine(queue)
        self._setting.readiness.drop_note(unverified(self._session.vhost, queue))
        await self._over(queue, kept)
        self._refusals.alone.pop(queue, None)
        await self._modes.left(worker)
        del self._kept[queue]

    def _reason(self, queue: str) -> str:
        return f"source {self._session.vhost}/{queue}"

    def _taken(self, queue: str, text: str) -> None:
        """Where replicas share the work this is how it should be; a single router is kept from it by a stranger."""
        self._not_attended(queue, f"standing by; {text}" if self._setting.shared else text)
        if self._setting.shared:
            self._session.metrics.sources_unattended.discard((self._session.vhost, queue))

    def _fine(self, queue: str) -> None:
        self._setting.readiness.clear(self._reason(queue))
        self._setting.readiness.drop_note(self._reason(queue))
        self._session.metrics.sources_unattended.discard((self._session.vhost, queue))

    def _not_attended(self, queue: str, text: str) -> None:
        """Report it as a note: all other queues are served, and so are the API and the console."""
        self._setting.readiness.clear(self._reason(queue))
        self._setting.readiness.note(self._reason(queue), f"{self._where(queue)}: {text}")
        self._session.metrics.sources_unattended.add((self._session.vhost, queue))

    def _where(self, queue: str) -> str:
        return f"queue {queue!r} in vhost {self._session.vhost!r}"


def _exchanges(source: Wanted) -> Sequence[str]:
    return (source.dead_letter_exchanges or ()) if isinstance(source, Attachment) else ()


def _rank(attachment: Attachment) -> tuple[int, int, int]:
    return attachment.selector.rank
