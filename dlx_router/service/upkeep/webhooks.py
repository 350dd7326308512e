"""Webhooks: the leader of a vhost looks what happened there, every other second, and tells whoever wants to know it.

Nothing here is in a letter's path: the index is asked in a thread, which also compares; requests are made in others.
"""

import asyncio
import itertools
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from dlx_router.config.findings import PolicyErrors
from dlx_router.config.webhooks import file
from dlx_router.config.webhooks.endpoint import Endpoints
from dlx_router.core.notices import Notice
from dlx_router.index.reader import IndexAway, TooLong
from dlx_router.index.supervisor import Supervisor
from dlx_router.journal.audit import AuditError, audit
from dlx_router.redrive.task import Task, TaskError
from dlx_router.service.inflight.clock import steady_ms
from dlx_router.service.redrive.task_log import NotLeader
from dlx_router.service.upkeep.webhook_events import VhostEvents
from dlx_router.service.upkeep.webhook_messages import TOLD, Told, WebhookMessages
from dlx_router.service.vhost.runner import VhostRunner
from dlx_router.telemetry.logs import Once, log
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from dlx_router.telemetry.wall_clock import wall_ms
from dlx_router.webhooks.sender import Sender

LOOK_S: Final = 2.0
RELOAD_LOOKS: Final = 5  # the file is read again at each fifth look
BEGAN: Final = "webhook.began"
REMEMBERED_MS: Final = 14 * 86_400_000  # as the journal
CLOSE_MS: Final = 5_000  # so far behind the journal the index knows what earlier leaders told
LOOKS: Final = 2  # so often in a row: a stream that is slow to begin looks like one without news
_NOTE: Final = "webhooks"
_ACTOR: Final = "router"


@dataclass(slots=True)
class _Led:
    """A vhost that we lead. `events` None: what earlier leaders told is not known yet.

    `told` is kept for the whole term: tasks and groups are learnt one after the other.
    """

    term: int
    events: VhostEvents | None = None
    told: Told = field(default_factory=set)
    close: int = 0  # looks in a row that found the index close to the journal
    rebuilds: int | None = None


