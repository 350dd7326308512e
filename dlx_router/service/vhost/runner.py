"""One vhost, attended for as long as the router runs: sessions, one after the other, with back-off between them."""

import asyncio
import contextlib
import re
import time
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import replace
from functools import partial
from typing import Any, Final

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.control import CONFIRMS_S, time_to_confirm
from dlx_router.broker.management import Management
from dlx_router.broker.stream import ensure_stream, journal_stream
from dlx_router.broker.topology import Topology, TopologyError
from dlx_router.config.environment.settings import SettingsError
from dlx_router.core.attending import QueueFacts
from dlx_router.core.letter import Letter
from dlx_router.core.names import Names
from dlx_router.core.policy import Effective, PolicySet
from dlx_router.core.statemessage import Claim
from dlx_router.journal.privacy import rule_of
from dlx_router.journal.writer import Journal
from dlx_router.redrive.selection import compiled
from dlx_router.service.dispatch.own_queues_refusing import RefusingQueues
from dlx_router.service.dispatch.resources import CreatedQueues, remembered
from dlx_router.service.dispatch.tracing import decider
from dlx_router.service.inflight.clock import steady_ms
from dlx_router.service.inflight.in_force import Attended, InForce, Rules
from dlx_router.service.leases.manager import VhostLeases
from dlx_router.service.queue_reads import Extraction, QueueReads
from dlx_router.service.redrive.context import JournalHosts, Target, TaskContext
from dlx_router.service.redrive.tasks import Tasks
from dlx_router.service.sources.attach import Wanted, leads
from dlx_router.service.sources.registry import Setting
from dlx_router.service.vhost.attempts import Attempts
from dlx_router.service.vhost.attention import Attention
from dlx_router.service.vhost.background import Background
from dlx_router.service.vhost.connect import Address, Addresses, reached
from dlx_router.service.vhost.leadership import Leadership, lead
from dlx_router.service.vhost.own_queues import OwnQueues
from dlx_router.service.vhost.policy_letters import PolicyLetters
from dlx_router.service.vhost.queue_depths import QueueDepths, resting_places
from dlx_router.service.vhost.queue_types import QueueTypes
from dlx_router.service.vhost.reload import Revision, foreseen
from dlx_router.service.vhost.session import Limits, Session, Trouble, first_error
from dlx_router.service.vhost.signing_key import KeyFileError, SigningKey
from dlx_router.service.vhost.stalls import Stalls
from dlx_router.service.vhost.state_queue import StateQueueWatch
from dlx_router.service.vhost.unreadable_head import UnreadableHead
from dlx_router.telemetry.logs import log
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness, Speaker
from dlx_router.telemetry.survey import Seen, Survey
from dlx_router.telemetry.traces import Traces

RETRIED: Final = (LinkError, ChannelClosed, Trouble, TopologyError, SettingsError, KeyFileError, OSError, TimeoutError)
Beside = tuple[str, Callable[[], Coroutine[Any, Any, None]]]  # a name, and what is looked at while a session lasts


