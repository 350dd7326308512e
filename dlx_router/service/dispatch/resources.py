"""Resources: what a copy needs in the broker exists before the copy is sent, checked once and remembered.

Publishing to a missing exchange closes the channel with hundreds of neighbours in doubt; a passive check costs one
round trip at first use. Absence is remembered for 5 s, so that a missing target costs its letters no check each.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Container, Iterable
from dataclasses import dataclass
from typing import Final, Protocol
from weakref import WeakValueDictionary

from dlx_router.broker.answers import LinkError
from dlx_router.broker.control import CONFIRMS_S
from dlx_router.broker.topology import Forbidden, QueueExclusive, QueueMissing, QueueOwn, Topology, TopologyError
from dlx_router.core.bounded import MIB, Bounded
from dlx_router.core.names import Names, as_read
from dlx_router.core.policy import Effective
from dlx_router.core.target import dead_letter_queue, transient_queue
from dlx_router.core.words import Cause
from dlx_router.service.dispatch.cooldown import SILENT_S, SilentTargets
from dlx_router.service.dispatch.in_use import Busy, InUse
from dlx_router.service.dispatch.own_queues_refusing import RefusingQueues
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.routes import Resource, how_made, reap_ms
from dlx_router.telemetry.logs import log
from dlx_router.telemetry.readiness import Readiness

ABSENT_S: Final = 5.0
WITHIN_S: Final = 15.0
COUNT_S: Final = 10.0  # between two looks at which dead-letter queues there are
SURELY_S: Final = 60.0  # since a queue was asked for; it may be made later
AT_ONCE: Final = 32  # checks: each is a channel, and hundreds at once would all be too late
# Resolved to this where the default exchange leads to the queue: exclusive queues cannot be bound by others.
PLAIN: Final = ""
STREAM: Final = "stream"
STAYS: Final = ",,,,"  # others publish to its exchange, and nobody knows when they do not


class Refusal(Exception):
    """The resource is not to be had; `cause` says why in the journal's words; `final` where no waiting helps."""

    def __init__(self, cause: Cause, text: str, *, final: bool = False) -> None:
        super().__init__(text)
        self.cause = cause
        self.final = final


@dataclass(slots=True, eq=False)
class Passing:
    """A dead-letter queue that is deleted once it was idle for so long, made for letters of `failed_queue`."""

    failed_queue: str
    after_s: float
    idle_since_s: float


class Idle(Protocol):
    """What has to be known before a queue is deleted."""

    in_use: InUse

    def deletes(self) -> bool:
        """Whether any policy in force has dead-letter queues deleted."""

    def may_be_deleted(self, queue: str) -> bool:
        """Whether it is a dead-letter queue that a router may delete."""

    def is_aimed_at(self, queue: str) -> bool:
        """Whether letters go there by a policy that names it, and so past what is known here."""

    async def settled(self) -> bool:
        """Once all that was published before has its answer; False where that takes too long."""


class CreatedQueues:
    """The dead-letter queues that were created, by this router or another; known for as long as the router runs.

    Without the management API they are those that this router asked for.
    """

    def __init__(self) -> None:
        self._asked_s: dict[str, float] = {}
        self._counting = asyncio.Lock()
        self._counted_s = -COUNT_S

    def __len__(self) -> int:
        return len(self._asked_s)

    def __contains__(self, queue: str) -> bool:
        return queue in self._asked_s

    def add(self, queue: str) -> None:
        """It is about to be created."""
        self._asked_s[queue] = time.monotonic()

    def discard(self, queue: str) -> None:
        """It is not there."""
        self._asked_s.pop(queue, None)

    async def count(self, listed: Callable[[], Awaitable[frozenset[str] | None]]) -> None:
        """Look which there are, unless that was done just now. `listed`: None where nobody can say."""
        async with self._counting:
            if time.monotonic() - self._counted_s < COUNT_S:
                return
            names, self._counted_s = await listed(), time.monotonic()
            if names is not None:
                since_s = time.monotonic() - SURELY_S
                late = {name: asked_s for name, asked_s in self._asked_s.items() if asked_s > since_s}
                self._asked_s = dict.fromkeys(names, 0.0) | late


