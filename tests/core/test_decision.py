"""Decisions: tables of every way a letter can go, then laws: always an answer, always a reason, never early."""
# ruff: noqa: FBT001 - tables and laws pass flags

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.backoff import ladder_elapsed_ms
from dlx_router.core.decision import Release, decide, hold, release
from dlx_router.core.explanation import explain
from dlx_router.core.letter import Arrival, Letter
from dlx_router.core.names import Names
from dlx_router.core.outcome import DeadLetter, Decision, Discard, Hold, Park, Retry
from dlx_router.core.policy import Effective, Selector, SelectorKind
from dlx_router.core.target import dead_letter_queue, final_keys, short_name, transient_queue
from dlx_router.core.template import parse
from dlx_router.core.words import Action, Cause, State
from tests.core.core_samples import (
    NOW,
    amqp_text,
    death,
    effective,
    histories,
    law,
    letter,
    policy,
    policy_set,
    queues,
    reasons,
    rewrite,
)

LONG = "q" * 255
OWN = "dlx-router.retired"
SPENT: dict[str, Any] = {"max_delivery_attempts": 1}


def decided(died: Letter | None = None, draw: float = 0.0, **definition: Any) -> Decision:
    died = died or letter()
    return decide(died, effective(died.reason, **definition), NOW, draw)


# To try again


def test_a_first_failure_is_tried_again_after_its_wait() -> None:
    assert decided(redelivery_delay=5000) == Retry(wait_ms=5000, due_ms=NOW + 5000, attempts=1)


def test_the_draw_moves_the_wait() -> None:
    keys: dict[str, Any] = {"redelivery_delay": 1000, "redelivery_collision_avoidance_factor": 0.5}
    assert [decided(draw=draw, **keys) for draw in (-0.25, 0.75, -0.05)] == [
        Retry(875, NOW + 875, 1),
        Retry(1375, NOW + 1375, 1),
        Retry(975, NOW + 975, 1),
    ]


@pytest.mark.parametrize(
    ("limit", "failed", "again"),
    [(1, 1, False), (5, 4, True), (5, 5, False), (10, 9, True), (10, 10, False), (-1, 10**9, True), (0, 1, False)],
)
def test_n_attempts_are_n_deliveries_and_dead_instead_of_the_next(limit: int, failed: int, again: bool) -> None:
    decision = decided(letter(base_attempts=failed - 1), max_delivery_attempts=limit)
    assert isinstance(decision, Retry) is again
    assert decision.attempts == failed


@pytest.mark.parametrize(
    ("reason", "again"),
    [
        ("rejected", True),
        ("delivery_limit", True),
        ("application", True),
        ("application:card declined", True),
        ("expired", False),
        ("maxlen", False),
        ("unheard_of", False),
    ],
)
def test_only_reasons_in_retry_on_are_tried_again(reason: str, again: bool) -> None:
    decision = decided(letter(history=(death(reason=reason),)))
    assert isinstance(decision, Retry) is again
    assert decision.attempts == int(again)
    assert again or decision.cause is Cause.NEVER_RETRY


def test_a_held_letter_is_sent_back_at_once_and_uses_no_attempt() -> None:
    held = letter(state="held", cause="target_refused", arrival=Arrival.RELEASE, fresh=(), base_attempts=3, tries=4)
    assert decided(held, redelivery_delay=5000) == Retry(0, NOW, 3)


# Where it goes for good


