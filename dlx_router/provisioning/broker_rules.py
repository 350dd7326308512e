"""Which RabbitMQ policy is in force for a queue or an exchange, computed as the broker does.

Source: rabbit_policy.erl (match_all: highest priority, unanchored regex, apply-to) and each queue type's
`unsupported_policies`: one key that a type does not know, and the whole policy is skipped for its queues.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from dlx_router.broker.administration import Rule, Standing
from dlx_router.core.bounded import MIB, Remembered

_CLASSIC: Final = frozenset({
    "delivery-limit", "dead-letter-strategy", "max-age", "stream-max-segment-size-bytes", "stream-filter-size-bytes",
    "initial-cluster-size", "target-group-size", "delayed-retry-type", "delayed-retry-min", "delayed-retry-max",
})  # fmt: skip
_QUORUM: Final = frozenset({"max-priority", "queue-mode", "queue-master-locator", "max-age"})
_STREAM: Final = frozenset({
    "dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy", "message-ttl", "max-length", "overflow",
    "delivery-limit", "expires", "max-priority", "queue-mode", "single-active-consumer", "max-in-memory-length",
    "max-in-memory-bytes",
})  # fmt: skip
_UNSUPPORTED: Final = {"classic": _CLASSIC, "quorum": _QUORUM, "stream": _STREAM}
_FOREIGN: Final = {"classic": ("stream-",), "quorum": ("ha-", "stream-"), "stream": ("ha-",)}
TYPES_FROM: Final = (3, 12)  # before, apply-to knows queues, exchanges and all only


def unsupported(definition: Iterable[str], kind: str) -> tuple[str, ...]:
    """The keys for which the broker skips the whole policy on queues of this type."""
    known, prefixes = _UNSUPPORTED.get(kind, frozenset()), _FOREIGN.get(kind, ())
    return tuple(sorted(key for key in definition if key in known or (prefixes and key.startswith(prefixes))))


def named(rule: Rule, queue: str, kind: str) -> bool:
    """Whether apply-to and pattern name the queue; the keys may still make the broker skip it."""
    kinds = {"all", "queues", "streams" if kind == "stream" else f"{kind}_queues"}
    return rule.apply_to in kinds and fits(rule.pattern, queue)


def applies(rule: Rule, queue: str, kind: str) -> bool:
    """Whether the broker considers the policy for the queue."""
    return not unsupported(rule.definition, kind) and named(rule, queue, kind)


def in_force(rules: Iterable[Rule], queue: str, kind: str) -> Rule | None:
    """The policy in force; where several of one priority fit, the broker takes any of them."""
    return max(
        (rule for rule in rules if named(rule, queue, kind) and not unsupported(rule.definition, kind)),
        key=_priority,
        default=None,
    )


def on_exchange(rules: Iterable[Rule], exchange: str) -> Rule | None:
    """As `in_force`, for an exchange; none has keys for which a policy is skipped."""
    fitting = (rule for rule in rules if rule.apply_to in {"all", "exchanges"} and fits(rule.pattern, exchange))
    return max(fitting, key=_priority, default=None)


def _priority(rule: Rule) -> int:
    return rule.priority


def merged(queue: Standing, rules: Iterable[Rule], operator: Iterable[Rule]) -> Mapping[str, Any]:
    """What holds for a queue: its arguments, the policy and the operator policy, numbers by the smaller."""
    policy, limits = (in_force(some, queue.name, queue.kind) for some in (rules, operator))
    out: dict[str, Any] = dict(policy.definition) if policy else {}
    arguments = {key.removeprefix("x-"): value for key, value in queue.arguments.items() if key.startswith("x-")}
    for more in (limits.definition if limits else {}, arguments):
        for key, value in more.items():
            numbers = _number(value) and _number(out.get(key))
            out[key] = min(value, out[key]) if numbers else value
    return out


def _number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def fits(pattern: str, queue: str) -> bool:
    """Unanchored; a pattern that only the broker understands is taken to fit."""
    expression = _COMPILED[pattern]
    return expression is None or expression.search(queue) is not None


def _compiled(pattern: str) -> re.Pattern[str] | None:
    try:
        return re.compile(pattern)
    except re.error:
        return None


_COMPILED: Final = Remembered(_compiled, most=4096, most_bytes=4 * MIB)
