"""Provision: what a copy needs in the broker exists before the copy is sent, checked once and remembered.

Publishing to a missing exchange closes the channel with hundreds of neighbours in doubt; a passive check costs one
round trip at first use. Absence is remembered for 5 s, so that a missing target costs its letters no check each.
"""

import asyncio
import contextlib
import time
from collections.abc import Awaitable, Callable, Container, Iterable
from dataclasses import dataclass
from typing import Final

from dlx_router.broker.topology import Forbidden, QueueExclusive, QueueMissing, QueueOwn, Topology, TopologyError
from dlx_router.core.bounded import MIB, Bounded
from dlx_router.core.limits import Retention
from dlx_router.core.names import Names, as_read
from dlx_router.core.policy import Effective
from dlx_router.core.publication import Publication, Way
from dlx_router.core.target import dead_letter_queue, transient_queue
from dlx_router.core.words import APPLICATION, Cause
from dlx_router.service.job import Job, Resource
from dlx_router.service.refusals import Refusals
from dlx_router.service.refusing import SILENT_S, Resting
from dlx_router.telemetry.logs import log
from dlx_router.telemetry.readiness import Readiness

ABSENT_S: Final = 5.0
WITHIN_S: Final = 15.0
AT_ONCE: Final = 32  # checks: each is a channel, and hundreds at once would all be too late
# Resolved to this where the default exchange leads to the queue: exclusive queues cannot be bound by others.
PLAIN: Final = ""
STREAM: Final = "stream"
DECLARED: Final = "declared"


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


async def unknown(_queue: str) -> str | None:
    """Nobody can say of what type the queue is."""
    return None


class Provision:
    """Known resources of one vhost, and the jobs that wait for others."""

    def __init__(
        self,
        topology: Topology,
        names: Names,
        max_queues: int,
        spawn: Callable[..., object],
        kind_of: Callable[[str], Awaitable[str | None]] = unknown,
        refusals: Refusals | None = None,
    ) -> None:
        """`kind_of(queue)`: its type, None where nobody can say."""
        # What is forgotten because there is too much is looked for again.
        self.known: Bounded[Resource, str] = Bounded(most=10_000, most_bytes=8 * MIB)
        self._absent: Bounded[Resource, tuple[float, Refusal]] = Bounded(
            most=4096, most_bytes=4 * MIB, weigh=lambda one: 512 + 4 * len(str(one[1]))
        )
        self._room = asyncio.Semaphore(AT_ONCE)
        self._waiting: dict[Resource, list[tuple[Job, Callable[[Job, str | Refusal], None]]]] = {}
        self._topology = self.topology = topology
        self._names = names
        self._max_queues = max_queues
        self._spawn, self._kind_of = spawn, kind_of
        self._created: set[str] = set()
        self.silent = Resting(SILENT_S)  # targets that do not confirm, whichever lane has asked
        self.refusals = Refusals("", Readiness()) if refusals is None else refusals
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

    async def _ensure(self, resource: Resource) -> None:
        outcome: str | Refusal
        try:
            async with asyncio.timeout(WITHIN_S), self._room:
                outcome = await self._make(resource)
            self.known[resource] = outcome
        except Refusal as refusal:
            outcome = Refusal(refusal.cause, str(refusal), final=refusal.final)  # without its frames and all they hold
        except Forbidden as error:
            outcome = Refusal(Cause.FORBIDDEN, str(error))
        except (TopologyError, TimeoutError, OSError) as error:
            outcome = Refusal(Cause.UNROUTABLE, str(error) or "no answer from the broker")
        if isinstance(outcome, Refusal):
            self._absent[resource] = (time.monotonic() + ABSENT_S, outcome)
        else:
            self._absent.forget(resource)
        for job, then in self._waiting.pop(resource, []):
            then(job, outcome)

    async def _make(self, resource: Resource) -> str:
        match resource:
            case ("rung", ms):
                await self._topology.ensure_rung(int(ms))
                return ms
            case ("return", queue, *declared):
                if declared and await self._kind_of(queue) == STREAM:
                    text = f"{queue!r} is a stream: what is returned to it is new to all who read it"
                    raise Refusal(Cause.UNROUTABLE, text, final=True)
                return await self._bind(queue)
            case ("exchange", name):
                if not await self._topology.exchange_exists(name):
                    raise Refusal(Cause.MISSING_EXCHANGE, f"exchange {name!r} does not exist")
                return name
            case ("called", name, failed_queue, shared):
                return name if await self._lasting(failed_queue) else shared
            case ("dlq", name, exchange, failed_queue, kind, shared, kept):
                lasting = await self._lasting(failed_queue)
                made = await self._dead_letter_queue(name if lasting else shared, exchange, kind, kept)
                self._passes(made, failed_queue, kept)
                return made
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

    async def _dead_letter_queue(self, name: str, exchange: str, kind: str, kept: str) -> str:
        known, full = name in self._created, len(self._created) >= self._max_queues
        if not known and full and not await self._topology.queue_exists(name):
            text = f"{name!r} not created: MAX_DEAD_LETTER_QUEUES={self._max_queues}"
            raise Refusal(Cause.UNROUTABLE, text, final=True)
        if not full:  # else it is there, and was not made by us
            self._created.add(name)  # before it is there: others are asked for meanwhile
        try:
            retention, fifo, _ = _read(kept)
            await self._topology.ensure_dead_letter_queue(name, kind, exchange or None, retention, fifo=fifo)
        except BaseException:
            if not known:
                self._created.discard(name)
            raise
        return name

    def _passes(self, name: str, failed_queue: str, kept: str) -> None:
        """What was made last says whether the queue is deleted once it is idle."""
        if reap_ms := _read(kept)[2]:
            self._passing[name] = Passing(failed_queue, reap_ms / 1000, time.monotonic())
        elif self._passing.pop(name, None) is not None:
            self._unlearn({name})

    def renew(self) -> None:
        """Other policies are in force: with its next letter each such queue is made anew, and that says it anew."""
        self._unlearn(self._passing)

    async def reap(self, policies_of: Callable[[str], Iterable[Effective]]) -> None:
        """Delete each auto-created classic dead-letter queue that was empty and unused for as long as its policy says.

        The broker looks once more, in the same instant: a letter that has just come keeps its queue. `policies_of`:
        what is in force for the letters of a queue; one that no policy wants deleted any more stays.
        """
        for name, one in [*self._passing.items()]:
            with contextlib.suppress(TopologyError):
                if not await self._topology.is_idle(name):
                    one.idle_since_s = time.monotonic()
                elif time.monotonic() - one.idle_since_s >= one.after_s and self._passing.get(name) is one:
                    await self._reap(name, one, reaped_after_s(policies_of(one.failed_queue), one.failed_queue, name))

    async def _reap(self, name: str, one: Passing, after_s: float | None) -> None:
        if after_s is None:
            del self._passing[name]
        elif time.monotonic() - one.idle_since_s < after_s:
            one.after_s = after_s
        else:
            await self._topology.delete_idle(name)
            self._passing.pop(name, None)
            self._created.discard(name)
            self._unlearn({name})

    def _unlearn(self, names: Container[str]) -> None:
        for resource in [one for one, made in self.known.items() if one[0] == "dlq" and made in names]:
            del self.known[resource]

    async def _lasting(self, queue: str) -> bool:
        """Only a queue that exists, and not for one connection only, gets a dead-letter queue of its own."""
        if as_read(queue).startswith("amq."):
            return False
        try:
            return await self._topology.queue_exists(queue)
        except QueueExclusive:
            return False


