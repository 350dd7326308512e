"""/sessions: a pass for a while in place of a token, which every replica with the same key takes."""

from typing import Annotated

from fastapi import APIRouter, Depends, Request
from pydantic import BaseModel
from starlette.responses import Response

from dlx_router.admin.api.answers import CONFLICT, Answer, refuse
from dlx_router.admin.api.context import Context, Given, Viewer
from dlx_router.config.api_access.passes import Session
from dlx_router.config.api_access.tokens import Tokens
from dlx_router.telemetry.wall_clock import wall_ms

router = APIRouter(tags=["sessions"])


class Pass(BaseModel):
    """To be sent as a token is, until then; ask for another before, with this one."""

    word: str
    until_ms: int


async def shown(request: Request) -> str:
    """The token or pass that came with the request."""
    return request.headers.get("authorization", "").partition(" ")[2].strip()


Shown = Annotated[str, Depends(shown)]


@router.post("/sessions", status_code=201, response_model=Pass, responses=CONFLICT)
async def begin(given: Given, who: Viewer, text: Shown) -> Response:
    """A pass that stands for the token of this request; with a pass, the same session for another while."""
    now_ms, passes = wall_ms(), given.passes
    if given.tokens is None:
        raise refuse(409, "this router asks nobody for a token, so there is nothing to log in with")
    old = _session(given, text)
    if old is not None:
        word, made = passes.renewed(old, now_ms)
    elif given.tokens.find(text) is None:
        raise refuse(409, f"{who.name!r} has shown no token")
    else:
        word, made = passes.begin(Tokens.digest(text), now_ms)
    return Answer({"word": word, "until_ms": made.until_ms}, 201)


class Ended(BaseModel):
    """Whether there was a session to end."""

    ended: bool


@router.delete("/sessions", response_model=Ended)
async def end(given: Given, _who: Viewer, text: Shown) -> Response:
    """End the session of this pass at this router; others take a copy of it until it is over."""
    session = _session(given, text)
    if session is not None:
        given.passes.end(session)
    return Answer({"ended": session is not None})


def _session(given: Context, text: str) -> Session | None:
    return given.passes.session(text, wall_ms())
