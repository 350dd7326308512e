"""Declared deaths: how they are read, what they count for, and what a consumer may ask for."""

import json
from typing import Any, Final

import pytest

from dlx_router.core.decision import decide
from dlx_router.core.declaration import Declaration, DeclarationError, read
from dlx_router.core.letter import Death, Declared, First
from dlx_router.core.outcome import Retry
from dlx_router.journal.events import fragments
from tests.core.core_samples import NOW, arrived, death, effective, letter, record
from tests.journal.journal_samples import RULING

DIED: Final = death(reason="application:x")


@pytest.mark.parametrize("member", ["queue", "exchange", "routing_keys"])
def test_half_a_character_is_no_name(member: str) -> None:
    members: dict[str, Any] = {"queue": "work", "exchange": "shop", "routing_keys": ["k"]}
    members[member] = ["\ud83d"] if member == "routing_keys" else "\ud83d"
    with pytest.raises(DeclarationError, match="no text"):
        read(json.dumps(members).encode())


# What arrives

SAID: Final = Declaration("work", "shop", ("k", "copy"), "application:boom", Declared(never=True), {"type": "E"})


def test_a_declared_death_is_the_first_of_a_new_letter() -> None:
    letter = arrived(declaration=SAID)
    assert letter.history == (Death("work", "rejected", 1, NOW // 1000, "shop", ("k", "copy")),)
    assert (letter.reason, letter.failed_queue, letter.declared) == ("application:boom", "work", Declared(never=True))
    assert [(entry.queue, entry.reason, entry.times) for entry in letter.fresh] == [("work", "application:boom", 1)]
    assert (letter.error, letter.first) == ({"type": "E"}, First("work", "shop", ("k", "copy"), "rejected"))


def test_messages_that_are_equal_and_are_declared_dead_at_two_times_are_told_twice() -> None:
    """Without an id of their own they are one letter; only the second tells the next one from a repeated delivery."""
    first, later = arrived(declaration=SAID), arrived(declaration=SAID, now_ms=NOW + 86_400_000)
    assert first.id == later.id
    assert fragments(first, RULING).step == fragments(arrived(declaration=SAID, now_ms=NOW + 1), RULING).step
    assert fragments(first, RULING).step != fragments(later, RULING).step


@pytest.mark.parametrize("times", [1, 7])
def test_a_declared_death_is_counted_on_top_of_the_record(times: int) -> None:
    remembered = record(deaths=(death("other"), death(times=times)), attempts=times, failed_queue="work")
    letter = arrived((), remembered, declaration=SAID._replace(exchange="dlx-router.return"))
    assert [entry.key for entry in letter.history] == [("work", "rejected"), ("other", "rejected")]
    assert letter.history[0].times == times + 1
    assert letter.history[0].exchange == "shop", "by which it came first; our own never leaves us"
    assert (letter.base_attempts, letter.id) == (times, remembered.id)


def test_a_declared_death_of_a_letter_that_was_dead_is_a_redrive_by_hand() -> None:
    letter = arrived((), record(state="dead"), declaration=SAID)
    assert (letter.redrives, letter.base_attempts) == (1, 0)
    assert (letter.known_before, letter.rejected_since) == (True, True), "no cycle: somebody refused it"


def test_a_copied_record_does_not_count_for_a_declared_death() -> None:
    letter = arrived((), record(attempts=9), belongs=False, declaration=SAID)
    assert (letter.base_attempts, letter.parent) == (0, record().id)
    assert letter.history[0].times == 1


def test_the_error_of_headers_is_known_until_something_newer_is() -> None:
    assert arrived((death(),), error={"type": "H"}).error == {"type": "H"}
    remembered = record(error={"type": "R"})
    assert arrived((death(times=2),), remembered, error={"type": "H"}).error == {"type": "H"}
    assert arrived((death(times=2),), remembered).error == {"type": "R"}
    assert arrived((death(),), error={"type": "H"}, declaration=SAID).error == {"type": "E"}


# What a consumer asks for


@pytest.mark.parametrize(
    ("asked", "definition", "wait"),
    [
        (Declared(), {"redelivery_delay": 1000}, 1000),
        (Declared(retry_after_ms=50), {"redelivery_delay": 1000}, 50),
        (Declared(retry_after_ms=3_600_000), {"redelivery_delay": 1000}, 10_000),
        (Declared(retry_after_ms=3_600_000), {"max_redelivery_delay": 60_000}, 60_000),
        (Declared(retry_after_ms=3_600_000), {}, 0),
    ],
)
def test_a_wait_that_is_asked_for_is_granted_up_to_the_cap(
    asked: Declared, definition: dict[str, Any], wait: int
) -> None:
    died = letter(reason="application:x", declared=asked, fresh=(DIED,))
    decision = decide(died, effective(**definition), NOW, 0.0)
    assert isinstance(decision, Retry)
    assert decision.wait_ms == wait
