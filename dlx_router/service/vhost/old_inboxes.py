"""Inboxes that stand and that INBOX_SHARDS does not name: there were more shards, or another router has more.

What lies there was promised as any other letter is, so it is taken. Nothing is deleted: deaths may be on their way.
"""

import asyncio
import re
import time
from collections.abc import Mapping
from typing import Final, Protocol

from dlx_router.broker.answers import ChannelClosed
from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.topology import Topology, TopologyError
from dlx_router.core.names import Names
from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.readiness import Readiness

EVERY_S: Final = 10.0
UNTOLD_S: Final = 300.0  # where AMQP did not tell of some
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
        self._standing: tuple[str, ...] = ()  # as far as anybody has told
        self._missing: frozenset[str] = frozenset()  # by AMQP
        self._untold: tuple[str, ...] = ()  # neither seen nor missing, at the last look by AMQP
        self._again_s = 0.0  # when AMQP is asked for those again
        self._unknown = ""  # why it is not known of all of them
        self._pattern = rf"^{re.escape(names.inbox)}\.[0-9]+$"

    async def watch(self, session: Taking, topology: Topology) -> None:
        """Look again and again until cancelled."""
        while True:
            await self._look(topology)
            refused = {queue: await self._refused(session, queue) for queue in self._standing}
            self._report(refused)
            await asyncio.sleep(SOON_S if None in refused.values() else EVERY_S)

    async def _look(self, topology: Topology) -> None:
        """The management API tells which stand; where it does not answer, and where there is none, AMQP is asked."""
        why = ""
        if self._management is not None:
            try:
                there = {*await self._management.queues(self._vhost, self._pattern)}
            except ManagementError as error:
                why = str(error)
            else:
                self._standing = tuple(queue for queue in self._names.unnamed_inboxes if queue in there)
                # What it does not name may be made while it is away.
                self._missing, self._untold, self._unknown = frozenset(), (), ""
                return
        await self._ask(topology)
        self._unknown = self._not_known(why)

    async def _ask(self, topology: Topology) -> None:
        """One that was seen stands until it is said to be missing, and that is asked for once.

        The broker logs an error for each that is missing or may not be looked at.
        """
        asked = [queue for queue in self._names.unnamed_inboxes if queue not in self._missing]
        if not asked or (self._untold and time.monotonic() < self._again_s):
            return
        try:
            counts, missing = await topology.queue_counts(asked)
        except TopologyError:  # the connection is lost, and the session with it
            self._untold = tuple(asked)
            return
        self._missing |= missing
        self._standing = tuple(q for q in asked if q in counts or (q in self._standing and q not in missing))
        self._untold = tuple(queue for queue in asked if queue not in counts and queue not in missing)
        self._again_s = time.monotonic() + UNTOLD_S

    def _not_known(self, why: str) -> str:
        """Why it is not known of all of them; "" where it is. `why` the management API does not tell."""
        if not self._untold:
            return ""
        more = f" and {len(self._untold) - 1} more" if len(self._untold) > 1 else ""
        return "; ".join(filter(None, (why, f"AMQP does not tell of {self._untold[0]}{more}")))

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
        note, shards = f"inbox shards {self._vhost}", self._names.shards
        rights = f"`dlx-router permissions` with INBOX_SHARDS={max(shards, 2)} prints the rights"
        texts = [self._stands(refused, rights)] if refused else []
        if self._unknown:
            which = f"whether there are inboxes that INBOX_SHARDS={shards} does not name is not known"
            texts.append(f"{which}: {self._unknown}; {rights}")
        if texts:
            self._readiness.note(note, f"vhost {self._vhost!r}: {'; '.join(texts)}")
        else:
            self._readiness.drop_note(note)

    def _stands(self, refused: Mapping[str, str | None], rights: str) -> str:
        text = f"{', '.join(refused)}: inboxes that INBOX_SHARDS={self._names.shards} does not name; "
        left = [f"{queue} is not taken: {why}" for queue, why in refused.items() if why]
        if not left:
            return text + "what lies there is taken too"
        return f"{text}{'; '.join(left)}; what lies there stays in it: {rights}"
