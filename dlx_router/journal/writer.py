"""The journal's writer: lines → batches → the stream, confirmed, on a channel of its own.

Guarantees. `required`: a batch settles only once the stream has confirmed it, however long that takes. `best-effort`:
it settles then, or after 250 ms, or at once while the stream is known not to work; what comes late or not at all is
kept in a bounded spool and sent again, and what does not fit is counted and told as a gap. `off`: nothing is written.
An event may stand in the stream twice, with one event_id. A journal outlives the sessions that it writes through.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from dlx_router.broker import stream
from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.link import Link
from dlx_router.broker.publisher import Publisher
from dlx_router.broker.topology import TopologyError
from dlx_router.core.signature import Signature, Signer
from dlx_router.journal import events, packing
from dlx_router.journal.batch import Batch, settled
from dlx_router.journal.entry import Entry
from dlx_router.journal.fields import MEDIA_TYPE
from dlx_router.journal.gathering import Gathering
from dlx_router.journal.mode import Mode
from dlx_router.journal.packing import FormatError
from dlx_router.journal.reading import is_plain, lines
from dlx_router.journal.spool import Spool
from dlx_router.journal.unconfirmed import Waiting
from dlx_router.telemetry.logs import Once, log
from dlx_router.telemetry.readiness import Readiness
from dlx_router.telemetry.wall_clock import wall_ms

SPOOL_BYTES: Final = 16 << 20
WINDOW: Final = 128  # at 256 unconfirmed messages of a stream the broker stops reading the whole connection
CHECK_S: Final = 1.0
LONGEST_PAUSE_S: Final = 5.0
_RETRIED: Final = (LinkError, ChannelClosed, TopologyError, TimeoutError, OSError)


class Journal:
    """The journal of one vhost. `on_lost(n)` hears of each loss; `lost` is their sum, in events."""

    def __init__(  # noqa: PLR0913 - the wiring of a journal, made in one place
        self,
        *,
        mode: Mode,
        name: str,
        vhost: str,
        router_id: str,
        readiness: Readiness,
        on_lost: Callable[[int], None] = lambda _events: None,
        confirm_timeout_s: float = 30.0,
        spool_bytes: int = SPOOL_BYTES,
        prefetch: int = 1000,
    ) -> None:
        self.mode = mode
        self.event: Callable[..., Entry] = events.Fragments.entry  # of fragments, as `record` wants it
        self.is_on, self._required = mode is not Mode.OFF, mode is Mode.REQUIRED
        if self.is_on:
            packing.prepare()
        self.lost = 0
        self.name, self._vhost, self._router_id = name, vhost, router_id
        self._readiness, self._on_lost, self._timeout_s = readiness, on_lost, confirm_timeout_s
        self._key = f"journal {vhost}"
        self._routing_key = name.encode(errors="surrogateescape")
        self._once = Once()
        self._signer: Signer | None = None
        self._current: Batch | None = None
        self._number = 0
        self._waiting = Waiting()
        self._sent: dict[int, Batch] = {}  # on the channel, unanswered
        self._spool = Spool(None if self._required else spool_bytes)
        self._link: Link | None = None
        self._publisher: Publisher[Batch] | None = None
        self.is_working = False  # as far as is known
        self._works = asyncio.Event()  # the same, to be waited for
        self.on_change: Callable[[], None] = lambda: None  # `holds_letters` may have changed
        self.needs_own_link = False  # the broker closes connections that publish to the stream
        self._moved_s = 0.0
        self._gathering = Gathering(prefetch)
        self._broken = asyncio.Event()
        self._idle: asyncio.Future[None] | None = None

    @property
    def holds_letters(self) -> bool:
        """Whether no letter may be taken now: what is published while the stream is away is published again later.

        The broker gives a letter that waits for hours to somebody else (consumer_timeout), here or in another replica.
        """
        return self._required and not self.is_working

    async def until_letters_may_go(self) -> None:
        """Until `holds_letters` is over."""
        if self._required:
            await self._works.wait()

    def sign_with(self, key: bytes | None) -> None:
        """Sign each message with this key from now on; None: with none, as who observes without a shared key."""
        self._signer = None if key is None else Signer(key, self._vhost, self.name)

    def verified(self, body: bytes, mac: bytes | None) -> bool:
        """Whether a router with our key wrote this message; where we have none, nobody can tell."""
        return self._signer is None or self._signer.judge(body, mac) is Signature.OK

    def doubt(self, messages: int) -> None:
        """So many messages were read that no router with our key wrote; logged once, until there are none."""
        if not messages:
            self._once.healed("doubt", "journal.verified", vhost=self._vhost)
            return
        cause = "messages that no router with this key signed: of a router that did not sign yet, or of somebody else"
        fate = "no task in them is carried out, and what they say of sent letters does not count"
        self._once.warn("doubt", "journal.unverified", vhost=self._vhost, cause=cause, messages=messages, fate=fate)

    def opened(self, body: bytes, version: int | None, saying: bytes = b"") -> bytes:
        """The lines of a message that was read, in any format; none where it cannot be read: logged once a cause.

        `saying`: others need not be unpacked further than to see that this is not in them.
        """
        if is_plain(body, version):
            return body
        try:
            return b"\n".join(lines(body, version, saying=saying))
        except FormatError as error:
            fate = "its events are left out: tasks are as the others tell; they are in the stream for a newer version"
            self._once.warn(f"unreadable {error}", "journal.unreadable", vhost=self._vhost, cause=str(error), fate=fate)
            return b""

    # -- in -----------------------------------------------------------------------------------------------------

    def record(self, event: bytes | Entry, *, of_task: bool = False) -> Batch:
        """Put an event into the current batch, whose `settled` says when its letter may be. A line ends in a newline.

        `of_task`: who looks for tasks alone has to see the batch.
        """
        if not self.is_on:
            return _NONE
        batch = self._current
        if batch is None or not batch.add(event):
            self.flush()
            self._number += 1
            batch = self._current = Batch(self._number)
            self._flush_soon()
            batch.add(event)
        if of_task:
            batch.tells_tasks = True
        return batch

    def record_run(self, entries: Sequence[Entry]) -> list[tuple[Batch, int]]:
        """As `record` of each of these, in their order: the batches, and how many each has."""
        batches: list[tuple[Batch, int]] = []
        while entries:
            batch = self._current
            taken = 0 if batch is None else batch.add_entries(entries)
            if batch is None or not taken:
                self.flush()
                self._number += 1
                batch = self._current = Batch(self._number)
                self._flush_soon()
                taken = batch.add_entries(entries)
            batches.append((batch, taken))
            entries = entries[taken:]
        return batches

    def _flush_soon(self) -> None:
        """At once where little happens; else a moment after the last, so that batches are worth a message."""
        loop = asyncio.get_running_loop()
        wait = self._gathering.wait_s(loop.time())
        if wait > 0:
            loop.call_later(wait, self._in_time)
        else:
            loop.call_soon(self.flush)

    def _in_time(self) -> None:
        """By a timer: it has waited for others already, and so leaves at once."""
        self.flush()
        if self._link is not None:
            self._link.flush()

    def flush(self) -> None:
        """Close the current batch and send it; safe at any time."""
        batch, self._current = self._current, None
        if batch is None:
            return
        self._gathering.gone(batch.events, asyncio.get_running_loop().time())
        batch.close()
        self._waiting.add(batch)
        if self._has_room and not len(self._spool):
            self._send(batch)
        elif not self._spool.keep(batch, wall_ms()):
            self._lose(batch)
        if self._required:
            return
        if self.is_working and not self._waiting.lags:
            self._waiting.arm(batch)
        else:
            self._waiting.release(batch)

    def discard_lines(self, mark: bytes) -> None:
        """Drop the lines that contain `mark` from all that the stream has not confirmed, so that none is sent later."""
        for batch in [*self._sent.values(), *([self._current] if self._current is not None else [])]:
            batch.discard_lines(mark)
        self._spool.discard_lines(mark)

    # -- out ----------------------------------------------------------------------------------------------------

    @property
    def _has_room(self) -> bool:
        link = self._link
        return self.is_working and len(self._sent) < WINDOW and link is not None and not link.blocked

    def _send(self, batch: Batch) -> None:
        publisher = self._publisher
        assert publisher is not None
        if not self._sent:
            self._moved_s = asyncio.get_running_loop().time()
        self._sent[batch.number] = batch
        subject = stream.TASKS if batch.tells_tasks else stream.LETTERS
        mac = self._signer.sign(batch.body) if self._signer is not None else b""
        section = stream.section(MEDIA_TYPE, batch.format, publisher.stamp(), subject, mac)
        publisher.publish(batch, b"", self._routing_key, section, batch.body)

    def _pump(self) -> None:
        """Send what was kept; behind it the gap, where something could not be kept."""
        while self._has_room and len(self._spool):
            self._send(self._spool.next())
        gap = self._spool.gap
        if gap is not None and self._has_room:
            self._spool.gap = None
            self._number += 1
            batch = Batch(self._number)
            line = events.gap(self._router_id, self._vhost, events=gap.events, from_ms=gap.from_ms, to_ms=gap.to_ms)
            batch.add(line)
            batch.close()
            batch.settle()
            self._send(batch)

    def _answered(self, batch: Batch, why: str) -> None:
        self._sent.pop(batch.number, None)
        self._moved_s = asyncio.get_running_loop().time()
        if why:
            self._spool.give_back([batch])
            self._stop(f"stream {self.name!r} {why} a batch")
            return
        self._waiting.lags = False
        self._waiting.release(batch)
        batch.confirm()
        if len(self._spool) or self._spool.gap is not None:
            self._pump()
        if self._idle is not None and self._is_idle:
            self._idle.set_result(None)
            self._idle = None

    def _in_doubt(self, batches: list[Batch], error: Exception) -> None:
        self._sent.clear()
        if self._link is not None or not self._required:  # else its letters are delivered and told again
            self._spool.give_back(batches)
        self._stop(str(error))

    # -- trouble ------------------------------------------------------------------------------------------------

    def _stop(self, why: str) -> None:
        """The stream does not work: nobody waits for it in best-effort, and `attend` sees to it."""
        self._set_working(working=False)
        self._broken.set()
        if self._link is not None:
            self._object(why)
        if not self._required:
            self._waiting.release_all()

    def _lose(self, batch: Batch) -> None:
        self.lost += batch.events
        self._on_lost(batch.events)
        batch.lose()
        fate = "the letters go on; the journal will tell the gap once its stream is back"
        self._once.warn("lost", "journal.gap", vhost=self._vhost, cause="the spool is full", fate=fate)

    # -- life ---------------------------------------------------------------------------------------------------

    async def attend(
        self, link: Link, ensure: Callable[[], Awaitable[None]], after: Callable[[], None] = lambda: None
    ) -> None:
        """Keep a channel of this link open and the stream there (`ensure`), until cancelled or the link is gone.

        No trouble with the stream leaves this method: it is logged once, and tried again with growing pauses.
        `after()` is called where letters were let go outside of a read, so that their acks leave too.
        """
        try:
            await self._write_by(link, ensure, after)
        finally:
            self._detach()

    async def _write_by(self, link: Link, ensure: Callable[[], Awaitable[None]], after: Callable[[], None]) -> None:
        """As `attend`, and whoever waits for the stream waits on behind it."""
        if not self.is_on:
            return
        self._link, self._waiting.after = link, after
        failures = 0
        try:
            while link.is_open:
                steady = False
                self._broken.clear()
                try:
                    await ensure()
                    await self._begin(link)
                    steady = await self._watch(link)
                except _RETRIED as error:
                    self._stop(str(error))
                failures = 0 if steady else failures + 1
                await asyncio.sleep(min(0.05 * 2 ** min(failures, 10), LONGEST_PAUSE_S))
        finally:
            if link.closed.done():
                self.needs_own_link = repr(self.name) in str(link.closed.result())
            self.flush()
            self._set_working(working=False)
            self._link, self._publisher = None, None

    async def attend_either(
        self,
        shared: Link,
        own: Callable[[], Awaitable[Link]],
        ensure: Callable[[], Awaitable[None]],
        after: Callable[[], None],
    ) -> None:
        """As `attend` on the letters' link; where a broken stream cost them that, on one of its own: letters go on.

        A link of its own that is lost is no end of their session: who waits for the stream waits on, for the next link.
        """
        try:
            while self.needs_own_link:
                with contextlib.suppress(*_RETRIED):
                    link = await own()
                    try:
                        await self._write_by(link, ensure, after)
                    finally:
                        await link.close()
                await asyncio.sleep(LONGEST_PAUSE_S)
            await self._write_by(shared, ensure, after)
        finally:
            self._detach()

    async def _begin(self, link: Link) -> None:
        if self._publisher is None or not self._publisher.is_open:
            publisher: Publisher[Batch] = Publisher(link, on_answer=self._answered, on_doubt=self._in_doubt)
            await publisher.open()
            self._publisher = publisher
        self._set_working(working=True)
        self._waiting.lags = False
        self._readiness.clear(self._key)
        self._readiness.drop_note(self._key)
        self._once.healed("works", "journal.resumed", vhost=self._vhost, spooled=self._spool.events, lost=self.lost)
        self._once.healed("lost", "journal.kept", vhost=self._vhost, lost=self.lost)
        self._pump()

    async def _watch(self, link: Link) -> bool:
        """Until something breaks; whether it went well for some time before."""
        began = self._moved_s = asyncio.get_running_loop().time()
        while not self._broken.is_set():
            try:
                async with asyncio.timeout(CHECK_S):
                    await self._broken.wait()
            except TimeoutError:
                await self._check(link)
        return asyncio.get_running_loop().time() - began > CHECK_S

    async def _check(self, link: Link) -> None:
        now = asyncio.get_running_loop().time()
        if link.blocked or not self._sent:
            self._moved_s = now
            self._pump()
        elif now - self._moved_s > self._timeout_s and self._publisher is not None:
            self._set_working(working=False)
            await self._publisher.close()  # what it has is in doubt then

    def _set_working(self, *, working: bool) -> None:
        if working != self.is_working:
            self.is_working = working
            (self._works.set if working else self._works.clear)()
            self.on_change()

    def _object(self, why: str) -> None:
        fate = (
            "letters wait for it" if self._required else "letters go on; events are kept in memory as far as they fit"
        )
        self._once.warn("works", "journal.interrupted", vhost=self._vhost, error=why, fate=fate)
        report = self._readiness.set if self._required else self._readiness.note
        report(self._key, f"the journal of vhost {self._vhost!r} cannot be written: {why}")

    def _detach(self) -> None:
        """The session ends: whoever waited is delivered again; what was carried out stays to be told."""
        self.on_change = lambda: None
        self._waiting.forget()
        if self._required:
            self._spool.clear()

    @property
    def _is_idle(self) -> bool:
        return not self._sent and not len(self._spool) and self._current is None and self._spool.gap is None

    async def drain(self, within_s: float) -> int:
        """Send what is here; → how many events the stream did not take in time. In best-effort they are lost."""
        self.flush()
        if self.is_on and not self._is_idle:
            idle = self._idle = asyncio.get_running_loop().create_future()
            await asyncio.wait([idle], timeout=within_s)
            self._idle = None
        left = self._spool.events + sum(batch.events for batch in self._sent.values())
        if left and self._required:
            fate = "their letters were not settled: they are delivered again, and told then"
            log.warning("journal.untold", vhost=self._vhost, events=left, fate=fate)
        elif left:
            self.lost += left
            self._on_lost(left)
            log.warning("journal.lost", vhost=self._vhost, events=left, fate="their letters were settled without them")
        return left


_NONE: Final = settled()
