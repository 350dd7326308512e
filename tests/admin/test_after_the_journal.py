"""What the journal has is told as done, whatever becomes of the router that took it."""

import asyncio

import pytest
from fastapi import HTTPException

from dlx_router.admin.api import comments, groups, models, searches
from dlx_router.admin.api.context import Context
from dlx_router.config.api_access.tokens import LOCAL, caller
from dlx_router.core.names import Names
from dlx_router.core.saved_searches import Left, SavedSearch


@pytest.fixture
def given() -> Context:
    """A router whose index went."""
    return Context("r", Names("dlx-router"), {})


def test_a_note_that_the_index_cannot_show_is_no_error_which_another_router_would_note_again(given: Context) -> None:
    before = [{"ts_ms": 1, "actor": "ann", "text": "earlier"}]
    row = {"id": "a" * 32, "vhost": "/", "failed_queue": "orders", "comments": before}
    assert asyncio.run(comments._seen(given, LOCAL, row)) == before


def test_a_group_that_the_index_cannot_show_is_changed(given: Context) -> None:
    row = {"id": "g1-1", "state": "open", "until_ms": None, "note": "ours"}
    ignored = models.GroupChange.model_validate({"state": "ignored", "until_ms": 5})
    assert asyncio.run(groups._changed(given, LOCAL, row, ignored)) == {**row, "state": "ignored", "until_ms": 5}
    noted = asyncio.run(
        groups._changed(given, LOCAL, {**row, "until_ms": 5}, models.GroupChange.model_validate({"note": "theirs"}))
    )
    assert noted == {**row, "until_ms": 5, "note": "theirs"}


def test_a_search_that_the_index_cannot_show_is_saved(given: Context) -> None:
    asyncio.run(searches._STATE.until(given, "/", lambda known: "x" in known.searches))


@pytest.mark.parametrize("name", ["two\nlines", "Late orders\u200b", "\x1b[2Jcleared", "\u202eevil"])
def test_a_name_that_nobody_can_type_or_tell_apart_is_refused(name: str) -> None:
    with pytest.raises(HTTPException) as raised:
        searches._require_readable(name)
    assert raised.value.status_code == 422
    assert name not in str(raised.value.detail)


def test_who_sees_some_queues_is_not_told_who_saved_what_it_may_not_see() -> None:
    other = SavedSearch("Late", "letters", {"queue": "mail"}, "olga", 1)
    mine = SavedSearch("Late", "letters", {"queue": "orders.new"}, "sid", 2)
    limited = caller("sid", LOCAL.role, match="orders.#")
    with pytest.raises(HTTPException) as raised:
        searches._check(Left({other.id: other}), mine, "/", limited)
    assert (raised.value.status_code, "olga" in str(raised.value.detail)) == (409, False)