@pytest.mark.parametrize(
    ("definition", "exchange", "keys", "queue"),
    [
        pytest.param({}, "", ("DLQ.work",), "DLQ.work", id="nothing said: a queue of its own"),
        pytest.param(
            {"dead_letter_queue_prefix": "", "dead_letter_queue_suffix": ".DLQ"},
            "",
            ("work.DLQ",),
            "work.DLQ",
            id="other names",
        ),
        pytest.param(
            {"auto_create_dead_letter_resources": False},
            "",
            ("DLQ.work",),
            None,
            id="a queue that somebody else declares",
        ),
        pytest.param({"dead_letter_exchange": "dlx"}, "dlx", ("order.created", "cc"), None, id="all original keys"),
        pytest.param(
            {"dead_letter_exchange": "DLA", "auto_create_dead_letter_resources": True},
            "DLA",
            ("DLQ.work",),
            "DLQ.work",
            id="artemis: an address and a queue for each",
        ),
        pytest.param(
            {"dead_letter_exchange": "dlx", "dead_letter_routing_key": "dead.{queue}.{reason}.{attempts}"},
            "dlx",
            ("dead.work.rejected.1",),
            None,
            id="a template",
        ),
        pytest.param(
            {"dead_letter_exchange": "", "dead_letter_routing_key": "graveyard"},
            "",
            ("graveyard",),
            None,
            id="one common queue",
        ),
        pytest.param(
            {
                "dead_letter_exchange": "dlx",
                "dead_letter_routing_key_rewrite": (rewrite("x", "y"), rewrite("order", "dead")),
            },
            "dlx",
            ("dead.created",),
            None,
            id="the first rewrite that matches",
        ),
        pytest.param(
            {"dead_letter_exchange": "dlx", "dead_letter_routing_key_rewrite": (rewrite("x", "y"),)},
            "dlx",
            ("order.created", "cc"),
            None,
            id="no rewrite matches",
        ),
    ],
)
def test_a_spent_letter_goes_to_its_target(
    definition: dict[str, Any], exchange: str, keys: tuple[str, ...], queue: str | None
) -> None:
    died = letter(history=(death(routing_keys=("order.created", "cc")),))
    assert decided(died, **SPENT, **definition) == DeadLetter(exchange, keys, 1, Cause.ATTEMPTS_SPENT, queue)


def test_headers_of_the_letter_may_stand_in_the_key_and_missing_ones_are_counted() -> None:
    died = letter(header={"tenant": "acme"}.get)
    decision = decided(
        died, **SPENT, dead_letter_exchange="dlx", dead_letter_routing_key="{header:tenant}.{header:none}.{exchange}"
    )
    assert decision == DeadLetter("dlx", ("acme..shop",), 1, Cause.ATTEMPTS_SPENT, None, missing_headers=1)


@pytest.mark.parametrize("history", [(), (death(routing_keys=()),)])
def test_without_a_history_the_delivery_tells_the_keys(history: Any) -> None:
    values = "{exchange} {routing_key}"
    policy = effective(exact=True, dead_letter_exchange="dlx", dead_letter_routing_key=values)
    keys, _ = final_keys(letter(history=history, exchange="e", routing_key="r"), policy, 0)
    assert keys == (("shop r",) if history else ("e r",))


def test_of_a_key_that_is_too_long_nobody_gets_a_part() -> None:
    keys: dict[str, Any] = {**SPENT, "dead_letter_exchange": "dlx"}
    assert decided(**keys, dead_letter_routing_key="k" * 255).action is Action.DEAD_LETTER
    assert decided(**keys, dead_letter_routing_key="k" * 256) == Park(Cause.ROUTING_KEY_TOO_LONG, 1, "dlx")
    assert decided(**keys, dead_letter_routing_key="é" * 128) == Park(Cause.ROUTING_KEY_TOO_LONG, 1, "dlx")
    odd = letter(header=lambda _name: "\udcff" * 255)
    assert decided(odd, **keys, dead_letter_routing_key="{header:x}").action is Action.DEAD_LETTER


@pytest.mark.parametrize(
    ("source", "definition", "loop"),
    [
        pytest.param("DLQ.work", {}, True, id="its own dead-letter queue"),
        pytest.param(
            "DLQ.work",
            {"dead_letter_exchange": "DLA", "auto_create_dead_letter_resources": True},
            True,
            id="by a named exchange",
        ),
        pytest.param("DLQ.other", {}, False, id="another dead-letter queue"),
        pytest.param("grave", {"dead_letter_exchange": "", "dead_letter_routing_key": "grave"}, True, id="written out"),
        pytest.param("cc", {"dead_letter_exchange": ""}, True, id="one of the CC keys"),
        pytest.param("order.created", {"dead_letter_exchange": "dlx"}, False, id="an exchange may lead anywhere"),
    ],
)
def test_a_letter_whose_target_is_where_it_was_taken_is_a_loop(
    source: str, definition: dict[str, Any], loop: bool
) -> None:
    died = letter(source=source, history=(death(routing_keys=("order.created", "cc")),))
    decision = decided(died, **SPENT, **definition)
    assert (decision == Park(Cause.LOOP, 1, source)) is loop
    assert loop or isinstance(decision, DeadLetter)