class VhostRunner:
    """Keeps a session alive in one vhost."""

    def __init__(  # noqa: PLR0913 - the wiring of a vhost, made in one place
        self,
        *,
        vhost: str,
        addresses: Addresses,
        names: Names,
        rules: Rules,
        limits: Limits,
        keys: SigningKey,
        policy_letters: PolicyLetters,
        guard: OwnQueues,
        management: Management | None,
        survey: Survey,
        metrics: Metrics,
        readiness: Readiness,
        sources: tuple[Wanted, ...],
        declare: bool,
        journal: Journal,
        observe: bool = False,
        traces: Traces | None = None,
        claim: Callable[[str], Claim | None] = lambda _local: None,
        indexed: Callable[[], Sequence[Target]] = tuple,
    ) -> None:
        """`indexed`: exchange and routing key of each place where the index knows dead letters."""
        self.vhost = vhost
        self._indexed = indexed
        self._observe = observe
        self._addresses, self._names, self._limits = addresses, names, limits
        self._keys, self._guard, self._metrics, self._readiness = keys, guard, metrics, readiness
        self._session_readiness = Speaker(readiness)  # by a session
        self._declare, self._management = declare, management
        self.reads = QueueReads(vhost, names, management, metrics, readiness, self._extract)
        self._survey, self._lookout = survey, QueueDepths(names, management)
        self.journal = self._journal = journal
        self._watch = StateQueueWatch(vhost, names.state, readiness, metrics)
        self._background = Background(metrics, readiness)
        self.leadership = Leadership(vhost, self._watch, self._background, self._free_state, claim)
        self.key = b""  # that signs; empty before the first session
        self.topology: Topology | None = None  # while there is a connection to ask
        self._policy_letters, self._attends = policy_letters, Attended()
        self._kinds = QueueTypes(management, vhost)
        self._sources: tuple[Wanted, ...]
        first = self.built(rules, sources)
        self._decider = decider(first.in_force, metrics, journal, traces)
        self.use(first)
        self._refusals = RefusingQueues(vhost, readiness)
        self._unreadable = UnreadableHead(
            vhost,
            names,
            journal=journal,
            metrics=metrics,
            readiness=readiness,
            refusals=self._refusals,
            event_factory=lambda: self._decider.in_force.event_factory,
        )
        self._unreadable.on_culprit = self.reads.culprit_found
        self._traces = traces
        self._session: Session | None = None
        self._place: tuple[Host, Login, Tls | None] | None = None  # where the last connection was tried
        self._stopping = asyncio.Event()
        self._attempts = Attempts(vhost, readiness)
        self._was_complete, self._was_there = False, remembered()  # all of ours was seen; what copies needed
        self._created = CreatedQueues()
        own = (names.observe,) if observe else (names.inbox, names.release, names.fifo, names.retired)
        self._stalls = Stalls(vhost, names, own, metrics, self._session_readiness)
        self._key_gone = ""  # why
        self._router_id, self._reached = rules.router_id, False  # whether the broker answered
        compile_filter = partial(compiled, rule_of=lambda letter: rule_of(self.policy_of(letter)))
        self.tasks = Tasks(vhost, compile_filter, journal_is_on=journal.is_on, not_leading=self.not_leading)
        self.leases = VhostLeases(self.tasks, compile_filter, journal_is_on=journal.is_on, not_leading=self.not_leading)

    @property
    def in_flight(self) -> int:
        """Deliveries that are here and not settled."""
        return self._session.in_flight if self._session is not None else 0

    @property
    def is_gone(self) -> bool:
        """Whether the broker said at the last attempt that there is no such vhost, and has not let us in since."""
        return self.topology is None and self._attempts.found_no_vhost

    def limit_bytes(self, most: int) -> None:
        """So many bytes may be in flight from now on; what is here stays."""
        self._limits = replace(self._limits, in_flight_bytes=most)
        if self._session is not None:
            self._session.limit_bytes(most)

    def policy_of(self, letter: Letter) -> Effective | None:
        """What is in force for a letter."""
        return self._decider.in_force.resolve(letter)

    def queue_type(self, queue: str) -> str | None:
        """A queue's type as letters are judged by; None: not known, or no policy asks for it."""
        return self._decider.in_force.queue_types.get(queue)

    def policy_for(self, queue: str, reason: str) -> Effective | None:
        """What is in force for letters that fail in this queue for this reason, as the router applies it."""
        return self._decider.in_force.policy_of(queue, reason)

    @property
    def policies(self) -> PolicySet:
        """The policies in force."""
        return self._decider.in_force.policies

    def not_leading(self) -> str:
        """Why the leader's duties are not ours now, and who can be asked."""
        if self._observe:
            return f"vhost {self.vhost!r}: this router observes, and has none of the leader's duties; ask one that runs"
        if self.topology is None:
            state = "has not begun to attend it" if self._reached else "has no connection to the broker"
            why = f" ({self._attempts.trouble})" if self._attempts.trouble and not self._reached else ""
            return f"vhost {self.vhost!r}: this router {state}{why}; see /readyz, and ask again"
        if why := self._watch.leaderless:
            return f"vhost {self.vhost!r}: {why}; see /readyz, and ask again"
        return f"this router does not lead vhost {self.vhost!r}; ask the one that does"

    @property
    def shared_key(self) -> bytes:
        """The key that replicas share; empty where there is none, or no session was there yet."""
        return self.key if self._keys.is_shared and not self._observe else b""

    def breakers(self) -> dict[str, str]:
        """Each queue's breaker, by its state."""
        return {queue: state.value for queue, state in self._decider.breakers.states(steady_ms()).items()}

    async def run(self) -> None:
        """Attend until `stop`; never gives up, because the letters are still there."""
        while not self._stopping.is_set():
            started = time.monotonic()
            try:
                await self._once()
            except RETRIED as error:
                self._unreadable.blame(error)
                self._attempts.failed(error, started)
                # The next session has other connections, and may attend other queues.
                self._session_readiness.take_back()
                await self._attempts.pause(self._stopping)

    async def stop(self, until: float) -> int:
        """Drain until then, by the loop's clock, and end; → how many letters were not finished, and stay in queues.

        Letters, tasks and leases share the time; a second is the least that they, and then the journal, have.
        """
        self._stopping.set()
        within_s = max(1.0, until - asyncio.get_running_loop().time())
        duties = asyncio.gather(self.tasks.stop(within_s), self.leases.stop(within_s))
        if self._session is not None:
            return await self._session.drain(until, duties)
        await duties
        await self._journal.drain(0)  # there is nobody to write to: it says what is lost
        return 0

    async def prepare(self, policies: PolicySet) -> None:
        """What these policies need is there, as far as is known before letters come; TopologyError where it cannot be.

        Without a session only the types of queues are asked for: letters are judged in the next one, and find out then.
        """
        if self.is_gone:
            return
        is_known = self._session is None or self.policies.asks_types  # else what was told last may be of long ago
        await (self._kinds.renew_for if is_known else self._kinds.ask_for)(policies)
        if self._session is not None and not self._observe:
            await self._session.provision.prepare(foreseen(policies, self.vhost, self._kinds.known))

    def built(self, rules: Rules, sources: tuple[Wanted, ...]) -> Revision:
        """These rules and queues, as `use` takes them: whatever can fail about them fails here."""
        routes, types = leads(sources), self._kinds.known
        in_force = InForce.of(rules, self.vhost, queue_types=types, leads=routes, attended=self._attends)
        return Revision(in_force, sources, resting_places(self._names, rules.policies))

    def use(self, revision: Revision) -> None:
        """Judge by it from now on; what is in flight is finished by what it came to. Cannot fail."""
        self._decider.in_force, self._sources, self._lookout.pattern = revision

    def attend(self) -> None:
        """Attend the queues of what is in force; sessions go on."""
        if self._session is not None:
            self._session.provision.renew()
            self._session.attend_only(self._setting())

    async def _once(self) -> None:
        self._key_gone = ""
        hosts, login, tls = self._addresses(self.vhost)
        host, *_ = hosts = self._attempts.order(hosts)
        self._place = host, login, tls
        topology = Topology(
            host,
            login,
            tls,
            self._names,
            declare=self._declare,
            heartbeat_s=self._limits.heartbeat_s,
            management=self._management,
        )
        topology.flush_names.on_refused = self._slow
        try:
            await reached(topology, host, others=len(hosts) > 1)
            self._reached = True
            self._attempts.reached()
            await self._ensure(topology)
            if await self._unreadable.search(*self._place):
                self._attempts.forgive()
            async with self._keys.key(topology, self._stopping, self._key_lost, self._watch) as key:
                if key is None:
                    return
                if not self._observe:
                    self._refusals.catching = await self._guard.begin(self.vhost, topology)
                await self._know_types(is_beginning=True)
                if self._stopping.is_set():  # from here on nothing is awaited until there is a session to drain
                    return
                if self._key_gone:
                    raise Trouble(self._key_gone)
                session = self._session = Session(
                    host=host,
                    login=login,
                    tls=tls,
                    names=self._names,
                    key=key,
                    decider=self._decider,
                    limits=self._limits,
                    topology=topology,
                    metrics=self._metrics,
                    readiness=self._session_readiness,
                    sources=self._setting(),
                    journal=self._journal,
                    ensure_journal=partial(ensure_stream, topology, journal_stream(self._names), declare=self._declare),
                    refusals=self._refusals,
                    observe=self._observe,
                    traces=self._traces,
                    was_there=self._was_there,
                    created=self._created,
                )
                self.topology, self.key = topology, key
                self._journal.sign_with(key if self._keys.is_shared or not self._observe else None)
                async with self._leading(topology, key), asyncio.TaskGroup() as group:
                    watching = (
                        *(
                            group.create_task(self._background.keep(task, work, passes=RETRIED, where=self.vhost))
                            for task, work in self._beside(session, topology)
                        ),
                        group.create_task(self._lead(self._context((hosts, login, tls), topology, key))),
                    )
                    await self._attended(session)
                    for task in watching:
                        task.cancel()
        except BaseExceptionGroup as group:  # no except*: before Python 3.11.4 it wraps what is raised in it
            known, others = group.split(RETRIED)
            if others is not None or known is None:
                raise
            raise first_error(known) from None
        finally:
            self._session = self.topology = None
            self._reached = False
            self._metrics.broker_connected[self.vhost] = 0
            await topology.close()

    def _slow(self, error: TopologyError) -> None:
        fate = "new queues are used 2 s later, once the broker has their names on disk"
        log.warning("topology.slow", vhost=self.vhost, error=str(error), fate=fate)

    async def _ensure(self, topology: Topology) -> None:
        """All that a session needs is there; where it was before and the broker does not answer, that is believed."""
        try:
            async with time_to_confirm(known=self._was_complete):
                await topology.ensure_core()
                if self._observe:
                    await topology.ensure_observe()
            self._was_complete = True
        except TimeoutError:
            fate = "all was there before; letters go on, and what is missing is made in the next session"
            log.warning("topology.unconfirmed", vhost=self.vhost, seconds=CONFIRMS_S, fate=fate)

    def _beside(self, session: Session, topology: Topology) -> list[Beside]:
        """What is looked at while a session lasts; an error of ours in it costs no letter."""
        look, policies = partial(self._look, topology, session), lambda: self.policies
        looks: list[Beside] = [
            ("policy letters", lambda: self._policy_letters.watch(policies)),
            ("stalls", lambda: self._stalls.watch(session, topology)),
            ("survey", lambda: self._survey.watch(self.vhost, look)),
        ]
        if not self._observe:
            watch = partial(self._guard.watch, self.vhost, session.trouble, topology, self._refusals.catch)
            looks.append(("guard", watch))
            attention = Attention(self.vhost, self._session_readiness)
            looks.append(("attention", lambda: attention.watch(topology, policies)))
        return looks

    async def _attended(self, session: Session) -> None:
        """The whole session, and what it cost attached queues."""
        began = time.monotonic()
        try:
            await session.run()
        except LinkError as error:
            if error.is_crash:
                self._unreadable.suspect(session.consumers.began, session.version, self._limits.prefetch)
            raise
        finally:
            self._refusals.ended(time.monotonic() - began, session.consumers.returned)

    async def _lead(self, context: TaskContext) -> None:
        """Redrive tasks and leases, for as long as we lead."""
        with self.leadership.heard(context.journal_hosts.quiet):
            await lead(self.leadership, lambda term: self.leases.lead(context, term))

    def _context(self, address: Address, topology: Topology, key: bytes) -> TaskContext:
        hosts, login, tls = address
        return TaskContext(
            host=hosts[0],
            login=login,
            tls=tls,
            heartbeat_s=self._limits.heartbeat_s,
            confirm_timeout_s=self._limits.confirm_timeout_s,
            names=self._names,
            topology=topology,
            management=self._management,
            journal=self._journal,
            metrics=self._metrics,
            router_id=self._router_id,
            journal_hosts=JournalHosts(hosts, self.vhost, self._session_readiness),
            in_force=lambda: self._decider.in_force,
            reads=self.reads,
            sign_with=lambda: key,
            leased=self.leases.consumers,
            awaited=self.leases.awaited,
            indexed=self._indexed,
        )

    def _setting(self) -> Setting:
        """How the attached queues are attended."""
        resting = re.compile(self._lookout.pattern)
        return Setting(
            self._sources,
            self._names,
            self._management,
            self._session_readiness,
            self.reads,
            self._limits.prefetch,
            lambda queue: resting.search(queue) is not None,
            declare=self._declare,
            shared=self._keys.is_shared,
        )

    async def _know_types(self, *, is_beginning: bool = False) -> None:
        """The types of queues, where policies ask; what is in force once they are told knows them."""
        await self._kinds.renew_for(self.policies, is_beginning=is_beginning)
        self._decider.in_force = self._decider.in_force.with_types(self._kinds.known)

    async def _free_state(self, error: Exception) -> None:
        """What no AMQP 0-9-1 client can be given stands in the way of whoever is to lead."""
        if self._place is not None:
            self._unreadable.blame(error)
            await self._unreadable.search(*self._place)

    async def _look(self, topology: Topology, session: Session) -> Seen:
        await self._know_types()
        used = {int(resource[1]) for resource in session.provision.known if resource[0] == "rung"}
        return await self._lookout.look(topology, used)

    async def _extract(self, queue: str, window: int, facts: QueueFacts) -> Extraction:
        session, place = self._session, self._place
        if session is None or place is None:
            return Extraction(0, "there is no connection to the broker; ask again")
        return await self._unreadable.extract(place, queue, window, facts, session.version)

    def _leading(self, topology: Topology, key: bytes) -> contextlib.AbstractAsyncContextManager[None]:
        """Whoever observes has no duties."""
        if self._observe:
            return contextlib.nullcontext()
        return self.leadership.held(topology, shared=key if self._keys.is_shared else None)

    def _key_lost(self, why: str) -> None:
        self.leadership.lose()
        self._key_gone = f"the state queue is lost: {why}"
        if self._session is not None:
            self._session.trouble(self._key_gone)
