"""Events: one line of JSON each, the same id for the same decision, and enough in them to decide again."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.decision import decide
from dlx_router.core.letter import Letter
from dlx_router.core.policy import Effective
from dlx_router.core.words import Action
from dlx_router.journal.events import KIND_OF, Ruling, fragments
from dlx_router.journal.fields import FIELDS, KINDS
from dlx_router.journal.replay import letter_of
from tests.core.core_samples import NOW, amqp_text, death, effective, law, letter
from tests.journal.journal_samples import RULING, event, letters, line, moments, props, rulings, some_props

# What a line says


def test_a_line_says_what_was_decided_and_why() -> None:
    document = event(ruling=RULING._replace(cause="attempts_spent"), props=props(message_id=b"m-1", priority=5))
    assert document == {
        "v": 1,
        "event_id": document["event_id"],
        "id": "ab" * 16,
        "kind": "dead_lettered",
        "router_id": "router-a",
        "vhost": "/",
        "source": "dlx-router.inbox",
        "arrival": "inbox",
        "exchange": "dlx-router.inbox",
        "routing_key": "order.created",
        "failed_queue": "work",
        "reason": "rejected",
        "cause": "attempts_spent",
        "attempts": 1,
        "base_attempts": 0,
        "redrives": 0,
        "tries": 0,
        "policy": "all",
        "revision": "0123456789ab",
        "target": {"exchange": "dlx", "routing_key": "k"},
        "deaths": [
            {
                "queue": "work",
                "reason": "rejected",
                "count": 1,
                "time_ms": NOW,
                "exchange": "shop",
                "routing_keys": ["order.created"],
            }
        ],
        "ts_ms": NOW,
        "first_death_ms": 0,
        "last_death_ms": 0,
        "props": {"message_id": "m-1", "priority": 5},
        "digest": {"crc32": 7, "size": 3},
        "body_mode": "none",
    }


def test_every_action_has_a_kind_and_every_kind_a_meaning() -> None:
    assert set(KIND_OF) == set(Action)
    assert set(KIND_OF.values()) <= set(KINDS)


@law
@given(letters, rulings, some_props, moments, st.none() | st.floats(-1, 1), st.none() | moments)
def test_a_line_is_one_line_of_json_that_says_all_it_was_given(
    died: Letter, ruling: Ruling, values: dict[str, Any], now_ms: int, draw: float | None, due_ms: int | None
) -> None:
    raw = line(died, ruling, now_ms, props=props(**values), draw=draw, due_ms=due_ms)
    assert raw.endswith(b"\n")
    assert raw.count(b"\n") == 1
    assert raw.isascii()
    document = json.loads(raw)
    assert set(document) <= {field.name for field in FIELDS}
    assert (document["ts_ms"], document.get("draw"), document.get("due_ms")) == (now_ms, draw, due_ms)
    assert (document["attempts"], document.get("detail", "")) == (ruling.attempts, ruling.detail)
    shown = document.get("props", {})
    assert shown.pop("timestamp_s", None) == values.get("timestamp")
    assert {
        name: value.encode(errors="surrogateescape") if isinstance(value, str) else value
        for name, value in shown.items()
    } == {name: value for name, value in values.items() if name != "timestamp"}


@law
@given(letters, rulings)
def test_the_letter_comes_back_from_its_line(died: Letter, ruling: Ruling) -> None:
    raw = line(died, ruling, first_ms=died.first_death_ms, last_ms=died.last_death_ms)
    again = letter_of(json.loads(raw))
    for name in ("id", "vhost", "source", "arrival", "history", "first", "failed_queue", "reason", "state", "parent"):
        assert getattr(again, name) == getattr(died, name), name
    assert [(d.queue, d.reason, d.times) for d in again.fresh] == [(d.queue, d.reason, d.times) for d in died.fresh]


policies = st.builds(
    effective,
    max_delivery_attempts=st.sampled_from([-1, 1, 3]),
    redelivery_delay=st.sampled_from([0, 1000]),
    redelivery_collision_avoidance_factor=st.sampled_from([0.0, 0.5]),
    max_redrives=st.sampled_from([-1, 1]),
    discard=st.booleans(),
    dead_letter_exchange=st.sampled_from(["dlx"]),
    dead_letter_routing_key=st.just("{queue}.{reason}"),
)


@law
@given(letters, st.none() | policies, st.floats(-1, 1, exclude_min=True, exclude_max=True), moments)
def test_a_line_is_enough_to_decide_again(died: Letter, policy: Effective | None, draw: float, now_ms: int) -> None:
    decision = decide(died, policy, now_ms, draw)
    document = event(
        died, RULING._replace(kind=KIND_OF[decision.action], attempts=decision.attempts), now_ms, draw=draw
    )
    assert decide(letter_of(document), policy, document["ts_ms"], document["draw"]) == decision


# The same decision


SAME: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("another time", {}, {"now_ms": NOW + 60_000}),
    ("another draw", {}, {"draw": 0.5}),
    ("another end of the wait", {}, {"due_ms": NOW + 1}),
    ("another router", {"router_id": "router-b"}, {}),
    ("a cause that was seen differently", {"cause": "unroutable"}, {}),
    ("another queue of a full one's stead", {"routing_key": "DLQ.transient"}, {}),
]
OTHER: list[tuple[str, dict[str, Any], dict[str, Any]]] = [
    ("another letter", {"id": "cd" * 16}, {}),
    ("another failed queue", {"failed_queue": "other"}, {}),
    ("one death more", {"history": (death(times=2),)}, {}),
    ("a death elsewhere", {"history": (death("other", "expired"), death())}, {}),
    ("one rung more for a refused target", {"tries": 1}, {}),
    ("sent back meanwhile", {"redrives": 1}, {}),
    ("another kind", {}, {"kind": "held"}),
    ("one attempt more", {}, {"attempts": 2}),
    ("other policies", {}, {"revision": "ffffffffffff"}),
    ("another redrive", {}, {"redrive_id": "r-2"}),
]


@pytest.mark.parametrize(("_what", "ruled", "own"), SAME, ids=[case[0] for case in SAME])
def test_a_decision_that_is_repeated_after_a_crash_has_the_same_id(
    _what: str, ruled: dict[str, Any], own: dict[str, Any]
) -> None:
    assert event(ruling=RULING._replace(**ruled), **own)["event_id"] == event()["event_id"]


@pytest.mark.parametrize(("_what", "differs", "ruled"), OTHER, ids=[case[0] for case in OTHER])
def test_another_decision_has_another_id(_what: str, differs: dict[str, Any], ruled: dict[str, Any]) -> None:
    died = letter(**({"failed_queue": "work"} | differs))
    assert event(died, RULING._replace(**ruled))["event_id"] != event()["event_id"]


def test_an_event_id_is_stable_over_versions_of_the_router() -> None:
    assert event()["event_id"] == f"{'ab' * 16}-112a6158672cb1b1"  # an archive knows events by it: never change it


# What letters share


@law
@given(letters, rulings, moments)
def test_letters_of_one_order_share_their_fragments(died: Letter, ruling: Ruling, now_ms: int) -> None:
    shared = fragments(died, ruling)
    twin: dict[str, Any] = {"first_ms": 1, "last_ms": 2, "crc32": 3, "size": 4}
    first, second = json.loads(shared.line("aa", now_ms, **twin)), json.loads(shared.line("bb", now_ms, **twin))
    assert first.pop("id") + first.pop("event_id") != second.pop("id") + second.pop("event_id")
    assert first == second


@given(amqp_text)
@law
def test_an_odd_letter_id_breaks_no_line(odd: str) -> None:
    document = json.loads(fragments(letter(), RULING).line(odd, NOW, first_ms=1, last_ms=2, crc32=3, size=4))
    assert document["id"] == odd


def test_a_long_history_is_told_whole_and_is_not_kept() -> None:
    history = tuple(death(f"q{number}") for number in range(40))
    document = event(letter(history=history, fresh=history[:1]))
    assert [entry["queue"] for entry in document["deaths"]] == [entry.queue for entry in history]
