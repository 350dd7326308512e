"""/groups: letters that died of the same thing, and what people decided about them."""

import asyncio
from contextlib import suppress
from typing import Annotated, Any, Final, Literal

from fastapi import APIRouter, HTTPException, Query
from starlette.responses import Response

from dlx_router.admin.api import models
from dlx_router.admin.api.answers import CONFLICT, Answer, refuse
from dlx_router.admin.api.asking import as_of, asked, sees_of
from dlx_router.admin.api.context import Context, Given, Operator, Viewer
from dlx_router.config.api_access.tokens import Caller
from dlx_router.index.store import SET_GROUP
from dlx_router.telemetry.wall_clock import wall_ms

router = APIRouter(tags=["groups"])

SEEN_S: Final = 5.0
LOOK_S: Final = 0.05
MAX_OFFSET: Final = 1_000_000
Name = Annotated[str | None, Query(max_length=255)]


@router.get("/groups", response_model=models.Groups)
async def groups(  # noqa: PLR0913, PLR0917 - each is a filter
    given: Given,
    who: Viewer,
    vhost: Name = None,
    queue: Annotated[str | None, Query(max_length=255, description="The failed queue.")] = None,
    state: models.GroupState | None = None,
    sort: Annotated[Literal["last", "first", "deaths", "lying"], Query(description="The most of it first.")] = "last",
    limit: Annotated[int, Query(ge=1, le=500)] = 100,
    offset: Annotated[int, Query(ge=0, le=MAX_OFFSET)] = 0,
) -> Response:
    """Groups, those that had a death last first, or in another order."""
    if vhost is not None:
        given.attendant(vhost, who)
    sees = sees_of(given, who)
    rows = await asked(
        given,
        lambda reader: reader.groups(
            sees, vhost=vhost, failed_queue=queue, state=state, limit=limit, offset=offset, sort=sort
        ),
    )
    following = offset + limit if len(rows) == limit else None
    return Answer({"groups": rows, "next": following, "as_of": as_of(given, who)})


@router.get("/groups/{group_id}", response_model=models.Group)
async def group(given: Given, who: Viewer, group_id: str) -> Response:
    """One group."""
    return Answer(await group_row(given, who, group_id))


@router.patch("/groups/{group_id}", response_model=models.Group, responses=CONFLICT)
async def change(given: Given, who: Operator, group_id: str, wanted: models.GroupChange) -> Response:
    """Set its state or note. The journal has it when this answers, and the index almost always."""
    row = await group_row(given, who, group_id)
    details: dict[str, Any] = {"group": row["id"], **wanted.model_dump(exclude_unset=True)}
    if len(details) == 1:
        raise refuse(409, "nothing to change; name state, until_ms or note")
    if "until_ms" in details and wanted.state != "ignored":
        raise refuse(409, "until_ms belongs to state ignored")
    if wanted.until_ms is not None and wanted.until_ms <= wall_ms():
        raise refuse(409, "until_ms lies in the past")
    if "state" in details and wanted.state is None:
        raise refuse(409, "state is null; write open, ignored or resolved, or leave it out")
    await given.audit(who, row["vhost"], SET_GROUP, details)
    return Answer(await _changed(given, who, row, wanted))


async def group_row(given: Context, who: Caller, group_id: str) -> dict[str, Any]:
    """The group as the index has it; 404 where it knows none that this caller may see."""
    sees = sees_of(given, who)
    row = await asked(given, lambda reader: reader.group(group_id, sees))
    if row is None:
        raise refuse(404, f"the index knows no group {group_id[:64]!r} that this token may see")
    return row


async def _changed(given: Context, who: Caller, row: dict[str, Any], wanted: models.GroupChange) -> dict[str, Any]:
    """The group once the index has read the change; after some seconds, or in trouble, as it is going to be."""
    deadline = asyncio.get_running_loop().time() + SEEN_S
    with suppress(HTTPException):
        while asyncio.get_running_loop().time() <= deadline:
            now = await group_row(given, who, row["id"])
            if wanted.state in {None, now["state"]} and (wanted.note is None or (now["note"] or "") == wanted.note):
                return now
            await asyncio.sleep(LOOK_S)
    until = {} if wanted.state is None else {"until_ms": wanted.until_ms}
    return {**row, **wanted.model_dump(exclude_unset=True), **until}
