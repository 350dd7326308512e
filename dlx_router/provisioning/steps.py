"""The steps of a plan, and the order of those that are about RabbitMQ policies.

After each step the policy in force for a queue, whether it stands or is still to come, is the one that was in force
before the first or the one that will be after the last. So a queue that has a dead-letter exchange, or the strategy
`at-least-once`, before and afterwards has it all the while: RabbitMQ deletes the deaths that are not confirmed yet
where that strategy is away for a moment. The reasons are in docs/decisions/0111.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from dlx_router.broker.definitions import Binding, Exchange, Queue
from dlx_router.broker.policies import Rule
from dlx_router.provisioning.broker_rules import applies
from dlx_router.provisioning.desired_policies import Written

POLICY: Final = "policy"
_KINDS: Final = ("classic", "quorum", "stream")


class Action(StrEnum):
    """What a step does."""

    ADD = "add"
    CHANGE = "change"
    REMOVE = "remove"


@dataclass(frozen=True, slots=True)
class Step:
    """One change. `what` is exchange, queue, binding or policy; `was` is the policy as it stands now."""

    action: Action
    what: str
    name: str
    thing: Exchange | Queue | Binding | Written | Rule
    was: Rule | None = None


def of_policies(want: Iterable[Written], there: Mapping[str, Rule], owned: frozenset[str]) -> list[Step]:
    """What is new or rises, highest first; then what falls or goes, by the priority that it has now, lowest first.

    The exception is a policy whose expression somebody changed by hand: its queues of before and those of afterwards
    change places in one step. It goes with those that fall, so that no queue is without a dead-letter exchange.
    """
    wanted = {policy.rule.name: policy for policy in want}
    steps = [Step(Action.ADD, POLICY, name, policy) for name, policy in wanted.items() if name not in there]
    for name in sorted(owned & there.keys()):
        now = there[name]
        if name not in wanted:
            steps.append(Step(Action.REMOVE, POLICY, name, now, now))
        elif not same(now, wanted[name].rule):
            steps.append(Step(Action.CHANGE, POLICY, name, wanted[name], now))
    return sorted(steps, key=_place)


def gives_way(step: Step) -> bool:
    """Whether another policy may be in force for a queue because of it: it falls, goes, or names fewer queues."""
    new = _new(step)
    if step.was is None or new is None:
        return step.action is Action.REMOVE
    return new.priority < step.was.priority or not _names_as_many(new, step.was)


def _place(step: Step) -> tuple[bool, int]:
    new = _new(step)
    if gives_way(step):
        return True, step.was.priority if step.was is not None else 0
    return False, -new.priority if new is not None else 0


def _new(step: Step) -> Rule | None:
    """The policy as it will stand."""
    return step.thing.rule if isinstance(step.thing, Written) else None


def _names_as_many(new: Rule, now: Rule) -> bool:
    """Whether it surely names every queue that it names now."""
    return new.pattern == now.pattern and _kinds(now) <= _kinds(new)


def _kinds(rule: Rule) -> set[str]:
    """Of which types its queues are; the broker skips a policy for a type that does not know one of its keys."""
    return {kind for kind in _KINDS if applies(replace(rule, pattern=""), "", kind)}


def same(rule: Rule, other: Rule) -> bool:
    """Whether the broker would do the same for both."""
    return rule.body() == other.body()


def after(rules: Iterable[Rule], steps: Iterable[Step]) -> tuple[Rule, ...]:
    """The policies that stand after these steps."""
    stands = {rule.name: rule for rule in rules}
    for step in steps:
        if (new := _new(step)) is not None:
            stands[step.name] = new
        elif step.action is Action.REMOVE:
            del stands[step.name]
    return tuple(stands.values())