@pytest.mark.parametrize(
    ("exchange", "key", "allowed"),
    [("", "dead.eu", True), ("", "work", False), ("", "dead", True), ("dlx", "work", True)],
)
def test_a_queue_that_a_message_may_name_is_one_of_those_allowed(exchange: str, key: str, allowed: bool) -> None:
    decision = decided(
        letter(header=lambda _name: key),
        **SPENT,
        dead_letter_exchange=exchange,
        dead_letter_routing_key="{header:to}",
        allow_queues=(Selector(SelectorKind.MATCH, "dead.#"), Selector(SelectorKind.QUEUE, "grave")),
    )
    expected = DeadLetter(exchange, (key,), 1, Cause.ATTEMPTS_SPENT) if allowed else Park(Cause.FORBIDDEN, 1, key)
    assert decision == expected


@pytest.mark.parametrize(("key", "exchange"), [("{header:to}", ""), ("{header:to}", "dlx"), ("dead.{queue}", "")])
def test_without_a_list_of_queues_no_header_names_one_even_where_policies_that_are_merged_let_it(
    key: str, exchange: str
) -> None:
    """Each may stand alone: one has a key for an exchange, the other has an exchange for any key."""
    rules = policy_set(
        policy("keyed", match="work", definition={"dead-letter-routing-key": parse(key), "max-delivery-attempts": 1}),
        policy("aimed", match="#", definition={"dead-letter-exchange": exchange}),
    )
    merged = rules.resolve(vhost="/", queue="work", reason="rejected", queue_type=None)
    decision = decide(letter(header=lambda _name: "orders"), merged, NOW, 0.0)
    refused = key == "{header:to}" and not exchange
    written = "dead.work" if key == "dead.{queue}" else "orders"
    expected = DeadLetter(exchange, (written,), 1, Cause.ATTEMPTS_SPENT)
    assert decision == (Park(Cause.FORBIDDEN, 1, "orders") if refused else expected)


@pytest.mark.parametrize(
    ("definition", "target"),
    [
        pytest.param({"dead_letter_exchange": "", "dead_letter_routing_key": "{routing_key}"}, OWN, id="by its key"),
        pytest.param({"dead_letter_exchange": "dlx-router.release"}, "dlx-router.release", id="an exchange"),
        pytest.param({"dead_letter_exchange": ""}, OWN, id="one of the CC keys"),
        pytest.param({"dead_letter_queue_prefix": "dlx-router."}, "dlx-router.work", id="a queue to be made"),
        pytest.param(
            {"dead_letter_exchange": "DLA", "auto_create_dead_letter_resources": True, "dead_letter_queue_prefix": OWN},
            "dlx-router.retiredwork",
            id="a queue to be made on an exchange",
        ),
        pytest.param({"dead_letter_exchange": "dlx"}, None, id="a named exchange, whose bindings choose"),
        pytest.param({}, None, id="a queue of its own"),
    ],
)
def test_what_is_the_routers_own_is_no_target_whoever_names_it(definition: dict[str, Any], target: str | None) -> None:
    died = letter(history=(death(routing_keys=(OWN if "dead_letter_routing_key" in definition else "k", OWN)),))
    decision = decided(died, **SPENT, **definition)
    assert isinstance(decision, DeadLetter) if target is None else decision == Park(Cause.FORBIDDEN, 1, target)


def test_the_routers_own_begins_with_its_prefix() -> None:
    policies = policy_set(policy(definition={"max-delivery-attempts": 1, "dead-letter-exchange": "mine.release"}))
    decisions = [
        decide(letter(), rules.resolve(vhost="/", queue="work", reason="rejected", queue_type=None), NOW, 0.0)
        for rules in (policies, replace(policies, ours=Names("mine")))
    ]
    assert [decision.action for decision in decisions] == [Action.DEAD_LETTER, Action.PARK]


def test_only_discard_drops_and_it_says_so() -> None:
    assert decided(**SPENT, discard=True) == Discard(1)
    assert decided(letter(state="retrying", fresh=()), discard=True) == Park(Cause.LOOP, 0)


@pytest.mark.parametrize(
    ("before", "reason", "decision"),
    [
        pytest.param(0, "rejected", Retry(50, NOW + 50, 1), id="its first delivery of three"),
        pytest.param(1, "rejected", Retry(50, NOW + 50, 2), id="its second"),
        pytest.param(2, "rejected", Discard(3), id="its last"),
        pytest.param(0, "expired", Discard(0), id="a reason that is not tried again"),
    ],
)
def test_discard_stands_for_the_end_and_the_tries_come_first(before: int, reason: str, decision: Decision) -> None:
    died = letter(base_attempts=before, history=(death(reason=reason),))
    assert decided(died, discard=True, max_delivery_attempts=3, redelivery_delay=50) == decision


