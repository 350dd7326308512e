"""Inboxes that stand and that INBOX_SHARDS does not name: there were more shards, or another router has more.

What lies there was promised as any other letter is, so it is taken. Nothing is deleted: deaths may be on their way.
"""

import asyncio
import re
from typing import Final, Protocol

from dlx_router.broker.answers import ChannelClosed
from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.topology import Topology, TopologyError
from dlx_router.core.names import Names
from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.readiness import Readiness

EVERY_S: Final = 10.0
SOON_S: Final = 0.5  # where the session does not attend its own queues yet


class Taking(Protocol):
    """What is asked of a session."""

    async def take_too(self, queue: str) -> bool:
        """Consume it as the other inboxes; False: not yet. ChannelClosed where that cannot be."""


class OldInboxes:
    """Of one vhost, for as long as the router runs."""

    def __init__(self, vhost: str, names: Names, management: Management | None, readiness: Readiness) -> None:
        self._vhost, self._names, self._management = vhost, names, management
        self._readiness, self._once = readiness, Once()
        self._standing: tuple[str, ...] | None = None  # at the last look that was answered
        self._pattern = rf"^{re.escape(names.inbox)}\.[0-9]+$"

    async def watch(self, session: Taking, topology: Topology) -> None:
        """Look again and again until cancelled."""
        while True:
            standing = await self._found(topology)
            taken = [await self._taken(session, queue) for queue in standing]
            self._tell(standing)
            await asyncio.sleep(EVERY_S if all(taken) else SOON_S)

    async def _found(self, topology: Topology) -> tuple[str, ...]:
        """Those that stand. Without the management API each is looked for once, and then those that were there."""
        unnamed = self._names.unnamed_inboxes
        asked = unnamed if self._standing is None else self._standing
        try:
            if self._management is not None:
                there = {*await self._management.queues(self._vhost, self._pattern)}
            else:
                there = {*await topology.censuses(asked)} if asked else set[str]()
        except (ManagementError, TopologyError):
            return self._standing or ()
        self._standing = tuple(one for one in unnamed if one in there)
        return self._standing

    async def _taken(self, session: Taking, queue: str) -> bool:
        try:
            return await session.take_too(queue)
        except ChannelClosed as error:
            fate = "its letters stay in it; asked again"
            self._once.warn(queue, "inbox.not_taken", vhost=self._vhost, queue=queue, error=str(error), fate=fate)
            return True

    def _tell(self, standing: tuple[str, ...]) -> None:
        note = f"inbox shards {self._vhost}"
        if not standing:
            self._readiness.drop_note(note)
            return
        named = f"INBOX_SHARDS={self._names.shards} does not name"
        self._readiness.note(
            note, f"vhost {self._vhost!r}: {', '.join(standing)}: inboxes that {named}; what lies there is taken too"
        )
