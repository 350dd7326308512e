"""/searches: filters of a list that somebody named, for all who may look at it.

They stand where all state stands, in the journal of a vhost, and are found by its index. The leader alone takes a
change, one after the other, and answers once its index has it.
"""

import re
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, Body, Query
from pydantic import BaseModel, Field
from starlette.responses import Response

from dlx_router.admin.api import models
from dlx_router.admin.api.answers import CONFLICT, Answer, refuse
from dlx_router.admin.api.asking import sees_of
from dlx_router.admin.api.audited_state import AuditedState
from dlx_router.admin.api.context import Given, Operator, Viewer
from dlx_router.config.api_access.tokens import Caller
from dlx_router.core import saved_searches
from dlx_router.core.saved_searches import ACTIONS, DELETED, MAX_BYTES, MAX_NAME, MAX_TEXT, MOST, SAVED, SavedSearch
from dlx_router.telemetry.wall_clock import wall_ms

router = APIRouter(tags=["searches"])

MAX_BY: Final = 80
_STATE: Final = AuditedState("searches", ACTIONS, saved_searches.left)
# Controls, spaces but the usual one, what has no width, what turns the direction of text, private characters.
_HIDDEN: Final = (
    r"\u0000-\u001f\u007f-\u00a0\u00ad\u061c\u1680\u180e\u2000-\u200f\u2028-\u202f\u205f-\u206f\u3000\ue000-\uf8ff"
    r"\ufeff\ufff9-\uffff"
)
_A_CHARACTER: Final = r"[0-9A-Za-z_\u00ae-\u05ff\u0620-\u167f\u1681-\u180d\u180f-\u1fff\u2070-\u2fff\u3001-\ud7ff]"
READABLE: Final = rf"[^{_HIDDEN}]*{_A_CHARACTER}[^{_HIDDEN}]*"  # as a regular expression of JSON Schema and of Python
Page = Literal["letters", "groups"]
Name = Annotated[str | None, Field(max_length=255)]
Moment = Annotated[int | None, Field(ge=1, le=2**53 - 1)]
OfVhost = Annotated[str, Query(max_length=255, description="The vhost in whose journal it is kept.")]


class LettersFilter(BaseModel, extra="forbid"):
    """As GET /letters has them; what is not named is any."""

    q: Annotated[str | None, Field(max_length=MAX_TEXT, pattern=r"[0-9A-Za-z_\u0080-\uffff]")] = None
    vhost: Name = None
    queue: Name = None
    group: Annotated[str | None, Field(max_length=64)] = None
    state: models.LetterState | None = None
    reason: Name = None
    policy: Name = None
    since_ms: Moment = None
    until_ms: Moment = None
    order: Literal["newest", "oldest"] | None = None


class GroupsFilter(BaseModel, extra="forbid"):
    """As GET /groups has them; what is not named is any."""

    vhost: Name = None
    queue: Name = None
    state: models.GroupState | None = None
    sort: Literal["last", "first", "deaths", "lying"] | None = None


class _Saves(BaseModel, extra="forbid"):
    name: str = Field(
        max_length=MAX_NAME, description="Unlike others there.", json_schema_extra={"pattern": f"^{READABLE}$"}
    )
    vhost: str = Field("/", max_length=255, description="In whose journal it is kept; who may see it finds the search.")


class SaveLetters(_Saves):
    """A search for letters."""

    page: Literal["letters"]
    filter: LettersFilter


class SaveGroups(_Saves):
    """A choice of groups."""

    page: Literal["groups"]
    filter: GroupsFilter


class Search(BaseModel):
    """A search that somebody saved. `filter`: parameters of GET /letters or /groups, as `page` says."""

    id: str
    vhost: str
    name: str
    page: Page
    filter: dict[str, str | int]
    by: str
    saved_ms: int


class Searches(BaseModel):
    """By page and name."""

    searches: list[Search]
    missing: models.Missing = {}


