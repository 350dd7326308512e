"""Which RabbitMQ policy is in force for a queue or an exchange, computed as the broker does.

Source: rabbit_policy.erl (match_all: highest priority, unanchored regex, apply-to), and broker.policies for the keys
that make it skip a policy. An expression that only the broker can read counts as not in force.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from dlx_router.broker.management import Snapshot, Standing
from dlx_router.broker.policies import NEWEST, Rule, unsupported
from dlx_router.provisioning.selector_regex import fits

TYPES_FROM: Final = (3, 12)  # before, apply-to knows queues, exchanges and all only


def named(rule: Rule, queue: str, kind: str) -> bool:
    """Whether apply-to and pattern name the queue; the keys may still make the broker skip it."""
    return _is_about(rule, kind) and fits(rule.pattern, queue) is True


def applies(rule: Rule, queue: str, kind: str, version: tuple[int, ...] = NEWEST) -> bool:
    """Whether the broker considers the policy for the queue."""
    return named(rule, queue, kind) and not unsupported(rule.definition, kind, version)


def at_top(rules: Iterable[Rule], queue: str, kind: str, version: tuple[int, ...] = NEWEST) -> list[Rule]:
    """The policies of which one is in force: where there are several, the broker takes any of them."""
    fitting = [rule for rule in rules if applies(rule, queue, kind, version)]
    top = max((rule.priority for rule in fitting), default=0)
    return [rule for rule in fitting if rule.priority == top]


def may_take(rules: Iterable[Rule], queue: str, kind: str, version: tuple[int, ...] = NEWEST) -> list[Rule]:
    """Those at the top, and those as high or above of which only the broker knows whether they name the queue."""
    by_verdict: dict[bool | None, list[Rule]] = {True: [], None: [], False: []}
    for rule in rules:
        if _is_about(rule, kind) and not unsupported(rule.definition, kind, version):
            by_verdict[fits(rule.pattern, queue)].append(rule)
    sure, unsure = by_verdict[True], by_verdict[None]
    top = max((rule.priority for rule in sure), default=None)
    tied = [rule for rule in sure if rule.priority == top]
    return tied + [rule for rule in unsure if top is None or rule.priority >= top]


def in_force(rules: Iterable[Rule], queue: str, kind: str, version: tuple[int, ...] = NEWEST) -> Rule | None:
    """The policy in force; where the broker takes any of several, the first of them."""
    return next(iter(at_top(rules, queue, kind, version)), None)


def _is_about(rule: Rule, kind: str) -> bool:
    return rule.apply_to in {"all", "queues", "streams" if kind == "stream" else f"{kind}_queues"}


def on_exchange(rules: Iterable[Rule], exchange: str) -> Rule | None:
    """As `in_force`, for an exchange; none has keys for which a policy is skipped."""
    fitting = (rule for rule in rules if rule.apply_to in {"all", "exchanges"} and fits(rule.pattern, exchange))
    return max(fitting, key=lambda rule: rule.priority, default=None)


def merged(queue: Standing, snapshot: Snapshot) -> Mapping[str, Any]:
    """What holds for a queue: its arguments, the policy and the operator policy, numbers by the smaller."""
    policy = in_force(snapshot.policies, queue.name, queue.kind, snapshot.version) or next(
        (rule for rule in snapshot.policies if rule.name == queue.policy), None
    )
    limits = in_force(snapshot.operator_policies, queue.name, queue.kind, snapshot.version)
    out: dict[str, Any] = dict(policy.definition) if policy else {}
    arguments = {key.removeprefix("x-"): value for key, value in queue.arguments.items() if key.startswith("x-")}
    for more in (limits.definition if limits else {}, arguments):
        for key, value in more.items():
            numbers = _number(value) and _number(out.get(key))
            out[key] = min(value, out[key]) if numbers else value
    return out


def _number(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
