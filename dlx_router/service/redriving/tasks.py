"""The tasks of one vhost: who asks, what is known, and the workers of the leader.

Only the leader works and answers. Every change is an event in the journal before it is said; the events of a term
that is over count less than those of the next, so a leader that was lost cannot undo anything.
"""

import asyncio
import secrets
import time
from collections.abc import Callable, Coroutine, Mapping
from contextlib import suppress
from dataclasses import replace
from typing import Any, Final

from dlx_router.broker.link import ChannelClosed, LinkError
from dlx_router.broker.topology import TopologyError
from dlx_router.core.letter import Letter
from dlx_router.operate.redrive.canary import objection
from dlx_router.operate.redrive.editing import Edit
from dlx_router.operate.redrive.editing import check as checked
from dlx_router.operate.redrive.task import AT_WORK, Kind, Spec, State, Task, TaskError, changed, check
from dlx_router.operate.redrive.told import line
from dlx_router.service.leader import Leadership
from dlx_router.service.redriving import replay
from dlx_router.service.redriving.outlet import Outlet, Taken
from dlx_router.service.redriving.tools import Stopped, Tools
from dlx_router.service.redriving.worker import End, Worker
from dlx_router.telemetry.logs import Once, log

RETRIED: Final = (LinkError, ChannelClosed, TopologyError, OSError, TimeoutError)
PROGRESS_S: Final = 2.0
WITHIN_S: Final = 15.0
LONGEST_PAUSE_S: Final = 5.0
LOOK_S: Final = 1.0
LONGEST_LOOK_S: Final = 60.0
MAX_KEPT: Final = 1000
KEPT_S: Final = 60.0  # lines of an export that is over
EXPORT_LOST: Final = "the router ended before the export was done; its letters are in their queue; export again"
EDIT_LOST: Final = (
    "the router ended before the edit was done, and what it changes is kept nowhere; "
    "look where the letter is, and edit again"
)
Compile = Callable[[str], Callable[[Letter], bool]]


class NotLeader(Exception):
    """Another router leads, or this one does not know all yet; asking again later, or another, helps."""


class Conflict(TaskError):
    """Another task has the queue."""


class Missing(TaskError):
    """There is no such task, queue or vhost."""