def test_no_policy_parks() -> None:
    assert decide(letter(base_attempts=2), None, NOW, 0.0) == Park(Cause.NO_POLICY, 2)


# Unknown origin

NOWHERE = letter(history=(), source="work", failed_queue="work")


def test_a_letter_of_unknown_origin_is_parked() -> None:
    assert decide(NOWHERE, None, NOW, 0.0) == Park(Cause.UNKNOWN_ORIGIN)
    assert decide(NOWHERE, effective("unknown"), NOW, 0.0) == Park(Cause.UNKNOWN_ORIGIN)


def test_unless_a_policy_names_its_queue_then_it_goes_to_the_target_and_is_never_retried() -> None:
    for more in ({}, {"retry_on": ("unknown", "rejected")}):
        named = effective("unknown", exact=True, dead_letter_exchange="dlx", max_delivery_attempts=-1, **more)
        assert decide(NOWHERE, named, NOW, 0.0) == DeadLetter("dlx", ("order.created",), 0, Cause.NEVER_RETRY)


# Names


@law
@given(
    st.binary(min_size=230, max_size=300).map(lambda raw: raw.decode(errors="surrogateescape")), st.integers(40, 255)
)
def test_a_long_name_is_shortened_to_its_limit_and_stays_the_same_name(name: str, limit: int) -> None:
    short = short_name(name, limit)
    assert len(short.encode(errors="surrogateescape")) <= limit
    assert short == short_name(name, limit)
    assert short != short_name(name + "x" * 255, limit)


def test_dead_letter_queues_are_named_after_the_failed_queue() -> None:
    assert dead_letter_queue(effective(), "stocks") == "DLQ.stocks"
    assert len(dead_letter_queue(effective(), LONG)) == 255
    assert transient_queue(effective(dead_letter_queue_suffix=".x")) == "DLQ.transient.x"


# Waiting


@pytest.mark.parametrize(
    ("state", "left_ms", "step"),
    [
        ("retrying", 1, Release.WAIT),
        ("retrying", 0, Release.RETURN),
        ("held", 99, Release.JUDGE),
        ("held", 100, Release.WAIT),
        ("held", 0, Release.JUDGE),
    ],
)
def test_a_letter_is_released_when_it_is_due_and_never_early(state: str, left_ms: int, step: Release) -> None:
    assert release(letter(state=state), left_ms) is step


def held(tries: int, cause: Cause, state: str = "held") -> Letter:
    return letter(state=state, cause=cause.value, tries=tries)


