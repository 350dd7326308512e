"""The rooms of a task's targets: how many letters more each may get before it nears its limit.

A target is looked at before its first letter, then every LOOK_S, and where its room is used up. Between two looks it
gets no more than the last one found room for; what is on its way may not be counted yet, and is taken off.
"""

from typing import Final

from dlx_router.config.units import number_of
from dlx_router.core.bounded import MIB, Bounded
from dlx_router.redrive.task import Kind, Spec
from dlx_router.service.inflight.job import Job
from dlx_router.service.redrive.binding_facts import room_of
from dlx_router.service.redrive.context import Stopped, TaskContext

LOOK_S: Final = 1.0
LOOK_AGAIN_S: Final = 0.1


class TargetDepths:
    """Of one run of a task."""

    def __init__(self, spec: Spec, context: TaskContext) -> None:
        self._spec, self._context = spec, context
        self._bounds: Bounded[str, int | None] = Bounded(most=10_000, most_bytes=4 * MIB)
        self._left: Bounded[str, int] = Bounded(most=10_000, most_bytes=4 * MIB)
        self._looked_s: Bounded[str, float] = Bounded(most=10_000, most_bytes=4 * MIB)

    async def admits(self, job: Job, pending: int, now: float) -> bool:
        """Whether this letter may go now; it counts as gone. Stopped where its target is as full as it may be."""
        target = self._target(job)
        bound = None if target is None else await self._bound(target)
        if target is None or bound is None:
            return True
        since, left = now - self._looked_s.get(target, 0.0), self._left.get(target, 0)
        if target not in self._left or since > (LOOK_S if left > 0 else LOOK_AGAIN_S):
            left = await self._look(target, bound) - pending
            self._looked_s[target] = now
        self._left[target] = left - (left > 0)
        return left > 0

    async def _look(self, target: str, bound: int) -> int:
        depth = (await self._context.topology.depths([target])).get(target, 0)
        if depth >= bound:
            why = f"queue {target!r} holds {number_of(depth, 'message')}, its bound is {bound}; resume when it has room"
            raise Stopped(why)
        return bound - depth

    async def _bound(self, target: str) -> int | None:
        if target in self._bounds:
            return self._bounds[target]
        room = await room_of(self._context.management, self._context.login.vhost, target)
        bounds = [limit for limit in (room, self._spec.max_target_depth or None) if limit is not None]
        bound = self._bounds[target] = min(bounds, default=None)
        return bound

    def _target(self, job: Job) -> str | None:
        """The queue that it goes to; None where an exchange decides, or it has no limit that we would keep."""
        to, letter = self._spec.to, job.letter
        if self._spec.kind is not Kind.REDRIVE or letter is None:
            return None
        if to is None:
            return letter.failed_queue
        return None if to.exchange else to.routing_key
