"""Around every page: the names by which the console may be asked, how many at once, and what browsers are told."""

from typing import Any, Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dlx_router.config.api_access.allowed_hosts import Hosts, not_ours

AT_ONCE: Final = 16  # each holds an answer of the router, and the page made of it
POLICY: Final = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
_ALWAYS: Final = {
    b"content-security-policy": POLICY.encode(),
    b"x-content-type-options": b"nosniff",
    b"x-frame-options": b"DENY",
    b"referrer-policy": b"same-origin",  # "no-referrer" takes the Origin away from our own forms
    b"cross-origin-opener-policy": b"same-origin",
    b"cross-origin-resource-policy": b"same-origin",
    b"permissions-policy": b"camera=(), geolocation=(), microphone=()",
}


class Guard:
    """An ASGI app around another."""

    def __init__(self, app: ASGIApp, hosts: Hosts) -> None:
        self._app, self._hosts, self._inside = app, hosts, 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        refusal = self._refusal(scope)
        if refusal is not None:
            await refusal(scope, receive, _told(send))
            return
        self._inside += 1
        try:
            await self._app(scope, receive, _told(send))
        finally:
            self._inside -= 1

    def _refusal(self, scope: Scope) -> PlainTextResponse | None:
        headers: list[tuple[bytes, Any]] = scope["headers"]
        named = next((value.decode("latin-1") for key, value in headers if key == b"host"), None)
        if not self._hosts.allow(named):
            return PlainTextResponse(not_ours(named), 403)
        if self._inside >= AT_ONCE:
            return PlainTextResponse(f"{AT_ONCE} pages are being made; ask again", 503, {"retry-after": "1"})
        return None


def _told(send: Send) -> Send:
    async def telling(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = [(name.lower(), value) for name, value in message.get("headers", ())]
            names = {name for name, _ in given}
            more = [] if b"cache-control" in names else [(b"cache-control", b"no-store")]
            message["headers"] = [*given, *more, *((n, v) for n, v in _ALWAYS.items() if n not in names)]
        await send(message)

    return telling
