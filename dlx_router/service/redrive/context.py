"""At which node a leader reads the journal: that of its session, and after a failure the next of the URL.

A stream is read only at a node that has a replica of it, and one that came into the cluster later has none: published
there is all the same, so the session does not fail, and no other attempt at that node would ever end otherwise.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from dataclasses import dataclass

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.link import Link, open_link
from dlx_router.broker.management import Management
from dlx_router.broker.topology import Topology
from dlx_router.core.letter import Arrival
from dlx_router.core.names import Names
from dlx_router.journal.writer import Journal
from dlx_router.service.inflight.decoder import ANY_EXCHANGE, Place
from dlx_router.service.inflight.in_force import InForce
from dlx_router.service.queue_reads import QueueReads
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness

_UNREAD = (LinkError, ChannelClosed, TimeoutError, OSError)


class JournalHosts:
    """Of one session. /readyz notes while it cannot be read, until it was, at any node, or `quiet()`."""

    def __init__(self, hosts: Sequence[Host], vhost: str, readiness: Readiness) -> None:
        self._hosts, self._vhost, self._readiness = hosts, vhost, readiness
        self._turn = 0
        self._note = f"leader reads {vhost}"

    @asynccontextmanager
    async def reading(self, link: Callable[[Host], Awaitable[Link]]) -> AsyncIterator[Link]:
        """A connection to read by, closed afterwards. What fails inside has the next node be asked the next time."""
        turn = self._turn
        host = self._hosts[turn % len(self._hosts)]
        try:
            opened = await link(host)
            opened.on_read = self.quiet  # a canary keeps its connection for as long as it watches
            try:
                yield opened
            finally:
                await opened.close()
        except _UNREAD as error:
            self._turn += self._turn == turn  # else another has passed over it meanwhile
            self._tell(host, error)
            raise
        self.quiet()

    def _tell(self, host: Host, error: Exception) -> None:
        why = str(error) or "no answer in time"
        text = (
            f"vhost {self._vhost!r}: this router leads, and cannot read the journal at {host.name}:{host.port}: {why}"
        )
        fate = "redrive tasks, exports and leases wait until it can; letters go on"
        now = "the nodes of AMQP_URL are tried in turn, and one of them needs a replica of the stream"
        self._readiness.note(self._note, f"{text}; {fate}; {now}")

    def quiet(self) -> None:
        """It was read, or somebody else leads."""
        self._readiness.drop_note(self._note)


Target = tuple[str, str]  # exchange, routing key


@dataclass(frozen=True, slots=True)
class TaskContext:
    """Of one leader's time in one vhost. The key appears in no repr."""

    host: Host
    login: Login
    tls: Tls | None
    heartbeat_s: int
    confirm_timeout_s: float
    names: Names
    topology: Topology
    management: Management | None
    journal: Journal
    metrics: Metrics
    router_id: str
    journal_hosts: JournalHosts
    in_force: Callable[[], InForce]  # now
    reads: QueueReads
    sign_with: Callable[[], bytes]
    leased: Callable[[str], int] = lambda _queue: 0  # how many consumers of a queue are those of leases
    awaited: Callable[[str], int] = lambda _queue: 0  # how many of these wait for letters: they take what comes
    indexed: Callable[[], Sequence[Target]] = tuple  # where the index knows dead letters; reads a file, so in a thread

    async def link(self, role: str) -> Link:
        """A connection of its own: nothing of the letters' way waits for it. LinkError where it cannot be made."""
        return await self._link_to(self.host, role)

    def reading(self, role: str) -> AbstractAsyncContextManager[Link]:
        """A connection by which the journal is read, at a node that lets us. LinkError where it cannot be made."""
        return self.journal_hosts.reading(lambda host: self._link_to(host, role))

    async def _link_to(self, host: Host, role: str) -> Link:
        link = await open_link(
            host,
            self.login,
            tls=self.tls,
            heartbeat=self.heartbeat_s,
            name=f"dlx-router redrive {role} {self.login.vhost}",
        )
        link.read_in_turns()
        return link


def place_of(context: TaskContext, queue: str) -> Place:
    """How a task reads what lies there: an operator orders it, and of what we never had x-death alone tells more."""
    where = context.login.vhost, queue, Arrival.INBOX, context.names, context.sign_with()
    return Place(*where, dead_letter_exchanges=ANY_EXCHANGE, rests=True)


class Stopped(Exception):
    """The task cannot go on by itself; the text says why and what now."""
