"""/letters: look for letters, and show one with its journey and body."""

import json
from typing import Annotated, Any, Final

from fastapi import APIRouter, Query
from starlette.responses import Response

from dlx_router.admin.api import models
from dlx_router.admin.api.answers import Answer, refuse
from dlx_router.admin.api.asking import asked, sees_of
from dlx_router.admin.api.context import Given, Viewer
from dlx_router.operate.index.questions import Wanted

router = APIRouter(tags=["letters"])

MAX_PAGE: Final = 1000
MAX_MS: Final = 2**53
_TEXTS: Final = ("text/", "application/xml", "application/x-www-form-urlencoded", "application/yaml")
_WHY: Final = {
    None: "the journal has no body: key `journal` of the policy says {body: none}; final and all keep it",
    "none": "the journal has no body: it was redacted as a whole, or the policy says {body: none}",
    "hash": "the journal has its SHA-256 only; the policy's journal {body: final} or {body: all} keeps the body",
}
Name = Annotated[str | None, Query(max_length=255)]
Moment = Annotated[int | None, Query(ge=0, le=MAX_MS)]


@router.get("/letters", response_model=models.Letters)
async def search(  # noqa: PLR0913, PLR0917 - each is a filter
    given: Given,
    who: Viewer,
    q: Annotated[
        str | None, Query(max_length=500, pattern=r"\w", description='Words, "a phrase", or begin*; all of them.')
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
    cursor: Annotated[int | None, Query(ge=0, le=MAX_MS, description="`next` of the page before.")] = None,
) -> Response:
    """Letters, those that came last first."""
    wanted = Wanted(vhost, queue, group, tuple(state or ()), reason, policy, since_ms, until_ms, q)
    sees = sees_of(given, who)
    found = await asked(given, lambda reader: reader.letters(wanted, sees, limit=limit, before=cursor))
    return Answer({"letters": found, "next": found[-1]["cursor"] if len(found) == limit else None})


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
    found = await asked(given, lambda reader: reader.letter(letter_id, sees, queue))
    if not found:
        raise refuse(404, f"the index knows no letter {letter_id[:64]!r} that this token may see")
    for one in found:
        one["body"] = body_of(one.pop("stored"), one["size"], as_hex=form == "hex")
    return Answer({"letters": found})


def body_of(
    stored: tuple[str, str | None, str | None, bytes | None] | None, size: int, *, as_hex: bool
) -> dict[str, Any]:
    """The body by its content type: JSON as such, text as text, all else in hex."""
    mode, sha256, kind, content = stored or (None, None, None, None)
    told = {"content_type": kind, "sha256": sha256, "why": None, "is_whole": mode == "inline"}
    if content is None:
        return told | {"form": "none", "content": None, "is_whole": False, "why": _WHY.get(mode, _WHY["none"])}
    if mode == "head":
        told["why"] = f"the journal has the first {len(content)} of {size} bytes"
    form, shown = ("hex", content.hex()) if as_hex else _shown(content, (kind or "").partition(";")[0].strip().lower())
    return told | {"form": form, "content": shown}


def _shown(content: bytes, kind: str) -> tuple[str, Any]:
    is_json = kind == "application/json" or kind.endswith("+json")
    if is_json or not kind:
        try:
            document = json.loads(content, parse_constant=_no_constant)
            json.dumps(document, allow_nan=False)
        except (ValueError, RecursionError):
            pass
        else:
            return "json", document
    if is_json or not kind or kind.startswith(_TEXTS):
        try:
            return "text", content.decode()
        except UnicodeDecodeError:
            pass
    return "hex", content.hex()


def _no_constant(word: str) -> None:
    raise ValueError(f"{word} is no JSON")
