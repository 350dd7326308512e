"""While apply works: what was in force is in force until what will be is. By the steps one at a time, no broker asked.

What RabbitMQ does where `at-least-once` is away for a moment, it deletes the deaths that wait, is in test_held_deaths.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.broker.management import Snapshot, Standing
from dlx_router.broker.policies import Rule
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet, Selector, SelectorKind, Setting, Source, ordered
from dlx_router.provisioning.broker_rules import at_top
from dlx_router.provisioning.plan import Plan, plan
from dlx_router.provisioning.steps import Action, Step, after
from tests.provisioning.test_patterns import FOREIGN, QUEUES, SETS, STANDING

NAMES: Final = Names()
STRATEGY: Final = "dead-letter-strategy"
EXCHANGE: Final = "dead-letter-exchange"
QUORUM, CLASSIC = Standing("orders.new", "quorum"), Standing("orders.old", "classic")


def policies_of(**definitions: dict[str, Any]) -> PolicySet:
    """A policy for each selector, in which `rest` is #, and _ a dot before #."""
    texts = {name: "#" if name == "rest" else f"{name}.#" for name in definitions}
    source = Source("p", "p.yaml", 1)
    return ordered([
        Policy(name, Selector(SelectorKind.MATCH, texts[name]), source,
               definition={key: Setting(value, source) for key, value in keys.items()})
        for name, keys in definitions.items()
    ])  # fmt: skip


def applied(policies: PolicySet, now: Snapshot, names: Names = NAMES) -> Snapshot:
    planned = plan(policies, now, names, frozenset())
    return replace(now, policies=after(now.policies, planned.steps))


def moments(planned: Plan, now: Snapshot) -> Iterator[tuple[Step, Sequence[Rule]]]:
    """What stands after each step."""
    rules = now.policies
    for step in planned.steps:
        rules = after(rules, [step])
        yield step, rules


def has(key: str, rules: Sequence[Rule], queue: Standing) -> bool:
    """Whether the queue surely has it, whichever of one priority the broker takes."""
    winners = at_top(rules, queue.name, queue.kind)
    return bool(winners) and all(key in rule.definition for rule in winners)


def lapses(planned: Plan, now: Snapshot, queues: Sequence[Standing], *keys: str) -> list[str]:
    """After which steps a queue is without what it has before and afterwards."""
    *_, (_, then) = [(None, now.policies), *moments(planned, now)]
    kept = [(key, queue) for key in keys for queue in queues if has(key, now.policies, queue) and has(key, then, queue)]
    return [
        f"{key} of {queue.name} after {step.action} {step.name}"
        for step, rules in moments(planned, now)
        for key, queue in kept
        if not has(key, rules, queue)
    ]


# -- the two ways in which deaths were deleted -------------------------------------------------------------------------


@pytest.mark.parametrize("hours", range(1, 9))  # a name is a hash of the content: half of them come in the wrong order
def test_a_policy_that_goes_leaves_the_strategy_all_the_while(hours: int) -> None:
    both = policies_of(rest={}, orders={"message-ttl": hours * 3_600_000})
    now = applied(both, Snapshot("/", (4, 3), (QUORUM, CLASSIC)))
    planned = plan(policies_of(rest={}), now, NAMES, frozenset())
    assert [step.action for step in planned.steps if step.what == "policy"] == [Action.REMOVE] * 2
    assert lapses(planned, now, [QUORUM, CLASSIC], STRATEGY, EXCHANGE) == []


def _without_theirs(now: Snapshot) -> Snapshot:
    return replace(now, policies=tuple(rule for rule in now.policies if rule.name != "theirs"))


FALLS: Final = {
    "somebody deletes a policy of priority 10": (policies_of(rest={}), _without_theirs),
    "a wider policy goes": (policies_of(rest={}, orders={"message-ttl": 5}), lambda now: now),
}


@pytest.mark.parametrize("fall", FALLS.values(), ids=FALLS)
def test_policies_that_fall_leave_the_strategy_all_the_while(
    fall: tuple[PolicySet, Callable[[Snapshot], Snapshot]],
) -> None:
    before, changed = fall
    theirs = Rule("theirs", "^other", {"max-length": 1}, 10)
    now = changed(applied(before, Snapshot("/", (4, 3), (QUORUM, CLASSIC), policies=(theirs,))))
    narrow = ordered([policy for policy in before.policies if policy.name != "rest"] or before.policies)
    planned = plan(narrow, now, NAMES, frozenset())
    assert Action.CHANGE in {step.action for step in planned.steps if step.what == "policy"}
    assert lapses(planned, now, [QUORUM, CLASSIC], STRATEGY, EXCHANGE) == []


