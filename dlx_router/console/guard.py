"""Around every page: the names by which the console may be asked, how many at once, and what browsers are told."""

import asyncio
from typing import Any, Final

from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dlx_router.admin.api.asgi import replayed
from dlx_router.admin.connections import PATIENT
from dlx_router.admin.held_bodies import BodyRefused, HeldBodies
from dlx_router.config.api_access.allowed_hosts import Hosts, not_ours

BUSY: Final = 503
AT_ONCE: Final = 16  # each holds an answer of the router, and the page made of it
MAX_BODY_BYTES: Final = 2_000_000  # a page tells of a form that is larger than forms.py takes
MAX_BODIES_BYTES: Final = 32_000_000
WORK_S: Final = 40.0  # a page asks its router twice or more, and an answer may take 15 s (router_api.py)
POLICY: Final = "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; object-src 'none'"
_ALWAYS: Final = {
    # A connection is cut when it is 10 s old. One that served more than a request was cut in the middle of a change,
    # which a browser may then send again.
    b"connection": b"close",
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
        self._bodies = HeldBodies(MAX_BODY_BYTES, MAX_BODIES_BYTES)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers: list[tuple[bytes, Any]] = scope["headers"]
        named = next((value.decode("latin-1") for key, value in headers if key == b"host"), None)
        try:
            if not self._hosts.allow(named):
                raise BodyRefused(403, not_ours(named))  # noqa: TRY301 - told as the others are
            async with self._bodies.whole(receive) as body:
                scope[PATIENT] = asyncio.get_running_loop().time() + WORK_S
                await self._answer(scope, replayed(body, receive), _with_headers(send))
        except BodyRefused as error:
            if error.status:
                after = {"retry-after": "1"} if error.status == BUSY else None
                await PlainTextResponse(str(error), error.status, after)(scope, receive, _with_headers(send))

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if self._inside >= AT_ONCE:
            raise BodyRefused(BUSY, f"{AT_ONCE} pages are being made; ask again")
        self._inside += 1
        try:
            await self._app(scope, receive, send)
        finally:
            self._inside -= 1


def _with_headers(send: Send) -> Send:
    async def telling(message: Message) -> None:
        if message["type"] == "http.response.start":
            given = [(name.lower(), value) for name, value in message.get("headers", ())]
            names = {name for name, _ in given}
            more = [] if b"cache-control" in names else [(b"cache-control", b"no-store")]
            message["headers"] = [*given, *more, *((n, v) for n, v in _ALWAYS.items() if n not in names)]
        await send(message)

    return telling
