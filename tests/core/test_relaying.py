"""Messages that live: where a relay sends them, how one that waits is remembered, and which limits a queue has."""
# ruff: noqa: FBT001 - tables pass flags

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.decision import forward, origin, passes, waiting
from dlx_router.core.explanation import explain
from dlx_router.core.letter import Arrival, First, Letter
from dlx_router.core.names import Names
from dlx_router.core.outcome import Forward, Park
from dlx_router.core.passing import Limits, Target, limits_of
from dlx_router.core.policy import PolicySet, SelectorKind
from dlx_router.core.template import parse
from dlx_router.core.words import Cause
from tests.core.core_samples import amqp_text, death, effective, law, letter, policy, policy_set

CAME = First("entry", "front", ("order.created", "cc"), "unknown")


def living(**fields: Any) -> Letter:
    """A message in a relay's queue that has not failed."""
    plain: dict[str, Any] = {
        "source": "entry",
        "exchange": "front",
        "routing_key": "order.created",
        "history": (),
        "first": None,
    }
    return letter(**(plain | fields))


def held(**fields: Any) -> Letter:
    """The same after its relay's target refused it."""
    plain: dict[str, Any] = {"source": "dlx-router.release", "arrival": Arrival.RELEASE, "state": "held", "first": CAME}
    return living(**(plain | fields))


def to(exchange: str, template: str | None = None) -> Target:
    return Target(exchange, None if template is None else parse(template))


@pytest.mark.parametrize(
    ("one", "target", "expected"),
    [
        pytest.param(living(), to("back"), Forward("back", ("order.created",), kept=True), id="the key as it came"),
        pytest.param(held(), to("back"), Forward("back", CAME.routing_keys, kept=True), id="all keys as they came"),
        pytest.param(
            living(),
            to("back", "{vhost}|{queue}|{exchange}|{routing_key}"),
            Forward("back", ("/|entry|front|order.created",)),
            id="a template",
        ),
        pytest.param(
            held(exchange="", routing_key="x"),
            to("back", "{queue}.{exchange}.{routing_key}"),
            Forward("back", ("entry.front.order.created",)),
            id="a template, after a hold",
        ),
        pytest.param(
            living(header={"tenant": "acme"}.get),
            to("back", "{header:tenant}.{header:a}.{header:b}"),
            Forward("back", ("acme..",), missing_headers=2),
            id="headers, of which some are missing",
        ),
        pytest.param(living(), to("", "k" * 255), Forward("", ("k" * 255,)), id="a key that just has its place"),
        pytest.param(living(), to("back", "k" * 256), Park(Cause.ROUTING_KEY_TOO_LONG, 0, "back"), id="too long a key"),
        pytest.param(
            living(), to("back", "é" * 128), Park(Cause.ROUTING_KEY_TOO_LONG, 0, "back"), id="bytes count, not letters"
        ),
        pytest.param(
            living(routing_key="state"),
            to("", "dlx-router.{routing_key}"),
            Park(Cause.FORBIDDEN, 0, "dlx-router.state"),
            id="a queue of ours, by the message's key",
        ),
        pytest.param(
            living(routing_key="\nstate"),
            to("", "dlx-router{routing_key}"),
            Forward("", ("dlx-router\nstate",)),
            id="what only looks like a queue of ours",
        ),
        pytest.param(
            living(routing_key="\n.state"),
            to("", "dlx-router{routing_key}"),
            Park(Cause.FORBIDDEN, 0, "dlx-router\n.state"),
            id="a queue of ours, as the broker reads it",
        ),
        pytest.param(
            held(first=CAME._replace(routing_keys=("a", "dlx-router.state"))),
            to(""),
            Park(Cause.FORBIDDEN, 0, "dlx-router.state"),
            id="a queue of ours, by a CC key",
        ),
        pytest.param(
            living(),
            to("dlx-router.return", "to:x"),
            Park(Cause.FORBIDDEN, 0, "dlx-router.return"),
            id="an exchange of ours",
        ),
        pytest.param(
            living(),
            to("back", "dlx-router.state"),
            Forward("back", ("dlx-router.state",)),
            id="what others bind as they like",
        ),
    ],
)
def test_where_a_relay_forwards_to(one: Letter, target: Target, expected: Forward | Park) -> None:
    assert forward(one, target, Names()) == expected


@law
@given(st.text(max_size=300) | amqp_text, amqp_text)
def test_a_forwarded_key_has_always_its_place_in_a_frame(literal: str, came: str) -> None:
    template = parse(literal.encode(errors="replace").decode().replace("{", "{{").replace("}", "}}") + "{routing_key}")
    decision = forward(living(routing_key=came), Target("back", template), Names())
    size = len(template.render({"routing_key": came}, lambda _: None)[0].encode(errors="surrogateescape"))
    assert isinstance(decision, Forward) is (size <= 255)


# While it waits


