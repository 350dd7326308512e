"""Count and date the dead letters of policies that set `alert`, for metrics. What is not known is absent."""

import asyncio
import time
from collections.abc import Callable, Mapping
from typing import Final

from dlx_router.broker.management import Management, ManagementError
from dlx_router.core.names import Names
from dlx_router.core.policy import PolicySet
from dlx_router.index.reader import IndexAway, TooLong
from dlx_router.index.supervisor import Supervisor
from dlx_router.provisioning import dead_letter_destinations
from dlx_router.telemetry.metrics import Metrics

EVERY_S: Final = 10.0
SHARE: Final = 20  # a look takes at most this fraction of the time


class PolicyLetters:
    """Of one vhost, by the management API."""

    def __init__(self, api: Management | None, vhost: str, names: Names, metrics: Metrics) -> None:
        self._api, self._vhost, self._names, self._metrics = api, vhost, names, metrics

    async def watch(self, policies: Callable[[], PolicySet]) -> None:
        """Look until cancelled."""
        try:
            while self._api is not None:
                began = time.monotonic()
                try:
                    snapshot = await self._api.snapshot(self._vhost)
                    queues = await asyncio.to_thread(
                        dead_letter_destinations.watched, policies(), snapshot, self._names
                    )
                    letters = dead_letter_destinations.letters(queues, snapshot)
                    self._expose(letters, dead_letter_destinations.oldest(queues, snapshot))
                except ManagementError:
                    self._expose({}, {})
                await asyncio.sleep(max(EVERY_S, SHARE * (time.monotonic() - began)))
        finally:
            self._expose({}, {})

    def _expose(self, letters: Mapping[str, int], oldest: Mapping[str, float]) -> None:
        of, vhost = self._metrics, self._vhost
        of.policy_letters = {key: number for key, number in of.policy_letters.items() if key[0] != vhost}
        of.policy_letters |= {(vhost, policy): number for policy, number in letters.items()}
        of.policy_oldest = {key: stamp for key, stamp in of.policy_oldest.items() if key[0] != vhost}
        of.policy_oldest |= {(vhost, policy): stamp for policy, stamp in oldest.items()}


async def watch_index(index: Supervisor, led: Callable[[], set[str]], metrics: Metrics) -> None:
    """Date the oldest letters of policies that ask for it by the index, in the vhosts that this router leads."""
    while True:
        asked, vhosts = {policy for policy, kind in metrics.thresholds if kind == "oldest"}, led()
        oldest: dict[tuple[str, str], int] = {}
        if asked and vhosts:
            try:
                oldest = await asyncio.to_thread(index.reader.oldest)
            except (IndexAway, TooLong, OSError):
                oldest = {}
        metrics.index_oldest = {key: ms / 1000 for key, ms in oldest.items() if key[0] in vhosts and key[1] in asked}
        await asyncio.sleep(EVERY_S)
