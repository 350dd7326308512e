"""What is in force for every queue that stands, as the broker reads expressions: PCRE, on bytes."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.broker.management import Snapshot, Standing
from dlx_router.broker.policies import Rule
from dlx_router.config.language.regex import Search, compiled
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet, Selector, SelectorKind, Setting, Source, ordered
from dlx_router.provisioning.broker_rules import applies
from dlx_router.provisioning.plan import Plan, plan
from dlx_router.provisioning.steps import after

# What PCRE reads and Python does not, or reads otherwise, and how Python writes it.
IN_PYTHON: Final = {
    r"(?i)": "(?i:",  # to the end of what it stands in, as these tests write it
    r"[[:alpha:]]": "[A-Za-z]",
    r"\pL": "[A-Za-z]",
    r"\Qa+\E": r"a\+",
    r"(?<n>": "(",
    r"\h": r"[ \t]",
    r"\z": r"\Z",
}
NAMES: Final = Names()


def broker_finds(expression: str, name: str) -> bool:
    """As Erlang's `re:run` on the bytes of both."""
    for theirs, python in IN_PYTHON.items():
        expression = expression.replace(theirs, python) + ")" * (theirs == "(?i)") * expression.count(theirs)
    return re.search(expression.encode(), name.encode()) is not None


def taken(rules: Sequence[Rule], queue: Standing, version: tuple[int, ...] = (4, 3)) -> list[Rule]:
    """Those of which the broker applies one."""
    some = named(rules, queue, version)
    return [rule for rule in some if rule.priority == max(every.priority for every in some)]


def named(rules: Sequence[Rule], queue: Standing, version: tuple[int, ...] = (4, 3)) -> list[Rule]:
    """Those that name the queue and have no key for which the broker skips them."""
    here = [rule for rule in rules if applies(replace(rule, pattern=""), queue.name, queue.kind, version)]
    return [rule for rule in here if broker_finds(rule.pattern, queue.name)]


def policy(name: str, selector: str, /, *, inherit: bool = True, priority: int = 0, **keys: Any) -> Policy:
    """`=a` names a queue, `/a/` is an expression, all else words."""
    source = Source(name, "p.yaml", 1)
    settings = {key.replace("_", "-"): Setting(value, source) for key, value in keys.items()}
    made = Selector(SelectorKind.MATCH, selector)
    if selector.startswith("="):
        made = Selector(SelectorKind.QUEUE, selector[1:])
    if selector.startswith("/"):
        text = selector.strip("/")
        made = Selector(SelectorKind.PATTERN, text, Search(compiled(text)))
    return Policy(name, made, source, inherit=inherit, priority=priority, definition=settings)


def applied(policies: PolicySet, now: Snapshot, names: Names = NAMES) -> tuple[Plan, Snapshot]:
    """The plan, and the vhost after it."""
    planned = plan(policies, now, names, frozenset())
    return planned, replace(now, policies=after(now.policies, () if planned.is_refused else planned.steps))


def given_to(queue: str, snapshot: Snapshot) -> Mapping[str, Any]:
    """The definition that a queue has; one only."""
    standing = next(entry for entry in snapshot.queues if entry.name == queue)
    (definition,) = {repr(rule.definition): rule.definition for rule in taken(snapshot.policies, standing)}.values()
    return definition


def vhost(*queues: str | Standing, **more: Any) -> Snapshot:
    standing = (queue if isinstance(queue, Standing) else Standing(queue, "quorum") for queue in queues)
    return Snapshot("/", (4, 3), tuple(standing), **more)


def is_stable(policies: PolicySet, then: Snapshot, names: Names = NAMES) -> bool:
    return not [step for step in plan(policies, then, names, frozenset()).steps if step.what == "policy"]


SHORT: Final = {"expires": 60_000, "message-ttl": 1000}
UNREAD: Final = [r"^(?i)tmp\.", r"^(?<n>tmp)", r"^[[:alpha:]]+$", r"^tmp\Qa+\E", r"^tmp\h", r"^tmp\z"]


