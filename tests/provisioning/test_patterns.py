"""Our selectors as RabbitMQ's regular expressions, and the policies that are made of them, without a broker."""

import re
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.broker.management import Snapshot, Standing
from dlx_router.broker.policies import Rule
from dlx_router.config.policy_files.loader import load_policies
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet, Selector, SelectorKind, Setting, Source, ordered, words_match
from dlx_router.provisioning import ownership, selector_regex
from dlx_router.provisioning.broker_rules import at_top, in_force
from dlx_router.provisioning.desired_policies import desired
from dlx_router.provisioning.ownership import recognised
from dlx_router.provisioning.plan import plan
from dlx_router.provisioning.steps import Action

ROOT: Final = Path(__file__).parents[2]
NAMES = Names()
WORDS = st.lists(st.sampled_from(["a", "b", "a+", "*", "#"]), min_size=1, max_size=5)
QUEUES = st.lists(st.sampled_from(["a", "b", "a+", "", "x"]), min_size=1, max_size=5).map(".".join)


@given(WORDS, QUEUES)
def test_an_expression_names_the_queues_that_the_words_name(words: list[str], queue: str) -> None:
    assert bool(re.search(selector_regex.of_words(words), queue)) == words_match(words, queue.split("."))


@given(st.lists(WORDS, min_size=1, max_size=3), QUEUES)
def test_an_expression_with_exceptions_names_what_no_exception_names(many: list[list[str]], queue: str) -> None:
    expressions = [selector_regex.of_words(words) for words in many]
    first, *others = (bool(re.search(expression, queue)) for expression in expressions)
    kept = bool(re.search(selector_regex.except_for(expressions[0], expressions[1:]), queue))
    assert kept == (first and not any(others))


def _policy(name: str, selector: Selector, **keys: Any) -> Policy:
    source = Source(name, "p.yaml", 1)
    return Policy(name, selector, source, definition={key: Setting(value, source) for key, value in keys.items()})


SELECTORS = st.one_of(
    WORDS.map(lambda words: Selector(SelectorKind.MATCH, ".".join(words))),
    QUEUES.filter(bool).map(partial(Selector, SelectorKind.QUEUE)),
    st.sampled_from(["a", "^b", "x$"]).map(lambda text: Selector(SelectorKind.PATTERN, text, re.compile(text).search)),
)
KEYS = st.fixed_dictionaries(
    {}, optional={"message-ttl": st.sampled_from([1, 2]), "delivery-limit": st.just(5), "max-length": st.just(9)}
)
SETS = st.lists(st.tuples(SELECTORS, KEYS, st.booleans()), min_size=1, max_size=4).map(
    lambda rows: ordered(
        [
            replace(_policy(f"p{at}", selector, **keys), inherit=inherit)
            for at, (selector, keys, inherit) in enumerate(rows)
        ]
    )
)
DISPLACED: list[dict[str, Any]] = [
    {"expires": 5}, {"max-length": 3}, {"delivery-limit": 7}, {"max-priority": 2, "expires": 9},
    {"queue-leader-locator": "client-local", "expires": 8},
]  # fmt: skip
FOREIGN = st.lists(
    st.builds(
        Rule,
        st.sampled_from(["one", "two", "three"]),
        st.sampled_from([".*", "^a", "x"]),
        st.sampled_from(DISPLACED),
        st.integers(0, 2),
        st.sampled_from(["queues", "all", "classic_queues", "quorum_queues"]),
    ),
    max_size=3,
    unique_by=lambda rule: rule.name,
)
STANDING = st.lists(
    st.builds(
        Standing,
        QUEUES.filter(bool),
        st.sampled_from(["classic", "quorum"]),
        st.sampled_from([{}, {"x-max-length": 5}]),
    ),
    max_size=6,
    unique_by=lambda q: q.name,
)


