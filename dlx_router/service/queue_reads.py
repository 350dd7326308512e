"""Reads of queues that the router does not own: every basic.consume and basic.get of one is admitted here first.

A read must cost no message. RabbitMQ deletes an auto-delete, exclusive or expiring queue with all that is in it once
its last consumer leaves, and a preview is a consumer. So such a queue is never read.
"""

from collections.abc import Mapping
from typing import Any, Final

from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.topology import QueueMissing, Topology
from dlx_router.core import attending
from dlx_router.core.attending import QueueFacts
from dlx_router.core.names import Names
from dlx_router.redrive.task import TaskError
from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.readiness import Readiness

UNKNOWN: Final = (
    "it is not known whether it is auto-delete or expires, and then a read deletes it with all its messages; set "
    "MANAGEMENT_URL, or give the router's user the right to configure it"
)


class ReadRefused(TaskError):
    """The queue must not be read; says why, and what to do."""


class QueueReads:
    """The reads of one vhost, for as long as the router runs."""

    def __init__(self, vhost: str, names: Names, management: Management | None, readiness: Readiness) -> None:
        self._vhost, self._names, self._management, self._readiness = vhost, names, management, readiness
        self._once = Once()
        self.near_limit: set[tuple[str, int | None]] = set()  # queues and their limits: some message is near it

    async def admit(self, topology: Topology, queue: str) -> Mapping[str, Any]:
        """Return what the management API says of a queue that may be read; empty without it. Raises ReadRefused.

        Call it before each read; of an internal queue only the answer is of interest.
        """
        facts: Mapping[str, Any] = {}
        if self._management is not None:
            try:
                facts = await self._management.queue_facts(self._vhost, queue)
            except ManagementError:
                facts = {}
        if not self._names.is_own(queue):
            is_whole = {"arguments", "auto_delete", "exclusive"} <= facts.keys()
            await self.require_lasting(topology, queue, attending.facts_of(facts) if is_whole else None)
        return facts

    async def require_lasting(self, topology: Topology, queue: str, facts: QueueFacts | None) -> None:
        """Raise ReadRefused if the end of a read may delete the queue. `facts` None: the broker is asked by AMQP.

        If the broker does not tell, the read goes on, and readiness and log say so. TopologyError: no connection.
        """
        if facts is None:
            try:
                facts = await topology.lifetime(queue)
            except QueueMissing:
                return  # the read itself finds that out
        where = f"queue {queue!r} in vhost {self._vhost!r}"
        note = f"lifetime {self._vhost}/{queue}"
        if facts is None:
            self._readiness.note(note, f"{where}: {UNKNOWN}")
            self._once.warn(note, "queue.lifetime_unknown", vhost=self._vhost, queue=queue, fate=UNKNOWN)
            return
        self._readiness.drop_note(note)
        if why := attending.vanishes(facts):
            self._once.warn(f"read {queue}", "queue.read_refused", vhost=self._vhost, queue=queue, cause=why)
            raise ReadRefused(f"{where} is not read: {why}")
