"""What a worker needs of its surroundings, and why it may stop."""

from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.link import Link, open_link
from dlx_router.broker.management import Management
from dlx_router.broker.topology import Topology
from dlx_router.core.letter import Arrival
from dlx_router.core.names import Names
from dlx_router.journal.writer import Journal
from dlx_router.service.inflight.decoder import ANY_EXCHANGE, Place
from dlx_router.service.inflight.in_force import InForce
from dlx_router.service.queue_reads import QueueReads
from dlx_router.service.redrive.journal_hosts import JournalHosts
from dlx_router.telemetry.metrics import Metrics

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