@given(SETS, FOREIGN | st.just([]), STANDING, st.sampled_from([(3, 10), (4, 3)]))
def test_every_queue_that_stands_gets_its_own_definition_and_a_second_plan_is_empty(
    policies: PolicySet, foreign: list[Rule], queues: list[Standing], version: tuple[int, ...]
) -> None:
    before, names = Snapshot("/", version, tuple(queues), policies=tuple(foreign)), NAMES
    want = desired(policies, before, names)
    if want.conflicts or plan(policies, before, names, frozenset()).is_refused:
        return
    after = replace(before, policies=(*foreign, *(policy.rule for policy in want.policies)))
    for queue in queues:
        chain = policies.chain(vhost="/", queue=queue.name, queue_type=None)
        rules = at_top(after.policies, queue.name, queue.kind, version)
        if not chain:
            assert all(rule in foreign for rule in rules)
            continue
        assert rules
        merged: dict[str, Any] = {"dead-letter-exchange": names.inbox}
        for policy in chain:
            for key, setting in policy.definition.items():
                merged.setdefault(key, setting.value)
        if queue.kind == "classic":
            merged.pop("delivery-limit", None)
        for rule in rules:  # the broker may take any of them
            assert merged.items() <= rule.definition.items()
            assert rule.definition == rules[0].definition
    owned = frozenset(policy.rule.name for policy in want.policies)
    again = plan(policies, after, names, owned)
    assert [step for step in again.steps if step.what == "policy"] == []
    assert owned <= recognised(after.policies, names), "known by their content too"


@given(QUEUES.filter(bool))
def test_where_order_counts_there_is_an_inbox_of_its_own(queue: str) -> None:
    every = _policy("every", Selector(SelectorKind.MATCH, "#"))
    fifo = _policy("fifo", Selector(SelectorKind.MATCH, "a.#"), ordering="fifo")
    names = NAMES
    rules = [policy.rule for policy in desired(ordered([every, fifo]), Snapshot("/", (4, 3)), names).policies]
    rule = in_force(rules, queue, "quorum")
    assert rule is not None
    is_fifo = words_match(["a", "#"], queue.split("."))
    wanted = names.fifo if is_fifo else names.inbox
    assert rule.definition["dead-letter-exchange"] == wanted


def test_an_expression_that_is_too_long_is_refused() -> None:
    words = ".".join(f"word-{at:03}" for at in range(150))
    planned = plan(
        ordered([_policy("long", Selector(SelectorKind.MATCH, f"{words}.#"))]),
        Snapshot("/", (4, 3)),
        NAMES,
        frozenset(),
    )
    assert planned.is_refused
    assert {note.code for note in planned.conflicts} == {"expression"}
    assert "RabbitMQ takes 1,024" in planned.conflicts[0].text


def test_policies_that_say_the_same_of_the_same_queues_are_one() -> None:
    selectors = Selector(SelectorKind.MATCH, "a"), Selector(SelectorKind.QUEUE, "a")
    policies = ordered([_policy("m", selectors[0]), _policy("q", selectors[1], **{"delivery-limit": 5})])
    before = Snapshot("/", (4, 3))
    want = desired(policies, before, NAMES)
    names = [policy.rule.name for policy in want.policies]
    assert len(names) == len({*names})
    after = replace(before, policies=tuple(policy.rule for policy in want.policies))
    assert [step for step in plan(policies, after, NAMES, frozenset(names)).steps if step.what == "policy"] == []


def test_dead_letter_queues_that_a_policy_for_one_type_makes_are_left_out_too() -> None:
    grave = _policy("typed", Selector(SelectorKind.MATCH, "orders.#"), **{"dead-letter-queue-prefix": "grave."})
    everything = _policy("all", Selector(SelectorKind.MATCH, "#"))
    want = desired(ordered([replace(grave, apply_to="quorum_queues"), everything]), Snapshot("/", (4, 3)), NAMES)
    rules = [policy.rule for policy in want.policies]
    assert in_force(rules, "orders.a", "quorum") is not None
    assert in_force(rules, "other", "quorum") is not None
    assert in_force(rules, "grave.orders.a", "quorum") is None


def _attended(policies: PolicySet, *queues: str) -> set[str]:
    """Those of these queues that a plan attends, for which a rule is in force then; it is the same for all of them."""
    standing = tuple(Standing(queue, "quorum") for queue in queues)
    want = desired(policies, Snapshot("/", (4, 3), standing), NAMES)
    rules = [policy.rule for policy in want.policies]
    caught = {queue for queue in queues if in_force(rules, queue, "quorum") is not None}
    assert caught == {queue.name for queue in want.attended}
    return caught