async def unknown(_queue: str) -> str | None:
    """Nobody can say of what type the queue is."""
    return None


async def unlisted() -> frozenset[str] | None:
    """Nobody can say which queues there are."""
    return None


def remembered() -> Bounded[Resource, str]:
    """Room for what sessions knew."""
    return Bounded(most=2000, most_bytes=MIB)


class TargetResources:
    """Known resources of one vhost, and the jobs that wait for others."""

    def __init__(  # noqa: PLR0913 - what a vhost has
        self,
        topology: Topology,
        names: Names,
        max_queues: int,
        spawn: Callable[..., object],
        kind_of: Callable[[str], Awaitable[str | None]] = unknown,
        *,
        refusals: RefusingQueues | None = None,
        idle: Idle | None = None,
        was_there: Bounded[Resource, str] | None = None,
        created: CreatedQueues | None = None,
        list_created: Callable[[], Awaitable[frozenset[str] | None]] = unlisted,
    ) -> None:
        """`kind_of(queue)`: its type, None where nobody can say. `idle` None: no dead-letter queue is ever deleted.

        `was_there`: what sessions before knew, and later ones will; it is believed where the broker does not answer.
        """
        # What is forgotten because there is too much is looked for again.
        self.known: Bounded[Resource, str] = Bounded(most=10_000, most_bytes=5 * MIB)
        self._was_there = remembered() if was_there is None else was_there
        self._absent: Bounded[Resource, tuple[float, Refusal]] = Bounded(
            most=4096, most_bytes=4 * MIB, weigh=lambda entry: 512 + 4 * len(str(entry[1]))
        )
        self._room = asyncio.Semaphore(AT_ONCE)
        self._waiting: dict[Resource, list[tuple[Job, Callable[[Job, str | Refusal], None]]]] = {}
        self._topology = self.topology = topology
        self._names = names
        self._max_queues = max_queues
        self._spawn, self._kind_of, self._idle = spawn, kind_of, idle
        # A queue is made, or deleted. Names come from letters: a lock lasts while somebody holds it or waits for it.
        self._turns: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._reaping = False
        self._created, self._list_created = CreatedQueues() if created is None else created, list_created
        self.silent = SilentTargets(*SILENT_S)  # targets that do not confirm, whichever worker has asked
        self.refusals = RefusingQueues("", Readiness()) if refusals is None else refusals
        self._passing: dict[str, Passing] = {}

    def later(self, resource: Resource, job: Job, then: Callable[[Job, str | Refusal], None]) -> None:
        """Call `then(job, resolved)` once the resource is there, or `then(job, Refusal)` where it cannot be."""
        absent = self._absent.get(resource)
        if absent is not None and absent[0] > time.monotonic():
            then(job, absent[1])
            return
        waiting = self._waiting.get(resource)
        if waiting is not None:
            waiting.append((job, then))
            return
        self._waiting[resource] = [(job, then)]
        self._spawn(self._ensure(resource))

    async def prepare(self, resources: Iterable[Resource]) -> None:
        """What can be made before the first letter is there; TopologyError where the broker does not let us.

        Queues that do not exist yet get their dead-letter queue with their first letter; a missing exchange is said.
        """
        for resource in resources:
            if resource in self.known or (resource[0] == "dlq" and not await self._lasting(resource[3])):
                continue
            try:
                async with asyncio.timeout(WITHIN_S):
                    self.known[resource] = await self._make(resource)
            except Refusal as refusal:
                if refusal.final:
                    raise TopologyError(str(refusal)) from refusal
                log.warning("policies.target_missing", problem=str(refusal), fate="its letters would wait, then park")

    async def mend(self) -> None:
        """Declare what is missing of our own queues, where we may."""
        with contextlib.suppress(TopologyError, TimeoutError, OSError):
            await self._topology.ensure_core()

    def forget(self, resource: Resource | None) -> None:
        """A copy came back: look again before the next."""
        if resource is not None:
            self.known.forget(resource)
            self._was_there.forget(resource)

    async def _ensure(self, resource: Resource) -> None:
        outcome: str | Refusal
        if self._idle is not None and resource[0] in {"dlq", "return"}:
            await self._idle.in_use.unblocked()
        believed = self._believed(resource)
        try:
            async with asyncio.timeout(WITHIN_S if believed is None else CONFIRMS_S), self._room:
                outcome = await self._make(resource)
            self.known[resource] = self._was_there[resource] = outcome
        except Refusal as refusal:
            outcome = Refusal(refusal.cause, str(refusal), final=refusal.final)  # without its frames and all they hold
        except Forbidden as error:
            outcome = Refusal(Cause.FORBIDDEN, str(error))
        except (TopologyError, LinkError, TimeoutError, OSError) as error:
            outcome = Refusal(Cause.UNROUTABLE, str(error) or "no answer from the broker")
            if isinstance(error, TimeoutError) and believed is not None:
                outcome = self.known[resource] = believed
        if isinstance(outcome, Refusal):
            self._absent[resource] = (time.monotonic() + ABSENT_S, outcome)
        else:
            self._absent.forget(resource)
        for job, then in self._waiting.pop(resource, []):
            then(job, outcome)

    def _believed(self, resource: Resource) -> str | None:
        """What it was resolved to before, where nobody deletes it meanwhile: what is gone comes back as unroutable."""
        is_deleted = self._idle is not None and self._idle.deletes()
        return None if is_deleted else self._was_there.get(resource)

    async def _make(self, resource: Resource) -> str:
        match resource:
            case ("rung", ms):
                await self._topology.ensure_rung(int(ms))
                return ms
            case ("return", queue, *declared):
                if declared and await self._kind_of(queue) == STREAM:
                    text = f"{queue!r} is a stream: what is returned to it is new to all who read it"
                    raise Refusal(Cause.UNROUTABLE, text, final=True)
                async with self._turn(queue):
                    if self._idle is not None and self._idle.may_be_deleted(queue):
                        await self._idle.in_use.hold(queue)
                    return await self._bind(queue)
            case ("exchange", name):
                if not await self._topology.exchange_exists(name):
                    raise Refusal(Cause.MISSING_EXCHANGE, f"exchange {name!r} does not exist")
                return name
            case ("called", name, failed_queue, shared):
                return name if await self._lasting(failed_queue) else shared
            case ("dlq", name, exchange, failed_queue, kind, shared, kept):
                lasting = await self._lasting(failed_queue)
                return await self._kept_while_used(name if lasting else shared, exchange, kind, failed_queue, kept)
        raise AssertionError(resource)

    async def _bind(self, queue: str) -> str:
        try:
            await self._topology.ensure_return_binding(queue)
        except QueueMissing as error:
            raise Refusal(Cause.UNROUTABLE, str(error)) from error
        except QueueOwn as error:
            raise Refusal(Cause.FORBIDDEN, str(error), final=True) from error
        except QueueExclusive:
            return PLAIN
        return self._names.return_key(queue)

    def _turn(self, queue: str) -> asyncio.Lock:
        """What keeps the making and the deleting of one queue apart; nothing is awaited between it and `known`."""
        return self._turns.setdefault(queue, asyncio.Lock())

    async def _kept_while_used(self, name: str, exchange: str, kind: str, failed_queue: str, kept: str) -> str:
        """The queue is there, and stays as long as it is known here."""
        async with self._turn(name):
            if self._idle is not None and self._idle.deletes():
                await self._idle.in_use.hold(name)
            made = await self._dead_letter_queue(name, exchange, kind, kept)
            self._passes(made, failed_queue, kept if not exchange else STAYS)
        return made

    async def _dead_letter_queue(self, name: str, exchange: str, kind: str, kept: str) -> str:
        if name not in self._created:
            await self._created.count(self._list_created)
        known, full = name in self._created, len(self._created) >= self._max_queues
        if not known and full and not await self._topology.queue_exists(name):
            text = f"{name!r} not created: MAX_DEAD_LETTER_QUEUES={self._max_queues}"
            raise Refusal(Cause.UNROUTABLE, text, final=True)
        if not full:  # else it is there, and was not made by us
            self._created.add(name)  # before it is there: others are asked for meanwhile
        try:
            retention, fifo, _ = how_made(kept)
            await self._topology.ensure_dead_letter_queue(name, kind, exchange or None, retention, fifo=fifo)
        except TopologyError:  # after any other error it may be there
            if not known:
                self._created.discard(name)
            raise
        return name

    def _passes(self, name: str, failed_queue: str, kept: str) -> None:
        """What was made last says whether the queue is deleted once it is idle."""
        if reap_ms := how_made(kept)[2]:
            self._passing[name] = Passing(failed_queue, reap_ms / 1000, time.monotonic())
        elif self._passing.pop(name, None) is not None:
            self._unlearn({name})

    def renew(self) -> None:
        """Other policies are in force: with its next letter each such queue is made anew, and that says it anew."""
        deletes = self._idle is not None and self._idle.deletes()
        self._unlearn({*self.known.values()} if deletes else self._passing)

    async def reap(self, policies_of: Callable[[str], Iterable[Effective]]) -> None:
        """Delete each auto-created classic dead-letter queue that was empty and unused for as long as its policy says.

        No letter of ours is on its way to it then, and no other router publishes to it: see in_use.py. `policies_of`:
        what is in force for the letters of a queue; one that no policy wants deleted any more stays.
        """
        if self._idle is None or self._reaping:
            return
        self._reaping = True
        try:
            for name, candidate in [*self._passing.items()]:
                with contextlib.suppress(TopologyError, LinkError, TimeoutError):
                    await self._look(self._idle, name, candidate, policies_of)
        finally:
            self._reaping = False

    async def _look(
        self, idle: Idle, name: str, candidate: Passing, policies_of: Callable[[str], Iterable[Effective]]
    ) -> None:
        try:
            is_idle = await self._topology.is_idle(name)
        except QueueMissing:  # another router, or a person, was faster
            self._gone(name, candidate)
            return
        if not is_idle:
            candidate.idle_since_s = time.monotonic()
        elif time.monotonic() - candidate.idle_since_s >= candidate.after_s and self._passing.get(name) is candidate:
            after_s = reaped_after_s(policies_of(candidate.failed_queue), candidate.failed_queue, name)
            await self._reap(idle, name, candidate, after_s)

    async def _reap(self, idle: Idle, name: str, candidate: Passing, after_s: float | None) -> None:
        if after_s is None or idle.is_aimed_at(name):
            del self._passing[name]
        elif time.monotonic() - candidate.idle_since_s < after_s:
            candidate.after_s = after_s
        else:
            async with self._turn(name):
                await self._delete(idle, name, candidate)

    async def _delete(self, idle: Idle, name: str, candidate: Passing) -> None:
        """Letters that want it wait from here on; those on their way to it have arrived before it is deleted."""
        self._unlearn({name})
        candidate.idle_since_s = time.monotonic()  # where it stays it begins anew
        if await idle.settled():
            with contextlib.suppress(Busy):
                await idle.in_use.delete(name)
                self._gone(name, candidate)

    def _gone(self, name: str, candidate: Passing) -> None:
        if self._passing.get(name) is candidate:
            del self._passing[name]
            self._created.discard(name)
        self._unlearn({name})

    def lost(self, queue: str) -> None:
        """Its lock is no longer ours: it is made anew with its next letter, and locked."""
        self._unlearn({queue})

    def _unlearn(self, names: Container[str]) -> None:
        for resource in [resource for resource, made in self.known.items() if _place_of(resource, made) in names]:
            del self.known[resource]

    async def _lasting(self, queue: str) -> bool:
        """Only a queue that exists, and not for one connection only, gets a dead-letter queue of its own."""
        if as_read(queue).startswith("amq."):
            return False
        try:
            return await self._topology.queue_exists(queue)
        except QueueExclusive:
            return False


def _place_of(resource: Resource, made: str) -> str | None:
    """The queue that letters reach by this resource and that may be deleted; None for others."""
    return made if resource[0] == "dlq" else resource[1] if resource[0] == "return" else None


def reaped_after_s(policies: Iterable[Effective], failed_queue: str, name: str) -> float | None:
    """How long a dead-letter queue is idle until these policies have it deleted; None: none of them does."""
    makers = (policy for policy in policies if policy.auto_create and not policy.discard)
    named = (policy for policy in makers if name in {dead_letter_queue(policy, failed_queue), transient_queue(policy)})
    return max((ms / 1000 for policy in named if (ms := reap_ms(policy))), default=None)
