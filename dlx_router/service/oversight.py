"""What the management API says of a vhost while the router runs: the types of queues, and what differs from the plan.

Types are there before the first letter is judged by a policy that asks for one. What cannot be had is not guessed: the
types stay as they were seen last, and the drift is absent.
"""

import asyncio
import contextlib
from collections.abc import Callable, Mapping
from typing import Final

from dlx_router.broker.administration import Administration, ManagementError, Snapshot
from dlx_router.core.names import Names
from dlx_router.core.policy import PolicySet
from dlx_router.provisioning import ledger
from dlx_router.provisioning.plan import drift, has_been_applied, plan
from dlx_router.service.session import Trouble

EVERY_S: Final = 30.0
SOON_S: Final = 5.0


class Oversight:
    """One vhost. `drift` maps it to the steps that apply would take; absent where apply was never used, or unknown."""

    def __init__(
        self, api: Administration | None, vhost: str, names: Names, drift_of: dict[str, int], *, journal: bool
    ) -> None:
        self._api, self._vhost, self._names, self._journal = api, vhost, names, journal
        self._drift = drift_of
        self._kinds: Mapping[str, str] = {}
        self._asked = asyncio.Event()

    def kind_of(self, queue: str) -> str | None:
        """The queue's type, None where it is not known yet; then it is looked for."""
        kind = self._kinds.get(queue)
        if kind is None:
            self._asked.set()
        return kind

    async def begin(self, policies: PolicySet) -> None:
        """Know the types. Trouble where policies ask for them and they cannot be had."""
        try:
            await self._look(policies)
        except ManagementError as error:
            if policies.by_kind:
                raise Trouble(f"apply-to needs the types of queues, and they are not known: {error}") from error

    async def watch(self, policies: Callable[[], PolicySet]) -> None:
        """Look again and again until cancelled, sooner after a queue came up that nobody knows."""
        try:
            while True:
                await asyncio.sleep(SOON_S)
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(EVERY_S - SOON_S):
                        await self._asked.wait()
                self._asked.clear()
                try:
                    await self._look(policies())
                except ManagementError:
                    self._drift.pop(self._vhost, None)
        finally:
            self._drift.pop(self._vhost, None)

    async def _look(self, policies: PolicySet) -> None:
        if self._api is None:
            if policies.by_kind:
                raise ManagementError("no MANAGEMENT_URL")
            return
        snapshot = await self._api.snapshot(self._vhost)
        self._kinds = {one.name: one.kind for one in snapshot.queues}
        owned = await self._owned(self._api)
        await asyncio.to_thread(self._compare, policies, snapshot, owned)

    async def _owned(self, api: Administration) -> frozenset[str]:
        """Our policies by the ledger; who may only look is told by their names."""
        with contextlib.suppress(ManagementError):
            return ledger.read(await api.parameter(ledger.parameter(self._names, self._vhost)))
        return frozenset()

    def _compare(self, policies: PolicySet, snapshot: Snapshot, owned: frozenset[str]) -> None:
        found = plan(policies, snapshot, self._names, owned, journal=self._journal)
        if has_been_applied(found, snapshot, self._names):
            self._drift[self._vhost] = drift(found)
        else:
            self._drift.pop(self._vhost, None)
