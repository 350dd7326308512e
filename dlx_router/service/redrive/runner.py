"""The runner: workers at the tasks of one vhost, one each, until they are done, halted, or we lead no more."""

import asyncio
import time
from collections.abc import Callable, Coroutine
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.topology import Forbidden, TopologyError
from dlx_router.broker.unreadable import explained
from dlx_router.core.letter import Letter
from dlx_router.operate.redrive.canary import objection
from dlx_router.operate.redrive.editing import Edit
from dlx_router.operate.redrive.task import AT_WORK, Kind, Spec, State, Task, TaskError, changed
from dlx_router.service.redrive import replay
from dlx_router.service.redrive.context import Stopped, Tools
from dlx_router.service.redrive.export_stream import Outlet
from dlx_router.service.redrive.task_log import WITHIN_S, Book, NotLeader
from dlx_router.service.redrive.worker import End, Worker
from dlx_router.telemetry.logs import Once, log

RETRIED: Final = (LinkError, ChannelClosed, TopologyError, OSError, TimeoutError)
PROGRESS_S: Final = 2.0
LONGEST_PAUSE_S: Final = 5.0
LOOK_S: Final = 1.0
FORBIDDEN: Final = 403
LOOKED: Final = 2000  # letters of our own queue
FATE: Final = "its letters are in their queue"
KEPT_S: Final = 60.0  # lines of an export that is over
EXPORT_LOST: Final = "the router ended before the export was done; its letters are in their queue; export again"
EDIT_LOST: Final = (
    "the router ended before the edit was done, and what it changes is kept nowhere; "
    "look where the letter is, and edit again"
)


