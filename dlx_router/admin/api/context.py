"""What the paths of the API work with: the vhosts of this router, the index, and who asks."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, Final, TypeVar

from fastapi import Depends, Request

from dlx_router.admin.api.answers import PLAIN, NotLed, Takes, refuse
from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.topology import TopologyError
from dlx_router.config.api_access.allowed_hosts import Hosts
from dlx_router.config.api_access.passes import Passes
from dlx_router.config.api_access.tokens import Caller, Role, Tokens
from dlx_router.core.names import Names
from dlx_router.index.supervisor import Supervisor
from dlx_router.journal.audit import AuditError
from dlx_router.journal.audit import audit as audited
from dlx_router.journal.batch import sure
from dlx_router.service.leases.manager import VhostLeases
from dlx_router.service.redrive.preview import QueueKind
from dlx_router.service.redrive.tasks import Tasks
from dlx_router.service.upkeep.emptied_queues import EmptiedQueues
from dlx_router.service.upkeep.import_queue import Importer
from dlx_router.service.vhost.runner import VhostRunner
from dlx_router.telemetry.wall_clock import wall_ms

CONFIRM_S = 5.0
KNOWN_S: Final = 4.0
TasksOrLeases = TypeVar("TasksOrLeases", Tasks, VhostLeases)


@dataclass(slots=True)
class Context:
    """One router, as the API sees it. `index` None: INDEX_PATH is not set. `tokens` None: only loopback may ask."""

    router_id: str
    names: Names
    attendants: Mapping[str, VhostRunner]
    index: Supervisor | None = None
    tokens: Tokens | None = None
    passes: Passes = field(default_factory=Passes)
    is_loopback: bool = True
    hosts: Hosts = field(default_factory=Hosts)
    depths: EmptiedQueues | None = None
    importer: Importer | None = None
    management: Management | None = None
    max_body_bytes: int = 1 << 20
    per_second: float = 50.0
    burst: int = 100
    at_once: int = 32
    extras: dict[str, Any] = field(default_factory=dict)  # what other routers of the API need

    def attendant(self, vhost: str, who: Caller) -> VhostRunner:
        """The vhost's attendant; 404 where it is not served or not to be seen."""
        attendant = self.attendants.get(vhost)
        if attendant is None or not who.may_see(vhost):
            raise refuse(404, f"vhost {vhost!r} is not served here; served: {', '.join(self.visible(who)) or 'none'}")
        return attendant

    def visible(self, who: Caller) -> list[str]:
        """The vhosts that are served and may be seen."""
        return [vhost for vhost in self.attendants if who.may_see(vhost)]

    def led(self, vhost: str, who: Caller) -> VhostRunner:
        """As `attendant`; 503 where another router has the leader's duties."""
        attendant = self.attendant(vhost, who)
        if not attendant.leadership.is_ours:
            raise NotLed(vhost, attendant.not_leading())
        return attendant

    def led_whole(self, vhost: str, who: Caller, what: str, takes: Takes = PLAIN) -> VhostRunner:
        """As `led`, for `what` asks for all of a queue: it holds letters of many failed queues.

        So a scope of some of those is too small: 403. Without a journal nobody leads, and what is asked for says so.
        """
        attendant = self.attendant(vhost, who)
        if who.match is not None:
            raise refuse(
                403, f"token {who.name!r} is limited to some failed queues; {what} need one for the whole vhost"
            )
        if attendant.journal.is_on and not attendant.leadership.is_ours:
            raise NotLed(vhost, attendant.not_leading(), takes)
        return attendant

    async def led_known(
        self, vhost: str, who: Caller, what: str, of: Callable[[VhostRunner], TasksOrLeases], *, takes: Takes = PLAIN
    ) -> TasksOrLeases:
        """`what` of the vhost, as `led_whole` allows it.

        Who has just begun to lead reads the journal first: that is waited for, like a takeover.
        """
        attendant = self.led_whole(vhost, who, what, takes)
        known = of(attendant)
        if attendant.journal.is_on:
            await known.await_known(KNOWN_S)
        return known

    async def audit(self, who: Caller, vhost: str, action: str, details: Mapping[str, Any]) -> None:
        """Return once the journal has it; 503 where it cannot be written, and then nothing may be changed."""
        journal = self.attendant(vhost, who).journal
        if not journal.is_on:
            raise refuse(503, "JOURNAL=off: nothing can be changed, because nothing could tell who did it")
        if not journal.is_working:
            raise refuse(503, f"the journal of vhost {vhost!r} cannot be written now; see /readyz", retry_after_s=5)
        try:
            line = audited(self.router_id, vhost, actor=who.name, action=action, details=details, ts_ms=wall_ms())
        except AuditError as error:
            raise refuse(422, str(error)) from None
        await self.write(self.attendants[vhost], [line])

    async def write(self, attendant: VhostRunner, lines: Sequence[bytes]) -> None:
        """Returns once the stream has confirmed all of them, whatever the mode; 503 where it does not in time."""
        if not attendant.journal.is_on:
            raise refuse(503, "JOURNAL=off: nothing can be told")
        batches = [*map(attendant.journal.record, lines)]
        try:
            async with asyncio.timeout(CONFIRM_S):
                is_written = await sure(batches)
        except TimeoutError:
            problem = f"the journal of {attendant.vhost!r} did not confirm in time; it may have it later, so look first"
            raise refuse(503, problem, retry_after_s=5) from None
        if not is_written:
            problem = f"the journal of {attendant.vhost!r} is too far behind to take it; see /readyz, and ask again"
            raise refuse(503, problem, retry_after_s=5)

    async def kind_of(self, attendant: VhostRunner, queue: str) -> QueueKind:
        """What has to be known before a queue is looked into; 404 where there is none."""
        if self.management is None or attendant.topology is None:
            raise refuse(503, "only the management API tells a queue's type; set DLX_ROUTER_MANAGEMENT_URL")
        try:
            facts = await self.management.facts(attendant.vhost, queue)
            census = await attendant.topology.censuses([queue])
        except (ManagementError, TopologyError) as error:
            raise refuse(503, str(error), retry_after_s=2) from None
        if facts is None or queue not in census:
            raise refuse(404, f"there is no queue {queue!r} in vhost {attendant.vhost!r}")
        return QueueKind(facts.kind, census[queue][1])


async def context_of(request: Request) -> Context:
    """The context that the app was made with. Dependencies are async: FastAPI sends others to a thread and back."""
    context: Context = request.app.state.context
    return context


def caller_of(request: Request) -> Caller:
    """Who asks; the gate has put it there."""
    caller: Caller = request.scope["dlx_router.caller"]
    return caller


def at_least(role: Role) -> Callable[[Request], Awaitable[Caller]]:
    """A dependency: the caller, 403 where the role is less than this."""

    async def check(request: Request) -> Caller:
        who = caller_of(request)
        if who.role < role:
            raise refuse(403, f"token {who.name!r} is a {who.role.name.lower()}; this needs {role.name.lower()}")
        return who

    return check


Given = Annotated[Context, Depends(context_of)]
Viewer = Annotated[Caller, Depends(at_least(Role.VIEWER))]
Operator = Annotated[Caller, Depends(at_least(Role.OPERATOR))]
Admin = Annotated[Caller, Depends(at_least(Role.ADMIN))]
