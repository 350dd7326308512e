"""The guard: nobody's policy may shorten, expire or redirect our own queues.

Arguments cannot defend a queue against a catch-all policy (50 confirmed, 5 kept), so the effective policies are read
from the management API at start and each minute. While one is harmful, nothing is consumed.
"""

import asyncio
from collections.abc import Callable
from typing import Final

from dlx_router.broker.management import Management, ManagementError
from dlx_router.core.names import Names
from dlx_router.service.session import Trouble
from dlx_router.telemetry.readiness import Readiness

EVERY_S: Final = 60.0


class Guard:
    """Checks own queues; without a management URL readiness notes that nothing is verified, and that is no refusal."""

    def __init__(self, management: Management | None, names: Names, readiness: Readiness) -> None:
        self._management = management
        self._names = names
        self._readiness = readiness
        self._harmful: dict[str, str] = {}

    async def check(self, vhost: str) -> None:
        """Raises Trouble that names queue, policy and keys where a policy would cost letters."""
        if self._management is None:
            self._readiness.note(f"policies {vhost}", "own queues: policies not verified (no MANAGEMENT_URL)")
            return
        reason = f"own queues {vhost}"
        try:
            problems = await self._management.check_own_queues(vhost, self._names)
        except ManagementError as error:
            self._readiness.note(f"policies {vhost}", f"own queues: policies not verified ({error})")
            self._refuse(vhost)  # what was harmful is so until it is seen to be gone
            return
        self._readiness.drop_note(f"policies {vhost}")
        self._harmful.pop(vhost, None)
        if not problems:
            self._readiness.clear(reason)
            return
        self._harmful[vhost] = "; ".join(str(problem) for problem in problems)
        self._readiness.set(reason, self._harmful[vhost])
        self._refuse(vhost)

    def _refuse(self, vhost: str) -> None:
        if text := self._harmful.get(vhost):
            raise Trouble(f"own queues are not safe: {text}")

    async def watch(self, vhost: str, trouble: Callable[[str], None]) -> None:
        """Check each minute; a policy that appears ends the session, so that nothing more is consumed."""
        while True:
            await asyncio.sleep(EVERY_S)
            try:
                await self.check(vhost)
            except Trouble as error:
                trouble(str(error))
