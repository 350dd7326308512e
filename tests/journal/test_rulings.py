"""Rulings: every decision in the journal's words."""

from typing import Any

import pytest

from dlx_router.core import publication
from dlx_router.core.outcome import DeadLetter, Decision, Hold, Park, Retry
from dlx_router.core.publication import Publication
from dlx_router.core.words import Cause
from dlx_router.journal.event_factory import EventFactory
from tests.core.core_samples import CONTENT, NOW, letter
from tests.journal.journal_samples import event

CLERK = EventFactory("router-a", "0123456789ab")


def copy_of(decision: Decision) -> Publication:
    """The copy that the desk makes."""
    record = publication.record_of(letter(), decision, CONTENT, policy="all", revision="0123456789ab")
    match decision:
        case DeadLetter():
            return publication.to_target(decision, letter(), record, ())
        case Park():
            return publication.to_parking(letter(), record, "dlx-router.parking")
        case _:
            return publication.to_rung(record, "dlx-router.delay.1000", 1000)


WORDS: list[tuple[Decision, dict[str, Any]]] = [
    (Retry(1000, NOW + 1000, 1), {"kind": "retried", "rung_ms": 1000}),
    (
        DeadLetter("dlx", ("dead.work",), 3, Cause.ATTEMPTS_SPENT),
        {
            "kind": "dead_lettered",
            "cause": "attempts_spent",
            "target": {"exchange": "dlx", "routing_key": "dead.work"},
        },
    ),
    (
        Park(Cause.NO_POLICY),
        {"kind": "parked", "cause": "no_policy", "target": {"exchange": "", "routing_key": "dlx-router.parking"}},
    ),
    (
        Hold(Cause.TARGET_REFUSED, NOW + 1000, 2, 3, "dlx"),
        {"kind": "held", "cause": "target_refused", "refused": "dlx", "rung_ms": 1000},
    ),
]


@pytest.mark.parametrize(("decision", "expected"), WORDS, ids=[case[1]["kind"] for case in WORDS])
def test_a_decision_is_told_in_the_journals_words(decision: Decision, expected: dict[str, Any]) -> None:
    document = event(ruling=CLERK.decided(decision, copy_of(decision), "all"))
    names = ("kind", "cause", "target", "refused", "rung_ms")
    assert {name: document[name] for name in names if name in document} == expected
    assert (document["attempts"], document["policy"], document["revision"]) == (
        decision.attempts,
        "all",
        "0123456789ab",
    )


@pytest.mark.parametrize(
    ("why", "cause", "detail"),
    [
        ("malformed: x-death is no array: at 7", "malformed", "x-death is no array: at 7"),
        ("too_large", "too_large", None),
    ],
)
def test_quarantine_says_the_cause_and_what_was_said(why: str, cause: str, detail: str | None) -> None:
    document = event(ruling=CLERK.quarantined(letter(), why, "dlx-router.quarantine"))
    assert (document["kind"], document["cause"], document.get("detail")) == ("quarantined", cause, detail)
