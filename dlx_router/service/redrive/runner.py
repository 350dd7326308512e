"""The runner: workers at the tasks of one vhost, one each, until they are done, halted, or we lead no more."""

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.topology import Forbidden, TopologyError
from dlx_router.core.letter import Letter
from dlx_router.redrive.canary import objection
from dlx_router.redrive.letter_edits import Edit
from dlx_router.redrive.task import AT_WORK, Kind, Spec, State, Task, TaskError, changed
from dlx_router.service.queue_reads import ReadCrashed
from dlx_router.service.redrive import replay
from dlx_router.service.redrive.context import Stopped, TaskContext
from dlx_router.service.redrive.export_stream import ExportStream
from dlx_router.service.redrive.sender import Attempt, Unconfirmed, left_behind
from dlx_router.service.redrive.task_log import WITHIN_S, NotLeader, TaskLog
from dlx_router.service.redrive.worker import End, TaskWorker
from dlx_router.telemetry.logs import Once, log
from dlx_router.telemetry.wall_clock import wall_ms

RETRIED: Final = (LinkError, ChannelClosed, TopologyError, OSError, TimeoutError)
PROGRESS_S: Final = 2.0
PAUSED_S: Final = 10.0  # without progress, after which a task says what it waits for
INTERRUPTED: Final = "interrupted: "  # how `why` of a task begins that is tried again
GIVE_BACK_S: Final = 2.0  # a channel ends a second after the last of many acks, see scan.py
LOOK_S: Final = 1.0
FORBIDDEN: Final = 403
LOOKED: Final = 65_535  # no look holds more letters
FATE: Final = "its letters are in their queue"
KEPT_S: Final = 60.0  # lines of an export that is over
EXPORT_LOST: Final = "the router ended before the export was done; its letters are in their queue; export again"
EDIT_LOST: Final = "what this edit changes is kept only while it is at work; look where the letter is, and edit again"


