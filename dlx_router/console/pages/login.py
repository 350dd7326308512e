"""Logging in and out, and which theme."""

from collections.abc import Awaitable, Callable
from typing import Final

import httpx
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from dlx_router.console import forms
from dlx_router.console.asking import THEME, THEMES, Asked, foreign, local_path, page, remembered, set_cookie, trouble
from dlx_router.console.auth import MAX_TOKEN, Console
from dlx_router.console.router_api import ApiError

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
        key, why = await _begun(console, token) if has_place else ("", "")
    if not key:
        return "; ".join(filter(None, (why, TOO_MANY if is_beyond else "")))
    if not is_beyond:
        logins.give_back(client)
    await console.end(request.cookies.get(console.cookie, ""))
    answer = RedirectResponse(local_path(form.text("next")) or "/", 303)
    set_cookie(console, answer, key)
    return answer


async def _begun(console: Console, token: str) -> tuple[str, str]:
    """The cookie of a new session, or why there is none."""
    if not token or len(token) > MAX_TOKEN or not token.isascii() or not token.isprintable():
        return "", "write a token as DLX_ROUTER_API_TOKENS_FILE has it"
    key, refused = await console.begin(token)
    reasons = [error.error for error in refused if error.status != httpx.codes.UNAUTHORIZED]
    return key, "; ".join(reasons) or "no router knows this token, or it may not look"


async def logout(asked: Asked) -> Response:
    """The session ends here, whoever has its cookie."""
    asked.session.is_over = True
    await asked.console.end(asked.key)
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
