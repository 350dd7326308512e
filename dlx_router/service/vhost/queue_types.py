"""Kinds: the types of a vhost's queues, which policies with `apply-to` depend on. The management API tells them."""

import asyncio
import contextlib
from typing import Final

from dlx_router.broker.control import time_to_confirm
from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.topology import TopologyError
from dlx_router.core.policy import PolicySet

KIND_S: Final = 5.0


async def kind_of(queue: str, vhost: str, management: Management | None) -> str | None:
    """The type of a queue as it is now; None where the management API does not tell."""
    if management is None:
        return None
    with contextlib.suppress(ManagementError, TimeoutError):
        async with asyncio.timeout(KIND_S):
            return str((await management.queue_facts(vhost, queue)).get("type"))
    return None


class QueueTypes:
    """What was told last. Where nobody ever told it, no letter may be judged by policies that ask for it."""

    def __init__(self, management: Management | None, vhost: str) -> None:
        self._management, self._vhost = management, vhost
        self.known: dict[str, str] = {}  # queue → classic, quorum or stream

    async def ask_for(self, policies: PolicySet) -> None:
        """Ask where these policies do; TopologyError where nobody tells."""
        if not policies.asks_types:
            return
        if self._management is None:
            raise TopologyError("apply-to needs the management API, and MANAGEMENT_URL is not set")
        try:
            self.known = await self._management.queue_types(self._vhost)
        except ManagementError as error:
            raise TopologyError(
                f"apply-to: the types of queues in vhost {self._vhost!r} are not known: {error}"
            ) from error

    async def renew_for(self, policies: PolicySet, *, is_beginning: bool = False) -> None:
        """As `ask_for`, but while nobody tells, what was known holds; letters of a session that begins wait for it."""
        try:
            async with time_to_confirm(known=is_beginning and bool(self.known)):
                await self.ask_for(policies)
        except (TopologyError, TimeoutError):
            if not self.known:  # every letter of a policy for one type would be parked, as if there were no policy
                raise