def test_a_refused_letter_climbs_the_ladder_for_ever() -> None:
    died, waits = letter(), []
    for _ in range(12):
        decision = hold(died, Cause.TARGET_REFUSED, 3, NOW, grace_ms=30_000, target="full")
        assert isinstance(decision, Hold)
        assert (decision.attempts, decision.target) == (3, "full")
        waits.append((decision.due_ms - NOW) // 1000)
        died = held(decision.tries, Cause.TARGET_REFUSED)
    assert waits == [1, 2, 4, 8, 16, 32, 64, 128, 256, 300, 300, 300]


@pytest.mark.parametrize("cause", [Cause.UNROUTABLE, Cause.MISSING_EXCHANGE, Cause.FORBIDDEN])
def test_without_a_way_it_is_parked_when_the_grace_is_over(cause: Cause) -> None:
    died, tries = letter(), 0
    while isinstance(decision := hold(died, cause, 3, NOW, grace_ms=30_000, target="gone"), Hold):
        died, tries = held(decision.tries, cause), decision.tries
    assert decision == Park(cause, 3, "gone")
    assert ladder_elapsed_ms(tries) >= 30_000 > ladder_elapsed_ms(tries - 1)


def test_an_outage_is_no_missing_way_and_outlasts_the_grace() -> None:
    assert isinstance(hold(held(99, Cause.OUTAGE), Cause.OUTAGE, 0, NOW, grace_ms=0, target="q"), Hold)


@pytest.mark.parametrize(
    "one", [held(5, Cause.TARGET_REFUSED), held(5, Cause.UNROUTABLE, state="retrying"), letter(tries=5)]
)
def test_another_trouble_begins_at_the_lowest_rung(one: Letter) -> None:
    assert hold(one, Cause.UNROUTABLE, 0, NOW, grace_ms=9, target="x") == Hold(Cause.UNROUTABLE, NOW + 1000, 1, 0, "x")


# Explained


# Laws

letters = st.builds(
    letter,
    history=histories,
    fresh=histories,
    reason=reasons | st.just("unknown"),
    failed_queue=queues,
    source=queues,
    routing_key=amqp_text,
    exchange=amqp_text,
    arrival=st.sampled_from(Arrival),
    base_attempts=st.integers(0, 10**9),
    redrives=st.integers(0, 9),
    tries=st.integers(0, 10**6),
    state=st.none() | st.sampled_from([str(state) for state in State]),
    cause=st.none() | st.sampled_from([str(cause) for cause in Cause]),
    due_ms=st.integers(0, 2 * NOW),
    known_before=st.booleans(),
    rejected_since=st.booleans(),
    header=st.sampled_from([lambda _name: None, lambda _name: "\udcff" * 200]),
)
definitions = st.fixed_dictionaries(
    {},
    optional={
        "dead-letter-exchange": amqp_text,
        "dead-letter-routing-key": st.sampled_from(["{header:x}{queue}", "{exchange}", LONG]).map(parse),
        "dead-letter-routing-key-rewrite": st.just((rewrite("o", "x" * 99),)),
        "max-delivery-attempts": st.integers(-1, 1000),
        "retry-on": st.lists(reasons, max_size=3).map(tuple),
        "redelivery-delay": st.integers(0, 10**12),
        "redelivery-delay-multiplier": st.floats(0, 1e9),
        "max-redelivery-delay": st.integers(0, 10**12),
        "redelivery-collision-avoidance-factor": st.floats(0, 1),
        "auto-create-dead-letter-resources": st.booleans(),
        "dead-letter-queue-prefix": amqp_text,
        "max-redrives": st.integers(-1, 3),
        "discard": st.booleans(),
    },
)
effectives = st.builds(
    lambda definition, reason: policy_set(policy(definition=definition)).resolve(
        vhost="/", queue="q", reason=reason, queue_type=None
    ),
    definitions,
    reasons,
)


@law
@given(letters, st.none() | effectives, st.floats(-1, 1), st.integers(0, 2 * NOW))
def test_every_letter_gets_a_decision_an_explanation_and_the_same_one_twice(
    died: Letter, policy: Effective | None, draw: float, now_ms: int
) -> None:
    decision = decide(died, policy, now_ms, draw)
    explanation = explain(decision, died, policy)
    assert decide(died, policy, now_ms, draw) == decision
    assert decision.cause is None or decision.cause.value in explanation
    assert died.reason in explanation
    assert died.failed_queue in explanation
    assert decision.attempts >= 0
    assert isinstance(decision, Discard) <= (policy is not None and policy.discard)
    if isinstance(decision, Retry) and policy is not None:
        assert now_ms <= decision.due_ms == now_ms + decision.wait_ms <= now_ms + policy.cap_ms
        assert died.reason != "unknown" or died.history
    if isinstance(decision, DeadLetter):
        assert len(decision.keys) > 0
        assert len(decision.keys[0].encode(errors="surrogateescape")) <= 255


@law
@given(letters, st.integers(0, 2 * NOW), st.sampled_from(Cause), st.integers(0, 10**9))
def test_waiting_is_total_and_never_early(died: Letter, now_ms: int, cause: Cause, grace_ms: int) -> None:
    left = died.due_ms - now_ms
    assert (release(died, left) is Release.WAIT) is (left > 0 and (died.state != "held" or left >= 100))
    decision = hold(died, cause, 1, now_ms, grace_ms=grace_ms, target="t")
    assert decision.cause is cause
    assert not isinstance(decision, Hold) or 1000 <= decision.due_ms - now_ms <= 300_000
    assert cause.value in explain(decision, died, None)


def test_what_would_push_itself_out_of_its_queue_again_is_parked_as_the_broker_would_drop_it() -> None:
    back: dict[str, Any] = {"dead_letter_exchange": "", "auto_create_dead_letter_queue": False}
    died = letter(reason="maxlen", history=(death(queue="orders", reason="maxlen"),))
    decision = decided(died, **SPENT, **back, dead_letter_routing_key=parse("orders"))
    assert decision == Park(Cause.CYCLE, 0, "orders")
