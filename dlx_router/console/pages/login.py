"""Logging in and out, and which theme."""

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dlx_router.config.api_access.passes import is_pass
from dlx_router.console import forms
from dlx_router.console.asking import THEME, THEMES, Asked, foreign, local_path, page, remembered, set_cookie, trouble
from dlx_router.console.router_api import UNREACHABLE, ApiError
from dlx_router.console.sessions import MAX_TOKEN
from dlx_router.console.who import Callers, Console

TOO_MANY: Final = "too many tries from your address; wait some seconds"


def login(console: Console) -> Callable[[Request], Awaitable[Response]]:
    """The only page that nobody has to be known for."""

    async def answer(request: Request) -> Response:
        wanted = local_path(request.query_params.get("next", ""))
        if request.method != "POST":
            return page(console, request, "login.html", wanted=wanted, said="")
        if (why := foreign(console, request)) is not None:
            return trouble(console, request, ApiError(403, why))
        try:
            form = await forms.read(request)
        except forms.FormError as error:
            return trouble(console, request, ApiError(error.status, str(error)))
        outcome = await _refused(console, request, form)
        if isinstance(outcome, str):
            return page(console, request, "login.html", 401, wanted=wanted, said=outcome)
        return outcome

    return answer


async def _refused(console: Console, request: Request, form: forms.Form) -> str | Response:
    """Why this login is none; else the answer that begins the session."""
    logins, client, token = console.logins, console.client(request), form.text("token")
    is_beyond = not logins.allows(client)
    with logins.place(is_beyond=is_beyond) as has_place:
        outcome = await _known(console, token) if has_place else ""
    if isinstance(outcome, str):
        return "; ".join(filter(None, (outcome, TOO_MANY if is_beyond else "")))
    if not is_beyond:
        logins.give_back(client)
    console.sessions.end(request.cookies.get(console.cookie, ""))
    key = await _begun(console, token, outcome)
    answer = RedirectResponse(local_path(form.text("next")) or "/", 303)
    set_cookie(console, answer, key)
    return answer


async def _known(console: Console, token: str) -> str | Callers:
    """Who that is, by router; else why nobody."""
    if not token or len(token) > MAX_TOKEN or not token.isascii() or not token.isprintable():
        return "write a token as DLX_ROUTER_API_TOKENS_FILE has it"
    callers, refused = await console.callers(token)
    away = [error.error for error in refused if error.status == UNREACHABLE]
    return callers or "; ".join(away) or "no router knows this token, or it may not look"


async def _begun(console: Console, token: str, callers: Callers) -> str:
    """The cookie of a new session: a pass of the router where it gives one, so that other replicas know it too."""
    if console.sealed:
        with suppress(ApiError):
            return await console.begin(token)
    return console.sessions.begin(token, callers)[0]


async def logout(asked: Asked) -> Response:
    """The session ends here, whoever has its cookie."""
    asked.console.sessions.end(asked.key)
    asked.session.is_over = True
    if is_pass(asked.key):
        with suppress(ApiError):  # the browser forgets it anyway
            await asked.change("DELETE", "/sessions")
    answer = RedirectResponse("/login", 303)
    answer.delete_cookie(asked.console.cookie, path="/", secure=asked.console.secure, httponly=True, samesite="strict")
    return answer


async def theme(asked: Asked) -> Response:
    """Light, dark, or as the system says."""
    wanted = asked.form.text("theme")
    back = asked.form.text("back")
    if wanted not in THEMES:
        return RedirectResponse(local_path(back) or "/", 303)
    return remembered(asked.console, THEME, wanted, back)
