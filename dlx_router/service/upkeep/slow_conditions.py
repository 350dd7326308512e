"""Report policy conditions that take more than 1 ms for a message: each keeps all other messages waiting."""

import asyncio
from collections.abc import Callable, Iterator
from typing import Final

from dlx_router.core.policy import PolicySet
from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.readiness import Readiness

EVERY_S: Final = 5.0
NOTE: Final = "slow conditions"


def slow(policies: PolicySet) -> Iterator[str]:
    """Yield what to know of each condition that was found slow since its policy was loaded."""
    for policy in policies.policies:
        for definition in (policy.definition, *policy.on.values()):
            for key in ("never-retry", "retry-only"):
                for condition in definition[key].value or () if key in definition else ():
                    if took_ms := getattr(condition.holds, "slow_ms", 0.0):
                        yield f"policy {policy.name!r}, {key}: {condition.text!r} takes {took_ms:.1f} ms for a message"


async def watch(policies: Callable[[], PolicySet], readiness: Readiness) -> None:
    """Look until cancelled; a note and the log name the slow conditions. They are evaluated all the same."""
    once = Once()
    while True:
        if texts := list(slow(policies())):
            readiness.note(NOTE, f"{'; '.join(texts)}; compare with fewer items of lists and shorter texts")
            for text in texts:
                once.warn(text, "condition.slow", condition=text, fate="it is evaluated; other messages wait meanwhile")
        else:
            readiness.drop_note(NOTE)
        await asyncio.sleep(EVERY_S)
