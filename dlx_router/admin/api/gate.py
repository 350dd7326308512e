"""The gate before every path: who asks, how often, and how much. Nothing behind it sees an unknown caller.

A router that listens on loopback asks for no token unless API_TOKENS_FILE is set; then whoever came by a name that is
no loopback's is refused, because that is a page in somebody's browser.
"""

import time
from collections import OrderedDict
from ipaddress import ip_address
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dlx_router.admin.api.answers import Answer, refused
from dlx_router.admin.api.context import Context
from dlx_router.config.tokens import LOCAL, Caller

MAX_CLIENTS: Final = 10_000
_NAMES: Final = frozenset({"localhost", "localhost.localdomain"})


class Gate:
    """An ASGI app around another."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self._app, self._context = app, context
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client → tokens left, since

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        who, answer = self._who(scope)
        answer = answer or self._slow_down(scope, who) or self._too_large(scope)
        if answer is not None:
            await answer(scope, receive, send)
            return
        scope["dlx_router.caller"] = who
        await self._app(scope, _Bounded(receive, self._context.max_body_bytes), send)

    # -- who ----------------------------------------------------------------------------------------------------

    def _who(self, scope: Scope) -> tuple[Caller | None, Answer | None]:
        context, tokens = self._context, self._context.tokens
        scheme, _, token = _header(scope, b"authorization").partition(" ")
        if tokens is None and not context.is_loopback:
            return None, refused(401, "off loopback every request needs a token; set DLX_ROUTER_API_TOKENS_FILE")
        if tokens is None:
            named = _host(_header(scope, b"host"))
            return (LOCAL, None) if _is_loopback(named) else (None, refused(403, f"{named!r} is not this machine"))
        if scheme.lower() != "bearer" or not token.strip():
            return None, refused(401, "no token; send Authorization: Bearer TOKEN")
        found = tokens.find(token.strip())
        return found, None if found is not None else refused(401, "the token is not valid; see API_TOKENS_FILE")

    # -- how often ----------------------------------------------------------------------------------------------

    def _slow_down(self, scope: Scope, who: Caller | None) -> Answer | None:
        """A bucket a token name, a second's worth for each second; who has none is counted by address."""
        client = who.name if who is not None else str((scope.get("client") or ("?",))[0])
        now, burst = time.monotonic(), float(self._context.burst)
        left, since = self._buckets.pop(client, (burst, now))
        left = min(burst, left + (now - since) * self._context.per_second)
        allowed = left >= 1
        self._buckets[client] = (left - 1 if allowed else left, now)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return None if allowed else refused(429, "too many requests", retry_after_s=1)

    # -- how much -----------------------------------------------------------------------------------------------

    def _too_large(self, scope: Scope) -> Answer | None:
        said = _header(scope, b"content-length")
        if said.isdigit() and int(said) > self._context.max_body_bytes:
            return refused(413, f"at most {self._context.max_body_bytes} bytes")
        return None


class _Bounded:
    """What is received, up to a limit; what is longer ends as if the client had hung up."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._left = receive, limit

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        return {"type": "http.disconnect"} if self._left < 0 else message


def _header(scope: Scope, name: bytes) -> str:
    headers: list[tuple[bytes, Any]] = scope["headers"]
    return next((value.decode("latin-1") for key, value in headers if key == name), "")


def _host(said: str) -> str:
    if said.startswith("["):
        return said[1:].partition("]")[0]
    return said.partition(":")[0]


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host.lower() in _NAMES
