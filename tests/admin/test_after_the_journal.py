"""What the journal has is told as done, whatever becomes of the router that took it."""

import asyncio

import pytest

from dlx_router.admin.api import comments, groups, models
from dlx_router.admin.api.context import Context
from dlx_router.config.api_access.tokens import LOCAL
from dlx_router.core.names import Names


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