@pytest.mark.parametrize(
    ("one", "so"),
    [
        pytest.param(held(), True, id="held on its way"),
        pytest.param(living(), False, id="not held"),
        pytest.param(held(state="retrying"), False, id="waits for something else"),
        pytest.param(held(reason="rejected"), False, id="it has failed"),
        pytest.param(held(fresh=(death(),)), False, id="it has died since"),
        pytest.param(held(first=None), False, id="nothing says where it came from"),
    ],
)
def test_only_what_was_held_on_its_way_passes(one: Letter, so: bool) -> None:
    assert passes(one) is so
    assert origin(one) == (CAME if so else First(one.source, one.exchange, (one.routing_key,), "unknown"))


@law
@given(amqp_text, amqp_text, amqp_text, st.sampled_from([None, "{queue}.{exchange}", "{routing_key}"]))
def test_a_message_that_had_to_wait_goes_where_it_would_have_gone(
    queue: str, exchange: str, key: str, template: str | None
) -> None:
    message = living(source=queue, exchange=exchange, routing_key=key)
    kept = waiting(message)
    assert (kept.reason, kept.failed_queue, kept.first) == ("unknown", queue, First(queue, exchange, (key,), "unknown"))
    remembered = {"reason": kept.reason, "failed_queue": kept.failed_queue, "first": kept.first}
    again = held(exchange="", routing_key="entry", **remembered)
    assert forward(again, to("back", template), Names()) == forward(message, to("back", template), Names())
    assert (waiting(again).first, waiting(again).failed_queue) == (kept.first, queue)


def test_a_forwarded_message_is_explained_without_a_death() -> None:
    explanation = explain(forward(living(), to("back", "new.{queue}"), Names()), living(), None)
    assert explanation == "forwarded to exchange 'back' with key 'new.entry'"


# The limits of a queue


@pytest.mark.parametrize(
    ("definition", "limits"),
    [
        ({}, Limits()),
        ({"message_ttl": 0}, Limits(ttl_ms=0)),
        ({"max_length": 10, "max_length_bytes": 2000}, Limits(length=10, length_bytes=2000)),
        ({"trust_timestamp": True, "ordering": "fifo"}, Limits(trusts=True, strict=True)),
        ({"trust_timestamp": False, "ordering": "none"}, Limits()),
    ],
)
def test_a_policy_sets_the_limits_of_a_queue(definition: dict[str, Any], limits: Limits) -> None:
    assert limits_of(effective(**definition)) == limits


@pytest.mark.parametrize(
    ("limits", "any_of_them", "measured"),
    [
        (Limits(), False, False),
        (Limits(trusts=True, strict=True), False, False),
        (Limits(ttl_ms=0), True, False),
        (Limits(length=0), True, True),
        (Limits(length_bytes=0), True, True),
    ],
)
def test_a_limit_of_zero_is_one_and_only_lengths_need_measuring(
    limits: Limits,
    any_of_them: bool,
    measured: bool,
) -> None:
    assert (limits.any, limits.measured) == (any_of_them, measured)


# Which policies may say so


@pytest.mark.parametrize(
    ("apply_to", "asks"),
    [([], False), (["queues"], False), (["queues", "quorum_queues"], True), (["classic_queues"], True)],
)
def test_types_are_asked_for_only_where_a_policy_is_for_one_type(apply_to: list[str], asks: bool) -> None:
    assert policy_set(*(policy(f"p{at}", apply_to=kind) for at, kind in enumerate(apply_to))).asks_types is asks


@pytest.mark.parametrize(
    ("kind", "names"),
    [("quorum", ["quorum", "any"]), ("classic", ["classic", "any"]), ("stream", ["any"]), (None, ["any"])],
)
def test_a_policy_for_one_type_holds_only_where_the_type_is_known(kind: str | None, names: list[str]) -> None:
    policies = policy_set(
        policy("quorum", apply_to="quorum_queues"), policy("classic", apply_to="classic_queues"), policy("any")
    )
    assert [rule.name for rule in policies.chain(vhost="/", queue="work", queue_type=kind)] == names


TYPED = [
    policy("exact", match="work", kind=SelectorKind.QUEUE, apply_to="quorum_queues"),
    policy("classic", apply_to="classic_queues"),
    policy("quorum", apply_to="quorum_queues"),
    policy("elsewhere", apply_to="quorum_queues", vhost="elsewhere"),
    policy("any"),
]


@pytest.mark.parametrize(
    ("queue", "kind", "names"),
    [
        ("work", None, ["classic", "exact", "quorum"]),
        ("other", None, ["classic", "quorum"]),
        ("work", "quorum", []),
        ("work", "stream", []),
    ],
)
def test_while_nobody_says_the_type_the_policies_that_would_hold_then_are_named(
    queue: str, kind: str | None, names: list[str]
) -> None:
    left_out = policy_set(*TYPED).left_out(vhost="/", queue=queue, queue_type=kind)
    assert [rule.name for rule in left_out] == names


def test_positions_are_told_in_order_of_precedence_whatever_the_vhost_and_the_type() -> None:
    policies: PolicySet = policy_set(
        policy("last", match="#", vhost="elsewhere"),
        policy("exact", match="work", kind=SelectorKind.QUEUE, apply_to="quorum_queues"),
        policy("other", match="other", kind=SelectorKind.QUEUE),
    )
    assert [policies.policies[at].name for at in policies.fitting("work")] == ["exact", "last"]
    assert [policies.policies[at].name for at in policies.fitting("nobody")] == ["last"]