def test_a_dead_letter_queue_that_the_shipped_policies_make_for_one_reason_is_attended_by_none() -> None:
    policies = load_policies(ROOT / "policies").policies
    assert _attended(policies, "orders.eu.new", "DLQ.orders.eu.new") == {"orders.eu.new"}


@pytest.mark.parametrize("reason", ["expired", "application:invalid"])
@pytest.mark.parametrize(("key", "made"), [("prefix", "EXP.orders"), ("suffix", "DLQ.orders.late")])
def test_dead_letter_queues_that_an_overlay_makes_are_left_out(reason: str, key: str, made: str) -> None:
    """Else one more would be made for each of them, and so on."""
    everything = _policy("all", Selector(SelectorKind.MATCH, "#"), **{"message-ttl": 3_600_000})
    value = Setting({"prefix": "EXP.", "suffix": ".late"}[key], everything.source)
    policies = ordered([replace(everything, on={reason: {f"dead-letter-queue-{key}": value}})])
    assert _attended(policies, "orders", "DLQ.orders", made) == {"orders"}
    assert _attended(policies, "orders", made, f"DLQ.{made}") == {"orders"}


def test_a_dead_letter_queue_is_left_out_when_its_work_queue_is_gone() -> None:
    everything = ordered([_policy("all", Selector(SelectorKind.MATCH, "#"))])
    assert _attended(everything, "orders", "DLQ.mail") == {"orders"}


def test_a_regular_expression_does_not_name_the_dead_letter_queues_of_its_own_queues() -> None:
    expression = Selector(SelectorKind.PATTERN, "^(orders|grave)", re.compile("^(orders|grave)").search)
    policies = ordered([_policy("some", expression, **{"dead-letter-queue-prefix": "grave."})])
    assert _attended(policies, "orders", "grave.orders") == {"orders"}


def test_a_dead_letter_queue_that_a_policy_names_is_attended() -> None:
    everything = _policy("all", Selector(SelectorKind.MATCH, "#"), **{"message-ttl": 5})
    policies = ordered([everything, _policy("graves", Selector(SelectorKind.QUEUE, "DLQ.orders"))])
    assert _attended(policies, "orders", "DLQ.orders") == {"orders", "DLQ.orders"}


def test_what_is_no_ledger_makes_nothing_ours() -> None:
    others: list[Any] = [None, 1, [], {}, {"policies": "all"}, {"policies": [1, None]}]
    for value in others:
        assert ownership.read_ledger(value) == frozenset()
    assert ownership.read_ledger(ownership.ledger_value(["b", "a", "b"])) == {"a", "b"}


def test_what_no_policy_needs_any_more_is_removed_and_only_that() -> None:
    left = Rule("dlx-router.11111111", "^gone$", {"dead-letter-exchange": NAMES.inbox}, 5)
    theirs = Rule("dlx-router.22222222", "^other$", {"max-length": 1}, 5)
    snapshot = Snapshot("/", (4, 3), policies=(left, theirs))
    planned = plan(ordered([]), snapshot, NAMES, frozenset({left.name}))
    assert [step.name for step in planned.steps if step.action is Action.REMOVE] == [left.name]
    assert [theirs.name in note.text for note in planned.notes] == [True]


@pytest.mark.parametrize(("definition", "lost"), [({"dead-letter-strategy": "at-least-once"}, 3), ({}, 0)])
def test_deaths_that_are_on_their_way_keep_their_policy(definition: dict[str, Any], lost: int) -> None:
    rule = Rule("theirs", "^q$", {"dead-letter-exchange": "x", **definition})
    snapshot = Snapshot("/", (4, 3), (Standing("q", "quorum", pending=3),), policies=(rule,))
    policies = ordered([_policy("p", Selector(SelectorKind.QUEUE, "q"), **{"max-length": 5})])
    planned = plan(policies, snapshot, NAMES, frozenset({"theirs"}))  # the ledger names it
    assert [note.code for note in planned.conflicts] == ["pending"] * bool(lost)