@pytest.mark.parametrize("pattern", UNREAD)
@pytest.mark.parametrize("selector", ["=orders.a", "orders.#", "#"])
def test_a_policy_that_only_the_broker_can_read_is_a_conflict_and_nothing_is_changed(
    pattern: str, selector: str
) -> None:
    """Its `expires` would delete a work queue; built into an expression of ours it would keep that from being found."""
    planned = plan(
        ordered([policy("orders", selector)]), vhost("orders.a", policies=(Rule("theirs", pattern, SHORT, 3),)), NAMES,
        frozenset(),
    )  # fmt: skip
    (note,) = planned.conflicts
    assert planned.is_refused
    assert note.code == "foreign-policy"
    assert 'policy "theirs"' in note.text
    assert "only RabbitMQ can read" in note.text


# (policies, queues that stand, code of the conflict, its words, a policy that ends it)
REFUSED: Final = [
    ([("a", "/^\\pL+$/")], [], "expression", "policy a (p.yaml:1)", None),
    ([("a", "/^\\Qa.b/")], [], "expression", "write it plainly", None),
    ([("a", "/^.{4}-orders$/")], ["über-orders"], "crossing", "queue über-orders: policy a", ("b", "=über-orders")),
    ([("a", "/^orders$/")], ["orders\n"], "crossing", "no policy selects", None),
    ([("a", "orders.#", 1), ("b", "*.eu", 2)], ["orders.eu"], "crossing", "b (p.yaml:1), a (p.yaml:1)",
     ("c", "=orders.eu")),
]  # fmt: skip


@pytest.mark.parametrize(("rows", "queues", "code", "words", "way_out"), REFUSED)
def test_what_one_policy_for_each_selector_cannot_say_is_refused_with_the_way_out(
    rows: list[tuple[Any, ...]], queues: list[str], code: str, words: str, way_out: tuple[str, str] | None
) -> None:
    policies = [policy(name, text, **({"message_ttl": ttl[0]} if ttl else {})) for name, text, *ttl in rows]
    now = vhost(*queues)
    planned = plan(ordered(policies), now, NAMES, frozenset())
    (note,) = planned.conflicts
    assert (planned.is_refused, note.code) == (True, code)
    assert words in note.text
    if way_out is not None:
        planned, then = applied(ordered([*policies, policy(*way_out)]), now)
        assert not planned.conflicts
        assert given_to(queues[0], then)["dead-letter-exchange"] == NAMES.inbox
        assert is_stable(ordered([*policies, policy(*way_out)]), then)


def test_selectors_that_cross_and_say_the_same_are_no_conflict() -> None:
    planned, then = applied(ordered([policy("a", "orders.#"), policy("b", "*.eu")]), vhost("orders.eu"))
    assert not planned.conflicts
    assert given_to("orders.eu", then)["dead-letter-exchange"] == NAMES.inbox


def test_flags_of_an_expression_hold_beside_exceptions() -> None:
    policies = ordered([policy("some", "/(?i)^orders$/"), policy("bill", "=Billing"), policy("x", "/^x(y|z)$/")])
    _, then = applied(policies, vhost("ORDERS", "Billing", "billing", "XY"))
    assert [bool(taken(then.policies, queue)) for queue in then.queues] == [True, True, False, False]
    assert is_stable(policies, then)


@pytest.mark.parametrize("expression", ["y$", "[a-z]$", "[^7]$", "^orders..", "n"])
def test_an_expression_that_finds_some_queues_of_wider_words_gives_its_keys_to_those_only(expression: str) -> None:
    policies = ordered([policy("orders", "orders.*", message_ttl=7), policy("some", f"/{expression}/", expires=9)])
    _, then = applied(policies, vhost())
    others = [queue for queue in ("orders.A", "orders.7", "orders.a7", "orders.") if not re.search(expression, queue)]
    assert others
    for queue in others:
        (rule,) = taken(then.policies, Standing(queue, "classic"))
        assert rule.definition == {"dead-letter-exchange": NAMES.inbox, "message-ttl": 7}