# -- the law -----------------------------------------------------------------------------------------------------------

Stage = tuple[PolicySet, list[Rule], Names]  # policies of ours, those of others, and the names
STAGES: Final = st.tuples(SETS, FOREIGN, st.just(NAMES))
TO_COME: Final = st.lists(st.builds(Standing, QUEUES.filter(bool), st.sampled_from(["classic", "quorum"])), max_size=4)
OWN: Final = [Standing(NAMES.inbox, "quorum"), Standing(NAMES.parking, "quorum")]
# By hand: of every so many of our policies another TTL, another priority or both.
HANDS: Final = st.lists(st.tuples(st.sampled_from([None, 1, 7]), st.sampled_from([None, 0, 4, 99])), max_size=4)


def _touched(rules: Sequence[Rule], hands: Sequence[tuple[int | None, int | None]]) -> Iterator[Rule]:
    for rule, (ttl, priority) in zip(rules, hands, strict=False):
        changed = rule if ttl is None else replace(rule, definition={**rule.definition, "message-ttl": ttl})
        yield changed if priority is None else replace(changed, priority=priority)
    yield from rules[len(hands) :]


@given(STAGES, STAGES, STANDING, TO_COME, HANDS)
def test_in_force_is_always_what_was_or_what_will_be(
    was: Stage,
    will: Stage,
    queues: list[Standing],
    to_come: list[Standing],
    hands: list[tuple[int | None, int | None]],
) -> None:
    policies, theirs, names = was
    start = Snapshot("/", (4, 3), tuple(queues), policies=tuple(theirs))
    ours = [rule for rule in applied(policies, start, names).policies if NAMES.is_own(rule.name)]
    policies, theirs, names = will
    now = replace(start, policies=(*theirs, *_touched(ours, hands)))
    planned = plan(policies, now, names, frozenset(rule.name for rule in ours))
    then = after(now.policies, planned.steps)
    assert {rule.name for rule in then} >= {policy.rule.name for policy in planned.desired.policies}
    for step, rules in moments(planned, now):
        for queue in (*queues, *to_come, *OWN):
            may = [
                rule.definition for stands in (now.policies, then) for rule in at_top(stands, queue.name, queue.kind)
            ]
            assert all(rule.definition in may for rule in at_top(rules, queue.name, queue.kind)), (
                queue,
                step.action,
                step.name,
            )
    assert lapses(planned, now, [*queues, *to_come, *OWN], STRATEGY, EXCHANGE) == []


@given(SETS, FOREIGN, STANDING, st.lists(st.sampled_from(["", "a", "^nothing$", "^x"]), max_size=1))
def test_where_a_hand_changed_expressions_too_every_queue_has_its_dead_letter_exchange(
    policies: PolicySet, theirs: list[Rule], queues: list[Standing], patterns: list[str]
) -> None:
    """One expression: where several were changed, a queue may be without one for a step (docs/decisions/0111)."""
    start = Snapshot("/", (4, 3), tuple(queues), policies=tuple(theirs))
    ours = [rule for rule in applied(policies, start).policies if NAMES.is_own(rule.name)]
    touched = [replace(rule, pattern=pattern) for rule, pattern in zip(ours[1:], patterns, strict=False)]
    now = replace(start, policies=(*theirs, ours[0], *touched, *ours[1 + len(touched) :]))
    planned = plan(policies, now, NAMES, frozenset(rule.name for rule in ours))
    assert lapses(planned, now, queues, EXCHANGE) == []


def test_the_policy_on_our_own_falls_last() -> None:
    """While others are above it they would be in force for our own queues, and lead them in a circle."""
    names = NAMES
    high = Rule("theirs", "^other", {"max-length": 1}, 2_000_000)
    now = applied(policies_of(rest={}), Snapshot("/", (4, 3), (QUORUM,), policies=(high,)), names)
    now = _without_theirs(now)
    planned = plan(policies_of(rest={}), now, names, frozenset())
    assert [step.name for step in planned.steps if step.what == "policy"][-1] == "dlx-router.own"
    assert lapses(planned, now, OWN, "queue-leader-locator") == []