class Webhooks:
    """`watch` keeps them going."""

    def __init__(  # noqa: PLR0913 - what it looks at, and whom it tells
        self,
        path: Path,
        sender: Sender,
        *,
        index: Supervisor,
        attendants: Mapping[str, VhostRunner],
        metrics: Metrics,
        readiness: Readiness,
        router_id: str,
    ) -> None:
        self._path, self._index, self._attendants = path, index, attendants
        self._metrics, self._readiness, self._router_id = metrics, readiness, router_id
        self._messages = WebhookMessages(sender.send, self._record, metrics)
        self._led: dict[str, _Led] = {}
        self._endpoints: Endpoints = {}
        self._once = Once()
        metrics.webhooks_waiting = self._messages.waiting

    async def watch(self) -> None:
        """Until cancelled."""
        try:
            for look in itertools.count():
                if look % RELOAD_LOOKS == 0:
                    await self._reload()
                for vhost, runner in [*self._attendants.items()]:
                    await self._look(vhost, runner)
                self._messages.pass_on()
                await asyncio.sleep(LOOK_S)
        finally:
            await self._messages.stop()

    # -- the file -----------------------------------------------------------------------------------------------

    async def _reload(self) -> None:
        """Use the file as it is now; one that cannot be used changes nothing, and is noted."""
        try:
            endpoints = await asyncio.to_thread(file.load, self._path)
        except PolicyErrors as error:
            fate = "those of before are told; mend the file"
            self._readiness.note(_NOTE, f"webhooks were refused, {fate}: {error.findings[0]}")
            self._once.warn("file", "webhooks.refused", error=str(error), fate=fate)
            return
        self._readiness.drop_note(_NOTE)
        self._once.healed("file", "webhooks.accepted")
        if endpoints != self._endpoints:
            self._endpoints = endpoints
            self._messages.use(endpoints)
            log.info("webhooks.read", webhooks=sorted(endpoints))

    # -- one vhost ----------------------------------------------------------------------------------------------

    async def _look(self, vhost: str, runner: VhostRunner) -> None:
        term, led = runner.leadership.term, self._led.get(vhost)
        if led is not None and led.term != term:
            del self._led[vhost]
            self._messages.leave(vhost)
            led = None
        if term is None:
            return
        led = led or self._led.setdefault(vhost, _Led(term))
        try:
            if self._is_close(vhost, led):
                if led.events is None:
                    led.events = await self._learnt(vhost, led)
                await self._see(led.events, led, runner)
            self._once.healed(vhost, "webhooks.look", vhost=vhost, fate="what happens is told again")
        except (IndexAway, TooLong, OSError) as error:
            fate = "what happens is told once the index can be asked"
            self._once.warn(vhost, "webhooks.look", vhost=vhost, error=str(error), fate=fate)

    def _is_close(self, vhost: str, led: _Led) -> bool:
        """Whether the index has nearly all of the journal; once it had, it may fall behind again but not begin anew."""
        status = self._index.status
        if led.rebuilds != status.get("rebuilds"):
            led.rebuilds, led.close = status.get("rebuilds"), 0
            if led.events is not None:
                led.events.forget_counts()
        behind = ((status.get("vhosts") or {}).get(vhost) or {}).get("behind_ms")
        if led.close < LOOKS:
            led.close = led.close + 1 if behind is not None and behind <= CLOSE_MS else 0
        return led.close >= LOOKS

    async def _learnt(self, vhost: str, led: _Led) -> VhostEvents:
        """What was told before, and since when; where nobody ever did, from the beginning of our term."""
        since = wall_ms() - REMEMBERED_MS
        records = await asyncio.to_thread(self._index.reader.audits_of, vhost, (BEGAN, TOLD), since)
        for details in (details for action, details in records if action == TOLD):
            kind, keys = str(details.get("kind")), details.get("keys") or ()
            if kind != "letter.parked":  # a group of which more letters are parked is told again
                led.told |= {(str(details.get("to")), kind, str(key)) for key in keys}
        began = [int(details.get("since_ms") or 0) for action, details in records if action == BEGAN]
        if not records:
            began = [led.term]
            self._record(vhost, BEGAN, {"since_ms": led.term})
        log.info("webhooks.began", vhost=vhost, known=len(led.told), fate="what happens from now on is told")
        return VhostEvents(vhost, min(began, default=0))

    async def _see(self, events: VhostEvents, led: _Led, runner: VhostRunner) -> None:
        reader, vhost = self._index.reader, events.vhost
        states, tasks = runner.breakers(), _tasks(runner)

        def compared() -> None:
            groups, now = reader.groups_since(vhost, events.since_ms, events.newest), wall_ms()
            notices: list[Notice] = [*events.groups(groups, now), *events.parked(reader.parked(vhost))]
            notices += [*events.breakers(states, steady_ms()), *events.tasks(tasks, now)]
            self._messages.add(notices, led.told)

        await asyncio.to_thread(compared)  # up to 5,000 groups, between which letters go on

    def _record(self, vhost: str, action: str, details: Mapping[str, Any]) -> None:
        """Into the journal, where there is one to write to; nobody waits for it."""
        runner = self._attendants.get(vhost)
        if runner is None or not runner.leadership.is_ours:
            return
        try:
            line = audit(self._router_id, vhost, actor=_ACTOR, action=action, details=details, ts_ms=wall_ms())
        except AuditError as error:
            self._once.warn(
                "record", "webhooks.record", error=str(error), fate="it may be told again by another leader"
            )
        else:
            runner.journal.record(line)


def _tasks(runner: VhostRunner) -> Iterable[Task]:
    try:
        return runner.tasks.all()
    except (NotLeader, TaskError):
        return ()
