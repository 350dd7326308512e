"""What a task must know of its queue, of the ways back to failed queues, and of the room at its targets."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from dlx_router.broker.link import Link
from dlx_router.broker.management import ManagementError
from dlx_router.broker.topology import Lost, QueueExclusive, QueueMissing, QueueOwn, TopologyError
from dlx_router.config import units
from dlx_router.core import attending
from dlx_router.core.attending import RETURNS_FREE_SINCE, QueueFacts, delivery_limit
from dlx_router.core.bounded import MIB, Bounded
from dlx_router.core.dead_letter_queues import is_made
from dlx_router.core.leases import longest_s
from dlx_router.core.letter import Letter
from dlx_router.redrive.selection import Verdict
from dlx_router.redrive.task import Spec, forbidden
from dlx_router.service.queue_reads import ReadRefused
from dlx_router.service.redrive.context import Stopped, TaskContext
from dlx_router.service.redrive.scan import MOST_S

NEAR: Final = 0.9  # of a target's limit
SURE_S: Final = 2.0
AGAIN_S: Final = 0.25
STREAM: Final = "stream"
NO_LIMIT: Final = 1_000_000  # nobody looks at a letter so often


UNKNOWN: Final = "set MANAGEMENT_URL, which tells its type and delivery-limit"


class Returns(NamedTuple):
    """How often messages of a queue may go back. `limit`: what returns more often the broker ends; None: any number.

    `is_free`: basic.nack is no return (4.3), only a lost connection is. `remedy`: how to raise the limit.
    """

    limit: int | None = None
    is_free: bool = True
    remedy: str = attending.RAISE

    def here(self, shown: int) -> int:
        """Return how often a message was returned in this queue that shows so many returns.

        On 4.0 to 4.2 it shows those of the quorum queue that it came from until its first return here, and the broker
        counts these from 0 (`rabbit_fifo_client:add_delivery_count_header`, `rabbit_fifo:return_one`). More than the
        limit are surely those.
        """
        return 0 if not self.is_free and self.limit is not None and shown > self.limit else shown

    def is_near(self, count: int) -> bool:
        """Whether a message has few returns left: then a task stops."""
        return self.limit is not None and attending.is_near(count, self.limit)


def returns_of(facts: Mapping[str, Any], version: tuple[int, ...]) -> Returns:
    """Return the limits of a queue that the management API describes so; nothing: it may be a quorum queue."""
    is_free = version >= RETURNS_FREE_SINCE
    if facts.get("type") is None:
        return Returns(attending.unknown_limit(version), is_free, UNKNOWN)
    limit = delivery_limit(known := limits_of(facts), version)
    return Returns() if limit is None else Returns(limit, is_free, attending.remedy(known, version))


def limits_of(facts: Mapping[str, Any]) -> QueueFacts:
    """What of the management API's answer says how many returns a queue allows; nothing: as if quorum."""
    return attending.facts_of(facts)._replace(kind=str(facts.get("type", "quorum")))


class Bounds(NamedTuple):
    """What a look must keep to. `most_s`: how long it may hold letters; then the broker would soon end its consumer."""

    most_s: float = MOST_S
    returns: Returns = Returns()


def counts_returns(facts: Mapping[str, Any], version: tuple[int, ...]) -> bool:
    """Return whether each look at a letter brings it nearer to a limit; no facts: its limit is unknown."""
    kind = facts.get("type")
    if kind == "classic" or version >= RETURNS_FREE_SINCE:
        return False
    limit = delivery_limit(limits_of(facts), version)
    return kind is None or (limit is not None and limit < NO_LIMIT)


async def facts_of(context: TaskContext, queue: str) -> Mapping[str, Any]:
    """What the management API says of a queue; empty without one."""
    if context.management is None:
        return {}
    try:
        return await context.management.queue_facts(context.login.vhost, queue)
    except ManagementError:
        return {}


