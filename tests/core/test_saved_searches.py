"""What is left of saved searches, whatever order their events come in and whatever clocks say."""

from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.saved_searches import (
    DELETED,
    FIELDS,
    KEPT,
    MAX_NAME,
    MOST,
    SAVED,
    SavedSearch,
    left,
    read,
    renewal,
    search_id,
)
from dlx_router.core.written_down import OF_AN_EVENT, RENEWED_MS

NOW: Final = 1_800_000_000_000
JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda children: st.lists(children, max_size=3) | st.dictionaries(st.text(max_size=5), children, max_size=3),
)
Event = tuple[str, dict[str, Any]]


def search(name: str = "late", saved_ms: int = NOW, **wanted: Any) -> SavedSearch:
    return SavedSearch(name, "letters", wanted or {"queue": "orders"}, "ann", saved_ms)


def saved(entry: SavedSearch) -> Event:
    return (SAVED, {"search": entry.document})


def deleted(entry: SavedSearch) -> Event:
    return (DELETED, {"search": entry.document})


SEARCHES: Final = st.builds(search, st.sampled_from("ab"), st.integers(1, 4), queue=st.sampled_from(("x", "y")))
EVENTS: Final = st.lists(
    st.builds(saved, SEARCHES)
    | st.builds(deleted, SEARCHES)
    | st.lists(SEARCHES, max_size=3).map(
        lambda many: (KEPT, {"searches": [entry.document for entry in many], "kept_ms": 5})
    ),
    max_size=8,
)


@given(EVENTS, st.randoms(use_true_random=False))
def test_neither_the_order_of_events_nor_how_often_they_come_changes_what_is_left(
    events: list[Event], dice: Any
) -> None:
    again = events + dice.sample(events, len(events) // 2)
    dice.shuffle(again)
    assert left(again) == left(events)


def test_what_was_deleted_stays_so_whatever_is_written_down_again_and_can_be_saved_anew() -> None:
    late = search()
    kept = (KEPT, {"searches": [late.document], "kept_ms": NOW + 9})
    gone = left([saved(late), deleted(late), kept])
    assert (gone.searches, gone.told_ms) == ({}, {})
    again = search(saved_ms=gone.saves("late", "letters", NOW - 60_000))
    assert again.saved_ms == NOW + 1, "by a router whose clock is a minute behind"
    assert left([saved(late), deleted(late), kept, saved(again)]).searches == {late.id: again}


def test_a_name_is_one_search_of_each_page() -> None:
    groups = SavedSearch("late", "groups", {"state": "open"}, "ann", NOW)
    assert len({search_id("late", "letters"), search_id("late", "groups"), search_id("Late", "letters")}) == 3
    assert [entry.page for entry in left([saved(search()), saved(groups)]).listed()] == ["groups", "letters"]


@given(JSON, st.sampled_from((SAVED, DELETED, KEPT, "group.set")))
def test_whatever_stands_in_an_event_is_a_search_or_nothing(content: Any, action: str) -> None:
    for details in ({"search": content}, {"searches": content, "kept_ms": content}, {"searches": [content]}):
        assert left([(action, details)]).searches == {}


@pytest.mark.parametrize(
    "changed",
    [
        {"name": ""}, {"name": "x" * (MAX_NAME + 1)}, {"name": 7}, {"page": "tasks"}, {"page": []}, {"by": None},
        {"filter": []}, {"filter": {"unknown": "x"}}, {"filter": {"queue": 7}}, {"filter": {"since_ms": "x"}},
        {"filter": {"q": "x" * 501}}, {"saved_ms": 0}, {"saved_ms": True}, {"saved_ms": 2**60}, {"saved_ms": None},
    ],
)  # fmt: skip
def test_what_is_no_search_of_this_version_is_not_shown(changed: dict[str, Any]) -> None:
    assert read(search().document) == search()
    assert read({**search().document, **changed}) is None


def test_all_are_written_down_again_once_one_of_them_was_not_for_a_day() -> None:
    many = [search(f"s{number:02}", NOW + number) for number in range(MOST)]
    known = left(map(saved, many))
    assert renewal(known, NOW + RENEWED_MS - 1) == []
    renewals = renewal(known, NOW + RENEWED_MS)
    assert [len(details["searches"]) for details in renewals] == [OF_AN_EVENT, OF_AN_EVENT, MOST - 2 * OF_AN_EVENT]
    assert left((KEPT, details) for details in renewals).searches == known.searches, "they are enough by themselves"
    now = left([*map(saved, many), *((KEPT, details) for details in renewals)])
    assert renewal(now, NOW + 2 * RENEWED_MS - 1) == []
    assert renewal(left([]), NOW) == []


def test_fields_are_names_of_the_api_that_no_form_of_the_console_has_already() -> None:
    for names in FIELDS.values():
        assert not {*names} & {"name", "page", "csrf", "back"}
