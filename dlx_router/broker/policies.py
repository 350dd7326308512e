"""Which RabbitMQ policies touch a quorum queue of ours, computed as the broker does; and which keys cost letters.

The broker's own word (`effective_policy_definition`) is up to 10 s old and missing for a queue that young, which is
when we ask: right after declaring. Source: rabbit_policy.erl (match_all, matches: highest priority, regex unanchored,
apply-to), rabbit_queue_type:is_policy_applicable (one key that the type does not know: the policy is skipped whole).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from dlx_router.broker.definitions import ALTERNATE
from dlx_router.broker.policy_keys import unsupported

_LIMITS: Final = frozenset({"message-ttl", "max-length", "max-length-bytes", "overflow", "expires", "delivery-limit"})
_APPLY_TO: Final = frozenset({"all", "queues", "quorum_queues"})


@dataclass(frozen=True, slots=True)
class Policy:
    """A policy or operator policy of one vhost."""

    name: str
    pattern: str
    apply_to: str
    priority: int
    definition: Mapping[str, Any]

    def touches(self, queue: str) -> bool:
        """Whether the broker would consider it for this quorum queue."""
        is_skipped = bool(unsupported(self.definition, "quorum"))
        return self.apply_to in _APPLY_TO and not is_skipped and _matches(self.pattern, queue)


def harmful(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys that would shorten, expire, limit or redirect one of our queues."""
    return tuple(sorted(key for key in definition if key in _LIMITS or key.startswith("dead-letter-")))


def harmful_on_exchange(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys by which a letter that an exchange of ours cannot route would not come back."""
    return (ALTERNATE,) if ALTERNATE in definition else ()


def effective(queue: str, policies: Iterable[Policy]) -> tuple[Policy, ...]:
    """Those of highest priority that touch the queue; several where a tie leaves it to the broker."""
    touching = [policy for policy in policies if policy.touches(queue)]
    top = max((policy.priority for policy in touching), default=0)
    return tuple(policy for policy in touching if policy.priority == top)


def _matches(pattern: str, queue: str) -> bool:
    """Unanchored; a pattern that only the broker understands is taken to match."""
    try:
        return re.search(pattern, queue) is not None
    except re.error:
        return True
