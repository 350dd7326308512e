"""Recovered: the one answer to "did sending it back help?", for index and Spark alike. Pure."""

from math import ceil
from typing import Final

from dlx_router.core.backoff import base_delay_ms
from dlx_router.core.policy import Effective

AT_LEAST_MS: Final = 3_600_000
_MANY: Final = 1_000_000  # deliveries without end reach the cap


def window_ms(longest_wait_ms: int) -> int:
    """How long a letter must have been silent: max(1 h, 2 × its policy's longest wait)."""
    return max(AT_LEAST_MS, 2 * longest_wait_ms)


def is_recovered(*, given_back_ms: int, last_event_ms: int, now_ms: int, longest_wait_ms: int) -> bool:
    """Whether nothing was heard of the letter for its window after it was given back to its failed queue.

    `last_event_ms` is the time of the newest event of (letter id, failed queue); the event of giving it back counts
    as that, so it is never earlier. Times in ms since the epoch.
    """
    return last_event_ms <= given_back_ms and now_ms - given_back_ms >= window_ms(longest_wait_ms)


def longest_wait_ms(policy: Effective | None) -> int:
    """The longest wait that the policy can give a letter, jitter included; 0 without a policy or a delay."""
    if policy is None:
        return 0
    last = _MANY if policy.max_attempts < 0 else policy.max_attempts - 1
    base = max(base_delay_ms(policy, 1), base_delay_ms(policy, last))  # waits may shrink
    return min(base + ceil(base * policy.jitter), max(policy.cap_ms, 0)) if last > 0 else 0