async def see_to_holding(context: TaskContext, link: Link, queue: str, *, sifting: bool) -> Bounds:
    """How long letters of this queue may be held, and how often returned.

    Stopped where nothing can be taken, or letters that stay could be ended by being looked at: `sifting`, or at once.
    """
    try:
        facts = await context.reads.admit(context.topology, queue)
        await context.reads.check_head(link, queue, facts)
    except ReadRefused as error:
        raise Stopped(str(error)) from None
    kind, version = facts.get("type"), link.version
    if kind == STREAM:
        raise Stopped(f"{queue!r} is a stream: nothing can be taken from it")
    returns = returns_of(facts, version)
    is_unknown = kind is None and not (returns.is_free or is_internal(context, queue))
    is_low = returns.limit is not None and returns.limit <= attending.NEAR
    if counts_returns(facts, version) and (sifting or is_low or is_unknown):
        instead = "" if is_low or is_unknown else ", or redrive all of it, without a limit"
        raise Stopped(
            f"{queue!r} counts each look as a delivery, and could end letters by it: {returns.remedy}{instead}"
        )
    if (queue, returns.limit) in context.reads.near_limit:
        raise Stopped(f"some letters of {queue!r} are near its delivery limit of {returns.limit}: {returns.remedy}")
    own_ms = number_of(facts, "consumer-timeout")
    return Bounds(min(MOST_S, longest_s(kind, version, timeout_ms=own_ms, expires_ms=None)), returns)


def is_internal(context: TaskContext, queue: str) -> bool:
    """Whether the router declares the queue, and so without a delivery limit."""
    in_force = context.in_force()
    return context.names.is_own(queue) or is_made(queue, in_force.policies, in_force.policies_of)


async def depth_of(context: TaskContext, queue: str) -> int:
    """How many letters are ready in a queue that nobody needs to consume. Stopped where there is no such queue.

    That it has nothing and nobody is believed once it was said for SURE_S: see `ready_in`.
    """
    until = time.monotonic() + SURE_S
    while (ready := await ready_in(context, queue)) is None and time.monotonic() < until:  # noqa: ASYNC110 - the broker tells nobody
        await asyncio.sleep(AGAIN_S)
    return ready or 0


async def ready_in(context: TaskContext, queue: str) -> int | None:
    """How many letters are ready; None where it has nothing and nobody. Stopped where there is no such queue.

    A quorum queue that has much to do, as when it takes back what was held, or that has no leader, is said to have
    neither messages nor consumers: the broker waits 250 ms for its answer (`rabbit_quorum_queue:stat`). TopologyError
    where it does not let us look just now.
    """
    ready, consumers = await _counted(context, queue)
    return ready if ready or consumers else None


async def others_at(context: TaskContext, queue: str, own: int) -> int:
    """How many consume the queue besides our leases and the `own` consumers of a scan. Raises as `ready_in`."""
    _, consumers = await _counted(context, queue)
    return max(consumers - own - context.leased(queue), 0)


async def _counted(context: TaskContext, queue: str) -> tuple[int, int]:
    counts, missing = await context.topology.queue_counts([queue])
    if queue in counts:
        return counts[queue]
    try:
        if queue in missing or not await context.topology.queue_exists(queue):
            raise Stopped(f"queue {queue!r} does not exist")
    except QueueExclusive as error:
        raise Stopped(f"queue {queue!r} cannot be looked at: {error}") from None
    return 0, 0  # it answers again, and is asked again


def number_of(facts: Mapping[str, Any], key: str) -> int | None:
    """The smaller of argument and policy, as the broker takes it for numbers."""
    values = ((facts.get("arguments") or {}).get(f"x-{key}"), (facts.get("effective_policy_definition") or {}).get(key))
    numbers = [value for value in values if isinstance(value, int)]
    return min(numbers) if numbers else None


AGAIN: Final = "; it is tried again"  # how what the broker said ends; no task tries it again


