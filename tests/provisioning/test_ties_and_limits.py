"""A queue whose length an argument or an operator policy limits never refuses publishes that it took before."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.broker.management import Snapshot, Standing
from dlx_router.broker.policies import Rule
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet, ordered
from dlx_router.provisioning.broker_rules import at_top
from dlx_router.provisioning.plan import plan
from tests.provisioning.test_broker_reading import policy
from tests.provisioning.test_patterns import SETS, STANDING
from tests.provisioning.test_provision import INBOX, Commands
from tests.support.client import Client
from tests.support.eventually import eventually

NAMES: Final = Names()
SAFE: Final = {"dead-letter-exchange": INBOX, "dead-letter-strategy": "at-least-once", "overflow": "reject-publish"}
LOSSY: Final = {"dead-letter-exchange": INBOX}
LIMIT: Final = Rule("theirs", ".*", {"max-length": 10})


def given_to(queue: Standing, written: Sequence[Policy], *, stands: bool = True, **more: Any) -> list[dict[str, Any]]:
    """The definitions of which the broker may take any for a queue after apply; [] where apply is refused."""
    now = Snapshot("/", (4, 3), (queue,) if stands else (), **more)
    planned = plan(ordered(written), now, NAMES, frozenset())
    if planned.is_refused:
        assert {note.code for note in planned.conflicts} == {"limit"}
        return []
    rules = [policy.rule for policy in planned.desired.policies]
    return [dict(rule.definition) for rule in at_top(rules, queue.name, queue.kind, now.version)]


VIP: Final = [policy("all", "#", expires=3_600_000), policy("vip", "=orders.vip", inherit=False)]


@pytest.mark.parametrize("stands", [True, False])
@pytest.mark.parametrize(("kind", "definition"), [("quorum", SAFE), ("classic", LOSSY)])
def test_a_policy_that_does_not_inherit_is_above_those_that_it_cuts_off(
    stands: bool,  # noqa: FBT001 - a table
    kind: str,
    definition: dict[str, Any],
) -> None:
    """Else the queue that it exempts would be deleted after an hour."""
    assert given_to(Standing("orders.vip", kind), VIP, stands=stands) == [definition]


LIMITED: Final = [
    ({"max-length": 10}, False), ({"max-length-bytes": 10}, False), ({"overflow": "drop-head"}, False),
    ({"max-length": 10, "overflow": "reject-publish"}, True), ({"expires": 10_000}, True),
]  # fmt: skip


@pytest.mark.parametrize(("limits", "is_safe"), LIMITED)
@pytest.mark.parametrize("pattern", [".*", "^orders", "^[[:alpha:]]"])
@pytest.mark.parametrize("stands", [True, False])
def test_a_selector_whose_queues_an_operator_limits_is_refused_until_it_states_what_happens_then(
    limits: dict[str, Any],
    is_safe: bool,  # noqa: FBT001 - a table
    pattern: str,
    stands: bool,  # noqa: FBT001 - a table
) -> None:
    queue, more = Standing("orders.new", "quorum"), {"operator_policies": (Rule("theirs", pattern, limits),)}
    definition = given_to(queue, [policy("some", "orders.#")], stands=stands, **more)
    assert definition == ([SAFE] if is_safe else [])
    states = policy("some", "orders.#", overflow="drop-head")
    assert given_to(queue, [states], stands=stands, **more) == [LOSSY | {"overflow": "drop-head"}]
    assert given_to(Standing("mails", "quorum"), [policy("some", "mails.#")], operator_policies=(
        Rule("theirs", "^orders", limits),
    )) == [SAFE]  # fmt: skip


@pytest.mark.parametrize(
    ("arguments", "is_safe"), [({"x-max-length": 5}, False), ({"x-overflow": "reject-publish"}, True)]
)
def test_a_queue_with_a_limit_of_its_own_needs_a_policy_of_its_own(arguments: dict[str, Any], *, is_safe: bool) -> None:
    queue, every = Standing("q", "quorum", arguments), policy("all", "#")
    operators: dict[str, Any] = {"operator_policies": (replace(LIMIT, pattern="^q$"),)} if is_safe else {}
    assert given_to(queue, [every], **operators) == ([SAFE] if is_safe else [])
    assert given_to(queue, [every, policy("own", "=q")], **operators) == [SAFE if is_safe else LOSSY]


OPERATORS: Final = st.lists(
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


@given(SETS, OPERATORS, STANDING)
def test_only_queues_without_a_limit_refuse_publishes(
    policies: PolicySet, operators: list[Rule], queues: list[Standing]
) -> None:
    before = Snapshot("/", (4, 3), tuple(queues), operator_policies=tuple(operators))
    planned = plan(policies, before, NAMES, frozenset())
    rules = [written.rule for written in planned.desired.policies]
    for queue in () if planned.is_refused else queues:
        if queue.kind == "classic" or not policies.chain(vhost="/", queue=queue.name, queue_type=None):
            continue
        limits = [rule.definition for rule in at_top(operators, queue.name, "quorum")]
        refuses = bool(limits) and all("overflow" in definition for definition in limits)
        is_limited = any("max-length" in definition for definition in limits) or (queue.arguments and not refuses)
        for rule in at_top(rules, queue.name, "quorum"):
            is_safe = not (is_limited or "max-length" in rule.definition)
            assert ("dead-letter-strategy" in rule.definition) is is_safe
            assert ("overflow" in rule.definition) is is_safe


@pytest.mark.slow
def test_a_queue_that_an_operator_limits_confirms_as_before(commands: Commands, amqp: Client) -> None:
    """Eleven messages to a queue of ten: the oldest dies, and no producer is refused."""
    body = {"pattern": ".*", "definition": {"max-length": 10}, "priority": 0, "apply-to": "queues"}
    commands.declare("limited", queue_type="quorum")
    commands.vhost.put(f"operator-policies/{commands.vhost.quoted}/managed", body)
    assert commands.run("apply").returncode == 1
    commands.write("version: 1\npolicies:\n  - {name: own, queue: limited}\n")
    commands.apply()
    assert commands.plan()["steps"] == []
    eventually(lambda: commands.effective("limited") == {**LOSSY, "max-length": 10}, 30)
    for number in range(11):
        amqp.publish(str(number), key="limited")
    eventually(lambda: amqp.depth("limited") == 10)
    eventually(lambda: amqp.depth(INBOX) == 1)
