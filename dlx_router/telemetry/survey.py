"""What lies in queues: looked at from time to time, kept for the next scrape, and gone when a vhost is left.

A value that could not be had is absent, never old and never zero.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from dlx_router.telemetry.metrics import Metrics

EVERY_S: Final = 10.0
PATIENCE_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Seen:
    """One look at a vhost: letters by rung (ms, as text), and by queue the timestamp (epoch s) of its first letter."""

    waiting: Mapping[str, int] = field(default_factory=dict)
    oldest: Mapping[str, float] = field(default_factory=dict)


class Survey:
    """The last look at each vhost that is attended, as metrics `waiting` and `oldest_letter_timestamp_seconds`."""

    def __init__(self, metrics: Metrics) -> None:
        self._seen: dict[str, Seen] = {}
        metrics.waiting = self.waiting
        metrics.oldest_letter_timestamp_seconds = self.oldest

    def waiting(self) -> dict[str, int]:
        """Letters in each rung, over all vhosts."""
        total: dict[str, int] = {}
        for seen in self._seen.values():
            for rung, letters in seen.waiting.items():
                total[rung] = total.get(rung, 0) + letters
        return total

    def oldest(self) -> dict[str, float]:
        """By queue; where vhosts have a queue of one name, the oldest of all."""
        oldest: dict[str, float] = {}
        for seen in self._seen.values():
            for queue, stamp in seen.oldest.items():
                oldest[queue] = min(stamp, oldest.get(queue, stamp))
        return oldest

    async def watch(self, vhost: str, look: Callable[[], Awaitable[Seen]]) -> None:
        """Look again and again until cancelled; afterwards nothing is known of the vhost."""
        try:
            while True:
                self._seen[vhost] = await _in_time(look)
                await asyncio.sleep(EVERY_S)
        finally:
            self._seen.pop(vhost, None)


async def _in_time(look: Callable[[], Awaitable[Seen]]) -> Seen:
    try:
        async with asyncio.timeout(PATIENCE_S):
            return await look()
    except TimeoutError:
        return Seen()
