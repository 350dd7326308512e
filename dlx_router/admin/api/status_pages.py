"""/groups/{id}/status-page and /status/{token}: a page about one group for people without a token, by a link.

Who has a link may read; it says what `PublicStatus` has and nothing else. Pages stand where all state stands, in the
journal of a vhost, with a digest of the link's token and never the token. The leader alone takes a change, one after
the other.
"""

import secrets
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, HTTPException, Path
from pydantic import BaseModel, Field, StrictBool
from starlette.responses import Response

from dlx_router.admin.api import models, public
from dlx_router.admin.api.answers import CONFLICT, Answer, refuse
from dlx_router.admin.api.asking import sees_of
from dlx_router.admin.api.audited_state import AuditedState
from dlx_router.admin.api.context import Context, Given, Operator, Viewer
from dlx_router.admin.api.groups import group_row
from dlx_router.config.api_access.tokens import Caller
from dlx_router.core import status_pages
from dlx_router.core.status_pages import ACTIONS, MAX_BYTES, MAX_NOTE, MOST, REVOKED, SHARED, SharedPage, digest_of
from dlx_router.telemetry.wall_clock import wall_ms

router = APIRouter(tags=["status pages"])

MAX_BY: Final = 80
NOT_FOUND: Final = 404
_STATE: Final = AuditedState("status pages", ACTIONS, status_pages.left)
_SHARING: Final = ("by", "shared_ms", "note", "shows_error")
GroupId = Annotated[str, Path(max_length=64)]


class NewStatusPage(BaseModel, extra="forbid"):
    """What the page says further. It is public, and stands in the journal: write no secrets."""

    note: str = Field("", max_length=MAX_NOTE)
    shows_error: StrictBool = Field(default=False, description="The error's type, and its message without what varies.")


class StatusPage(BaseModel):
    """Whether a group has a page, and since when; null: it has none."""

    group: str
    vhost: str
    queue: str
    is_shared: bool
    by: str | None
    shared_ms: int | None
    note: str | None
    shows_error: bool | None


class StatusPages(BaseModel):
    """Those that may be seen, by vhost, the newest first."""

    pages: list[StatusPage]
    missing: models.Missing = {}


class NewLink(StatusPage):
    """The page, and its link: told this once. `url` begins with CONSOLE_URL where that is set, else it is `path`."""

    token: str
    path: str
    url: str


class PublicStatus(BaseModel):
    """All that a link shows. `hours`: deaths in each of the last 24 hours, of the newest letters if `is_part`."""

    queue: str
    reason: str
    error_type: str | None
    message: str | None
    state: Literal["open", "ignored", "resolved", "forgotten"]
    first_ms: int | None
    last_ms: int | None
    lying: int
    deaths: int
    hours: list[int]
    is_part: bool
    note: str
    made_ms: int


@router.get("/status-pages", response_model=StatusPages)
async def pages(given: Given, who: Viewer) -> Response:
    """The groups that have a page; never a link. A token for some queues sees those of its queues."""
    rows = [_document(vhost, page) for vhost, page in await _visible(given, who)]
    return Answer({"pages": sorted(rows, key=lambda row: (row["vhost"], -row["shared_ms"]))})


@router.get("/groups/{group_id}/status-page", response_model=StatusPage)
async def page(given: Given, who: Viewer, group_id: GroupId) -> Response:
    """Whether the group has a page; never its link."""
    known = await _of_group(given, who, group_id)
    if known:
        return Answer(_document(*known[0]))
    row = await group_row(given, who, group_id)
    nothing = dict.fromkeys(_SHARING)
    return Answer({**_whose(row["id"], row["vhost"], row["failed_queue"]), "is_shared": False, **nothing})


@router.post("/groups/{group_id}/status-page", status_code=201, response_model=NewLink, responses=CONFLICT)
async def share(given: Given, who: Operator, group_id: GroupId, wanted: NewStatusPage) -> Response:
    """Make a link. It is in this answer and nowhere else: who loses it revokes it and makes another."""
    if not given.has_console:
        raise refuse(409, "DLX_ROUTER_CONSOLE=off: this router shows no pages, so nobody could read this one")
    row = await _row_to_share(given, who, group_id)
    vhost, token = row["vhost"], secrets.token_urlsafe(status_pages.TOKEN_BYTES)
    whose, by = (row["id"], row["failed_queue"], row["reason"] or ""), who.name[:MAX_BY]
    made = SharedPage(digest_of(token), *whose, wanted.note.strip(), wanted.shows_error, by, wall_ms())
    await _STATE.await_caught_up(given, vhost)
    async with _STATE.changing(given):
        _check(await _STATE.known(given, vhost), made, vhost)
        await given.audit(who, vhost, SHARED, {"page": made.document})
        await _STATE.until(given, vhost, lambda now: made.digest in now.pages)
        public.forget(given, vhost)
    path = f"/status/{token}"
    link = {"token": token, "path": path, "url": (given.console_url or "").rstrip("/") + path}
    return Answer({**_document(vhost, made), **link}, 201)


