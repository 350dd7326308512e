"""Publications: where each copy goes, what its consumer sees, and what is remembered."""

from typing import Any

import pytest

from dlx_router.core.letter import Props
from dlx_router.core.outcome import DeadLetter, Decision, Hold, Park, Retry
from dlx_router.core.publication import (
    Content,
    Publication,
    Way,
    leads_to,
    record_of,
    redriven,
    to_parking,
    to_return,
    to_rung,
    to_target,
)
from dlx_router.core.words import Cause
from tests.core.core_samples import CONTENT, NOW, death, letter, record

KEYS = ("order.created", "cc.one", "cc.two")
WITH_CC = record(deaths=(death(routing_keys=KEYS),))
FINAL = DeadLetter("dlx", ("dead.work",), 3, Cause.ATTEMPTS_SPENT, "DLQ.work")


@pytest.mark.parametrize(
    ("decision", "expected"),
    [
        (
            Retry(5, NOW + 5, 2),
            {"state": "retrying", "attempts": 2, "due_ms": NOW + 5, "cause": None, "target": None, "tries": 0},
        ),
        (
            FINAL,
            {"state": "dead", "attempts": 3, "due_ms": None, "cause": "attempts_spent", "target": None, "tries": 0},
        ),
        (
            Park(Cause.LOOP, 1, "q"),
            {"state": "parked", "attempts": 1, "due_ms": None, "cause": "loop", "target": "q", "tries": 0},
        ),
        (
            Park(Cause.NO_POLICY),
            {"state": "parked", "attempts": 0, "due_ms": None, "cause": "no_policy", "target": None, "tries": 0},
        ),
        (
            Hold(Cause.UNROUTABLE, NOW, 4, 1, "q"),
            {"state": "held", "attempts": 1, "due_ms": NOW, "cause": "unroutable", "target": "q", "tries": 4},
        ),
    ],
)
def test_the_record_remembers_the_decision(decision: Decision, expected: dict[str, Any]) -> None:
    kept = record_of(letter(), decision, CONTENT, policy="orders", revision="0123456789ab")
    assert {name: getattr(kept, name) for name in expected} == expected
    assert (kept.policy, kept.revision, kept.crc32, kept.size, kept.props) == (
        "orders",
        "0123456789ab",
        7,
        3,
        CONTENT.props,
    )


def test_the_record_remembers_the_letter() -> None:
    died = letter(
        redrives=2,
        first_death_ms=1,
        last_death_ms=2,
        parent="p",
        error={"type": "E"},
        shadowed={"a": "b"},
        vhost="eu",
    )
    kept = record_of(died, Retry(0, NOW, 1), CONTENT, policy="", revision="")
    names = (
        "id",
        "vhost",
        "failed_queue",
        "reason",
        "redrives",
        "first_death_ms",
        "last_death_ms",
        "first",
        "parent",
        "error",
        "shadowed",
    )
    assert [getattr(kept, name) for name in names] == [getattr(died, name) for name in names]
    assert kept.deaths == died.history


# Back to the failed queue


def test_the_way_back_looks_like_the_first_delivery() -> None:
    assert to_return(WITH_CC, "dlx-router.return", "to:work") == Publication(
        Way.RETURN,
        "dlx-router.return",
        "order.created",
        WITH_CC,
        1024,
        cc=("cc.one", "cc.two"),
        bcc="to:work",
        delivery_mode=1,
        priority=5,
    )


@pytest.mark.parametrize("keys", [("to:other",), ("order.created", "to:other"), ("to:work", "cc"), ("to:",)])
def test_a_letter_whose_own_keys_look_like_ours_goes_by_the_default_exchange(keys: tuple[str, ...]) -> None:
    plain = to_return(record(deaths=(death(routing_keys=keys),)), "dlx-router.return", "to:work")
    assert (plain.exchange, plain.routing_key, plain.cc, plain.bcc) == ("", "work", (), None)
    assert (plain.delivery_mode, plain.priority, plain.record_bytes) == (1, 5, 1024)


@pytest.mark.parametrize("key", ["k" * 256, "é" * 128])
def test_a_first_key_that_nobody_can_publish_by_stays_in_the_history(key: str) -> None:
    kept = record(deaths=(death(routing_keys=(key, "copy")),))
    back = to_return(kept, "dlx-router.return", "to:work")
    assert (back.exchange, back.routing_key, back.cc, back.bcc) == ("", kept.failed_queue, (), None)
    assert to_rung(kept, "x", 1, "came").routing_key == "came"
    assert back.record.deaths == kept.deaths


@pytest.mark.parametrize("deaths", [(), (death(routing_keys=()),)])
def test_without_keys_the_queue_is_the_key(deaths: Any) -> None:
    back = to_return(record(deaths=deaths), "dlx-router.return", "to:work")
    assert (back.exchange, back.routing_key, back.cc, back.bcc) == ("dlx-router.return", "work", (), "to:work")


# To wait


@pytest.mark.parametrize(
    ("deaths", "key", "copies"),
    [((death(routing_keys=KEYS),), "order.created", KEYS[1:]), ((), "", None), ((death(routing_keys=()),), "", None)],
)
def test_a_waiting_copy_is_persistent_and_has_no_priority(deaths: Any, key: str, copies: Any) -> None:
    kept = record(deaths=deaths)
    assert to_rung(kept, "dlx-router.delay.5000", 5000) == Publication(
        Way.RUNG,
        "dlx-router.delay.5000",
        key,
        kept,
        8192,
        cc=copies,
        rung_ms=5000,
        delivery_mode=2,
        priority=None,
    )


