"""Wiring, start, drain, stop."""

import asyncio
import contextlib
import secrets
import signal
import socket
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Final

from dlx_router.broker.management import Management
from dlx_router.config.alert_thresholds import thresholds
from dlx_router.config.api_access.replica_address import advertised
from dlx_router.config.environment.settings import Settings
from dlx_router.config.policy_files.loader import LoadedPolicies
from dlx_router.core.breaker import Breaker
from dlx_router.core.statemessage import Claim
from dlx_router.index.reader import IndexAway, TooLong
from dlx_router.index.schema import place_of
from dlx_router.index.supervisor import Supervisor
from dlx_router.journal.mode import Mode
from dlx_router.journal.writer import Journal
from dlx_router.service.inflight.in_force import Rules
from dlx_router.service.redrive.context import Target
from dlx_router.service.sources.attach import Wanted
from dlx_router.service.upkeep import slow_conditions
from dlx_router.service.upkeep.emptied_queues import EmptiedQueues
from dlx_router.service.upkeep.import_queue import Importer
from dlx_router.service.upkeep.webhooks import Webhooks
from dlx_router.service.vhost.all_vhosts import AllVhosts
from dlx_router.service.vhost.background import Background
from dlx_router.service.vhost.connect import addresses, first_host, management
from dlx_router.service.vhost.own_queues import OwnQueues
from dlx_router.service.vhost.policy_letters import PolicyLetters, watch_index
from dlx_router.service.vhost.reload import Reloader
from dlx_router.service.vhost.runner import VhostRunner
from dlx_router.service.vhost.session import Limits
from dlx_router.service.vhost.signing_key import SigningKey, from_file
from dlx_router.telemetry.logs import log
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from dlx_router.telemetry.survey import Survey
from dlx_router.telemetry.traces import open_traces
from dlx_router.webhooks.sender import Sender

INTERRUPTED: Final = 130
CLOSED_S: Final = 5.0
ENDS_S: Final = 12.0
"""What a stop takes beyond DRAIN_SECONDS at most: journal 1 s, connections 5 s (7 s where they hang), traces 1 s, HTTP
and console 3 s."""
LEAST_BYTES: Final = 1 << 16  # in flight in one vhost, as few as IN_FLIGHT_BYTES may be