class Tasks:
    """`lead` makes it the leader until it is cancelled."""

    def __init__(self, vhost: str, compile_filter: Compile, *, journal_is_on: bool) -> None:
        self.vhost = vhost
        self._compile, self._journal_is_on = compile_filter, journal_is_on
        self._tasks: dict[str, Task] = {}
        self._tools: Tools | None = None
        self._workers: dict[str, Worker] = {}
        self._edits: dict[str, Edit] = {}  # of tasks that change their letter; only in memory
        self._outlets: dict[str, Outlet] = {}  # of exports that are not all taken
        self._running: dict[str, asyncio.Task[None]] = {}
        self._term = 0
        self._knows_all = False

    # -- leading ------------------------------------------------------------------------------------------------

    async def lead(self, tools: Tools, term: int) -> None:
        """Know the tasks, go on with those at work, answer; until cancelled. What is unsettled then goes back."""
        if not self._journal_is_on:
            return
        self._tools, self._term = tools, term
        try:
            await self._learn(tools)
            await asyncio.Event().wait()
        finally:
            await self.stop()

    async def stop(self) -> None:
        """Work no more: what is unsettled goes back, and the tasks stay as they are for the next leader."""
        self._tools, self._knows_all = None, False
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

    async def _learn(self, tools: Tools) -> None:
        link = await tools.link("replay")
        try:
            self._take_over(await replay.recent(link, tools.names.journal), tools)
            found = await replay.all_tasks(link, tools.names.journal)
            self._take_over({name: one for name, one in found.items() if name not in self._running}, tools)
        finally:
            await link.close()
        self._knows_all = True
        if self._running:
            log.info("redrive.resumed", vhost=self.vhost, tasks=[*self._running], term=self._term)

    def _take_over(self, found: Mapping[str, Task], tools: Tools) -> None:
        self._tasks |= found
        self._term = max([self._term, *(one.term + 1 for one in found.values())])  # another's clock may be ahead
        for one in found.values():
            if one.state in AT_WORK:
                self._spawn(one.id, tools, fresh=False)

    # -- asking -------------------------------------------------------------------------------------------------

    def all(self) -> list[Task]:
        """Newest first. NotLeader."""
        self._leading()
        return sorted(map(self._now, self._tasks.values()), key=lambda one: one.created_ms, reverse=True)

    def get(self, task_id: str) -> Task:
        """NotLeader, Missing."""
        self._leading()
        return self._now(self._known(task_id))

    async def create(self, spec: Spec, by: str, edit: Edit | None = None) -> Task:
        """A task that runs. TaskError: it cannot be, or its queue is taken (Conflict); NotLeader."""
        if edit is not None:
            spec = replace(spec, edit=checked(edit).told, limit=1)
        tools = self._leading()
        names = tools.names
        if names.is_own(spec.queue) and spec.queue != names.parking:
            raise TaskError(f"queue {spec.queue!r} is the router's own; of those only {names.parking!r} keeps letters")
        now = int(time.time() * 1000)
        spec = check(replace(spec, cutoff_ms=spec.cutoff_ms or now))
        if spec.kind is Kind.PARK and spec.queue == names.parking:
            raise TaskError("the letters are in parking already")
        self._holds(spec)
        total = await self._depth(tools, spec.queue)
        for other in self._tasks.values():
            if other.is_active and other.spec.queue == spec.queue:
                raise Conflict(f"queue {spec.queue!r} has task {other.id} ({other.state}); cancel it or wait for it")
        task = Task(secrets.token_hex(6), spec, by=by, created_ms=now, changed_ms=now, total=total, term=self._term)
        self._tasks[task.id] = task
        self._forget_oldest()
        try:
            await self._told(task)
        except NotLeader:
            del self._tasks[task.id]
            raise
        if edit is not None:
            self._edits[task.id] = edit
        if _exports(task):
            self._outlets[task.id] = Outlet()
        self._spawn(task.id, tools)
        return task

    async def exported(self, task_id: str, after: int) -> tuple[list[bytes], int | None, Task]:
        """Lines of an export behind the first `after`, what to ask for next (None: that was all), and the task.

        NotLeader, Missing; TaskError where it is no export or its lines are not here.
        """
        self._leading()
        task, outlet = self._known(task_id), self._outlets.get(task_id)
        if outlet is None:
            why = "has no more lines here" if _exports(task) else "is no export"
            raise TaskError(f"task {task_id} {why} ({task.state}{f': {task.why}' if task.why else ''})")
        try:
            lines, following = await outlet.take(after)
        except Taken as error:
            raise TaskError(str(error)) from None
        return lines, following, self._now(self._known(task_id))

    async def change(self, task_id: str, state: State, by: str) -> Task:
        """Pause, resume (running) or cancel; when this returns nothing of it is at work that should not be."""
        tools = self._leading()
        task = self._known(task_id)
        if state is not task.state:
            changed(task, state, 0)  # a refusal comes before anything is stopped
        await self._end_work(task_id, state)
        task = self._known(task_id)
        if task.state is not state:
            if state is State.RUNNING:
                self._is_free(task)
            passed = task.canary_passed or (task.state is State.STOPPED and "canary" in task.why)
            task = replace(changed(task, state, int(time.time() * 1000)), by=by, canary_passed=passed)
            await self._store(task)
            if state is State.RUNNING:
                self._spawn(task_id, tools)
        return task

    def _is_free(self, task: Task) -> None:
        for other in self._tasks.values():
            if other.is_active and other.spec.queue == task.spec.queue and other.id != task.id:
                raise Conflict(f"queue {task.spec.queue!r} has task {other.id} ({other.state})")

    async def _end_work(self, task_id: str, state: State) -> None:
        running = self._running.get(task_id)
        if running is None or state is State.RUNNING:
            return
        worker = self._workers.get(task_id)
        if worker is not None:
            worker.halt()
            await asyncio.wait([running], timeout=WITHIN_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    def _leading(self) -> Tools:
        if not self._journal_is_on:
            raise TaskError("JOURNAL=off: tasks live in the journal, so there are none; set JOURNAL=best-effort")
        if self._tools is None:
            raise NotLeader(f"vhost {self.vhost!r}: this router does not lead; ask another")
        if not self._knows_all:
            raise NotLeader(f"vhost {self.vhost!r}: the journal is being read; ask again")
        return self._tools

    def _known(self, task_id: str) -> Task:
        try:
            return self._tasks[task_id]
        except KeyError:
            raise Missing(f"no task {task_id!r} in vhost {self.vhost!r}; `dlx-router redrive list` shows all") from None

    def _now(self, task: Task) -> Task:
        worker = self._workers.get(task.id)
        return task if worker is None else replace(task, counts=worker.tally.counts)

    def _forget_oldest(self) -> None:
        """The journal keeps them; memory need not."""
        over = [name for name, one in self._tasks.items() if not one.is_active][: max(len(self._tasks) - MAX_KEPT, 0)]
        for name in over:
            del self._tasks[name]

    def _holds(self, spec: Spec) -> Callable[[Letter], bool]:
        return self._compile(spec.filter) if spec.filter else lambda _letter: True

    async def _depth(self, tools: Tools, queue: str) -> int:
        try:
            if not await tools.topology.queue_exists(queue):
                raise Missing(f"queue {queue!r} does not exist in vhost {self.vhost!r}")
            return (await tools.topology.depths([queue])).get(queue, 0)
        except TopologyError as error:
            raise NotLeader(f"queue {queue!r} cannot be looked at: {error}") from None

    # -- telling ------------------------------------------------------------------------------------------------

    async def _store(self, task: Task) -> None:
        """Remember, and tell the journal."""
        task = replace(task, term=self._term)
        self._tasks[task.id] = task
        await self._told(task)

    async def _told(self, task: Task) -> None:
        """The journal has it. NotLeader where it takes nothing: what nobody can know after a restart is not begun."""
        tools = self._tools
        if tools is None:
            raise NotLeader(f"vhost {self.vhost!r}: this router leads no more")
        if not tools.journal.is_working:
            raise NotLeader("the journal cannot be written just now; see /readyz, and ask again")
        done = asyncio.get_running_loop().create_future()
        batch = tools.journal.record(line(task, tools.router_id))
        batch.wait(lambda _job: None if done.done() else done.set_result(None), None)
        with suppress(TimeoutError):
            async with asyncio.timeout(WITHIN_S):
                await done

    # -- working ------------------------------------------------------------------------------------------------

    def _spawn(self, task_id: str, tools: Tools, *, fresh: bool = True) -> None:
        self._running[task_id] = asyncio.create_task(self._guarded(task_id, self._work(task_id, tools, fresh=fresh)))

    async def _guarded(self, task_id: str, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        except (TaskError, NotLeader) as error:
            log.warning("redrive.ended", task=task_id, error=str(error), fate="its letters are in their queue")
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
        while self._tools is tools:
            try:
                if not counted:
                    await self._recount(task_id, tools)
                    counted = True
                state, why = await self._step(task_id, tools)
            except RETRIED as error:
                if task_id in self._outlets:  # a second look would tell the same letters again
                    await self._stop_export(task_id, error)
                    return
                log.warning("redrive.interrupted", task=task_id, error=str(error), fate="tried again")
                await asyncio.sleep(pause)
                pause = min(pause * 2, LONGEST_PAUSE_S)
                counted = False
                continue
            if state is None:
                return
            task = changed(self._tasks[task_id], state, int(time.time() * 1000), why)
            await self._store(task)
            if state not in AT_WORK:
                self._edits.pop(task_id, None)
                log.info("redrive.ended", task=task_id, state=state, why=why or None, sent=task.counts.sent)
                return

    async def _stop_export(self, task_id: str, error: Exception) -> None:
        why = f"interrupted: {error}; its letters are in their queue; export again"
        await self._store(changed(self._tasks[task_id], State.STOPPED, int(time.time() * 1000), why))

    async def _recount(self, task_id: str, tools: Tools) -> None:
        """How many it has sent, as the journal says: what was counted last may be some seconds old."""
        link = await tools.link("recount")
        try:
            found = await replay.flock(link, tools.names.journal, self._tasks[task_id])
        finally:
            await link.close()
        task = self._tasks[task_id]
        if found.sent > task.counts.sent:
            self._tasks[task_id] = replace(task, counts=replace(task.counts, sent=found.sent))

    async def _step(self, task_id: str, tools: Tools) -> tuple[State | None, str]:
        """Work, or watch the canary; → the next state. None: told to end."""
        task = self._tasks[task_id]
        if task.state is State.WATCHING:
            return await self._watch(task, tools)
        if task.spec.canary is not None and not task.canary_passed and not task.canary_left:
            return State.WATCHING, ""
        edit, outlet = self._edits.get(task_id), self._outlets.get(task_id)
        if (task.spec.edit is not None and edit is None) or (_exports(task) and outlet is None):
            return State.STOPPED, EXPORT_LOST if _exports(task) else EDIT_LOST
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
        stays = "; ".join(f"{number} stay: {why}" for why, number in worker.tally.stays.items())
        return {End.DONE: State.DONE, End.CANARY: State.WATCHING, End.TOLD: None}[end], stays

    def _note(self, task_id: str, worker: Worker) -> None:
        self._workers.pop(task_id, None)
        groups = tuple(
            {"group": group, "failed_queue": queue, "reason": reason, "letters": number}
            for (group, queue, reason), number in worker.tally.groups.most_common()
        )
        self._tasks[task_id] = replace(self._tasks[task_id], counts=worker.tally.counts, groups=groups)

    async def _progress(self, task_id: str, worker: Worker) -> None:
        """How far it is, every few seconds; it also says that the task is at work."""
        while True:
            await asyncio.sleep(PROGRESS_S)
            task = self._tasks[task_id]
            with suppress(NotLeader):
                now = int(time.time() * 1000)
                await self._store(replace(task, counts=worker.tally.counts, change=task.change + 1, changed_ms=now))

    async def _watch(self, task: Task, tools: Tools) -> tuple[State | None, str]:
        """Until the canary's time is over, or too many are dead."""
        canary = task.spec.canary
        assert canary is not None
        link = await tools.link("canary")
        try:
            while self._tools is tools:
                over = time.time() * 1000 - task.changed_ms >= canary.watch_s * 1000
                found = await replay.flock(link, tools.names.journal, task)
                why = objection(canary, max(found.sent, task.counts.sent), found.dead)
                if why:
                    return State.STOPPED, why
                if over:
                    self._tasks[task.id] = replace(self._tasks[task.id], canary_passed=True)
                    return State.RUNNING, ""
                await asyncio.sleep(LOOK_S)
        finally:
            await link.close()
        return None, ""


def _exports(task: Task) -> bool:
    """Whether it tells letters to whoever asks."""
    return task.spec.kind is Kind.EXPORT and not task.spec.dry_run


async def lead(leadership: Leadership, work: Callable[[int], Coroutine[Any, Any, None]]) -> None:
    """`work(term)` while we lead, again after what the broker did to us, until cancelled."""
    changed_now = asyncio.Event()
    with leadership.heard(changed_now.set):
        await _leading(leadership, work, changed_now)


async def _leading(
    leadership: Leadership, work: Callable[[int], Coroutine[Any, Any, None]], changed_now: asyncio.Event
) -> None:
    once, pause = Once(), LOOK_S
    while True:
        changed_now.clear()
        if leadership.term is None:
            await changed_now.wait()
            continue
        working = asyncio.create_task(work(leadership.term))
        hearing = asyncio.create_task(changed_now.wait())
        try:
            await asyncio.wait({working, hearing}, return_when=asyncio.FIRST_COMPLETED)
            if working.done() and (error := working.exception()) is not None:
                if not isinstance(error, RETRIED):
                    raise error
                fate = "no redrive task goes on until it is; tried again"
                once.warn("learn", "redrive.not_leading", vhost=leadership.vhost, error=str(error), fate=fate)
                await asyncio.wait({hearing}, timeout=pause)
                pause = min(pause * 2, LONGEST_LOOK_S)
            elif working.done():
                await hearing
        finally:
            for one in (working, hearing):
                one.cancel()
            await asyncio.gather(working, hearing, return_exceptions=True)