class Runner:
    """`holds(spec)` is a task's filter; it may raise TaskError."""

    def __init__(self, book: Book, holds: Callable[[Spec], Callable[[Letter], bool]]) -> None:
        self._book, self._holds = book, holds
        self._workers: dict[str, Worker] = {}
        self._edits: dict[str, Edit] = {}  # of tasks that change their letter; only in memory
        self._outlets: dict[str, Outlet] = {}  # of exports that are not all taken
        self._running: dict[str, asyncio.Task[None]] = {}

    def begin(self, task: Task, tools: Tools, edit: Edit | None = None) -> None:
        """Work on a new task, or on one that was paused."""
        if edit is not None:
            self._edits[task.id] = edit
        if exports(task):
            self._outlets[task.id] = Outlet()
        self._spawn(task.id, tools, fresh=True)

    def take_over(self, task_id: str, tools: Tools) -> None:
        """Go on where another leader was."""
        if task_id not in self._running:
            self._spawn(task_id, tools, fresh=False)

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

    async def stop(self) -> None:
        """Nothing is at work when this returns; what was unsettled went back."""
        for worker in self._workers.values():
            worker.halt()
        running = [*self._running.values()]
        if running:
            await asyncio.wait(running, timeout=WITHIN_S)
        for one in running:
            one.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        self._running.clear()
        self._workers.clear()

    @property
    def at_work(self) -> list[str]:
        """The ids of tasks at work."""
        return [*self._running]

    def outlet(self, task_id: str) -> Outlet | None:
        """Where an export's letters wait; None where there are none here."""
        return self._outlets.get(task_id)

    def now(self, task: Task) -> Task:
        """The task, counted to this moment."""
        worker = self._workers.get(task.id)
        return task if worker is None else replace(task, counts=worker.tally.counts)

    def _spawn(self, task_id: str, tools: Tools, *, fresh: bool) -> None:
        self._running[task_id] = asyncio.create_task(self._guarded(task_id, self._work(task_id, tools, fresh=fresh)))

    async def _guarded(self, task_id: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (TaskError, NotLeader) as error:
            log.warning("redrive.ended", task=task_id, error=str(error), fate=FATE)
        finally:
            self._workers.pop(task_id, None)
            self._running.pop(task_id, None)
            self._end_outlet(task_id)

    def _end_outlet(self, task_id: str) -> None:
        """What was told of an export stays for those who are late, but not for ever."""
        if task_id in self._outlets:
            self._outlets[task_id].end()
            asyncio.get_running_loop().call_later(KEPT_S, self._outlets.pop, task_id, None)

    async def _work(self, task_id: str, tools: Tools, *, fresh: bool) -> None:
        """Until the task is over, paused, or we lead no more. What the broker does to us is tried again."""
        pause, counted = 0.25, fresh
        while self._book.tools is tools:
            try:
                if not counted:
                    await self._recount(task_id, tools)
                    counted = True
                state, why = await self._step(task_id, tools)
            except (TaskError, NotLeader):
                raise
            except Exception as error:  # noqa: BLE001 - or the task would seem to be at work for ever
                why = await _crashed(self._book.tasks[task_id], tools, error) or self._why_it_ends(task_id, error)
                if why:
                    await self._stop(task_id, why, tools)
                    return
                log.warning("redrive.interrupted", task=task_id, error=str(error), fate="tried again")
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_S)
                counted = False
                continue
            if state is None:
                return
            task = changed(self._book.tasks[task_id], state, int(time.time() * 1000), why)
            await self._tell(task, tools)
            if state not in AT_WORK:
                self._edits.pop(task_id, None)
                log.info("redrive.ended", task=task_id, state=state, why=why or None, sent=task.counts.sent)
                return

    def _why_it_ends(self, task_id: str, error: Exception) -> str:
        """Why no second look would help; "" where one may."""
        if not isinstance(error, RETRIED):
            log.error("redrive.fault", task=task_id, error=repr(error), fate=FATE)
            return f"a fault of the router, {type(error).__name__}; its log says more"
        if task_id in self._outlets:  # a second look would tell the same letters again
            return f"interrupted: {error}; its letters are in their queue; export again"
        if isinstance(error, Forbidden) or (isinstance(error, ChannelClosed) and error.code == FORBIDDEN):
            return f"the broker does not let us: {error}; what was not sent stays; resume when it does"
        return ""

    async def _stop(self, task_id: str, why: str, tools: Tools) -> None:
        await self._tell(changed(self._book.tasks[task_id], State.STOPPED, int(time.time() * 1000), why), tools)

    async def _tell(self, task: Task, tools: Tools) -> None:
        """The journal has it. NotLeader where we lead no more; what else keeps it from being told passes."""
        once = Once()
        while not await self._is_told(task, tools, once):  # noqa: ASYNC110 - the journal tells nobody
            await asyncio.sleep(LOOK_S)

    async def _is_told(self, task: Task, tools: Tools, once: Once) -> bool:
        try:
            await self._book.store(task)
        except NotLeader as error:
            if self._book.tools is not tools:
                raise
            once.warn("told", "redrive.untold", task=task.id, state=task.state, error=str(error), fate="told again")
            return False
        return True

    async def _recount(self, task_id: str, tools: Tools) -> None:
        """How many it has sent, as the journal says: what was counted last may be some seconds old."""
        link = await tools.link("recount")
        try:
            found = await replay.flock(link, tools.journal, self._book.tasks[task_id])
        finally:
            await link.close()
        task = self._book.tasks[task_id]
        if found.sent > task.counts.sent:
            self._book.tasks[task_id] = replace(task, counts=replace(task.counts, sent=found.sent))

    async def _step(self, task_id: str, tools: Tools) -> tuple[State | None, str]:
        """Work, or watch the canary; → the next state. None: told to end."""
        task = self._book.tasks[task_id]
        if task.state is State.WATCHING:
            return await self._watch(task, tools)
        if task.spec.canary is not None and not task.canary_passed and not task.canary_left:
            return State.WATCHING, ""
        edit, outlet = self._edits.get(task_id), self._outlets.get(task_id)
        if (task.spec.edit is not None and edit is None) or (exports(task) and outlet is None):
            return State.STOPPED, EXPORT_LOST if exports(task) else EDIT_LOST
        try:
            worker = self._workers[task_id] = Worker(task, tools, self._holds(task.spec), edit, outlet)
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
        return {End.DONE: State.DONE, End.CANARY: State.WATCHING, End.TOLD: None}[end], worker.tally.why

    def _note(self, task_id: str, worker: Worker) -> None:
        self._workers.pop(task_id, None)
        groups = tuple(
            {"group": group, "failed_queue": queue, "reason": reason, "letters": number}
            for (group, queue, reason), number in worker.tally.groups.most_common()
        )
        self._book.tasks[task_id] = replace(self._book.tasks[task_id], counts=worker.tally.counts, groups=groups)

    async def _progress(self, task_id: str, worker: Worker) -> None:
        """How far it is, every few seconds; it also says that the task is at work."""
        while True:
            await asyncio.sleep(PROGRESS_S)
            task = self._book.tasks[task_id]
            with suppress(NotLeader):
                now = int(time.time() * 1000)
                await self._book.store(
                    replace(task, counts=worker.tally.counts, change=task.change + 1, changed_ms=now)
                )

    async def _watch(self, task: Task, tools: Tools) -> tuple[State | None, str]:
        """Until the canary's time is over, or too many are dead."""
        canary = task.spec.canary
        assert canary is not None
        link = await tools.link("canary")
        try:
            while self._book.tools is tools:
                over = time.time() * 1000 - task.changed_ms >= canary.watch_s * 1000
                found = await replay.flock(link, tools.journal, task)
                why = objection(canary, max(found.sent, task.counts.sent) - task.canary_from, found.dead)
                if why:
                    return State.STOPPED, why
                if over:
                    self._book.tasks[task.id] = replace(self._book.tasks[task.id], canary_passed=True)
                    return State.RUNNING, ""
                await asyncio.sleep(LOOK_S)
        finally:
            await link.close()
        return None, ""


async def _crashed(task: Task, tools: Tools, error: Exception) -> str:
    """Why no second look would help, where the broker crashed as it delivered a letter; "" where it did not.

    Of a queue of others the first letter alone is looked at: before RabbitMQ 4.3 a look counts as a delivery.
    """
    if not isinstance(error, LinkError) or not error.is_crash:
        return ""
    window = LOOKED if tools.names.is_own(task.spec.queue) else 1
    said = await explained((tools.host, tools.login, tools.tls), task.spec.queue, window)
    return f"{said}; take it out, and resume"


def exports(task: Task) -> bool:
    """Whether it tells letters to whoever asks."""
    return task.spec.kind is Kind.EXPORT and not task.spec.dry_run