@router.delete("/groups/{group_id}/status-page", response_model=StatusPage)
async def revoke(given: Given, who: Operator, group_id: GroupId) -> Response:
    """The link shows nothing any more; the answer is what the page was."""
    known = await _of_group(given, who, group_id)
    for vhost in [vhost for vhost, _ in known] or given.visible_led(who):
        await _STATE.await_caught_up(given, vhost)  # else a page that is yet to be read would be shown again
    async with _STATE.changing(given):
        gone = await _of_group(given, who, group_id)
        if not gone:
            raise refuse(404, f"no group {group_id!r} that this token may see has a status page")
        for vhost, shared in gone:
            await _revoke(given, who, vhost, shared)
    return Answer(_document(*gone[0]))


@router.get("/status/{token}", response_model=PublicStatus)
async def public_status(given: Given, who: Viewer, token: Annotated[str, Path(max_length=64)]) -> Response:
    """What the page of this link shows. It asks for no token of the API; a link that is not valid is 404."""
    sees_of(given, who)
    led = given.visible_led(who) if given.has_console else []
    known = [vhost for vhost in led if given.index is None or given.index.has_caught_up(vhost)]
    for vhost in known:
        if (status := await public.status(given, vhost, digest_of(token))) is not None:
            return Answer(status)
    if known != led:  # a page that was revoked since would still show
        raise refuse(503, public.LATER)
    raise refuse(404, public.NOTHING)


async def _row_to_share(given: Context, who: Caller, group_id: str) -> dict[str, Any]:
    """The group; 404 only where the index knows all there is to know."""
    try:
        return await group_row(given, who, group_id)
    except HTTPException as error:
        if error.status_code != NOT_FOUND:
            raise
    for vhost in given.visible_led(who):
        await _STATE.await_caught_up(given, vhost)
    return await group_row(given, who, group_id)


async def _revoke(given: Context, who: Caller, vhost: str, gone: SharedPage) -> None:
    await given.audit(who, vhost, REVOKED, {"page": gone.document})
    public.revoke(given, gone.digest)
    await _STATE.until(given, vhost, lambda now: gone.digest not in now.pages)
    public.forget(given, vhost)


def _check(known: status_pages.Left, made: SharedPage, vhost: str) -> None:
    """Refuses what may not be shared."""
    if before := known.of_group(made.group):
        raise refuse(
            409,
            f"{before[0].by!r} has shared a page of group {made.group!r}; its link was told once, so if it is lost,"
            " revoke the page and share another",
        )
    if len(known.pages) >= MOST:
        raise refuse(409, f"vhost {vhost!r} has {MOST} status pages; revoke one that nobody needs")
    if made.size > MAX_BYTES:
        raise refuse(409, f"the page's names and note have {made.size} bytes; a page has at most {MAX_BYTES}")


async def _visible(given: Context, who: Caller) -> list[tuple[str, SharedPage]]:
    """The pages of the vhosts that this router leads and whose queues this caller may see."""
    sees = sees_of(given, who)
    known = [(vhost, page) for vhost in given.visible_led(who) for page in (await _STATE.known(given, vhost)).listed()]
    return [(vhost, page) for vhost, page in known if sees(vhost, page.queue)]


async def _of_group(given: Context, who: Caller, group_id: str) -> list[tuple[str, SharedPage]]:
    """The pages of a group, also of one that the index has forgotten: its link is valid until it is revoked."""
    return [(vhost, page) for vhost, page in await _visible(given, who) if page.group == group_id]


def _whose(group: str, vhost: str, queue: str) -> dict[str, str]:
    return {"group": group, "vhost": vhost, "queue": queue}


def _document(vhost: str, shared: SharedPage) -> dict[str, Any]:
    document = shared.document
    return {
        **_whose(shared.group, vhost, shared.queue),
        "is_shared": True,
        **{name: document[name] for name in _SHARING},
    }
