"""A session: two connections to one vhost, from connect until something ends it.

Two connections, because after an alarm the broker reads nothing more from a connection that publishes, acks included,
and because bytes in flight can only be bounded by not reading the consuming socket. When a session ends, the broker
still has every letter that was not acked; nothing of it is kept here.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.answers import LinkError
from dlx_router.broker.link import Link, open_link
from dlx_router.broker.management import ManagementError
from dlx_router.broker.topology import Topology
from dlx_router.core import attending
from dlx_router.core.bounded import Bounded
from dlx_router.core.dead_letter_queues import is_made
from dlx_router.core.letter import Arrival
from dlx_router.core.names import Names
from dlx_router.journal.batch import Batch
from dlx_router.journal.writer import Journal
from dlx_router.service.dispatch.decider import Decider
from dlx_router.service.dispatch.idle_queues import IdleQueues
from dlx_router.service.dispatch.in_use import InUse
from dlx_router.service.dispatch.own_queues_refusing import STEADY_S, RefusingQueues
from dlx_router.service.dispatch.resources import CreatedQueues, TargetResources
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.dispatch.settler import Settler
from dlx_router.service.dispatch.tracing import TracedSettler, Where
from dlx_router.service.dispatch.worker import Worker
from dlx_router.service.inflight.decoder import ANY_EXCHANGE
from dlx_router.service.inflight.encoder import LAST_DEATHS_SINCE, Encoder
from dlx_router.service.inflight.routes import Resource
from dlx_router.service.sources.attach import trusted
from dlx_router.service.sources.consumers import Consumers
from dlx_router.service.sources.observer import ObserverEncoder, ObserverWorker
from dlx_router.service.sources.registry import Setting, Sources
from dlx_router.service.sources.retention import Retention
from dlx_router.service.vhost.bytes_in_flight import BytesInFlight
from dlx_router.service.vhost.queue_types import kind_of
from dlx_router.telemetry.logs import log
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from dlx_router.telemetry.traces import Traces

RELEASE_PREFETCH: Final = 500
REAP_EVERY: Final = 5
TOGETHER: Final = 100  # names of queues that are looked at before letters have their turn
GATHER_S: Final = 0.002
ANEW_S: Final = 10.0


class Trouble(Exception):
    """The session cannot carry out its work; everything is given back and it starts anew."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much at once, and how long to wait; seconds and bytes."""

    prefetch: int
    in_flight_bytes: int
    confirm_timeout_s: float
    heartbeat_s: int
    max_dead_letter_queues: int


