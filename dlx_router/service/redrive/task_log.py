"""The book of one vhost's tasks: what is known of them, and how the journal is told.

Every change is an event in the journal before it is said. Events of an older term lose against those of a newer one,
and a router that loses its leadership discards those that it has not sent, so it cannot undo a newer leader's change.
"""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from typing import Final

from dlx_router.journal.batch import Batch, sure
from dlx_router.redrive.task import AT_WORK, State, Task, TaskError, changed
from dlx_router.redrive.task_events import MARK, line
from dlx_router.service.redrive.context import TaskContext

WITHIN_S: Final = 15.0
TOLD_S: Final = 6.0  # an answer of the API takes ten at most, and a worker is halted first
LATE: Final = "the journal did not confirm in time; see /readyz, and ask again"
MAX_KEPT: Final = 1000


class NotLeader(Exception):
    """Another router leads, or this one does not know all yet; asking again later, or another, helps."""


class Conflict(TaskError):
    """Another task has the queue."""


class UnknownTask(TaskError):
    """There is no such task, queue or vhost."""


class TaskLog:
    """`tools` None: this router does not lead."""

    def __init__(self, vhost: str) -> None:
        self.vhost = vhost
        self.context: TaskContext | None = None
        self.term = 0
        self.tasks: dict[str, Task] = {}
        self._untold: set[str] = set()

    def known(self, task_id: str) -> Task:
        """The task, or UnknownTask."""
        try:
            return self.tasks[task_id]
        except KeyError:
            raise UnknownTask(
                f"no task {task_id!r} in vhost {self.vhost!r}; `dlx-router redrive list` shows all"
            ) from None

    def learn(self, tasks: Mapping[str, Task]) -> None:
        """What the journal says of tasks. What is known of a later moment stays: reading the journal takes time."""
        for name, task in tasks.items():
            known = self.tasks.get(name)
            if known is None or (task.term, task.change) > (known.term, known.change):
                self.tasks[name] = task
                self._untold.discard(name)
        self.term = max([self.term, *(task.term + 1 for task in tasks.values())])  # another's clock may be ahead
        self._forget_oldest()

    def lose(self, context: TaskContext) -> None:
        """End this leadership: write no more events of tasks, and discard those that the stream has not confirmed."""
        self.context = None
        context.journal.discard_lines(MARK)

    def see_free(self, queue: str, task_id: str = "") -> None:
        """Conflict where another task than this has the queue."""
        for other in self.tasks.values():
            if other.is_active and other.spec.queue == queue and other.id != task_id:
                raise Conflict(f"queue {queue!r} has task {other.id} ({other.state}); cancel it or wait for it")

    async def add(self, task: Task) -> None:
        """A new task. Conflict: its queue is taken; NotLeader: the journal takes nothing. Then there is none."""
        context = self._writing()
        self.see_free(task.spec.queue)  # here, where nothing is waited for between the look and the task
        self.tasks[task.id] = task
        self._forget_oldest()
        try:
            await self._confirmed(task, context)
        except BaseException:
            self.tasks.pop(task.id, None)
            over = replace(changed(task, State.CANCELLED, task.changed_ms, LATE), term=self.term)
            # What was said may still get there; this comes behind it.
            self._record(over, context)
            raise

    def _forget_oldest(self) -> None:
        """The journal keeps them; memory need not."""
        excess = len(self.tasks) - MAX_KEPT
        if excess <= 0:
            return
        over = sorted((task for task in self.tasks.values() if not task.is_active), key=lambda task: task.created_ms)
        for task in over[:excess]:
            del self.tasks[task.id]
            self._untold.discard(task.id)

    async def store(self, task: Task) -> None:
        """Remember, and tell the journal. NotLeader where that takes nothing: it is remembered, and not `is_told`."""
        task = replace(task, term=self.term)
        self.tasks[task.id] = task
        self._untold.add(task.id)
        await self._confirmed(task, self._writing())
        if self.tasks.get(task.id) is task:
            self._untold.discard(task.id)

    async def store_untold(self) -> None:
        """Write the changes that an earlier leadership of this router remembered and could not write. NotLeader."""
        for task in [self.tasks[task_id] for task_id in self._untold]:
            if task.state not in AT_WORK:  # what is at work tells its progress
                await self.store(task)

    def is_told(self, task_id: str) -> bool:
        """Whether the journal has what is remembered of the task."""
        return task_id not in self._untold

    def _writing(self) -> TaskContext:
        context = self.context
        if context is None:
            raise NotLeader(f"vhost {self.vhost!r}: this router leads no more")
        if not context.journal.is_working:
            raise NotLeader("the journal cannot be written just now; see /readyz, and ask again")
        return context

    @staticmethod
    def _record(task: Task, context: TaskContext) -> Batch:
        return context.journal.record(line(task, context.router_id, context.sign_with()), of_task=True)

    async def _confirmed(self, task: Task, context: TaskContext) -> None:
        """The stream has it. NotLeader where it does not take it: what nobody can know after a restart is not begun."""
        batch = self._record(task, context)
        try:
            async with asyncio.timeout(TOLD_S):
                is_sure = await sure([batch])
        except TimeoutError:
            raise NotLeader(LATE) from None
        if self.context is not context:
            raise NotLeader("this router lost its leadership, and its event was discarded; ask the new leader")
        if not is_sure:
            raise NotLeader("the journal is too far behind to take it; see /readyz, and ask again")
