"""The tasks of one vhost: who asks, and the leader's answers. Only the leader works and answers."""

import asyncio
import contextlib
import secrets
from collections.abc import Callable
from dataclasses import replace

from dlx_router.broker.topology import TopologyError
from dlx_router.core.letter import Letter
from dlx_router.core.names import Names
from dlx_router.redrive.canary import is_objected
from dlx_router.redrive.letter_edits import Edit
from dlx_router.redrive.letter_edits import check as checked
from dlx_router.redrive.task import (
    AT_WORK,
    Kind,
    Spec,
    State,
    Task,
    TaskError,
    changed,
    check,
    forbidden,
    unless_abandoned,
)
from dlx_router.service.redrive import replay
from dlx_router.service.redrive.context import TaskContext
from dlx_router.service.redrive.export_stream import ExportTaken
from dlx_router.service.redrive.preview import Preview, previewed, see_to_letters
from dlx_router.service.redrive.runner import TaskRunner, exports
from dlx_router.service.redrive.task_log import WITHIN_S, NotLeader, TaskLog, UnknownTask
from dlx_router.telemetry.logs import log
from dlx_router.telemetry.wall_clock import wall_ms

Compile = Callable[[str], Callable[[Letter], bool]]


class Tasks:
    """`lead` makes it the leader until it is cancelled."""

    def __init__(
        self, vhost: str, compile_filter: Compile, *, journal_is_on: bool, not_leading: Callable[[], str]
    ) -> None:
        self.vhost, self._not_leading = vhost, not_leading
        self._compile, self._journal_is_on = compile_filter, journal_is_on
        self._task_log = TaskLog(vhost)
        self._runner = TaskRunner(self._task_log, self._holds)
        self._known = asyncio.Event()

    # -- leading ------------------------------------------------------------------------------------------------

    async def lead(self, context: TaskContext, term: int) -> None:
        """Know the tasks, go on with those at work, answer; until cancelled. What is unsettled then goes back."""
        if not self._journal_is_on:
            return
        self._task_log.context, self._task_log.term = context, term
        try:
            await self._learn(context)
            await asyncio.Event().wait()
        finally:
            self._task_log.lose(context)
            await self.stop()

    async def stop(self, within_s: float = WITHIN_S) -> None:
        """Work no more, after so long at most: what is unsettled goes back, the tasks stay for the next leader."""
        self._task_log.context = None
        self._known.clear()
        await self._runner.stop(within_s)

    async def _learn(self, context: TaskContext) -> None:
        async with context.reading("replay") as link:
            tasks = await replay.all_tasks(
                link, context.journal, context.sign_with(), lambda: context.metrics.in_flight().get(self.vhost, 0) > 0
            )
        now = wall_ms()  # the key is of all vhosts
        tasks = {name: unless_abandoned(task, now) for name, task in tasks.items() if task.spec.vhost == self.vhost}
        self._task_log.learn(tasks)
        await self._task_log.store_untold()
        for name in tasks:
            known = self._task_log.tasks.get(name)  # of the many that are over some were forgotten
            if known is not None and known.state in AT_WORK:
                self._runner.take_over(name, context)
        self._known.set()
        if self._runner.at_work:
            log.info("redrive.resumed", vhost=self.vhost, tasks=self._runner.at_work, term=self._task_log.term)

    # -- asking -------------------------------------------------------------------------------------------------

    async def await_known(self, within_s: float) -> None:
        """Until all tasks are known; whoever asks after that time is told that the journal is being read."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within_s):
                await self._known.wait()

    def all(self) -> list[Task]:
        """Newest first. NotLeader."""
        self._leading()
        tasks = map(self._runner.now, self._task_log.tasks.values())
        return sorted(tasks, key=lambda task: (task.created_ms, task.id), reverse=True)

    def get(self, task_id: str) -> Task:
        """NotLeader, UnknownTask."""
        self._leading()
        return self._runner.now(self._task_log.known(task_id))

    async def create(self, spec: Spec, by: str, edit: Edit | None = None) -> Task:
        """A task that runs. TaskError: it cannot be, or its queue is taken (Conflict); NotLeader."""
        if edit is not None:
            spec = replace(spec, edit=checked(edit).summary, limit=1)
        elif spec.edit is not None:
            raise TaskError("edit: POST /edits makes such a task")
        context = self._leading()
        names = context.names
        _refuse_own(names, spec.queue)
        if why := forbidden(spec.to, names):
            raise TaskError(why)
        now = wall_ms()
        # A cutoff that is yet to come would mean what this very task sent and died again: it would not end.
        spec = check(replace(spec, cutoff_ms=min(spec.cutoff_ms or now, now)))
        if spec.kind is Kind.PARK and spec.queue == names.parking:
            raise TaskError("the letters are in parking already")
        self._holds(spec)
        total = await self._depth(context, spec.queue)
        self._task_log.see_free(spec.queue)
        await see_to_letters(context, spec)
        task = Task(
            secrets.token_hex(6), spec, by=by, created_ms=now, changed_ms=now, total=total, term=self._task_log.term
        )
        await self._task_log.add(task)
        return self._begun(task.id, context, edit)

    def see_free(self, queue: str) -> None:
        """Conflict where a task has the queue; NotLeader."""
        self._leading()
        self._task_log.see_free(queue)

    async def preview(self, queue: str) -> Preview:
        """What a task would meet in a queue, for who is asked whether to begin. NotLeader, UnknownTask, TaskError."""
        context = self._leading()
        _refuse_own(context.names, queue)
        await self._depth(context, queue)
        return await previewed(context, queue)

    async def exported(self, task_id: str, after: int) -> tuple[list[bytes], int | None, Task]:
        """Lines of an export behind the first `after`, what to ask for next (None: that was all), and the task.

        NotLeader, UnknownTask; TaskError where it is no export or its lines are not here.
        """
        self._leading()
        task, export = self._task_log.known(task_id), self._runner.export(task_id)
        if export is None:
            why = "has no more lines here" if exports(task) else "is no export"
            raise TaskError(f"task {task_id} {why} ({task.state}{f': {task.why}' if task.why else ''})")
        try:
            lines, following = await export.take(after)
        except ExportTaken as error:
            raise TaskError(str(error)) from None
        return lines, following, self._runner.now(self._task_log.known(task_id))

    async def change(self, task_id: str, state: State, by: str) -> Task:
        """Pause, resume (running) or cancel; when this returns nothing of it is at work that should not be."""
        context = self._leading()
        task = self._task_log.known(task_id)
        if state is not task.state:
            changed(task, state, 0)  # a refusal comes before anything is stopped
        if state is not State.RUNNING:
            await self._runner.halt(task_id)
        task = self._task_log.known(task_id)
        if task.state is not state:
            if state is State.RUNNING:
                self._task_log.see_free(task.spec.queue, task.id)
            began = task.counts.sent if is_objected(task) else task.canary_from  # who resumes it sends another canary
            before, task = task, replace(changed(task, state, wall_ms()), by=by, canary_from=began)
            try:
                await self._task_log.store(task)
            except BaseException:
                if state is State.RUNNING:
                    self._task_log.tasks[task_id] = before  # nothing of it is at work
                raise
            if state is State.RUNNING:
                return self._begun(task_id, context)
        elif not self._task_log.is_told(task_id):
            await self._task_log.store(task)
        return task

    def _begun(self, task_id: str, context: TaskContext, edit: Edit | None = None) -> Task:
        """The task as it is now: whoever cancelled it while the journal was waited for is obeyed."""
        task = self._task_log.known(task_id)
        if task.state is State.RUNNING:
            self._runner.begin(task, context, edit)
        return task

    def _leading(self) -> TaskContext:
        if not self._journal_is_on:
            raise TaskError("JOURNAL=off: tasks live in the journal, so there are none; set JOURNAL=best-effort")
        if self._task_log.context is None:
            raise NotLeader(self._not_leading())
        if not self._known.is_set():
            raise NotLeader(f"vhost {self.vhost!r}: the journal is being read; ask again")
        return self._task_log.context

    def _holds(self, spec: Spec) -> Callable[[Letter], bool]:
        return self._compile(spec.filter) if spec.filter else lambda _letter: True

    async def _depth(self, context: TaskContext, queue: str) -> int:
        """Return how many messages wait in a queue that may be read. UnknownTask, ReadRefused, NotLeader."""
        try:
            if not await context.topology.queue_exists(queue):
                raise UnknownTask(f"queue {queue!r} does not exist in vhost {self.vhost!r}")
            await context.reads.admit(context.topology, queue)
            return (await context.topology.depths([queue])).get(queue, 0)
        except TopologyError as error:
            raise NotLeader(f"queue {queue!r} cannot be looked at: {error}") from None


def _refuse_own(names: Names, queue: str) -> None:
    if names.is_own(queue) and queue != names.parking:
        raise TaskError(f"queue {queue!r} is the router's own; of those only {names.parking!r} keeps letters")
