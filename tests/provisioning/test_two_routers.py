"""Two routers of different prefix in one vhost: neither outbids the other, and what both would catch is refused."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.broker.definitions import rescued
from dlx_router.broker.management import Snapshot, Standing
from dlx_router.broker.policies import Rule
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet, Selector, SelectorKind, Setting, Source, ordered
from dlx_router.provisioning.broker_rules import in_force
from dlx_router.provisioning.plan import Plan, plan
from dlx_router.provisioning.steps import after

ONE, TWO = Names("one"), Names("two")


def policies_of(*selectors: str) -> PolicySet:
    source = Source("p", "p.yaml", 1)
    kinds = {"=": SelectorKind.QUEUE}
    return ordered([
        Policy(f"p{at}", Selector(kinds.get(text[0], SelectorKind.MATCH), text.lstrip("=")), source,
               definition={"message-ttl": Setting(1000 + at, source)})
        for at, text in enumerate(selectors)
    ])  # fmt: skip


def applied(planned: Plan, snapshot: Snapshot) -> Snapshot:
    """The vhost after apply took the steps about policies."""
    return replace(snapshot, policies=after(snapshot.policies, planned.steps if not planned.is_refused else ()))


def changes(planned: Plan) -> list[str]:
    return [f"{step.action} {step.name}" for step in planned.steps if step.what == "policy"]


FOREIGN = st.lists(
    st.builds(
        Rule,
        st.sampled_from(["x", "y"]),
        st.sampled_from([".*", "^a", "b"]),
        st.sampled_from([{"expires": 5}, {"max-length": 3}, {"delivery-limit": 7}]),
        st.sampled_from([0, 3, 1_000_000, 2_000_000]),
    ),
    max_size=2,
    unique_by=(lambda rule: rule.name, lambda rule: rule.priority),
)
INBOXES = [Standing(names.inbox, "quorum", rescued(names)) for names in (ONE, TWO)]
QUEUES = st.lists(
    st.builds(
        Standing,
        st.sampled_from(["a", "a.x", "a.y", "b.x", "b.y", "c", "DLQ.a"]),
        st.sampled_from(["classic", "quorum"]),
    )
    | st.sampled_from(INBOXES),
    max_size=6,
    unique_by=lambda queue: queue.name,
)
OF_ONE = st.lists(st.sampled_from(["a.#", "a.*", "=a.x", "=a"]), min_size=1, max_size=3, unique=True)
OF_TWO = st.lists(st.sampled_from(["b.#", "b.*", "=b.x", "=c"]), min_size=1, max_size=3, unique=True)


@given(OF_ONE, OF_TWO, QUEUES)
def test_routers_that_share_no_queue_leave_each_other_alone(
    of_one: list[str], of_two: list[str], queues: list[Standing]
) -> None:
    first, second = policies_of(*of_one), policies_of(*of_two)
    now = Snapshot("/", (4, 3), tuple(queues))
    for policies, names in ((first, ONE), (second, TWO), (first, ONE), (second, TWO)):
        planned = plan(policies, now, names, frozenset())
        assert not planned.is_refused, planned.notes
        now = applied(planned, now)
    assert changes(plan(first, now, ONE, frozenset())) == []
    assert changes(plan(second, now, TWO, frozenset())) == []
    for queue in queues:
        for policies, names in ((first, ONE), (second, TWO)):
            if policies.chain(vhost="/", queue=queue.name, queue_type=None):
                rule = in_force(now.policies, queue.name, queue.kind)
                assert rule is not None
                assert rule.definition["dead-letter-exchange"] == names.inbox
    for own in ("one.inbox", "two.inbox"):
        rule = in_force(now.policies, own, "quorum")
        assert rule is not None
        assert "dead-letter-exchange" not in rule.definition


@pytest.mark.parametrize(
    ("of_one", "of_two", "queues"),
    [
        (["#"], ["#"], []),
        (["#"], ["a.#"], []),
        (["a.#"], ["#"], []),
        (["a.#"], ["a.#"], []),
        (["=a.x"], ["a.#"], []),
        (["a.#"], ["=a.b.c"], []),
        (["a.*"], ["*.x"], []),
        (["a.#"], ["*.z"], ["a.z"]),
    ],
)
def test_who_comes_second_for_the_same_queues_is_refused_and_told_who_is_there(
    of_one: Sequence[str], of_two: Sequence[str], queues: Sequence[str]
) -> None:
    now = Snapshot("/", (4, 3), tuple(Standing(queue, "quorum") for queue in queues))
    now = applied(plan(policies_of(*of_one), now, ONE, frozenset()), now)
    planned = plan(policies_of(*of_two), now, TWO, frozenset())
    assert planned.is_refused
    assert any('the router of prefix "one"' in note.text for note in planned.conflicts)
    assert {note.code for note in planned.conflicts} == {"foreign-policy"}
    assert changes(plan(policies_of(*of_one), now, ONE, frozenset())) == [], "the first one is as it was"


def test_a_policy_by_hand_for_another_router_is_its_own_too() -> None:
    own = tuple(Standing(f"one.{name}", "quorum") for name in ("inbox", "release", "parking", "quarantine"))
    by_hand = Rule("my-dlx", "^orders", {"dead-letter-exchange": "one.inbox"})
    now = Snapshot("/", (4, 3), (*own, Standing("orders.x", "quorum")), policies=(by_hand,))
    (note,) = plan(policies_of("orders.#"), now, TWO, frozenset()).conflicts
    assert 'policy "my-dlx"' in note.text
    assert "queue orders.x" in note.text


@pytest.mark.parametrize("queue", ["one.inbox", "one.delay.1000"])
def test_no_policy_names_the_queues_of_another_router(queue: str) -> None:
    """Also those to come, and where that router's apply never ran."""
    own = tuple(Standing(f"one.{name}", "quorum") for name in ("inbox", "release", "parking", "quarantine"))
    now = Snapshot("/", (4, 3), own)
    then = applied(plan(policies_of("#", "*.inbox"), now, TWO, frozenset()), now)
    assert in_force(then.policies, queue, "quorum") is None
    assert in_force(then.policies, "orders.x", "quorum") is not None