class App:
    """One router process: an attendant a vhost, metrics and readiness."""

    def __init__(self, settings: Settings, loaded: LoadedPolicies, *, observe: bool = False) -> None:
        self.metrics = Metrics()
        self.readiness = Readiness()
        self.background = Background(self.metrics, self.readiness)
        self._settings = settings
        self._loaded = loaded
        self._observe = observe
        self._names = settings.names
        self._where = addresses(settings, first_host(socket.gethostname()))
        self._management = management(settings)
        self._survey = Survey(self.metrics)
        self._signals = 0
        self._code = 0
        self._stop, self._over = asyncio.Event(), asyncio.Event()  # a signal came; an attendant ended by itself
        self.router_id = self._router_id = f"{socket.gethostname()}-{secrets.token_hex(3)}"
        self.http_port = settings.http_port  # that it listens at, once it is known
        self._traces = open_traces(settings.traces, self.router_id, self.metrics.spans)

        self.index = self._index()
        self.attendants: dict[str, VhostRunner] = {}  # by vhost, for those who ask; with VHOSTS=* they come and go
        self._running: dict[str, asyncio.Task[None]] = {}
        self.importer = None if self.index is None else Importer(self._where, self._names, self.router_id)
        self.depths = None if self.index is None else EmptiedQueues(self.index, self.attendants, self._management)

    def _index(self) -> Supervisor | None:
        """The index, where there is a file for it and a journal to build it from; none beside observation."""
        settings = self._settings
        if settings.index_path is None or settings.journal == "off" or self._observe:
            return None
        index = Supervisor(place_of(settings.index_path), self._names.journal, self._where, self.readiness)
        index.key_of = self._key_of
        return index

    def _webhooks(self, index: Supervisor) -> list[asyncio.Task[None]]:
        """Who observes has nothing to tell: it leads nowhere."""
        settings = self._settings
        if (path := settings.webhooks_path()) is None or self._observe:
            return []
        webhooks = Webhooks(
            path,
            Sender(settings.prefix, settings.console_url, self.http_port),
            index=index,
            attendants=self.attendants,
            metrics=self.metrics,
            readiness=self.readiness,
            router_id=self._router_id,
        )
        return [asyncio.create_task(self.background.keep("webhooks", webhooks.watch))]

    async def run(self) -> int:
        """Attend until a signal; 0 after a drained SIGTERM, 130 after SIGINT, 1 where the deadline passed."""
        loop, reload_asked = asyncio.get_running_loop(), asyncio.Event()
        loop.add_signal_handler(signal.SIGHUP, reload_asked.set)
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, self._signalled, number)
        every = self._all_vhosts()
        vhosts = self._settings.vhost_list() if every is None else await every.first(self._stop)
        for vhost in vhosts:
            self._begin(vhost)
        beside, reloader = self._beside(), self._reloader(self._settings.vhost_list(), reload_asked)
        self._announce(vhosts)
        await self._until_over(reloader, every)
        left = await self._end(beside)
        log.info("router.stopped", in_flight=left, fate="what was not settled is still in its queue")
        return self._code if not left or self._code else 1

    def _all_vhosts(self) -> AllVhosts | None:
        """Who finds out which vhosts there are, where all of them are served."""
        if self._settings.vhost_list() != ["*"]:
            return None
        assert self._management is not None  # settings refuse * without it
        return AllVhosts(self._management, self.readiness, self.attendants, self._begin, self._leave)

    def _begin(self, vhost: str) -> None:
        """Serve it from now on, with an equal share of the bytes in flight."""
        attendant = self.attendants[vhost] = self._attendant(vhost)
        self._share_bytes()
        if self.index is not None:
            self.index.follow(vhost)
        running = self._running[vhost] = asyncio.create_task(attendant.run())
        running.add_done_callback(self._attendant_ended)

    async def _leave(self, vhost: str) -> None:
        """Serve it no more: nothing of it runs when this returns, and nothing is said of it."""
        running = self._running[vhost]
        running.remove_done_callback(self._attendant_ended)
        try:
            await self.attendants[vhost].stop(asyncio.get_running_loop().time() + self._settings.drain_seconds)
            await asyncio.wait([running], timeout=CLOSED_S)
        finally:  # whatever failed: who has ended and stays in the list keeps a vhost of that name from being served
            running.cancel()
            await asyncio.gather(running, return_exceptions=True)
            self._forget(vhost)

    def _forget(self, vhost: str) -> None:
        del self.attendants[vhost], self._running[vhost]
        if self.index is not None:
            self.index.leave(vhost)
        self.readiness.drop_vhost(vhost)
        self.metrics.forget(vhost)
        self._share_bytes()

    def _attendant_ended(self, _running: asyncio.Task[None]) -> None:
        self._over.set()

    def _share_bytes(self) -> None:
        for attendant in self.attendants.values():
            attendant.limit_bytes(self._share(len(self.attendants)))

    def _share(self, vhosts: int) -> int:
        """What each of so many vhosts may have in flight: none takes those of others."""
        return max(self._settings.in_flight_bytes // max(vhosts, 1), LEAST_BYTES)

    def _announce(self, vhosts: Sequence[str]) -> None:
        """What metrics, readiness and the log say from now on."""
        policies, loop = self._loaded.policies, asyncio.get_running_loop()
        self.metrics.revision = policies.revision
        self.metrics.in_flight = lambda: {vhost: runner.in_flight for vhost, runner in [*self.attendants.items()]}
        self.metrics.asyncio_tasks = lambda: len(asyncio.all_tasks(loop))
        self.metrics.breakers = self._breakers
        self.metrics.leases = lambda: {"held": sum(runner.leases.held for runner in [*self.attendants.values()])}
        self.metrics.thresholds = thresholds(policies)
        self.metrics.vhosts_ready = self.readiness.vhosts
        self.readiness.clear("start")
        if self._observe:
            self.readiness.note("observe", "observing: decisions are journalled, and no letter is taken or moved")
        more = {"observe": True} if self._observe else {}
        count, revision = len(policies.policies), policies.revision
        log.info("router.started", vhosts=list(vhosts), policies=count, revision=revision, **more)

    async def _until_over(self, reloader: Reloader, every: AllVhosts | None) -> None:
        """A signal came, or an attendant ended; policies are reloaded, and new vhosts begun, until then."""
        waiting = [asyncio.create_task(event.wait()) for event in (self._stop, self._over)]
        watching = [asyncio.create_task(reloader.watch())]
        if every is not None:
            watching.append(asyncio.create_task(self.background.keep("vhosts", every.watch)))
        await asyncio.wait([*waiting, *watching], return_when=asyncio.FIRST_COMPLETED)
        for task in waiting:
            task.cancel()
        for watch in reversed(watching):  # no vhost begins from here on, whatever ended the other
            await _ended(watch)

    async def _end(self, beside: list[asyncio.Task[None]]) -> int:
        """Drained and closed; how many letters were still in flight.

        One deadline for all that is drained. What comes behind it is short, and its sum is ENDS_S: docs/operations.md.
        """
        loop = asyncio.get_running_loop()
        drained_by = loop.time() + self._settings.drain_seconds
        left = await self._drain(drained_by)
        for task in beside:
            task.cancel()
        try:
            await _over([*self._running.values()])
        finally:
            if self._traces is not None:
                await asyncio.to_thread(self._traces.close, drained_by - loop.time())
            await asyncio.gather(*beside, return_exceptions=True)
        if self._management is not None:
            await self._management.close()
        return left

    def _beside(self) -> list[asyncio.Task[None]]:
        """What runs beside the letters' way."""
        keep = self.background.keep
        conditions = partial(slow_conditions.watch, lambda: self._loaded.policies, self.readiness)
        looks = [asyncio.create_task(keep("conditions", conditions))]
        if (index := self.index) is None or (depths := self.depths) is None:
            return looks
        self.metrics.index_signatures = index.signatures
        return [
            asyncio.create_task(keep("index", index.run)),
            asyncio.create_task(keep("depths", depths.watch)),
            *looks,
            *self._webhooks(index),
            asyncio.create_task(keep("ageing", lambda: watch_index(index, self._led_vhosts, self.metrics))),
        ]

    def _key_of(self, vhost: str) -> bytes | None:
        """What signs its journal; None before the first session, or where it is not served any more."""
        attendant = self.attendants.get(vhost)
        return None if attendant is None else attendant.key or None

    def _led_vhosts(self) -> set[str]:
        return {vhost for vhost, attendant in self.attendants.items() if attendant.leadership.is_ours}

    @property
    def management(self) -> Management | None:
        """The management API, where there is one."""
        return self._management

    async def _drain(self, until: float) -> int:
        for vhost in self.attendants:
            self.readiness.set(f"link {vhost}", "draining")
        return sum(await asyncio.gather(*(attendant.stop(until) for attendant in self.attendants.values())))

    def _breakers(self) -> dict[str, str]:
        """Of all vhosts; where two have a queue of one name, the worse state."""
        worst: dict[str, str] = {}
        for attendant in [*self.attendants.values()]:
            for queue, state in attendant.breakers().items():
                worst[queue] = max(state, worst.get(queue, state), key=Breaker.badness)
        return worst

    def _rules(self, loaded: LoadedPolicies) -> Rules:
        grace_ms = self._settings.unroutable_grace_ms
        return Rules(loaded.policies, self._names, grace_ms, self._router_id, observes=self._observe)

    def _sources(self, loaded: LoadedPolicies, vhost: str) -> tuple[Wanted, ...]:
        """The attached queues and delayed exchanges; who observes takes from none."""
        wanted: tuple[Wanted, ...] = () if self._observe else (*loaded.attachments, *loaded.delayed)
        return tuple(source for source in wanted if source.vhost in {None, vhost})

    def _reloader(self, vhosts: Sequence[str], asked: asyncio.Event) -> Reloader:
        async def prepare(loaded: LoadedPolicies) -> Callable[[], None]:
            limits = await asyncio.to_thread(thresholds, loaded.policies)
            for attendant in [*self.attendants.values()]:
                await attendant.prepare(loaded.policies)
            rules = self._rules(loaded)
            # From here to the swap nothing is awaited: a vhost that begins meanwhile would keep the rules of before.
            ready = [
                (attendant, attendant.built(rules, self._sources(loaded, attendant.vhost)))
                for attendant in self.attendants.values()
            ]

            def swap() -> None:
                self._loaded = loaded
                self.metrics.thresholds = limits
                for attendant, revision in ready:
                    attendant.use(revision)
                for attendant, _ in ready:
                    attendant.attend()

            return swap

        return Reloader(
            folder=self._settings.policies,
            names=self._names,
            vhosts=vhosts,
            current=self._loaded,
            prepare=prepare,
            metrics=self.metrics,
            readiness=self.readiness,
            asked=asked,
        )

    def _claim(self, local: str) -> Claim:
        """What a replica is told that asks who leads."""
        settings = self._settings
        return Claim(self.router_id, advertised(settings.advertised_url, settings.http_host, self.http_port, local))

    def _indexed(self, vhost: str) -> list[Target]:
        """Where the index knows dead letters of this vhost; none where there is no index to ask."""
        if self.index is None:
            return []
        with contextlib.suppress(IndexAway, TooLong, OSError):
            places = self.index.reader.places()
            return [(row["exchange"], row["routing_key"]) for row in places if row["vhost"] == vhost]
        return []

    def _journal_lost(self, events: int) -> None:
        self.metrics.journal_gaps += events

    def _signalled(self, number: int) -> None:
        self._signals += 1
        self._code = INTERRUPTED if number == signal.SIGINT else self._code
        if self._signals > 1:
            log.warning("router.forced", fate="letters in flight stay in their queues and may be delivered twice")
            raise SystemExit(self._code or 1)
        self.readiness.set("draining", "draining after a signal")
        self._stop.set()

    def _attendant(self, vhost: str, vhosts: int = 1) -> VhostRunner:
        """`vhosts`: how many are served, this one among them."""
        settings = self._settings
        path = Path(settings.provenance_key_file) if settings.provenance_key_file else None
        if path is not None:
            from_file(path)  # a bad file is an error at start, not at the first connect
        sources = (
            [self._names.observe]
            if self._observe
            else [self._names.inbox, self._names.release, self._names.fifo, self._names.retired]
        )
        self.metrics.serve(vhost, sources)
        readiness = self.readiness.vhost(vhost, is_awaited="starting" in self.readiness.problems())
        return VhostRunner(
            vhost=vhost,
            addresses=self._where,
            names=self._names,
            rules=self._rules(self._loaded),
            limits=Limits(
                prefetch=settings.prefetch,
                in_flight_bytes=self._share(vhosts),
                confirm_timeout_s=settings.confirm_timeout_ms / 1000,
                heartbeat_s=settings.heartbeat,
                max_dead_letter_queues=settings.max_dead_letter_queues,
            ),
            keys=SigningKey(path, readiness, observe=self._observe),
            policy_letters=PolicyLetters(self._management, vhost, self._names, self.metrics),
            guard=OwnQueues(self._management, self._names, readiness),
            management=self._management,
            survey=self._survey,
            metrics=self.metrics,
            readiness=readiness,
            sources=self._sources(self._loaded, vhost),
            observe=self._observe,
            traces=self._traces,
            claim=self._claim,
            indexed=partial(self._indexed, vhost),
            declare=settings.declare == "auto",
            journal=Journal(
                mode=Mode(settings.journal),
                name=self._names.journal,
                vhost=vhost,
                router_id=self._router_id,
                readiness=readiness,
                on_lost=self._journal_lost,
                confirm_timeout_s=settings.confirm_timeout_ms / 1000,
                prefetch=settings.prefetch,
            ),
        )


async def _over(tasks: list[asyncio.Task[None]]) -> None:
    """Attendants have closed their connections, or had the time for it; an error that ended one is raised."""
    if tasks:
        await asyncio.wait(tasks, timeout=CLOSED_S)
    for task in tasks:
        if task.done() and not task.cancelled() and (error := task.exception()) is not None:
            raise error
        task.cancel()


async def _ended(task: asyncio.Task[None]) -> None:
    """Cancel what runs until it is; an error that ended it before is raised."""
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
