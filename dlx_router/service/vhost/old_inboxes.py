"""Inboxes that stand and that INBOX_SHARDS does not name: there were more shards, or another router has more.

What lies there was promised as any other letter is, so it is taken. Nothing is deleted: deaths may be on their way.
"""

import asyncio
import re
from collections.abc import Mapping
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
            refused = {queue: await self._refused(session, queue) for queue in await self._existing(topology)}
            self._report(refused)
            await asyncio.sleep(SOON_S if None in refused.values() else EVERY_S)

    async def _existing(self, topology: Topology) -> tuple[str, ...]:
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
        self._standing = tuple(queue for queue in unnamed if queue in there)
        return self._standing

    async def _refused(self, session: Taking, queue: str) -> str | None:
        """Why it is not taken; "" where it is, None where it is not yet."""
        try:
            if not await session.take_too(queue):
                return None
        except ChannelClosed as error:
            fate = "its letters stay in it; asked again"
            self._once.warn(queue, "inbox.not_taken", vhost=self._vhost, queue=queue, error=str(error), fate=fate)
            return str(error)
        self._once.healed(queue, "inbox.taken", vhost=self._vhost, queue=queue)
        return ""

    def _report(self, refused: Mapping[str, str | None]) -> None:
        note = f"inbox shards {self._vhost}"
        if not refused:
            self._readiness.drop_note(note)
            return
        shards = self._names.shards
        text = f"vhost {self._vhost!r}: {', '.join(refused)}: inboxes that INBOX_SHARDS={shards} does not name; "
        left = [f"{queue} is not taken: {why}" for queue, why in refused.items() if why]
        if left:
            rights = f"`dlx-router permissions` with INBOX_SHARDS={max(shards, 2)} prints the rights"
            text += f"{'; '.join(left)}; what lies there stays in it: {rights}"
        else:
            text += "what lies there is taken too"
        self._readiness.note(note, text)
