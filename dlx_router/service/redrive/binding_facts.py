"""What must be known of a queue before it is looked through; asked of the management API where there is one."""

import asyncio
import time
from collections.abc import Mapping
from enum import StrEnum
from typing import Any, Final, NamedTuple

from dlx_router.broker.link import Link
from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.topology import QueueExclusive
from dlx_router.core import attending
from dlx_router.core.attending import RETURNS_FREE_SINCE, QueueFacts, delivery_limit
from dlx_router.core.dead_letter_queues import is_made
from dlx_router.core.leases import longest_s
from dlx_router.service.queue_reads import ReadRefused
from dlx_router.service.redrive.context import Stopped, TaskContext
from dlx_router.service.redrive.scan_pass import MOST_S

NEAR: Final = 0.9  # of a target's limit
SURE_S: Final = 2.0
AGAIN_S: Final = 0.25
STREAM: Final = "stream"
NO_LIMIT: Final = 1_000_000  # nobody looks at a letter so often


UNKNOWN: Final = "set MANAGEMENT_URL, which tells its type and delivery-limit"


class Holding(StrEnum):
    """What is done with letters that stay."""

    GIVE_BACK = "give back"  # held unacked, then given back in their order
    ASIDE = "aside"  # moved to a side queue and back, because each return counts


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
        """Whether a message has few returns left."""
        return self.limit is not None and attending.is_near(count, self.limit)

    def is_spent(self, count: int, *, goes_on: bool) -> bool:
        """Whether a task must stop. `goes_on`: it was started again by itself; half of the returns are for people."""
        return self.is_near(count) or (goes_on and self.limit is not None and count >= max(self.limit // 2, 1))

    def why_not(self, queue: str, count: int) -> str:
        """Say why a task stops, and what to do."""
        return (
            f"letters of {queue!r} were returned {count} times, and the broker ends what is returned more than "
            f"{self.limit} times: {self.remedy}, and resume once what interrupted the task is mended"
        )


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


def holding(facts: Mapping[str, Any], version: tuple[int, ...]) -> Holding:
    """How letters of a queue are held of which the management API tells this; nothing: nobody knows its limit."""
    kind = facts.get("type")
    if kind == "classic" or version >= RETURNS_FREE_SINCE:
        return Holding.GIVE_BACK
    if kind is None:
        return Holding.ASIDE
    limit = delivery_limit(limits_of(facts), version)
    return Holding.GIVE_BACK if limit is None or limit >= NO_LIMIT else Holding.ASIDE


def version_of(link: Link) -> tuple[int, ...]:
    """Major and minor of the broker."""
    return link.version


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
    kind, version = facts.get("type"), version_of(link)
    if kind == STREAM:
        raise Stopped(f"{queue!r} is a stream: nothing can be taken from it")
    returns = returns_of(facts, version)
    is_unknown = kind is None and not (returns.is_free or is_internal(context, queue))
    if holding(facts, version) is Holding.ASIDE and (sifting or returns.limit == 0 or is_unknown):
        raise Stopped(
            f"{queue!r} counts each look as a delivery, and could end letters by it: {returns.remedy}"
            + (", or redrive all of it, without a limit" if returns.limit != 0 and not is_unknown else "")
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


async def room_of(management: Management | None, vhost: str, queue: str) -> int | None:
    """How many messages a queue takes, with a margin; None where there is no limit or none is known."""
    if management is None:
        return None
    try:
        limit = number_of(await management.queue_facts(vhost, queue), "max-length")
    except ManagementError:
        return None
    return None if limit is None else min(limit, max(int(limit * NEAR), 1))


def number_of(facts: Mapping[str, Any], key: str) -> int | None:
    """The smaller of argument and policy, as the broker takes it for numbers."""
    values = ((facts.get("arguments") or {}).get(f"x-{key}"), (facts.get("effective_policy_definition") or {}).get(key))
    numbers = [value for value in values if isinstance(value, int)]
    return min(numbers) if numbers else None
