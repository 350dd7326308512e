"""What is left of shared status pages, whatever order their events come in, and what of a link stands anywhere."""

import json
from dataclasses import replace
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.status_pages import (
    KEPT,
    MAX_BYTES,
    MAX_NOTE,
    MOST,
    REVOKED,
    SHARED,
    TOKEN,
    SharedPage,
    digest_of,
    left,
    read,
    renewal,
    without_token,
)
from dlx_router.core.written_down import OF_AN_EVENT, RENEWED_MS
from dlx_router.journal.audit import audit

NOW: Final = 1_800_000_000_000
LINK: Final = "r4nd0m" * 7 + "x"
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
)
Event = tuple[str, dict[str, Any]]


def page(token: str = "a", group: str = "g1-1", shared_ms: int = NOW, note: str = "") -> SharedPage:
    return SharedPage(
        digest_of(token), group, "orders", "rejected", note, shows_error=False, by="ann", shared_ms=shared_ms
    )


def shared(entry: SharedPage) -> Event:
    return (SHARED, {"page": entry.document})


def revoked(entry: SharedPage) -> Event:
    return (REVOKED, {"page": entry.document})


def kept(*many: SharedPage, kept_ms: int = NOW) -> Event:
    return (KEPT, {"pages": [entry.document for entry in many], "kept_ms": kept_ms})


PAGES: Final = st.sampled_from(
    [page(token, group) for token, group in zip("abcd", ("g1-1", "g1-1", "g1-2", "g1-3"), strict=True)]
)
EVENTS: Final = st.lists(
    st.builds(shared, PAGES) | st.builds(revoked, PAGES) | st.lists(PAGES, max_size=3).map(lambda many: kept(*many)),
    max_size=8,
)


@given(EVENTS, st.randoms(use_true_random=False))
def test_neither_the_order_of_events_nor_how_often_they_come_changes_what_is_left(
    events: list[Event], dice: Any
) -> None:
    again = events + dice.sample(events, len(events) // 2)
    dice.shuffle(again)
    assert left(again) == left(events)


@given(EVENTS, PAGES, st.data())
def test_a_link_that_was_revoked_is_never_valid_again(events: list[Event], gone: SharedPage, data: Any) -> None:
    at = data.draw(st.integers(0, len(events)))
    assert gone.digest not in left([*events[:at], revoked(gone), *events[at:]]).pages


def test_a_group_is_shared_again_by_another_link() -> None:
    first, second = page("a"), page("b", shared_ms=NOW - 60_000)
    known = left([shared(first), revoked(first), shared(second)])
    assert known.of_group("g1-1") == [second], "whatever the clock said"
    assert known.of_group("g1-2") == []
    assert left([shared(second), shared(first)]).of_group("g1-1") == [first, second], "two that led for a moment"


@given(JSON, JSON)
def test_what_is_no_page_says_nothing(document: Any, told_ms: Any) -> None:
    for action in (SHARED, REVOKED, KEPT, "group.set"):
        assert left([(action, {"page": document, "pages": [document], "kept_ms": told_ms})]).pages == {}


@pytest.mark.parametrize(
    "changed",
    [
        {"digest": "0" * 63}, {"digest": "G" * 64}, {"digest": None}, {"group": 7}, {"note": "x" * (MAX_NOTE + 1)},
        {"shows_error": 1}, {"shared_ms": 0}, {"shared_ms": True}, {"queue": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_page_that_lacks_something_is_none(changed: dict[str, Any]) -> None:
    assert read(page().document) == page()
    assert read({**page().document, **changed}) is None


def test_all_are_written_down_once_a_day_and_each_event_fits_the_journal() -> None:
    wide = "\U0001f4a5" * 250
    many = [replace(page(str(number), f"g{number}"), note=wide, queue="q" * 255) for number in range(MOST)]
    assert all(entry.size <= MAX_BYTES for entry in many)
    assert renewal(left(map(shared, many)), NOW + RENEWED_MS - 1) == []
    again = renewal(left(map(shared, many)), NOW + RENEWED_MS)
    assert len(again) == MOST // OF_AN_EVENT
    for details in again:
        audit("r", "/", actor="router", action=KEPT, details=details, ts_ms=NOW)
    remaining = left((KEPT, details) for details in again)
    assert remaining.pages == left(map(shared, many)).pages
    assert renewal(remaining, NOW + RENEWED_MS + 1) == []
    assert renewal(left([]), NOW) == []


def test_a_link_stands_in_no_event_and_in_no_log() -> None:
    assert TOKEN.fullmatch(LINK)
    assert LINK not in json.dumps(page(LINK).document)
    assert without_token(f"/at/one/status/{LINK}") == "/at/one/status/***"
    assert without_token(f"/api/v1/status/{LINK}") == "/api/v1/status/***"
    assert without_token("/api/v1/status") == "/api/v1/status"