@router.get("/searches", response_model=Searches)
async def searches(
    given: Given,
    who: Viewer,
    vhost: Annotated[str | None, Query(max_length=255)] = None,
    page: Page | None = None,
) -> Response:
    """Those of the vhosts that may be seen; at most 50 of each. A token for some queues sees those that name one."""
    sees_of(given, who)
    led = [name for name in given.visible(who) if given.attendants[name].leadership.is_ours or given.index is None]
    known = {name: await _STATE.known(given, name) for name in led if vhost in {None, name}}
    saved = [(name, search) for name, its in known.items() for search in its.listed() if _may_see(who, name, search)]
    saved.sort(key=lambda item: (item[1].page, item[1].name.casefold(), item[1].name))
    return Answer({"searches": [_document(*item) for item in saved if page in {None, item[1].page}]})


@router.post("/searches", status_code=201, response_model=Search, responses=CONFLICT)
async def save(
    given: Given, who: Operator, wanted: Annotated[SaveLetters | SaveGroups, Body(discriminator="page")]
) -> Response:
    """Save one. The journal has it when this answers, and the index almost always."""
    _require_readable(wanted.name)
    given.led(wanted.vhost, who)
    await _STATE.await_caught_up(given, wanted.vhost)
    async with _STATE.changing(given):
        known, name = await _STATE.known(given, wanted.vhost), wanted.name.strip(" ")
        asks = wanted.filter.model_dump(exclude_none=True)
        saved_ms = known.saves(name, wanted.page, wall_ms())
        made = SavedSearch(name, wanted.page, asks, who.name[:MAX_BY], saved_ms)
        _check(known, made, wanted.vhost, who)
        await given.audit(who, wanted.vhost, SAVED, {"search": made.document})
        await _STATE.until(given, wanted.vhost, lambda now: made.id in now.searches)
    return Answer(_document(wanted.vhost, made), 201)


@router.delete("/searches/{search_id}", response_model=Search)
async def delete(given: Given, who: Operator, search_id: str, vhost: OfVhost = "/") -> Response:
    """Delete one; the answer is what it was."""
    given.led(vhost, who)
    await _STATE.await_caught_up(given, vhost)
    async with _STATE.changing(given):
        gone = (await _STATE.known(given, vhost)).searches.get(search_id)
        if gone is None or not _may_see(who, vhost, gone):
            raise refuse(404, f"no search {search_id[:64]!r} is saved in vhost {vhost!r} that this token may see")
        await given.audit(who, vhost, DELETED, {"search": gone.document})
        await _STATE.until(given, vhost, lambda now: search_id not in now.searches)
    return Answer(_document(vhost, gone))


def _require_readable(name: str) -> None:
    if not re.fullmatch(READABLE, name):
        raise refuse(422, f"name {name!r} has characters that nobody can see or type, or no letter; use one to be read")


def _check(known: saved_searches.Left, made: SavedSearch, vhost: str, who: Caller) -> None:
    """Refuses what may not be saved."""
    if not _may_see(who, vhost, made):
        raise refuse(403, f"token {who.name!r} sees some queues only; name one of them as the filter's queue")
    if made.id in known.searches:
        by = known.searches[made.id].by if _may_see(who, vhost, known.searches[made.id]) else "somebody"
        raise refuse(
            409, f"{by!r} has saved a search of {made.page} as {made.name!r}; delete that, or use another name"
        )
    if len(known.searches) >= MOST:
        raise refuse(409, f"vhost {vhost!r} has {MOST} saved searches; delete one that nobody needs")
    if made.size > MAX_BYTES:
        raise refuse(409, f"name and filter have {made.size} bytes; a saved search has at most {MAX_BYTES}")


def _may_see(who: Caller, vhost: str, search: SavedSearch) -> bool:
    """A search may name what others see: a token that is limited to some queues sees those of its queues."""
    queue = search.filter.get("queue")
    return who.match is None or (isinstance(queue, str) and who.may_see(vhost, queue))


def _document(vhost: str, search: SavedSearch) -> dict[str, Any]:
    return {"id": search.id, "vhost": vhost, **search.document}
