"""How long a letter waits before its next try: exponential, capped, with jitter.

The numbers are those of Apache ActiveMQ Artemis below the cap; at the cap the jitter is uniform below it, because
clipping there would let half of a crowd fire at one instant. See docs/policies.md; Artemis' RedeliveryPolicy.
"""

import math
from typing import Final, Protocol

# 2.0 ** 1024 raises OverflowError, and attempt counts may come from outside: log-space keeps it finite.
_MAX_LOG: Final = 600.0


class Backoff(Protocol):
    """The keys of a policy that decide about waits; milliseconds."""

    @property
    def delay_ms(self) -> int: ...
    @property
    def multiplier(self) -> float: ...
    @property
    def cap_ms(self) -> int: ...
    @property
    def jitter(self) -> float: ...


def base_delay_ms(policy: Backoff, attempts: int) -> int:
    """min(delay × multiplier^(attempts − 1), cap) in ms, for any `attempts`; below 1 counts as 1."""
    if policy.delay_ms <= 0 or policy.cap_ms <= 0:
        return 0
    if policy.multiplier == 1.0:
        return min(policy.delay_ms, policy.cap_ms)
    if policy.multiplier <= 0:
        return min(policy.delay_ms, policy.cap_ms) if attempts <= 1 else 0
    exponent = (max(attempts, 1) - 1) * math.log(policy.multiplier)
    if abs(exponent) > _MAX_LOG:
        return policy.cap_ms if exponent > 0 else 0
    return int(min(policy.delay_ms * policy.multiplier ** (max(attempts, 1) - 1), policy.cap_ms))


def wait_ms(policy: Backoff, attempts: int, draw: float) -> int:
    """The wait in ms after `attempts` failed deliveries; `draw` in (−1, 1), its sign included.

    Never negative, never over the cap.
    """
    base = base_delay_ms(policy, attempts)
    if not base or not policy.jitter:
        return base
    low = base * policy.jitter
    high = min(low, policy.cap_ms - base)
    wait = base + draw * (low + high) / 2 + (high - low) / 2
    return min(max(round(wait), 0), policy.cap_ms)


def ladder_ms(tries: int) -> int:
    """The wait in ms of a held letter: 1 s doubling to 5 min."""
    return min(1000 << min(max(tries, 1) - 1, 12), 300_000)


def ladder_elapsed_ms(tries: int) -> int:
    """How long a letter has been held in ms after `tries` rungs of the ladder."""
    return sum(ladder_ms(step) for step in range(1, min(tries, 400) + 1))
