"""Reads of queues that the router does not own: every basic.consume and basic.get of one is admitted here first.

A read must cost no message. RabbitMQ deletes an auto-delete, exclusive or expiring queue with all that is in it once
its last consumer leaves, and a read is a consumer. So such a queue is never read. RabbitMQ 4.x ends the connection
(541) where it should deliver a message that AMQP 0-9-1 cannot carry, and counts a failed delivery for every message
that the connection held. So after a 541 the queue is not read until that message is taken out, and never if the first
message is near its delivery limit.
"""

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, NamedTuple

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.consumer import Peek
from dlx_router.broker.link import Link
from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.topology import QueueMissing, Topology
from dlx_router.config.units import number_of
from dlx_router.core import attending
from dlx_router.core.attending import QueueFacts
from dlx_router.core.names import Names
from dlx_router.redrive.task import TaskError
from dlx_router.service.inflight import decoder
from dlx_router.telemetry.logs import Once, log
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness

ISOLATES_S: Final = 60.0
AGAIN_S: Final = 60.0  # between two searches of an unreadable queue
ANSWER_S: Final = 6.0  # a request waits so long for a search
UNKNOWN: Final = (
    "it is not known whether it is auto-delete or expires, and then a read deletes it with all its messages; set "
    "MANAGEMENT_URL, or give the router's user the right to configure it"
)


class ReadRefused(TaskError):
    """The queue must not be read; says why, and what to do."""


class ReadCrashed(LinkError):
    """RabbitMQ ended the connection of a read (541), which held so many messages."""

    def __init__(self, error: LinkError, held: int) -> None:
        super().__init__(str(error))
        self.code, self.held = error.code, held


class Extraction(NamedTuple):
    """A search for messages that AMQP 0-9-1 cannot carry: how many were moved; why the queue is not clean, or ""."""

    moved: int
    left: str


Extract = Callable[[str, int, QueueFacts], Awaitable[Extraction]]
"""Move such messages among the first so many of a queue to quarantine."""


class _Unreadable:
    """A queue on which a read failed. `window`: how many messages that read could hold."""

    def __init__(self, window: int) -> None:
        self.window, self.failed = window, 0
        self.why = "a message that AMQP 0-9-1 cannot carry is being searched for; ask again"
        self.searched_s = 0.0
        self.search: asyncio.Task[None] | None = None


