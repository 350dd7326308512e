"""Policies: who is asked first, what is inherited, what a reason overlays; and topic words against a naive oracle."""
# ruff: noqa: FBT001 - tables and laws pass flags

import time
from collections.abc import Sequence
from functools import cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.policy import (
    Policy,
    PolicySet,
    Selector,
    SelectorKind,
    overlay_keys,
    overlays,
    words_match,
)
from tests.core.core_samples import effective, law, policy, policy_set

EXACT, PATTERN = SelectorKind.QUEUE, SelectorKind.PATTERN


def limit(policies: PolicySet, queue: str, reason: str = "rejected", vhost: str = "/") -> int | None:
    resolved = policies.resolve(vhost=vhost, queue=queue, reason=reason, queue_type=None)
    return None if resolved is None else resolved.max_attempts


# Topic words


def naive(pattern: Sequence[str], words: Sequence[str]) -> bool:
    @cache
    def fits(at: int, word: int) -> bool:
        if at == len(pattern):
            return word == len(words)
        if pattern[at] == "#":
            return fits(at + 1, word) or (word < len(words) and fits(at, word + 1))
        return word < len(words) and pattern[at] in {"*", words[word]} and fits(at + 1, word + 1)

    return fits(0, 0)


@law
@given(
    st.lists(st.sampled_from(["a", "b", "*", "#"]), max_size=7), st.lists(st.sampled_from(["a", "b", "*"]), max_size=7)
)
def test_words_match_as_the_naive_recursion_says(pattern: list[str], words: list[str]) -> None:
    assert words_match(pattern, words) is naive(pattern, words)


def test_no_pattern_is_a_bomb() -> None:
    started = time.perf_counter()
    assert not words_match(["#", "a"] * 127 + ["b"], ["a"] * 127)
    assert time.perf_counter() - started < 2


def test_a_queue_is_named_exactly_and_a_pattern_is_searched() -> None:
    assert Selector(EXACT, "a.#").fits("a.#")
    assert not Selector(EXACT, "a.#").fits("a.b")
    assert Selector(PATTERN, "x", lambda queue: queue.endswith("x") or None).fits("ax")
    assert not Selector(PATTERN, "x", lambda _queue: None).fits("ax")
    assert not Selector(PATTERN, "x").fits("x")


# Precedence


PRECEDENCE = [  # highest first
    policy("urgent", match="#", priority=1),
    policy("exact", match="orders.eu", kind=EXACT),
    policy("two literals", match="orders.eu"),
    policy("literal and star", match="orders.*"),
    policy("literal and hash", match="orders.#"),
    policy("star", match="*.*"),
    policy("hash", match="#"),
    policy("pattern", match="^o", kind=PATTERN, search=lambda queue: queue.startswith("o")),
    policy("last resort", match="orders.eu", kind=EXACT, priority=-1),
]


@law
@given(st.permutations(PRECEDENCE))
def test_the_order_of_precedence_does_not_depend_on_the_order_of_the_files(shuffled: list[Policy]) -> None:
    assert list(policy_set(*shuffled).chain(vhost="/", queue="orders.eu", queue_type=None)) == PRECEDENCE


def test_what_is_still_equal_is_taken_in_the_order_of_the_files() -> None:
    rule, other = policy("one", match="a.*"), policy("other", match="*.a")
    assert [each.name for each in policy_set(other, rule).chain(vhost="/", queue="a.a", queue_type=None)] == [
        "other",
        "one",
    ]
    assert [each.name for each in policy_set(rule, other).chain(vhost="/", queue="a.a", queue_type=None)] == [
        "one",
        "other",
    ]


def test_keys_are_merged_one_by_one_and_each_says_who_set_it() -> None:
    resolved = policy_set(
        policy(
            "low",
            definition={"max-delivery-attempts": 3, "redelivery-delay": 100},
            labels={"team": "low", "owner": "low"},
        ),
        policy("high", match="orders", definition={"max-delivery-attempts": 5}, labels={"team": "high"}),
    ).resolve(vhost="/", queue="orders", reason="rejected", queue_type=None)
    assert resolved is not None
    assert (resolved.policy, resolved.names, resolved.max_attempts, resolved.delay_ms) == (
        "high",
        ("high", "low"),
        5,
        100,
    )
    assert resolved.labels == {"team": "high", "owner": "low"}
    assert {key: str(setting.source) for key, setting in resolved.settings.items()} == {
        "max-delivery-attempts": "orders.yaml:1",
        "redelivery-delay": "orders.yaml:2",
    }
    assert {key: setting.source.policy for key, setting in resolved.settings.items()} == {
        "max-delivery-attempts": "high",
        "redelivery-delay": "low",
    }


def test_without_inheritance_nothing_below_contributes() -> None:
    policies = policy_set(
        policy("top", match="orders", priority=2, definition={"redelivery-delay": 1}),
        policy("wall", match="orders", priority=1, inherit=False),
        policy("below", definition={"max-delivery-attempts": 3}),
    )
    resolved = policies.resolve(vhost="/", queue="orders", reason="rejected", queue_type=None)
    assert resolved is not None
    assert (resolved.names, resolved.delay_ms, resolved.max_attempts) == (("top", "wall"), 1, 10)
    assert limit(policies, "other") == 3


def test_own_queues_are_selected_by_name_only() -> None:
    policies = policy_set(policy("all"), policy("named", match="dlx-router.parking", kind=EXACT))
    assert [each.name for each in policies.chain(vhost="/", queue="dlx-router.parking", own=True, queue_type=None)] == [
        "named"
    ]
    assert policies.resolve(vhost="/", queue="dlx-router.inbox", reason="rejected", own=True, queue_type=None) is None


