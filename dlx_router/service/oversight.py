"""Drift: what apply would change in a vhost, counted while the router runs. What cannot be had is absent."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Sequence
from typing import Final

from dlx_router.broker.administration import Administration, ManagementError
from dlx_router.config.delayed import Delayed
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

    async def watch(self, policies: Callable[[], PolicySet], delayed: Callable[[], Sequence[Delayed]]) -> None:
        """Look again and again until cancelled; at what is in force then."""
        try:
            while self._api is not None:
                began = time.monotonic()
                try:
                    await self._look(self._api, policies(), delayed())
                except ManagementError:
                    self._drift.pop(self._vhost, None)
                await asyncio.sleep(max(EVERY_S, SHARE * (time.monotonic() - began)))
        finally:
            self._drift.pop(self._vhost, None)

    async def _look(self, api: Administration, policies: PolicySet, delayed: Sequence[Delayed]) -> None:
        snapshot = await api.snapshot(self._vhost)
        owned = await self._owned(api)
        found = await asyncio.to_thread(
            plan, policies, snapshot, self._names, owned, journal=self._journal, delayed=delayed
        )
        if has_been_applied(found, snapshot, self._names):
            self._drift[self._vhost] = drift(found)
        else:
            self._drift.pop(self._vhost, None)

    async def _owned(self, api: Administration) -> frozenset[str]:
        """Our policies by the ledger; who may only look is told by their names."""
        with contextlib.suppress(ManagementError):
            return ledger.read(await api.parameter(ledger.parameter(self._names, self._vhost)))
        return frozenset()