class Session:
    """One run over one pair of connections. `run` returns after a drain, or raises what ended it."""

    def __init__(  # noqa: PLR0913 - the wiring of a session, made in one place
        self,
        *,
        host: Host,
        login: Login,
        tls: Tls | None,
        names: Names,
        key: bytes,
        decider: Decider,
        limits: Limits,
        topology: Topology,
        metrics: Metrics,
        readiness: Readiness,
        sources: Setting,
        journal: Journal,
        ensure_journal: Callable[[], Awaitable[None]],
        refusals: RefusingQueues,
        observe: bool = False,
        traces: Traces | None = None,
        was_there: Bounded[Resource, str] | None = None,
        created: CreatedQueues | None = None,
    ) -> None:
        self.vhost = login.vhost
        self._traces = traces
        self._journal, self._ensure_journal = journal, ensure_journal
        self._observe = observe
        self.metrics = metrics
        self.decider = decider
        self._host, self._login, self._tls = host, login, tls
        self._names, self._key, self._limits = names, key, limits
        self._topology, self._readiness, self._setting = topology, readiness, sources
        self._sources: Sources
        room = BytesInFlight(
            self.vhost,
            limits.in_flight_bytes,
            readiness,
            held=lambda: refusals.held_bytes + (self._sources.held_bytes if self._attending else 0),
            rests=lambda: self.publish_link.blocked or journal.holds_letters,
        )
        self._in_flight, self.weigh = room, room.weigh  # as Owner says; it is called for each letter
        self.consumers = Consumers(self.vhost, names, key, metrics, self._consumer_lost)
        self._attending = self._is_over = False
        self.version: tuple[int, ...] = ()
        self._ticks = 0
        self._workers: list[Worker] = []
        self._own: dict[str, tuple[Worker, Arrival, int]] = {}  # how our own queues are consumed
        self._tasks: set[asyncio.Task[None]] = set()
        self._ended: asyncio.Future[Exception | None] = asyncio.get_running_loop().create_future()
        self.is_draining = False
        self.publish_link: Link
        self._consume_link: Link
        kind = partial(kind_of, vhost=self.vhost, management=sources.management)
        self._refusals = refusals
        refusals.begin()
        in_use = InUse(lambda: self.publish_link, names, lambda queue: self.provision.lost(queue))  # noqa: PLW0108 - there is none yet
        idle = (
            IdleQueues(lambda: self.decider.in_force, self.vhost, self._every_lane, in_use)
            if topology.declares
            else None
        )
        most = limits.max_dead_letter_queues
        self.provision = TargetResources(
            topology,
            names,
            most,
            self.spawn,
            kind,
            refusals=refusals,
            idle=idle,
            was_there=was_there,
            created=created,
            list_created=self._list_created,
        )
        self.encoder: Encoder

    @property
    def in_flight(self) -> int:
        """Deliveries that are here and not settled."""
        return self.consumers.in_flight

    def limit_bytes(self, most: int) -> None:
        """So many bytes may be in flight from now on."""
        self._in_flight.limit(most)

    # -- life ---------------------------------------------------------------------------------------------------

    async def run(self) -> None:
        """Connect, attend, until drained. Raises what ended it: LinkError, ChannelClosed, TimeoutError, Trouble."""
        try:
            await self._connect()
            self.spawn(self._attend())  # under an alarm it may take as long as that, and we may have to end before
            error = await self._ended
            if error is not None:
                raise error
        finally:
            await self._shut()

    async def _connect(self) -> None:
        self._consume_link = self.consumers.link = await self._link("consume")
        self._in_flight.links.append(self._consume_link)
        self.publish_link = await self._link("publish")
        version_text = str(self.publish_link.server.get("version", "0"))
        version = self.version = tuple(int(part) for part in version_text.split(".")[:2])
        self.encoder = (ObserverEncoder if self._observe else Encoder)(
            user=self._login.user,
            last_deaths=version >= LAST_DEATHS_SINCE,
            key=self._key,
            quarantine=self._names.quarantine,
        )
        self._consume_link.read_in_bulk()
        self.publish_link.on_batch = self._published
        self.publish_link.gather_s = GATHER_S
        self.publish_link.on_blocked = self._blocked
        for role, link in (("consume", self._consume_link), ("publish", self.publish_link)):
            link.closed.add_done_callback(self._link_lost)
            link.on_silent = partial(self._silent, role)

    async def _link(self, role: str) -> Link:
        return await open_link(
            self._host,
            self._login,
            tls=self._tls,
            heartbeat=self._limits.heartbeat_s,
            name=f"dlx-router {role} {self.vhost}",
        )

    async def isolate(self, queue: str) -> None:
        """Open a connection of its own for a queue whose messages ended the shared one (541) again and again."""
        link = self.consumers.isolated.get(queue)
        if not self._setting.reads.is_isolated(queue) or (link is not None and link.is_open):
            return
        link = self.consumers.isolated[queue] = await self._link("consume alone")
        link.read_in_bulk()
        self._in_flight.links[1:] = self.consumers.isolated.values()
        self._in_flight.read_or_rest()

    async def _attend(self) -> None:
        self.spawn(self._watch())
        links = self.publish_link, partial(self._link, "journal")
        self._journal.on_change = self._in_flight.read_or_rest
        self.spawn(self._journal.attend_either(*links, self._ensure_journal, self._published))
        await self._journal.until_letters_may_go()
        probe = SerialPublisher(self.publish_link, self.encoder, self._limits.confirm_timeout_s)
        if self._observe:
            watch = ObserverWorker(self, probe)
            self._workers = [watch]
            self._own[self._names.observe] = watch, Arrival.INBOX, self._limits.prefetch
            await self._consume_own(self._names.observe)
        else:
            await self._attend_letters(probe)
        self.metrics.broker_connected[self.vhost] = 1
        self._readiness.clear(f"link {self.vhost}")

    async def _attend_letters(self, probe: SerialPublisher) -> None:
        inbox, release = Worker(self, probe), Worker(self, probe)
        self._workers = [inbox, release]
        self._sources = Sources(self, self._setting, self.version)
        await inbox.open()
        await release.open()
        names = self._names
        ours = [
            (release, names.release, Arrival.RELEASE, RELEASE_PREFETCH),
            (inbox, names.inbox, Arrival.INBOX, self._limits.prefetch),
            (inbox, names.fifo, Arrival.INBOX, 1),  # the next when this one is where it belongs
        ]
        for worker, queue, arrival, prefetch in ours:
            if self.is_draining:
                return
            self._own[queue] = worker, arrival, prefetch
            await self._consume_own(queue)
        self._trust()  # it may have been said anew while the broker answered
        self._attending = True  # now: what keeps us from our own queues would return letters of attached ones
        self._sources.begin(inbox, probe)
        self.spawn(self._steady())
        self._retired = Retention(self.consumers, names, inbox, self.spawn)
        if self._journal.is_on and not self.is_draining:  # it is the only place where a retired letter will be
            await self._retired.begin()

    async def _consume_own(self, queue: str) -> None:
        worker, arrival, prefetch = self._own[queue]
        trusted = ANY_EXCHANGE if self._observe else self._trusted(queue)  # who observes does nothing by what it says
        single = queue == self._names.fifo and self._setting.shared
        await self.isolate(queue)
        await self.consumers.consume(worker, queue, arrival, prefetch, trusted=trusted, single=single)

    def resubscribe(self, queue: str) -> None:
        """Consume the queue anew; what is here of it is still settled. Where that takes too long the session ends."""
        if queue in self._own:
            self.spawn(self._anew(queue))
        elif queue == self._names.retired:
            self.spawn(self._retired.again())
        else:
            self._sources.resubscribe(queue)

    async def _anew(self, queue: str) -> None:
        """Where something is here the new consumer begins beside the old one; else after it, which keeps the order."""
        async with asyncio.timeout(ANEW_S):
            old = self.consumers.detach(queue)
            if old is not None and not len(old):
                await self.consumers.see_off(old)
            await self._consume_own(queue)
        if old is not None and len(old):
            self.spawn(self.consumers.see_off(old))

    async def _steady(self) -> None:
        await asyncio.sleep(STEADY_S)
        self._refusals.steady()

    def attend_only(self, setting: Setting) -> None:
        """Attend these queues besides our own from now on. Connections stay; what is in flight is finished."""
        self._setting = setting
        if self._attending:  # else they are found when it begins
            self._sources.renew(setting)
            self._trust()

    def _trust(self) -> None:
        """By which exchanges dead letters come to our inboxes is said by attachments too."""
        for queue in self._names.inlets & self._own.keys():
            if (consumer := self.consumers.get(queue)) is not None:
                self._workers[0].trust(consumer, self._trusted(queue))

    def _trusted(self, queue: str) -> frozenset[bytes]:
        return trusted(self._setting.named.get(queue), self._names)

    async def _list_created(self) -> frozenset[str] | None:
        """The dead-letter queues that the policies in force create, of those there are; None where nobody can say."""
        if self._setting.management is None:
            return None
        try:
            names = await self._setting.management.queues(self.vhost, "")
        except ManagementError:
            return None
        in_force, created = self.decider.in_force, set[str]()
        for at, name in enumerate(names):
            if is_made(name, in_force.policies, in_force.policies_of):
                created.add(name)
            if at % TOGETHER == 0:
                await asyncio.sleep(0)
        return frozenset(created)

    def _consumer_lost(self, queue: str, error: Exception, unsettled: int) -> None:
        link = self.consumers.isolated.get(queue)
        if link is not None and not link.is_open and isinstance(error, LinkError) and error.is_crash:
            self.spawn(self._recover(queue, unsettled))
        elif self._names.is_own(queue):
            self.trouble(f"consumer of {queue} lost: {error}")
        else:
            self._sources.lost(queue)

    async def _recover(self, queue: str, held: int) -> None:
        """Take what cannot be delivered out of a queue that has a connection of its own, and consume it again."""
        reads = self._setting.reads
        refused = await reads.crashed(queue, window=self._limits.prefetch, held=held)
        if not self._names.is_own(queue):
            self._sources.lost(queue)
        elif not reads.is_readable(queue):
            self.trouble(str(refused))
        elif not self.is_draining:
            await self._consume_own(queue)

    async def drain(self, until: float, beside: Awaitable[object]) -> int:
        """Stop consuming, finish what is here until then, and `beside`; end. → how many letters were not finished."""
        self.is_draining = True
        self.consumers.drain()
        await asyncio.gather(self._settled(until), beside)
        left = self.in_flight
        self.consumers.take_no_more()
        await self._journal.drain(max(1.0, until - asyncio.get_running_loop().time()))
        self._end(None)
        return left

    async def _settled(self, until: float) -> None:
        """What came before the broker knew that we stop is settled too: it would be delivered once more to others."""
        time = asyncio.get_running_loop().time
        while (self.in_flight or self.consumers.may_get_more) and time() < until and not self._ended.done():  # noqa: ASYNC110 - what settles is the hot path, and has no time for events
            await asyncio.sleep(0.02)

    async def _shut(self) -> None:
        self._is_over = True
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self.consumers.flush()
        may_return = self.version >= attending.RETURNS_FREE_SINCE
        if may_return and self._consume_link.is_open and not self._consume_link.is_silent:
            for link in self._in_flight.links:
                link.pause(paused=False)
            await self.consumers.hand_back()
        links = (*self._in_flight.links, getattr(self, "publish_link", None))
        await asyncio.gather(*(link.close() for link in links if link is not None))

    # -- what lanes ask -----------------------------------------------------------------------------------------

    def settling(self) -> Settler:
        """What settles the jobs of a lane, and ends their spans where there are traces."""
        if self._traces is None:
            return Settler(self)
        where = Where(self.vhost, self._host.name, self._host.port, self._names.quarantine, observes=self._observe)
        return TracedSettler(self, self._traces, where)

    def read_s(self) -> float:
        """When the bytes that are being worked on were read, on the monotonic clock."""
        return self._consume_link.heard_s

    def spawn(self, work: Coroutine[Any, Any, None]) -> None:
        """Run in the background; an error ends the session, because a letter may depend on it."""
        if self._is_over:  # a timer of an earlier time: nobody would end what it begins
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._end(error if isinstance(error, Exception) else Trouble(repr(error)))

    def leave_alone(self, queue: str, why: str) -> None:
        """Give back what came from an attached queue, and take nothing more of it before the router starts anew."""
        self._sources.rest(queue, why)
        self.spawn(self.consumers.give_up(queue))

    def trouble(self, why: str) -> None:
        """Give everything back and start anew."""
        self._end(Trouble(why))

    def retire_later(self, batch: Batch) -> None:
        """Take nothing more of what retention took out, until the stream has this batch or never will."""
        self._retired.rest_until(batch)

    def _end(self, error: Exception | None) -> None:
        if not self._ended.done():
            self._ended.set_result(error)

    def _every_lane(self) -> tuple[Worker, ...]:
        return (*self._workers, *(self._sources.workers if self._attending else ()))

    # -- events of the links ------------------------------------------------------------------------------------

    def _published(self) -> None:
        self.consumers.flush()
        self._consume_link.flush()

    def _blocked(self, blocked: bool, reason: str) -> None:  # noqa: FBT001 - the link's callback
        key = f"alarm {self.vhost}"
        if blocked:
            self._readiness.set(key, f"the broker blocks publishers in vhost {self.vhost!r}: {reason}")
            log.warning("broker.blocked", vhost=self.vhost, reason=reason, fate="consuming pauses; nothing is lost")
        else:
            self._readiness.clear(key)
            log.info("broker.unblocked", vhost=self.vhost, fate="consuming goes on")
        self._in_flight.read_or_rest()

    def _silent(self, role: str, is_silent: bool) -> None:  # noqa: FBT001 - the link's callback
        key, where = f"silent {role} {self.vhost}", f"{self._host.name}:{self._host.port}"
        if is_silent:
            text = f"{where} does not answer, and sends no sign of life either ({role} connection)"
            self._readiness.set(key, f"vhost {self.vhost!r}: {text}")
            log.warning("broker.silent", vhost=self.vhost, node=where, fate="connecting anew, unless it answers soon")
        else:
            self._readiness.clear(key)

    def _link_lost(self, closed: asyncio.Future[Exception]) -> None:
        error = closed.result()
        self._end(error if isinstance(error, LinkError) else Trouble(str(error)))

    async def _watch(self) -> None:
        """Once a second: confirms that do not come; acks of letters that were settled outside a read."""
        while True:
            await asyncio.sleep(1.0)
            self._ticks = (self._ticks + 1) % REAP_EVERY
            if self._ticks == 0:
                self.spawn(self.provision.reap(self.decider.in_force.policies_of))
            for worker in self._every_lane():
                worker.check(self._limits.confirm_timeout_s)
            self._in_flight.check()
            self._published()


def first_error(group: BaseExceptionGroup[BaseException]) -> Exception:
    """What ended the tasks of a session, as any other error that ends one."""
    inner: BaseException = group
    while isinstance(inner, BaseExceptionGroup):
        inner = inner.exceptions[0]
    return inner if isinstance(inner, Exception) else Trouble(repr(inner))