def test_a_dead_letter_queue_that_a_policy_names_is_caught_as_soon_as_it_stands() -> None:
    """What wider expressions leave out, of which it shares a policy, is not left out for it."""
    policies = ordered([policy("all", "#"), policy("graves", "=DLQ.orders")])
    _, then = applied(policies, vhost())
    assert taken(then.policies, Standing("DLQ.orders", "quorum"))
    assert not taken(then.policies, Standing("DLQ.mails", "quorum"))


# -- the law ----------------------------------------------------------------------------------------------------------

QUEUE_NAMES: Final = ["a", "A", "b", "ab", "a.b", "a+", "ä", "b.ä", "ää", "DLQ.a", "DLQ.b.ä", "a.", "x"]
SELECTORS: Final = [
    "#", "a.#", "a.#.#", "*.b", "b.*", "=a", "=DLQ.a", "=ä", "/^a/", "/(?i)^a/", "/a(?i)B|x/", "/^(?P<n>a)/", "/^.$/",
    "/[äö]/", r"/\pL$/", r"/\Qa+\E/", r"/^\w+$/",
]  # fmt: skip
KEYS: Final = st.fixed_dictionaries({}, optional={"message_ttl": st.sampled_from([1, 2]), "max_length": st.just(9)})
SETS: Final = st.lists(st.tuples(st.sampled_from(SELECTORS), KEYS, st.booleans()), min_size=1, max_size=4).map(
    lambda rows: ordered([policy(f"p{at}", text, inherit=so, **keys) for at, (text, keys, so) in enumerate(rows)])
)
FOREIGN: Final = st.lists(
    st.builds(
        Rule,
        st.sampled_from(["one", "two", "three"]),
        st.sampled_from([".*", "^a", "(?i)^a", "^(?i)a", "^[[:alpha:]]", r"\Qa+\E", "^(?<n>b)", r"\w$"]),
        st.sampled_from([{"expires": 5}, {"max-length": 3}, {"max-priority": 2, "expires": 9}]),
        st.integers(0, 2),
        st.sampled_from(["queues", "all", "classic_queues"]),
    ),
    max_size=3,
    unique_by=lambda rule: rule.name,
)
STANDING: Final = st.lists(
    st.builds(Standing, st.sampled_from(QUEUE_NAMES), st.sampled_from(["classic", "quorum"])),
    max_size=6,
    unique_by=lambda queue: queue.name,
)


@given(SETS, FOREIGN | st.just([]), STANDING)
def test_in_force_for_every_queue_that_stands_is_what_should_be_or_nothing_is_changed(
    policies: PolicySet, foreign: list[Rule], queues: list[Standing]
) -> None:
    """Whether policies name it or not; a policy of people on a queue of ours, or maybe on one, is refused."""
    names, before = NAMES, Snapshot("/", (4, 3), tuple(queues), policies=tuple(foreign))
    planned, then = applied(policies, before, names)
    assert planned.is_refused is bool(planned.conflicts)
    for queue in () if planned.is_refused else then.queues:
        chain = policies.chain(vhost="/", queue=queue.name, queue_type=queue.kind)
        rules = taken(then.policies, queue)
        if not chain:
            assert all(rule in foreign for rule in rules)
            continue
        assert not named(foreign, queue)
        merged: dict[str, Any] = {"dead-letter-exchange": names.inbox}
        for each in chain:
            for key, setting in each.definition.items():
                merged.setdefault(key, setting.value)
        assert rules
        for rule in rules:
            assert merged.items() <= rule.definition.items()
            assert rule.definition.keys() - merged.keys() <= {"dead-letter-strategy", "overflow"}
    assert planned.is_refused or is_stable(policies, then, names)
