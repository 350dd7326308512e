"""The ways of a task's letters: which binding leads back to each failed queue, and how much room there is."""

from typing import Final

from dlx_router.broker.topology import QueueExclusive, QueueMissing
from dlx_router.operate.redrive.task import Kind, Spec
from dlx_router.service.redriving.facts import STREAM, facts_of, room_of
from dlx_router.service.redriving.tools import Stopped, Tools

LOOK_S: Final = 1.0


class Ways:
    """Each is asked for once."""

    def __init__(self, spec: Spec, tools: Tools) -> None:
        self._spec, self._tools = spec, tools
        self._ways: dict[str, str | None] = {}
        self._why: dict[str, str] = {}
        self._rooms: dict[str, int | None] = {}
        self._minded_s = 0.0

    async def see_to_destination(self) -> None:
        """Stopped where the task names a destination that does not exist."""
        to = self._spec.to
        if to is None or self._spec.dry_run:
            return
        topology = self._tools.topology
        there = await (topology.exchange_exists(to.exchange) if to.exchange else topology.queue_exists(to.routing_key))
        if not there:
            kind, name = ("exchange", to.exchange) if to.exchange else ("queue", to.routing_key)
            raise Stopped(f"the destination, {kind} {name!r}, does not exist; all letters stay")

    async def to(self, queue: str) -> str | None:
        """The binding key that leads to a failed queue, "" by its name; None where there is no such queue."""
        if queue not in self._ways:
            self._ways[queue] = await self._way(queue)
        return self._ways[queue]

    async def _way(self, queue: str) -> str | None:
        if (await facts_of(self._tools, queue)).get("type") == STREAM:
            self._why[queue] = (
                f"queue {queue!r} is a stream, and all who read it would see them anew; give a destination"
            )
            return None
        try:
            await self._tools.topology.ensure_return_binding(queue)
        except QueueMissing:
            return None
        except QueueExclusive:
            return ""
        return self._tools.names.return_key(queue)

    def why_not(self, queue: str) -> str:
        """Why letters of this failed queue stay."""
        return self._why.get(queue, f"queue {queue!r} does not exist")

    def is_known_gone(self, queue: str) -> bool:
        """Whether it was asked for and is not there."""
        return self._ways.get(queue, "") is None

    def is_gone(self, queue: str) -> None:
        """A copy came back: there is no such queue any more."""
        self._ways[queue] = None

    async def mind(self, now: float) -> None:
        """Stopped where a target nears its limit: what it refuses or drops was better left here."""
        if now - self._minded_s < LOOK_S or self._spec.kind is not Kind.REDRIVE:
            return
        self._minded_s = now
        for queue in self._targets:
            room = await self._room(queue)
            depth = 0 if room is None else (await self._tools.topology.depths([queue])).get(queue, 0)
            if room is not None and depth >= room:
                raise Stopped(f"queue {queue!r} holds {depth} messages, its bound is {room}; resume when it has room")

    async def _room(self, queue: str) -> int | None:
        if queue not in self._rooms:
            found = await room_of(self._tools.management, self._tools.login.vhost, queue)
            bounds = [one for one in (found, self._spec.max_target_depth or None) if one is not None]
            self._rooms[queue] = min(bounds) if bounds else None
        return self._rooms[queue]

    @property
    def _targets(self) -> list[str]:
        """Queues that letters went to."""
        to = self._spec.to
        if to is not None:
            return [] if to.exchange else [to.routing_key]
        return [queue for queue, way in self._ways.items() if way is not None]
