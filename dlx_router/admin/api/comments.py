"""/letters/ID/comments: what people note on a letter. It stands in the journal, so every leader knows it."""

import asyncio
from contextlib import suppress
from typing import Annotated, Any, Final

from fastapi import APIRouter, HTTPException, Query
from starlette.responses import Response

from dlx_router.admin.api import models
from dlx_router.admin.api.answers import CONFLICT, Answer, refuse
from dlx_router.admin.api.asking import asked, sees_of
from dlx_router.admin.api.context import Context, Given, Operator
from dlx_router.config.api_access.tokens import Caller
from dlx_router.index.comments import MOST
from dlx_router.journal.audit import COMMENT

router = APIRouter(tags=["letters"])

SEEN_S: Final = 5.0
LOOK_S: Final = 0.05


@router.post("/letters/{letter_id}/comments", status_code=201, response_model=models.Comments, responses=CONFLICT)
async def add(
    given: Given,
    who: Operator,
    letter_id: str,
    wanted: models.NewComment,
    queue: Annotated[str | None, Query(max_length=255, description="The copy that failed here.")] = None,
) -> Response:
    """Note something on a letter. The journal has it when this answers, and the index almost always."""
    one = await _one(given, who, letter_id, queue)
    if len(one["comments"]) >= MOST:
        raise refuse(409, f"this letter has {MOST} notes; no more are kept")
    details = {"letter": one["id"], "queue": one["failed_queue"], "text": wanted.text}
    await given.audit(who, one["vhost"], COMMENT, details)
    return Answer({"comments": await _seen(given, who, one)}, 201)


async def _one(given: Context, who: Caller, letter_id: str, queue: str | None) -> dict[str, Any]:
    """The letter; 404 where there is none, 409 where several copies of it might be meant."""
    sees = sees_of(given, who)
    found = await asked(given, lambda reader: reader.letter(letter_id, sees, queue))
    if not found:
        raise refuse(404, f"the index knows no letter {letter_id[:64]!r} that this token may see")
    if len(found) > 1:
        queues = ", ".join(repr(one["failed_queue"]) for one in found[:10])
        raise refuse(409, f"copies of this letter failed in {queues}; say which one by queue")
    one: dict[str, Any] = found[0]
    return one


async def _seen(given: Context, who: Caller, one: dict[str, Any]) -> list[dict[str, Any]]:
    """The notes once the index has read the new one; after some seconds as they are, since the journal has it.

    So no trouble is told from here on, and no router that leads by now is asked: it would note the same once more.
    """
    deadline = asyncio.get_running_loop().time() + SEEN_S
    before: list[dict[str, Any]] = one["comments"]
    found = before
    with suppress(HTTPException):
        while len(found) <= len(before) and asyncio.get_running_loop().time() <= deadline:
            await asyncio.sleep(LOOK_S)
            found = (await _one(given, who, one["id"], one["failed_queue"]))["comments"]
    return found