# For good


def test_the_policys_key_replaces_the_cc_keys_which_are_remembered() -> None:
    died = letter(history=(death(routing_keys=KEYS),))
    copy = to_target(FINAL, died, WITH_CC, ("emq",))
    assert (copy.way, copy.exchange, copy.routing_key, copy.cc, copy.bcc) == (Way.TARGET, "dlx", "dead.work", (), None)
    assert (copy.record.cc, copy.record_bytes) == (("cc.one", "cc.two"), 8192)
    assert (copy.aliases, copy.needs_queue, copy.delivery_mode, copy.priority) == (("emq",), "DLQ.work", 2, 5)


def test_the_original_keys_route_as_the_broker_would() -> None:
    died = letter(history=(death(routing_keys=KEYS),))
    copy = to_target(DeadLetter("dlx", KEYS, 3, Cause.ATTEMPTS_SPENT), died, WITH_CC, ())
    assert (copy.routing_key, copy.cc, copy.record, copy.needs_queue) == (
        "order.created",
        ("cc.one", "cc.two"),
        WITH_CC,
        None,
    )


def test_a_letter_that_never_died_has_no_aliases_and_keeps_its_cc_as_it_came() -> None:
    died = letter(history=())
    copy = to_target(
        DeadLetter("dlx", ("order.created",), 0, Cause.NEVER_RETRY), died, record(deaths=()), ("emq", "artemis")
    )
    assert (copy.aliases, copy.routing_key, copy.cc) == ((), "order.created", None)
    assert to_target(FINAL, died, record(deaths=()), ()).cc == ()


def test_a_parked_copy_stays_where_it_is_put() -> None:
    died = letter(history=(death(routing_keys=KEYS),))
    copy = to_parking(died, WITH_CC, "dlx-router.parking")
    assert (copy.way, copy.exchange, copy.routing_key, copy.cc, copy.bcc) == (
        Way.PARKING,
        "",
        "dlx-router.parking",
        (),
        None,
    )
    assert (copy.record.cc, copy.record_bytes, copy.delivery_mode, copy.priority) == (("cc.one", "cc.two"), 8192, 2, 5)
    assert to_parking(letter(), record(), "p").record.cc is None


def test_every_copy_at_rest_is_persistent() -> None:
    content = Content(1, 1, Props(delivery_mode=None))
    kept = record_of(letter(), FINAL, content, policy="", revision="")
    assert {to_target(FINAL, letter(), kept, ()).delivery_mode, to_rung(kept, "x", 1).delivery_mode} == {2}


def test_what_is_sent_back_begins_a_new_stay_and_keeps_its_history() -> None:
    died = letter(base_attempts=7, redrives=2, tries=5, state="dead", cause="attempts_spent", due_ms=9, since_ms=8)
    sent = redriven(died, CONTENT, policy="orders", revision="0123456789ab", redrive_id="t-1")
    assert (sent.state, sent.attempts, sent.tries, sent.redrives, sent.redrive_id) == ("retrying", 0, 0, 2, "t-1")
    assert (sent.cause, sent.due_ms, sent.wait_ms, sent.since_ms, sent.target) == (None,) * 5
    assert (sent.deaths, sent.first, sent.failed_queue) == (died.history, died.first, "work")
    assert (sent.policy, sent.revision, sent.crc32, sent.size) == ("orders", "0123456789ab", 7, 3)


@pytest.mark.parametrize(
    ("copy", "target"),
    [
        (to_return(WITH_CC, "dlx-router.return", "to:work"), "work"),
        (to_return(WITH_CC, "dlx-router.return", ""), "work"),
        (to_target(FINAL, letter(), record(), ()), "dlx"),
        (to_target(DeadLetter("", ("DLQ.work",), 3, Cause.ATTEMPTS_SPENT), letter(), record(), ()), "DLQ.work"),
        (to_parking(letter(), record(), "dlx-router.parking"), "dlx-router.parking"),
    ],
)
def test_a_target_is_named_as_people_know_it(copy: Publication, target: str) -> None:
    assert leads_to(copy) == target


# Aliases


@pytest.mark.parametrize(
    ("kinds", "before", "kept"),
    [
        ((), None, None),
        (("artemis",), None, {}),
        (("emq",), None, {"sourceTag": "theirs"}),
        (("emq",), {}, {}),
        (("emq",), {"sourceQueueName": "first"}, {"sourceQueueName": "first"}),
        ((), {"sourceQueueName": "first"}, {"sourceQueueName": "first"}),
    ],
    ids=["none", "nothing-said", "said", "ours-by-now", "kept", "kept-without-aliases"],
)
def test_what_a_producer_said_under_an_alias_is_kept_once(
    kinds: tuple[str, ...], before: dict[str, str] | None, kept: dict[str, str] | None
) -> None:
    died = letter(shadowed=before, header={"sourceTag": "theirs", "tenant": "a"}.get)
    assert to_target(FINAL, died, record(), kinds).record.shadowed == kept


def test_a_letter_without_a_history_gets_no_aliases() -> None:
    copy = to_target(FINAL, letter(history=(), header={"sourceTag": "theirs"}.get), record(), ("emq",))
    assert (copy.aliases, copy.record.shadowed) == ((), None)
