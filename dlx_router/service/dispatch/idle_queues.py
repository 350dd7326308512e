"""Idle dead-letter queues: what a session knows of those that policies want deleted."""

import asyncio
from collections.abc import Callable, Sequence
from typing import Final

from dlx_router.core.dead_letter_queues import deletes, is_made, is_named
from dlx_router.service.dispatch.in_use import InUse
from dlx_router.service.dispatch.worker import Worker
from dlx_router.service.inflight.in_force import InForce

SETTLED_S: Final = 5.0  # letters that want the queue wait as long
LOOK_S: Final = 0.01


class IdleQueues:
    """Of one session; `in_force()` is what is in force now."""

    def __init__(
        self, in_force: Callable[[], InForce], vhost: str, workers: Callable[[], Sequence[Worker]], in_use: InUse
    ) -> None:
        self._in_force, self._vhost, self._workers, self.in_use = in_force, vhost, workers, in_use

    def deletes(self) -> bool:
        """Whether any policy in force has dead-letter queues deleted."""
        return deletes(self._in_force().policies)

    def may_be_deleted(self, queue: str) -> bool:
        """Whether it is a dead-letter queue that a router may delete."""
        in_force = self._in_force()
        return self.deletes() and is_made(queue, in_force.policies, in_force.policies_of)

    def is_aimed_at(self, queue: str) -> bool:
        """Whether letters go there by a policy that names it, and so past what is known here."""
        return is_named(queue, self._in_force().policies, self._vhost)

    async def settled(self) -> bool:
        """Once all that was published before has its answer; False where that takes too long."""
        marks = [(worker, worker.mark()) for worker in self._workers()]
        try:
            async with asyncio.timeout(SETTLED_S):
                while not all(worker.has_answered(mark) for worker, mark in marks):  # noqa: ASYNC110 - answers are the hot path
                    await asyncio.sleep(LOOK_S)
        except TimeoutError:
            return False
        return True
