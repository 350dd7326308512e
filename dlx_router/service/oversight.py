"""Drift: what apply would change in a vhost, counted while the router runs. What cannot be had is absent."""

import asyncio
import contextlib
import time
from collections.abc import Callable
from typing import Final

from dlx_router.broker.administration import Administration, ManagementError, Snapshot
from dlx_router.core.names import Names
from dlx_router.core.policy import PolicySet
from dlx_router.provisioning import ledger
from dlx_router.provisioning.plan import drift, has_been_applied, plan

EVERY_S: Final = 10.0
SHARE: Final = 20  # looking takes at most so small a part of the time


class Oversight:
    """One vhost. `drift` maps it to the steps that apply would take; absent where apply was never used, or unknown."""

    def __init__(
        self, api: Administration | None, vhost: str, names: Names, drift_of: dict[str, int], *, journal: bool
    ) -> None:
        self._api, self._vhost, self._names, self._journal = api, vhost, names, journal
        self._drift = drift_of

    async def watch(self, policies: Callable[[], PolicySet]) -> None:
        """Look again and again until cancelled."""
        try:
            while self._api is not None:
                began = time.monotonic()
                try:
                    await self._look(self._api, policies())
                except ManagementError:
                    self._drift.pop(self._vhost, None)
                await asyncio.sleep(max(EVERY_S, SHARE * (time.monotonic() - began)))
        finally:
            self._drift.pop(self._vhost, None)

    async def _look(self, api: Administration, policies: PolicySet) -> None:
        snapshot = await api.snapshot(self._vhost)
        owned = await self._owned(api)
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