class Bindings:
    """Each is asked for once, as long as there is room to remember it."""

    def __init__(self, spec: Spec, context: TaskContext, keep: Callable[[str], Awaitable[None]]) -> None:
        """`keep(queue)`: no router deletes it as an idle one while letters go there."""
        self._spec, self._context, self._keep = spec, context, keep
        self._ways: Bounded[str, str | None] = Bounded(most=10_000, most_bytes=4 * MIB)
        self._why: Bounded[str, str] = Bounded(most=10_000, most_bytes=4 * MIB)

    async def see_to_destination(self) -> None:
        """Stopped where the task names a destination that does not exist, or is the router's own."""
        to = self._spec.to
        if to is None or self._spec.dry_run:
            return
        if why := forbidden(to, self._context.names):  # by an older version, which let it pass
            raise Stopped(f"{why}; all letters stay")
        topology = self._context.topology
        if not to.exchange:
            await self._keep(to.routing_key)
        there = await (topology.exchange_exists(to.exchange) if to.exchange else topology.queue_exists(to.routing_key))
        if not there:
            kind, name = ("exchange", to.exchange) if to.exchange else ("queue", to.routing_key)
            raise Stopped(f"the destination, {kind} {name!r}, does not exist; all letters stay")

    async def to(self, queue: str) -> str | None:
        """The binding key that leads to a failed queue, "" by its name; None where there is no such queue."""
        if queue in self._ways:
            return self._ways[queue]
        way = self._ways[queue] = await self._way(queue)
        return way

    async def _way(self, queue: str) -> str | None:
        if (await facts_of(self._context, queue)).get("type") == STREAM:
            self._why[queue] = (
                f"queue {queue!r} is a stream, and all who read it would see them anew; give a destination"
            )
            return None
        await self._keep(queue)
        try:
            await self._context.topology.ensure_return_binding(queue)
        except QueueMissing:
            return None
        except QueueOwn as error:
            self._why[queue] = str(error)
            return None
        except QueueExclusive:
            return ""
        except Lost:
            raise
        except TopologyError as error:  # its letters stay, or it alone would keep all others from going
            self._why[queue] = f"queue {queue!r} cannot be bound: {str(error).removesuffix(AGAIN)}"
            return None
        return self._context.names.return_key(queue)

    def why_not(self, queue: str) -> str:
        """Why letters of this failed queue stay."""
        return self._why.get(queue, f"queue {queue!r} does not exist")

    def why_stays(self, letter: Letter, verdict: Verdict) -> str:
        """Why a letter that the task may mean cannot go; "" where nothing is known against it."""
        if verdict is Verdict.HOMELESS:
            return "nothing tells which queue they failed at; give a destination"
        if verdict is Verdict.EQUAL:
            return "equal byte for byte to a letter that goes, and an id moves one; a group or a filter moves all"
        if verdict is Verdict.TAKE and self._ways.get(letter.failed_queue, "") is None:
            return self.why_not(letter.failed_queue)
        return ""

    def is_gone(self, queue: str) -> None:
        """A copy came back: there is no such queue any more."""
        self._ways[queue] = None


LOOK_S: Final = 1.0


class TargetRoom:
    """Room at queues with a max-length, which delete or move messages beyond it. Of one run of a task.

    A queue is counted before its first letter, then every LOOK_S, and where its room is used up. Between two counts it
    gets no more than the last one found room for; copies on their way may not be counted yet, and are taken off.
    """

    def __init__(self, context: TaskContext) -> None:
        self._context = context
        self._limits: Bounded[str, int | None] = Bounded(most=10_000, most_bytes=4 * MIB)
        self._counted: Bounded[str, tuple[float, int]] = Bounded(most=10_000, most_bytes=4 * MIB)

    async def admits(self, target: str, pending: int, now: float) -> bool:
        """Whether one more copy may go to this queue now; it counts as gone. Stopped where the queue is full."""
        if target not in self._limits:
            length = number_of(await facts_of(self._context, target), "max-length")
            self._limits[target] = None if length is None else min(length, max(int(length * NEAR), 1))
        limit = self._limits[target]
        if limit is None:
            return True
        since_s, room = self._counted.get(target, (0.0, 0))
        if now - since_s > (LOOK_S if room > 0 else LOOK_S / 10):
            since_s, room = now, await self._room(target, limit) - pending
        self._counted[target] = since_s, room - (room > 0)
        return room > 0

    async def _room(self, target: str, limit: int) -> int:
        depth = (await self._context.topology.depths([target])).get(target, 0)
        if depth >= limit:
            held = units.number_of(depth, "message")
            raise Stopped(f"queue {target!r} holds {held}, its bound is {limit}; resume when it has room")
        return limit - depth