@pytest.mark.parametrize(
    ("queue", "judged"),
    [
        ("DLQ.orders", False),
        ("DLQ.DLQ.orders", False),
        ("DLQ.transient", False),
        ("EXP.orders", False),
        ("DLQ.orders.late", False),
        ("DLQ.other", True),
        ("DLQ.", True),
        ("orders.late", True),
        ("orders", True),
        ("DLQ.orders.named", True),
    ],
)
def test_dead_letter_queues_are_selected_by_their_own_names_only(queue: str, judged: bool) -> None:
    policies = policy_set(
        policy("all", definition={"dead-letter-exchange": "dlx"}),
        policy("orders", match="orders.#", definition={"auto-create-dead-letter-resources": True}),
        policy("nested", match="*.orders", definition={"auto-create-dead-letter-resources": True}),
        policy(
            "reasons",
            match="orders",
            on={
                "expired": {"dead-letter-queue-prefix": "EXP."},
                "application:late": {"dead-letter-queue-suffix": ".late"},
            },
        ),
        policy("named", match="DLQ.orders.named", kind=EXACT),
    )
    assert (policies.resolve(vhost="/", queue=queue, reason="rejected", queue_type=None) is not None) is judged


def test_a_policy_for_one_type_or_another_vhost_makes_dead_letter_queues_of_its_own() -> None:
    typed = policy("typed", apply_to="quorum_queues", definition={"dead-letter-queue-prefix": "T."})
    elsewhere = policy("elsewhere", vhost="x", definition={"dead-letter-queue-prefix": "E."})
    policies = policy_set(typed, elsewhere)
    created = {(queue, vhost) for queue in ("T.a", "E.a") for vhost in ("/", "x") if policies.creates(queue, vhost)}
    assert created == {("T.a", "/"), ("E.a", "x"), ("T.a", "x")}


@pytest.mark.parametrize(("match", "exact"), [("orders", True), ("other", False)])
def test_a_policy_that_names_the_queue_is_known_as_such_wherever_it_stands(match: str, exact: bool) -> None:
    policies = policy_set(policy("all", priority=9), policy("named", match=match, kind=EXACT))
    resolved = policies.resolve(vhost="/", queue="orders", reason="rejected", queue_type=None)
    assert resolved is not None
    assert resolved.named_exactly is exact


# What a reason overlays


@pytest.mark.parametrize(
    ("reason", "layers"),
    [
        ("rejected", ("rejected",)),
        ("application:card declined", ("application:card declined", "application")),
        ("application:a:b", ("application:a:b", "application")),
        ("application", ("application",)),
        ("unknown", ("unknown",)),
    ],
)
def test_an_application_reason_has_a_name_and_a_kind(reason: str, layers: tuple[str, ...]) -> None:
    assert overlay_keys(reason) == layers


OVERLAID = policy_set(
    policy(
        "low",
        on={
            "expired": {"max-delivery-attempts": 2},
            "application": {"max-delivery-attempts": 4, "max-redrives": 40},
            "application:fraud": {"max-delivery-attempts": 5, "redelivery-delay": 50},
            "maxlen": {"discard": True},
        },
    ),
    policy(
        "high", priority=1, definition={"max-delivery-attempts": 1}, on={"application": {"max-delivery-attempts": 6}}
    ),
)


@pytest.mark.parametrize(
    ("reason", "attempts"),
    [
        pytest.param("rejected", 1, id="no overlay: the base"),
        pytest.param("expired", 2, id="an overlay beats even the base of a higher policy"),
        pytest.param("application:card", 6, id="among overlays the higher policy wins"),
        pytest.param("application:fraud", 5, id="the overlay of a name beats that of all applications"),
    ],
)
def test_overlays_lie_over_the_merged_base(reason: str, attempts: int) -> None:
    assert limit(OVERLAID, "q", reason) == attempts


@pytest.mark.parametrize(
    ("reason", "found"),
    [
        ("rejected", ()),
        ("expired", ("expired",)),
        ("application", ("application",)),
        ("application:card", ("application",)),
        ("application:fraud", ("application:fraud", "application")),
        ("application:fraud:twice", ("application",)),
    ],
)
def test_of_a_reason_only_what_some_policy_overlays_matters(reason: str, found: tuple[str, ...]) -> None:
    assert overlays(OVERLAID.policies, reason) == found


# Every key has a value


def test_the_defaults_are_those_of_the_policy_page() -> None:
    resolved = effective()
    assert (resolved.dead_letter_exchange, resolved.routing_key, resolved.rewrites, resolved.aliases) == (
        None,
        None,
        (),
        (),
    )
    assert (resolved.max_attempts, resolved.max_redrives, resolved.discard) == (10, 3, False)
    assert (resolved.delay_ms, resolved.multiplier, resolved.cap_ms, resolved.jitter) == (0, 1.0, 0, 0.0)
    assert (resolved.dlq_prefix, resolved.dlq_suffix, resolved.dlq_type, resolved.auto_create) == (
        "DLQ.",
        "",
        "quorum",
        True,
    )
    assert resolved.retry_on == {"rejected", "delivery_limit", "application"}
    assert resolved.settings == {}


@pytest.mark.parametrize(
    ("definition", "created"),
    [
        ({}, True),
        ({"dead_letter_exchange": "dlx"}, False),
        ({"dead_letter_exchange": "dlx", "auto_create_dead_letter_resources": True}, True),
        ({"auto_create_dead_letter_resources": False}, False),
        ({"dead_letter_exchange": ""}, False),
    ],
)
def test_dead_letter_queues_are_created_where_no_exchange_is_named(definition: dict[str, Any], created: bool) -> None:
    assert effective(**definition).auto_create is created
