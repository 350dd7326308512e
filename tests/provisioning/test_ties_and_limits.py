"""Which definition a queue gets where the broker may take any of several policies, and where operators limit queues."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.broker.management import Snapshot, Standing
from dlx_router.broker.policies import Rule
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet, Selector, SelectorKind, Setting, Source, ordered
from dlx_router.provisioning.broker_rules import at_top
from dlx_router.provisioning.desired_policies import desired
from dlx_router.provisioning.plan import plan
from tests.provisioning.test_patterns import FOREIGN, SETS, STANDING
from tests.provisioning.test_provision import INBOX, Commands
from tests.support.client import Client
from tests.support.eventually import eventually

NAMES = Names()
SAFE = {"dead-letter-exchange": INBOX, "dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}
LOSSY = {"dead-letter-exchange": INBOX}


def policy(name: str, text: str, *, inherit: bool = True, **keys: Any) -> Policy:
    source = Source(name, "p.yaml", 1)
    kind = SelectorKind.QUEUE if text.startswith("=") else SelectorKind.MATCH
    settings = {key.replace("_", "-"): Setting(value, source) for key, value in keys.items()}
    return Policy(name, Selector(kind, text.lstrip("=")), source, inherit=inherit, definition=settings)


def given_to(
    queue: str, kind: str, written: Sequence[Policy], /, *, stands: bool = True, others: Sequence[str] = (), **more: Any
) -> list[dict[str, Any]]:
    """The definitions of which the broker may take any for a queue, after apply. `others`: quorum queues that stand."""
    it = Standing(queue, kind, **more.pop("of", {}))
    queues = [*(Standing(name, "quorum") for name in others), *([it] if stands else [])]
    now = Snapshot("/", **{"version": (4, 3), "queues": tuple(queues), **more})
    rules = [policy.rule for policy in desired(ordered(written), now, NAMES).policies]
    return [dict(rule.definition) for rule in at_top([*rules, *now.policies], queue, kind, now.version)]


VIP = [policy("all", "#", expires=3_600_000), policy("vip", "=orders.vip", inherit=False)]


@pytest.mark.parametrize("stands", [True, False])
@pytest.mark.parametrize(("kind", "definition"), [("quorum", SAFE), ("classic", LOSSY)])
def test_a_policy_that_does_not_inherit_is_above_those_that_it_cuts_off(
    stands: bool,  # noqa: FBT001 - a table
    kind: str,
    definition: dict[str, Any],
) -> None:
    """Else the queue that it exempts would be deleted after an hour."""
    assert given_to("orders.vip", kind, VIP, stands=stands, others=["a"]) == [definition]


# -- operators ----------------------------------------------------------------------------------------------------

LIMITED = [
    ({"max-length": 10}, False), ({"max-length-bytes": 10}, False), ({"overflow": "drop-head"}, False),
    ({"max-length": 10, "overflow": "reject-publish"}, True), ({"expires": 10_000}, True),
]  # fmt: skip


@pytest.mark.parametrize(("limits", "is_safe"), LIMITED)
@pytest.mark.parametrize("pattern", [".*", "^orders"])
@pytest.mark.parametrize("stands", [True, False])
def test_a_queue_that_an_operator_limits_refuses_no_publishes_that_it_took(
    limits: dict[str, Any],
    is_safe: bool,  # noqa: FBT001 - a table
    pattern: str,
    stands: bool,  # noqa: FBT001 - a table
) -> None:
    more: dict[str, Any] = {"stands": stands, "others": ["orders.x", "b"]}
    more["operator_policies"] = (Rule("theirs", pattern, limits),)
    policies = [policy("all", "#"), policy("some", "orders.#", message_ttl=5)]
    (definition,) = given_to("orders.new", "quorum", policies, **more)
    assert definition == {**(SAFE if is_safe else LOSSY), "message-ttl": 5}
    (definition,) = given_to("mails", "quorum", policies, **more)
    assert definition == (SAFE if is_safe or pattern != ".*" else LOSSY)


def test_a_queue_that_refuses_by_its_own_argument_may_go_on() -> None:
    operator = (Rule("theirs", ".*", {"max-length": 10}),)
    of = {"arguments": {"x-overflow": "reject-publish"}}
    (definition,) = given_to("q", "quorum", [policy("all", "#")], operator_policies=operator, of=of)
    assert definition == SAFE


def test_queues_that_an_operator_limits_are_not_named_one_by_one() -> None:
    queues = tuple(Standing(f"orders.{at}", "quorum") for at in range(50))
    for pattern in (".*", "^orders"):
        operator = (Rule("theirs", pattern, {"max-length": 10}),)
        now = Snapshot("/", (4, 3), queues, operator_policies=operator)
        written = desired(ordered([policy("all", "#")]), now, NAMES).policies
        assert sum(len(rule.queues) for rule in written) == len(queues)
        assert all(len(rule.rule.pattern) < 40 for rule in written)


OPERATORS = st.lists(
    st.builds(
        Rule,
        st.sampled_from(["low", "high"]),
        st.sampled_from([".*", "^a", "x"]),
        st.sampled_from([{"expires": 5}, {"max-length": 3}, {"max-length-bytes": 3, "overflow": "reject-publish"}]),
        st.integers(0, 1),
        st.sampled_from(["queues", "quorum_queues", "classic_queues"]),
    ),
    max_size=2,
    unique_by=lambda rule: rule.name,
)


@given(SETS, FOREIGN, OPERATORS, STANDING)
def test_only_queues_without_a_limit_refuse_publishes(
    policies: PolicySet, foreign: list[Rule], operators: list[Rule], queues: list[Standing]
) -> None:
    before = Snapshot("/", (4, 3), tuple(queues), policies=tuple(foreign), operator_policies=tuple(operators))
    names = NAMES
    want = desired(policies, before, names)
    rules = [*foreign, *(written.rule for written in want.policies)]
    for queue in queues:
        if queue.kind == "classic" or not policies.chain(vhost="/", queue=queue.name, queue_type=None):
            continue
        limits = [rule.definition for rule in at_top(operators, queue.name, "quorum")]
        refuses = bool(limits) and all("overflow" in definition for definition in limits)
        is_limited = any("max-length" in definition for definition in limits) or (queue.arguments and not refuses)
        for rule in at_top(rules, queue.name, "quorum"):
            is_safe = not (is_limited or "max-length" in rule.definition)
            assert ("dead-letter-strategy" in rule.definition) is is_safe
            assert ("overflow" in rule.definition) is is_safe
    after = replace(before, policies=tuple(rules))
    again = plan(policies, after, names, frozenset(written.rule.name for written in want.policies))
    assert [step for step in again.steps if step.what == "policy"] == []


@pytest.mark.slow
def test_a_queue_that_an_operator_limits_confirms_as_before(commands: Commands, amqp: Client) -> None:
    """Eleven messages to a queue of ten: the oldest dies, and no producer is refused."""
    body = {"pattern": ".*", "definition": {"max-length": 10}, "priority": 0, "apply-to": "queues"}
    commands.declare("limited", queue_type="quorum")
    commands.vhost.put(f"operator-policies/{commands.vhost.quoted}/managed", body)
    commands.apply()
    assert commands.plan()["steps"] == []
    eventually(lambda: commands.effective("limited") == {**LOSSY, "max-length": 10}, 30)
    for number in range(11):
        amqp.publish(str(number), key="limited")
    eventually(lambda: amqp.depth("limited") == 10)
    eventually(lambda: amqp.depth(INBOX) == 1)
