"""/letters/ID/comments: what people note on a letter. It stands in the journal, so every router knows it."""

import asyncio
from collections.abc import Sequence
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
_NAMED: Final = 10


@router.post("/letters/{letter_id}/comments", status_code=201, response_model=models.Comments, responses=CONFLICT)
async def add(
    given: Given,
    who: Operator,
    letter_id: str,
    wanted: models.NewComment,
    queue: Annotated[str | None, Query(max_length=255, description="The copy that failed here.")] = None,
    vhost: Annotated[str | None, Query(max_length=255, description="The copy that failed in this vhost.")] = None,
) -> Response:
    """Note something on a letter. The journal has it when this answers, and the index almost always."""
    letter = await _letter(given, who, letter_id, queue, vhost)
    if len(letter["comments"]) >= MOST:
        raise refuse(409, f"this letter has {MOST} notes; no more are kept")
    details = {"letter": letter["id"], "queue": letter["failed_queue"], "text": wanted.text}
    await given.audit(who, letter["vhost"], COMMENT, details)
    return Answer({"comments": await _seen(given, who, letter)}, 201)


async def _letter(given: Context, who: Caller, letter_id: str, queue: str | None, vhost: str | None) -> dict[str, Any]:
    """The letter; 404 where there is none, 409 where several copies of it might be meant."""
    sees = sees_of(given, who)
    known = await asked(given, lambda reader: reader.letter(letter_id, sees, queue))
    copies = [copy for copy in known if vhost in {None, copy["vhost"]}]
    if not copies:
        raise refuse(404, f"the index knows no letter {letter_id[:64]!r} that this token may see")
    if len(copies) > 1:
        raise refuse(409, _which_copy(copies))
    letter: dict[str, Any] = copies[0]
    return letter


def _which_copy(copies: Sequence[dict[str, Any]]) -> str:
    """What to say where the caller has to choose between copies."""
    places = ", ".join(f"{copy['failed_queue']!r} of vhost {copy['vhost']!r}" for copy in copies[:_NAMED])
    by = "queue" if len({copy["vhost"] for copy in copies}) == 1 else "queue and vhost"
    return f"copies of this letter failed in {places}; say which one by {by}"


async def _seen(given: Context, who: Caller, letter: dict[str, Any]) -> list[dict[str, Any]]:
    """The notes once the index has read the new one; after some seconds as they are, since the journal has it."""
    deadline = asyncio.get_running_loop().time() + SEEN_S
    before: list[dict[str, Any]] = letter["comments"]
    notes = before
    with suppress(HTTPException):
        while len(notes) <= len(before) and asyncio.get_running_loop().time() <= deadline:
            await asyncio.sleep(LOOK_S)
            notes = (await _letter(given, who, letter["id"], letter["failed_queue"], letter["vhost"]))["comments"]
    return notes