def dead_letter_resource(policy: Effective, name: str, exchange: str, failed_queue: str) -> Resource:
    """An auto-created dead-letter queue, and how it is made, as a resource."""
    limits = ",".join("" if one is None else str(one) for one in policy.retention)
    kept = f"{limits},{'fifo' if policy.fifo else ''},{_reap_ms(policy) or ''}"
    return ("dlq", name, exchange, failed_queue, policy.dlq_type, transient_queue(policy), kept)


def called(resource: Resource) -> Resource:
    """By which name a dead-letter queue would be made, as a resource of its own: nothing is made for it."""
    _, name, _, failed_queue, _, shared, _ = resource
    return ("called", name, failed_queue, shared)


def _reap_ms(policy: Effective) -> int:
    """0: never."""
    return policy.auto_delete_ms or 0 if policy.dlq_type == "classic" else 0


def reaped_after_s(policies: Iterable[Effective], failed_queue: str, name: str) -> float | None:
    """How long a dead-letter queue is idle until these policies have it deleted; None: none of them does."""
    makers = (one for one in policies if one.auto_create and not one.discard)
    named = (one for one in makers if name in {dead_letter_queue(one, failed_queue), transient_queue(one)})
    return max((ms / 1000 for one in named if (ms := _reap_ms(one))), default=None)


def _read(kept: str) -> tuple[Retention, bool, int]:
    *limits, order, reap = kept.split(",")
    return Retention(*(int(one) if one else None for one in limits)), order == "fifo", int(reap or 0)


def resource_of(copy: Publication, policy: Effective | None) -> Resource | None:
    """What must exist in the broker before the copy can be sent; None for what always does."""
    match copy.way:
        case Way.RUNG:
            return ("rung", str(copy.rung_ms))
        case Way.RETURN if copy.bcc is not None:
            declared = copy.record.reason.startswith(APPLICATION)  # no other death is at a stream
            return ("return", copy.record.failed_queue, *([DECLARED] if declared else []))
        case Way.TARGET if copy.needs_queue is not None and policy is not None:
            return dead_letter_resource(policy, copy.needs_queue, copy.exchange, copy.record.failed_queue)
        case Way.TARGET | Way.FORWARD if copy.exchange:
            return ("exchange", copy.exchange)
        case _:
            return None
