"""Which RabbitMQ policy is in force for a queue or an exchange, computed as the broker does.

Source: rabbit_policy.erl (match_all: highest priority, unanchored regex, apply-to), and broker.policy_keys for the keys
that make it skip a policy.
"""

import re
from collections.abc import Iterable, Mapping
from typing import Any, Final

from dlx_router.broker.administration import Rule, Snapshot, Standing
from dlx_router.broker.policy_keys import NEWEST, unsupported
from dlx_router.core.bounded import MIB, Remembered

TYPES_FROM: Final = (3, 12)  # before, apply-to knows queues, exchanges and all only


def named(rule: Rule, queue: str, kind: str) -> bool:
    """Whether apply-to and pattern name the queue; the keys may still make the broker skip it."""
    kinds = {"all", "queues", "streams" if kind == "stream" else f"{kind}_queues"}
    return rule.apply_to in kinds and fits(rule.pattern, queue)


def applies(rule: Rule, queue: str, kind: str, version: tuple[int, ...] = NEWEST) -> bool:
    """Whether the broker considers the policy for the queue."""
    return named(rule, queue, kind) and not unsupported(rule.definition, kind, version)


def at_top(rules: Iterable[Rule], queue: str, kind: str, version: tuple[int, ...] = NEWEST) -> list[Rule]:
    """The policies of which one is in force: where there are several, the broker takes any of them."""
    fitting = [rule for rule in rules if applies(rule, queue, kind, version)]
    top = max((rule.priority for rule in fitting), default=0)
    return [rule for rule in fitting if rule.priority == top]


def in_force(rules: Iterable[Rule], queue: str, kind: str, version: tuple[int, ...] = NEWEST) -> Rule | None:
    """The policy in force; where the broker takes any of several, the first of them."""
    return next(iter(at_top(rules, queue, kind, version)), None)


def on_exchange(rules: Iterable[Rule], exchange: str) -> Rule | None:
    """As `in_force`, for an exchange; none has keys for which a policy is skipped."""
    fitting = (rule for rule in rules if rule.apply_to in {"all", "exchanges"} and fits(rule.pattern, exchange))
    return max(fitting, key=_priority, default=None)


def _priority(rule: Rule) -> int:
    return rule.priority


def merged(queue: Standing, snapshot: Snapshot) -> Mapping[str, Any]:
    """What holds for a queue: its arguments, the policy and the operator policy, numbers by the smaller."""
    kinds = (snapshot.policies, snapshot.operator_policies)
    policy, limits = (in_force(some, queue.name, queue.kind, snapshot.version) for some in kinds)
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