class QueueReads:
    """The reads of one vhost, for as long as the router runs."""

    def __init__(
        self,
        vhost: str,
        names: Names,
        management: Management | None,
        metrics: Metrics,
        readiness: Readiness,
        extract: Extract,
    ) -> None:
        self._vhost, self._names, self._management = vhost, names, management
        self._metrics, self._readiness, self._extract = metrics, readiness, extract
        self._unreadable: dict[str, _Unreadable] = {}
        self._crashes: dict[str, float] = {}  # queue → when a message of it last ended a connection
        self._isolated: set[str] = set()
        self._once = Once()
        self.near_limit: set[tuple[str, int | None]] = set()  # queues and their limits: some message is near it

    # -- before a read ------------------------------------------------------------------------------------------

    async def admit(self, topology: Topology, queue: str) -> Mapping[str, Any]:
        """Return what the management API says of a queue that may be read; empty without it. Raises ReadRefused.

        Call it before each read, and `check_head` on the connection that reads. An internal queue never vanishes.
        """
        await self.require_readable(topology, queue)
        facts = await self._facts(queue)
        if not self._names.is_own(queue):
            is_whole = {"arguments", "auto_delete", "exclusive"} <= facts.keys()
            await self.require_lasting(topology, queue, attending.facts_of(facts) if is_whole else None)
        return facts

    async def _facts(self, queue: str) -> Mapping[str, Any]:
        if self._management is None:
            return {}
        try:
            return await self._management.queue_facts(self._vhost, queue)
        except ManagementError:
            return {}

    async def require_lasting(self, topology: Topology, queue: str, facts: QueueFacts | None) -> None:
        """Raise ReadRefused if the end of a read may delete the queue. `facts` None: the broker is asked by AMQP.

        If the broker does not tell, the read goes on, and readiness and log say so. TopologyError: no connection.
        """
        if facts is None:
            try:
                facts = await topology.lifetime(queue)
            except QueueMissing:
                return  # the read itself finds that out
        note = f"lifetime {self._vhost}/{queue}"
        if facts is None:
            self._readiness.note(note, f"{self._where(queue)}: {UNKNOWN}")
            self._once.warn(note, "queue.lifetime_unknown", vhost=self._vhost, queue=queue, fate=UNKNOWN)
            return
        self._readiness.drop_note(note)
        if why := attending.vanishes(facts):
            self._once.warn(f"read {queue}", "queue.read_refused", vhost=self._vhost, queue=queue, cause=why)
            raise self._refused(queue, why)

    async def require_readable(self, topology: Topology, queue: str) -> None:
        """Raise ReadRefused if a read of this queue failed (541) and it is not known to be clean; search again."""
        unreadable = self._unreadable.get(queue)
        if unreadable is None:
            return
        if unreadable.search is None and (await topology.depths([queue])).get(queue) == 0:
            self._clean(queue)
            return
        if unreadable.search is not None or time.monotonic() - unreadable.searched_s > AGAIN_S:
            await self._search(queue, unreadable)
        if queue in self._unreadable:
            raise self._refused(queue, unreadable.why)

    def is_readable(self, queue: str) -> bool:
        """Whether no read of the queue failed, or it is known to be clean since."""
        return queue not in self._unreadable

    async def check_head(self, link: Link, queue: str, facts: Mapping[str, Any]) -> None:
        """Read the first message and give it back; ReadRefused if it is near its limit. Raises what ends the link.

        So a message that RabbitMQ cannot deliver costs the first message one delivery, and no other. Before 4.3 it
        would cost one each time: the reads that are possible there count themselves.
        """
        if self._names.is_own(queue) or link.version < attending.RETURNS_FREE_SINCE:
            return
        known = attending.facts_of(facts) if "type" in facts else QueueFacts("quorum")
        limit = attending.delivery_limit(known, link.version)
        if limit is None or known.kind != "quorum":
            return
        peek = Peek(link, queue)
        try:
            head = await peek.look()
        except ChannelClosed:
            return  # a single active consumer excludes basic.get
        peek.close()
        if head is not None and (count := decoder.returns(head)) >= limit - attending.NEAR:
            raise self.too_near(queue, count, limit)

    def too_near(self, queue: str, count: int, limit: int) -> ReadRefused:
        """Return the refusal of a queue whose first message has failed so often."""
        why = (
            f"its first message has {number_of(count, 'failed delivery', 'failed deliveries')}, and RabbitMQ ends it "
            f"after {limit}; {attending.RAISE}, or take the message out"
        )
        self._once.warn(f"near {queue}", "queue.read_refused", vhost=self._vhost, queue=queue, cause=why)
        return self._refused(queue, why)

    def is_isolated(self, queue: str) -> bool:
        """Whether the queue is consumed on a connection of its own."""
        return queue in self._isolated

    def culprit_found(self, queue: str, window: int, left: str) -> None:
        """Note that a message of the queue ended a session; the second within a minute isolates the queue.

        `left`: why it is still there; then the queue is not read.
        """
        if left and not self._names.is_own(queue):
            unreadable = self._unreadable[queue] = _Unreadable(window)
            unreadable.why, unreadable.searched_s = left, time.monotonic()
            self._note(queue, unreadable)
        now = time.monotonic()
        if now - self._crashes.get(queue, -math.inf) < ISOLATES_S and queue not in self._isolated:
            self._isolated.add(queue)
            fate = "consumed on a connection of its own until the router restarts, so that no other queue is disturbed"
            log.warning("queue.isolated", vhost=self._vhost, queue=queue, fate=fate)
            text = f"{self._where(queue)}: its messages ended a connection (541) twice within a minute; {fate}"
            self._readiness.note(f"isolated {self._vhost}/{queue}", text)
        self._crashes[queue] = now

    # -- after a read failed ------------------------------------------------------------------------------------

    async def crashed(self, queue: str, *, window: int, held: int) -> ReadRefused:
        """Note that RabbitMQ ended a read's connection (541), and take out what it cannot deliver; return the refusal.

        `window`: how many messages the read could hold; `held`: how many it held. Until the queue is known to be
        clean (`is_readable`), all reads of it are refused.
        """
        self._metrics.failed_reads[self._vhost, queue] += held
        unreadable = self._unreadable.get(queue)
        if unreadable is None:
            unreadable = self._unreadable[queue] = _Unreadable(window)
        unreadable.window, unreadable.failed = max(window, unreadable.window), unreadable.failed + held
        self._note(queue, unreadable)
        fate = "the queue is not read until the message is taken out"
        log.warning("queue.unreadable", vhost=self._vhost, queue=queue, held=held, fate=fate)
        await self._search(queue, unreadable)
        return self._refused(queue, unreadable.why)

    async def _search(self, queue: str, unreadable: _Unreadable) -> None:
        """Search, or wait for the search that runs; no longer than a request may take."""
        if unreadable.search is None:
            unreadable.search = asyncio.create_task(self._searched(queue, unreadable))
        await asyncio.wait({unreadable.search}, timeout=ANSWER_S)

    async def _searched(self, queue: str, unreadable: _Unreadable) -> None:
        facts = await self._facts(queue)
        known = attending.facts_of(facts) if "type" in facts else QueueFacts("quorum")
        try:
            moved, left = await self._extract(queue, unreadable.window, known)
        except Exception as error:  # noqa: BLE001 - or the queue would stay unreadable without a reason
            moved, left = 0, f"the search failed: {error!r}"
        unreadable.searched_s, unreadable.search = time.monotonic(), None
        if left:
            unreadable.why = f"RabbitMQ ended the connection (541) as it delivered a message of it; {left}"
            self._note(queue, unreadable)
            self._once.warn(f"left {queue}", "queue.unreadable", vhost=self._vhost, queue=queue, error=left)
            return
        cause = "its log says why: no message is known to cause that"
        if moved:
            cause = f"{number_of(moved, 'message')} that AMQP 0-9-1 cannot carry moved to {self._names.quarantine}"
        unreadable.why = f"RabbitMQ ended the connection (541) as it delivered a message of it; {cause}; ask again"
        self._clean(queue)

    def _clean(self, queue: str) -> None:
        del self._unreadable[queue]
        self._readiness.drop_note(f"unreadable {self._vhost}/{queue}")
        log.info("queue.readable", vhost=self._vhost, queue=queue)

    def _note(self, queue: str, unreadable: _Unreadable) -> None:
        failed = (
            f" ({number_of(unreadable.failed, 'message')} had a failed delivery by it)" if unreadable.failed else ""
        )
        text = f"{self._where(queue)} is not read{failed}: {unreadable.why}"
        self._readiness.note(f"unreadable {self._vhost}/{queue}", text)

    def _refused(self, queue: str, why: str) -> ReadRefused:
        return ReadRefused(f"{self._where(queue)} is not read: {why}")

    def _where(self, queue: str) -> str:
        return f"queue {queue!r} in vhost {self._vhost!r}"
