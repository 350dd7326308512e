"""/letters: look for letters, and show one with its journey and body."""

from typing import Annotated, Final, Literal

from fastapi import APIRouter, Query
from starlette.responses import Response

from dlx_router.admin.api import models
from dlx_router.admin.api.answers import CONFLICT, Answer, refuse
from dlx_router.admin.api.asking import as_of, asked, judge, sees_of
from dlx_router.admin.api.bodies import body_of
from dlx_router.admin.api.context import Context, Given, Viewer
from dlx_router.admin.api.rules import name_rules
from dlx_router.index.queries import Wanted
from dlx_router.index.reader import cursor_of

router = APIRouter(tags=["letters"])

MAX_PAGE: Final = 1000
MAX_MS: Final = 2**53
Name = Annotated[str | None, Query(max_length=255)]
Moment = Annotated[int | None, Query(ge=0, le=MAX_MS)]


@router.get("/letters", response_model=models.Letters, responses=CONFLICT)
async def search(  # noqa: PLR0913, PLR0917 - each is a filter
    given: Given,
    who: Viewer,
    q: Annotated[
        str | None,
        Query(
            max_length=500,
            pattern=r"[0-9A-Za-z_\u0080-\uffff]",
            description='Words, "a phrase", or begin*; all of them.',
        ),
    ] = None,
    vhost: Name = None,
    queue: Annotated[str | None, Query(max_length=255, description="The failed queue.")] = None,
    group: Annotated[str | None, Query(max_length=64)] = None,
    state: Annotated[list[models.LetterState] | None, Query(max_length=11)] = None,
    reason: Name = None,
    policy: Name = None,
    since_ms: Moment = None,
    until_ms: Moment = None,
    limit: Annotated[int, Query(ge=1, le=MAX_PAGE)] = 100,
    order: Literal["newest", "oldest"] = "newest",
    cursor: Annotated[
        str | None,
        Query(max_length=4000, pattern=r"^[0-9]{1,16}(\..*)?$", description="`next` of the page before."),
    ] = None,
) -> Response:
    """Letters, those first that came last (or first)."""
    if vhost is not None:
        given.attendant(vhost, who)
    oldest = order == "oldest"
    wanted = Wanted(vhost, queue, group, tuple(state or ()), reason, policy, since_ms, until_ms, q)
    sees = sees_of(given, who)
    behind = None if cursor is None else await _number(given, cursor)
    rows = await asked(given, lambda reader: reader.letters(wanted, sees, limit=limit, before=behind, oldest=oldest))
    judge(given, rows)
    following = cursor_of(rows[-1]) if len(rows) == limit else None
    return Answer({"letters": rows, "next": following, "as_of": as_of(given, who)})


async def _number(given: Context, cursor: str) -> int:
    number = await asked(given, lambda reader: reader.number_of(cursor))
    if number is None:
        raise refuse(409, "the index of this router does not have the last letter of the page before; begin again")
    return number


@router.get("/letters/{letter_id}", response_model=models.LetterCopies)
async def show(
    given: Given,
    who: Viewer,
    letter_id: str,
    queue: Annotated[str | None, Query(max_length=255, description="Only the copy that failed here.")] = None,
    form: Annotated[str, Query(pattern="^(auto|hex)$", description="auto: by content type; hex: as bytes.")] = "auto",
) -> Response:
    """One letter: its newest event, its journey, and its body as far as the journal has it."""
    sees = sees_of(given, who)
    copies = await asked(given, lambda reader: reader.letter(letter_id, sees, queue))
    if not copies:
        raise refuse(404, f"the index knows no letter {letter_id[:64]!r} that this token may see")
    judge(given, copies)
    name_rules(given, copies)
    for copy in copies:
        copy["body"] = body_of(copy, as_hex=form == "hex")
        del copy["stored"]
    return Answer({"letters": copies})
