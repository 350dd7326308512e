"""How old the oldest dead letter of a policy is, by the index of the vhosts that we lead; only where `alert` asks."""

import asyncio
from collections.abc import Mapping
from typing import Final

from dlx_router.index.reader import IndexAway, TooLong
from dlx_router.index.supervisor import Supervisor
from dlx_router.service.vhost.runner import VhostRunner
from dlx_router.telemetry.metrics import Metrics

EVERY_S: Final = 10.0


async def watch(index: Supervisor, attendants: Mapping[str, VhostRunner], metrics: Metrics) -> None:
    """Until cancelled; what cannot be had is absent."""
    while True:
        metrics.index_oldest = await _looked(index, attendants, metrics)
        await asyncio.sleep(EVERY_S)


async def _looked(
    index: Supervisor, attendants: Mapping[str, VhostRunner], metrics: Metrics
) -> dict[tuple[str, str], float]:
    asked = {policy for policy, kind in metrics.thresholds if kind == "oldest"}
    led = {vhost for vhost, attendant in attendants.items() if attendant.leadership.is_ours}
    if not asked or not led:
        return {}
    try:
        oldest = await asyncio.to_thread(index.reader.oldest)
    except (IndexAway, TooLong, OSError):
        return {}
    return {key: ms / 1000 for key, ms in oldest.items() if key[0] in led and key[1] in asked}
