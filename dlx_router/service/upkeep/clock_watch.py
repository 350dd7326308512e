"""Looks at the wall clock each second, and says in readiness and log what is wrong with it."""

import asyncio
from collections.abc import Callable
from typing import Final

from dlx_router.service.inflight.clock import Clock
from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness

DIFFERS_S: Final = 5.0  # from the broker's, which is told in whole seconds and with the answer to a question
NOTE: Final = "clock"
BROKERS: Final = "clock of the broker"


def behind(ahead_s: float | None) -> str:
    """What is wrong where the broker's clock is so far ahead of this one; nothing where that is little or not told."""
    if ahead_s is None or abs(ahead_s) < DIFFERS_S:
        return ""
    return (
        f"the wall clock is {'behind' if ahead_s > 0 else 'ahead of'} the broker's, by {abs(ahead_s):.0f} s; "
        "waits are counted in rungs, but ages are not: set the clocks of brokers and replicas by NTP"
    )


async def watch(
    clock: Clock, metrics: Metrics, readiness: Readiness, ahead_s: Callable[[], float | None] = lambda: None
) -> None:
    """Look each second until cancelled: notes and log say what is wrong with the clock.

    `ahead_s`: how far the broker's is ahead of this one, where it tells.
    """
    once = Once()
    while True:
        clock.now_ms()
        metrics.clock_jumps, why = clock.jumps, clock.why()
        if differs := behind(ahead_s()):
            readiness.note(BROKERS, differs)
            once.warn(
                BROKERS, "clock.differs", error="it is not the broker's", fate="waits last as long as was decided"
            )
        else:
            readiness.drop_note(BROKERS)
            once.healed(BROKERS, "clock.agrees")
        if why:
            readiness.note(NOTE, why)
            once.warn(NOTE, "clock.differs", error=why, fate="waits last as long as was decided")
        else:
            readiness.drop_note(NOTE)
            once.healed(NOTE, "clock.agrees")
        await asyncio.sleep(1.0)
