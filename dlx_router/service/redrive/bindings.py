"""The ways of a task's letters: which binding leads back to each failed queue."""

from collections.abc import Awaitable, Callable
from typing import Final

from dlx_router.broker.topology import Lost, QueueExclusive, QueueMissing, QueueOwn, TopologyError
from dlx_router.core.bounded import MIB, Bounded
from dlx_router.core.letter import Letter
from dlx_router.redrive.eligibility import Verdict
from dlx_router.redrive.task import Spec, forbidden
from dlx_router.service.redrive.binding_facts import STREAM, facts_of
from dlx_router.service.redrive.context import Stopped, TaskContext

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
        if verdict is Verdict.TAKE and self.is_known_gone(letter.failed_queue):
            return self.why_not(letter.failed_queue)
        return ""

    def is_known_gone(self, queue: str) -> bool:
        """Whether it was asked for and is not there."""
        return self._ways.get(queue, "") is None

    def is_gone(self, queue: str) -> None:
        """A copy came back: there is no such queue any more."""
        self._ways[queue] = None