class TaskRunner:
    """`holds(spec)` is a task's filter; it may raise TaskError."""

    def __init__(self, task_log: TaskLog, holds: Callable[[Spec], Callable[[Letter], bool]]) -> None:
        self._task_log, self._holds = task_log, holds
        self._workers: dict[str, TaskWorker] = {}
        self._exports: dict[str, ExportStream] = {}  # of exports that are not all taken
        self._running: dict[str, asyncio.Task[None]] = {}

    def begin(self, task: Task, context: TaskContext, edit: Edit | None = None) -> None:
        """Work on a new task, or on one that was paused."""
        if exports(task):
            self._exports[task.id] = ExportStream()
        self._spawn(task.id, self._work(task.id, context, Attempt(follows=task.change > 0), edit))

    def take_over(self, task_id: str, context: TaskContext) -> None:
        """Go on where another leader was."""
        if task_id not in self._running:
            self._spawn(task_id, self._work(task_id, context, Attempt(follows=True), None, is_counted=False))

    async def halt(self, task_id: str) -> None:
        """Nothing of this task is at work when this returns."""
        running, worker = self._running.get(task_id), self._workers.get(task_id)
        if running is None:
            return
        if worker is not None:
            worker.halt()
            await asyncio.wait([running], timeout=WITHIN_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    async def stop(self, within_s: float = WITHIN_S) -> None:
        """Nothing is at work when this returns, in this time; what was unsettled went back where the broker answers.

        The end of the time is for giving back: what is on its way is waited for until then. Whoever does not end is
        cancelled, and gives back too; at last its connections are dropped.
        """
        step = min(GIVE_BACK_S, within_s / 3)
        for worker in self._workers.values():
            worker.halt(within_s - 2 * step)
        running = [*self._running.values()]
        await _ended(running, within_s - step)
        for task in running:
            task.cancel()
        await _ended(running, step)
        for worker in [*self._workers.values()]:
            worker.abort()
        await asyncio.gather(*running, return_exceptions=True)
        self._running.clear()
        self._workers.clear()

    @property
    def at_work(self) -> list[str]:
        """The ids of tasks at work."""
        return [*self._running]

    def export(self, task_id: str) -> ExportStream | None:
        """Where an export's letters wait; None where there are none here."""
        return self._exports.get(task_id)

    def now(self, task: Task) -> Task:
        """The task, counted to this moment."""
        worker = self._workers.get(task.id)
        return task if worker is None else replace(task, counts=worker.counters.counts)

    def _spawn(self, task_id: str, work: Coroutine[Any, Any, None]) -> None:
        if before := self._running.get(task_id):
            before.cancel()  # it only waits for the journal to take how it ended
        self._running[task_id] = asyncio.create_task(self._guarded(task_id, work))

    async def _guarded(self, task_id: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (TaskError, NotLeader) as error:
            log.warning("redrive.ended", task=task_id, error=str(error), fate=FATE)
        finally:
            if self._running.get(task_id) is asyncio.current_task():
                self._workers.pop(task_id, None)
                self._running.pop(task_id, None)
                self._end_outlet(task_id)

    def _end_outlet(self, task_id: str) -> None:
        """What was told of an export stays for those who are late, but not for ever."""
        if task_id in self._exports:
            self._exports[task_id].end()
            asyncio.get_running_loop().call_later(KEPT_S, self._exports.pop, task_id, None)

    async def _work(
        self,
        task_id: str,
        context: TaskContext,
        attempt: Attempt,
        edit: Edit | None,
        *,
        is_counted: bool = True,
    ) -> None:
        """Until the task is over, paused, or we lead no more. What the broker does to us is tried again."""
        was_interrupted = not is_counted
        while self._task_log.context is context:
            sent = self._task_log.tasks[task_id].counts.sent
            try:
                if not is_counted:
                    await self._recount(task_id, context)
                    is_counted = True
                state, why = await self._step(task_id, context, attempt, edit)
            except (TaskError, NotLeader):
                raise
            except Exception as error:  # noqa: BLE001 - or the task would seem to be at work for ever
                why = await _crashed(self._task_log.tasks[task_id], context, error) or self._why_it_ends(task_id, error)
                if why:
                    await self._store(changed(self._task_log.tasks[task_id], State.STOPPED, wall_ms(), why), context)
                    return
                attempt = self._interrupted(task_id, attempt, error, sent)
                is_counted, was_interrupted = False, True
                await asyncio.sleep(attempt.pause_s)
                continue
            if state is None:
                return
            task = self._task_log.tasks[task_id]
            if was_interrupted and state is State.DONE:
                why = "; ".join(filter(None, (why, left_behind(task.counts.sent, task.spec.limit))))
            await self._store(changed(task, state, wall_ms(), why), context)
            if state not in AT_WORK:
                log.info("redrive.ended", task=task_id, state=state, why=why or None, sent=task.counts.sent)
                return

    def _interrupted(self, task_id: str, attempt: Attempt, error: Exception, sent: int) -> Attempt:
        """The next attempt. The task tells why it makes no progress, until it does."""
        log.warning("redrive.interrupted", task=task_id, error=str(error), fate="tried again")
        task = self._task_log.tasks[task_id]
        self._task_log.tasks[task_id] = replace(task, why=f"{INTERRUPTED}{error}; tried again")
        return attempt.after(moved=task.counts.sent > sent, unconfirmed=isinstance(error, Unconfirmed))

    def _why_it_ends(self, task_id: str, error: Exception) -> str:
        """Why no second look would help; "" where one may."""
        if not isinstance(error, RETRIED):
            log.error("redrive.fault", task=task_id, error=repr(error), fate=FATE)
            return f"a fault of the router, {type(error).__name__}; its log says more"
        if task_id in self._exports:  # a second look would tell the same letters again
            return f"interrupted: {error}; its letters are in their queue; export again"
        if isinstance(error, Forbidden) or (isinstance(error, ChannelClosed) and error.code == FORBIDDEN):
            return f"the broker does not let us: {error}; what was not sent stays; resume when it does"
        return ""

    async def _store(self, task: Task, context: TaskContext) -> None:
        """The journal has it. NotLeader where we lead no more; what else keeps it from being told passes."""
        once = Once()
        while not await self._is_stored(task, context, once):  # noqa: ASYNC110 - the journal tells nobody
            await asyncio.sleep(LOOK_S)

    async def _is_stored(self, task: Task, context: TaskContext, once: Once) -> bool:
        known = self._task_log.tasks.get(task.id)
        if known is not None and known.change > task.change:
            return True  # somebody resumed or cancelled it meanwhile, and that stands
        try:
            await self._task_log.store(task)
        except NotLeader as error:
            if self._task_log.context is not context:
                raise
            once.warn("told", "redrive.untold", task=task.id, state=task.state, error=str(error), fate="told again")
            return False
        return True

    async def _recount(self, task_id: str, context: TaskContext) -> None:
        """Count what it has sent, as the journal says: what was counted last may be some seconds old."""
        async with context.reading("recount") as link:
            sent = await replay.sent_by(link, context.journal, self._task_log.tasks[task_id])
        task = self._task_log.tasks[task_id]
        self._task_log.tasks[task_id] = replace(task, counts=replace(task.counts, sent=max(sent, task.counts.sent)))

    async def _step(
        self, task_id: str, context: TaskContext, attempt: Attempt, edit: Edit | None
    ) -> tuple[State | None, str]:
        """Work, or watch the canary; → the next state. None: told to end."""
        task = self._task_log.tasks[task_id]
        if task.state is State.WATCHING:
            return await self._watch(task, context)
        if task.has_canary and not task.canary_left:
            return State.WATCHING, ""
        export = self._exports.get(task_id)
        if (task.spec.edit is not None and edit is None) or (exports(task) and export is None):
            return _lost(task)
        try:
            worker = self._workers[task_id] = TaskWorker(task, context, self._holds(task.spec), attempt, edit, export)
        except TaskError as error:
            return State.STOPPED, str(error)
        progress = asyncio.create_task(self._progress(task_id, worker))
        try:
            end = await worker.run()
        except Stopped as error:
            return State.STOPPED, str(error)
        finally:
            progress.cancel()
            self._note(task_id, worker)
        return {End.DONE: State.DONE, End.CANARY: State.WATCHING, End.TOLD: None}[end], worker.counters.why

    def _note(self, task_id: str, worker: TaskWorker) -> None:
        self._workers.pop(task_id, None)
        groups = tuple(
            {"group": group, "failed_queue": queue, "reason": reason, "letters": number}
            for (group, queue, reason), number in worker.counters.groups.most_common()
        )
        self._task_log.tasks[task_id] = replace(
            self._task_log.tasks[task_id], counts=worker.counters.counts, groups=groups
        )

    async def _progress(self, task_id: str, worker: TaskWorker) -> None:
        """How far it is, every few seconds; it also says that the task is at work."""
        moved, moved_ms = worker.counters.counts, wall_ms()
        while True:
            await asyncio.sleep(PROGRESS_S)
            task = self._task_log.tasks[task_id]
            counts, now = worker.counters.counts, wall_ms()
            if counts != moved:
                moved, moved_ms = counts, now
            why = task.why if counts.sent == worker.task.counts.sent else ""  # it goes on
            if not why.startswith(INTERRUPTED) and now - moved_ms >= PAUSED_S * 1000:
                why = f"nothing has moved for {(now - moved_ms) // 1000} s: {worker.waits_for}"
            with suppress(NotLeader):
                await self._task_log.store(
                    replace(task, why=why, counts=counts, change=task.change + 1, changed_ms=now)
                )

    async def _watch(self, task: Task, context: TaskContext) -> tuple[State | None, str]:
        """Until the canary's time is over, or too many are dead."""
        canary = task.spec.canary
        assert canary is not None
        async with context.reading("canary") as link:
            while self._task_log.context is context:
                over = wall_ms() - task.changed_ms >= canary.watch_s * 1000
                flock = await replay.flock(link, context.journal, task)
                why = objection(canary, max(flock.sent, task.counts.sent) - task.canary_from, flock.dead)
                if why:
                    return State.STOPPED, why
                if over:
                    self._task_log.tasks[task.id] = replace(self._task_log.tasks[task.id], canary_passed=True)
                    return State.RUNNING, ""
                await asyncio.sleep(LOOK_S)
        return None, ""


async def _ended(running: list[asyncio.Task[None]], within_s: float) -> None:
    """They have, or the time is over."""
    if running:
        await asyncio.wait(running, timeout=within_s)


async def _crashed(task: Task, context: TaskContext, error: Exception) -> str:
    """Why no second look would help, where the broker crashed as it delivered a letter; "" where one may."""
    if not isinstance(error, ReadCrashed):
        return ""
    refused = await context.reads.crashed(task.spec.queue, window=LOOKED, held=error.held)
    return "" if context.reads.is_readable(task.spec.queue) else f"{refused}; resume once it can be read"


def _lost(task: Task) -> tuple[State, str]:
    """How a task ends whose edit or export is not here. An edit that the journal has is done, whoever had it."""
    if exports(task):
        return State.STOPPED, EXPORT_LOST
    return (State.DONE, "") if task.counts.sent else (State.STOPPED, EDIT_LOST)


def exports(task: Task) -> bool:
    """Whether it tells letters to whoever asks."""
    return task.spec.kind is Kind.EXPORT and not task.spec.dry_run
