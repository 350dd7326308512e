"""Which RabbitMQ policies touch a quorum queue of ours, computed as the broker does; and which keys cost letters.

The broker's own word (`effective_policy_definition`) is up to 10 s old and missing for a queue that young, which is
when we ask: right after declaring. Source: rabbit_policy.erl (match_all, matches: highest priority, regex unanchored,
apply-to), rabbit_queue_type:is_policy_applicable (one key that the type does not know: the policy is skipped whole).
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final

_LIMITS: Final = frozenset({"message-ttl", "max-length", "max-length-bytes", "overflow", "expires", "delivery-limit"})
_APPLY_TO: Final = frozenset({"all", "queues", "quorum_queues"})


@dataclass(frozen=True, slots=True)
class Rule:
    """A RabbitMQ policy: its pattern is an unanchored regular expression, of all that fit the highest priority wins."""

    name: str
    pattern: str
    definition: Mapping[str, Any]
    priority: int = 0
    apply_to: str = "queues"

    def body(self) -> dict[str, Any]:
        """Return what the API is given."""
        definition = dict(self.definition)
        return {
            "pattern": self.pattern, "definition": definition, "priority": self.priority, "apply-to": self.apply_to
        }  # fmt: skip

    def touches(self, queue: str) -> bool:
        """Return whether the broker would consider it for this quorum queue."""
        if self.apply_to not in _APPLY_TO or unsupported(self.definition, "quorum"):
            return False
        try:
            return re.search(self.pattern, queue) is not None
        except re.error:  # a pattern that only the broker understands is taken to match
            return True


def harmful(definition: Mapping[str, Any]) -> tuple[str, ...]:
    """The keys that would shorten, expire, limit or redirect one of our queues."""
    return tuple(sorted(key for key in definition if key in _LIMITS or key.startswith("dead-letter-")))


def effective(queue: str, policies: Iterable[Rule]) -> tuple[Rule, ...]:
    """Those of highest priority that touch the queue; several where a tie leaves it to the broker."""
    touching = [policy for policy in policies if policy.touches(queue)]
    top = max((policy.priority for policy in touching), default=0)
    return tuple(policy for policy in touching if policy.priority == top)


# Source: `unsupported_policies` in `capabilities/0` of rabbit_classic_queue, rabbit_quorum_queue and
# rabbit_stream_queue, read out of 3.10.8, 4.0.5 and 4.3.6; `filter-field-names` out of the main branch. What no version
# takes as the key of a policy (`single-active-consumer`) is left out. Classic queues know `queue-leader-locator` from
# 4.0 on.
NEWEST: Final = (4, 3)
_UNKNOWN: Final = (0,)  # the version of a broker that does not tell; an export's
_STREAM_ONLY: Final = ("max-age", "stream-max-segment-size-bytes", "initial-cluster-size")
_MIRRORED: Final = ("ha-mode", "ha-params", "ha-sync-mode", "ha-promote-on-shutdown", "ha-promote-on-failure")
_SELECTORS: Final = ("selector-fields", "selector-field-max-bytes")
_IN_MEMORY: Final = ("max-in-memory-length", "max-in-memory-bytes")
_CLASSIC: Final = frozenset({
    *_STREAM_ONLY, *_SELECTORS, "delivery-limit", "dead-letter-strategy", "target-group-size", "filter-field-names",
})  # fmt: skip
_UNSUPPORTED: Final = {
    "classic": _CLASSIC | {*_IN_MEMORY},
    "quorum": frozenset({"max-priority", "queue-mode", "queue-master-locator", *_MIRRORED, *_STREAM_ONLY, *_SELECTORS}),
    "stream": frozenset({
        "dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy", "message-ttl", "max-length",
        "overflow", "delivery-limit", "expires", "max-priority", "queue-mode", "queue-master-locator",
        "target-group-size", *_IN_MEMORY, *_MIRRORED, *_SELECTORS,
    }),
}  # fmt: skip
_BEFORE_4: Final = _UNSUPPORTED | {"classic": _CLASSIC | {"queue-leader-locator"}}


def unsupported(definition: Iterable[str], kind: str, version: tuple[int, ...] = NEWEST) -> tuple[str, ...]:
    """The keys for which a broker of this version skips the whole policy on queues of this type."""
    table = _BEFORE_4 if _UNKNOWN < version < (4,) else _UNSUPPORTED
    known = table.get(kind, frozenset())
    return tuple(sorted(key for key in definition if key in known))
