"""What the management API tells of a whole vhost while the router runs: drift, and the dead letters of policies.

Drift is what apply would change. What cannot be had is absent.
"""

import asyncio
import contextlib
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from dlx_router.broker.administration import Administration, ManagementError
from dlx_router.config.policy_files.attachments import Attachment
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.core.names import Names
from dlx_router.core.policy import PolicySet
from dlx_router.provisioning import dead_letter_destinations, ledger
from dlx_router.provisioning.plan import drift, has_been_applied, plan
from dlx_router.telemetry.metrics import Metrics

EVERY_S: Final = 10.0
SHARE: Final = 20  # looking takes at most so small a part of the time


class PolicyDrift:
    """One vhost, for metrics.policy_drift (absent where apply was never used), policy_letters and policy_oldest."""

    def __init__(
        self, api: Administration | None, vhost: str, names: Names, metrics: Metrics, *, journal: bool
    ) -> None:
        self._api, self._vhost, self._names, self._journal = api, vhost, names, journal
        self._metrics, self._drift = metrics, metrics.policy_drift

    async def watch(
        self, policies: Callable[[], PolicySet], wanted: Callable[[], Sequence[Attachment | Delayed]]
    ) -> None:
        """Look again and again until cancelled; at what is in force then."""
        try:
            while self._api is not None:
                began = time.monotonic()
                try:
                    await self._look(self._api, policies(), wanted())
                except ManagementError:
                    self._forget()
                await asyncio.sleep(max(EVERY_S, SHARE * (time.monotonic() - began)))
        finally:
            self._forget()

    async def _look(self, api: Administration, policies: PolicySet, wanted: Sequence[Attachment | Delayed]) -> None:
        snapshot = await api.snapshot(self._vhost)
        heaps = await asyncio.to_thread(dead_letter_destinations.watched, policies, snapshot, self._names)
        self._expose(
            dead_letter_destinations.letters(heaps, snapshot), dead_letter_destinations.oldest(heaps, snapshot)
        )
        owned = await self._owned(api)
        planned = await asyncio.to_thread(
            plan,
            policies,
            snapshot,
            self._names,
            owned,
            journal=self._journal,
            delayed=[source for source in wanted if isinstance(source, Delayed)],
            attachments=[source for source in wanted if isinstance(source, Attachment)],
        )
        if has_been_applied(planned, snapshot, self._names):
            self._drift[self._vhost] = drift(planned)
        else:
            self._drift.pop(self._vhost, None)

    def _expose(self, letters: Mapping[str, int], oldest: Mapping[str, float]) -> None:
        """Of this vhost; what the others tell stays."""
        of, vhost = self._metrics, self._vhost
        of.policy_letters = {key: number for key, number in of.policy_letters.items() if key[0] != vhost}
        of.policy_letters |= {(vhost, policy): number for policy, number in letters.items()}
        of.policy_oldest = {key: stamp for key, stamp in of.policy_oldest.items() if key[0] != vhost}
        of.policy_oldest |= {(vhost, policy): stamp for policy, stamp in oldest.items()}

    def _forget(self) -> None:
        self._drift.pop(self._vhost, None)
        self._expose({}, {})

    async def _owned(self, api: Administration) -> frozenset[str]:
        """Our policies by the ledger; who may only look is told by their names."""
        with contextlib.suppress(ManagementError):
            return ledger.read(await api.parameter(ledger.parameter(self._names, self._vhost)))
        return frozenset()
