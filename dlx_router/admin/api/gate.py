"""The gate before every path: who asks, how often, and how much. Nothing behind it sees an unknown caller.

A router that listens on loopback asks for no token unless API_TOKENS_FILE is set; then whoever came by a name that is
no loopback's is refused, because that is a page in somebody's browser. So is whoever changes something for a page of
another origin, with or without a token.
"""

import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from dlx_router.admin.api.answers import Answer, refused
from dlx_router.admin.api.context import Context
from dlx_router.config.api_access.allowed_hosts import authority, foreign_page, is_loopback
from dlx_router.config.api_access.tokens import LOCAL, Caller

MAX_CLIENTS: Final = 10_000
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})


class Gate:
    """An ASGI app around another."""

    def __init__(self, app: ASGIApp, context: Context) -> None:
        self._app, self._context = app, context
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # client → tokens left, since
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        who, answer = self._who(scope)
        answer = answer or self._foreign(scope) or self._slow_down(scope, who) or self._too_large(scope) or self._full()
        if answer is not None:
            await answer(scope, receive, send)
            return
        scope["dlx_router.caller"], scope["dlx_router.gate"] = who, self
        self._inside += 1
        try:
            await self._app(scope, _Bounded(receive, self._context.max_body_bytes), send)
        finally:
            self._inside -= 1

    @contextmanager
    def waits(self) -> Iterator[None]:
        """Inside the block the request has neither body nor answer here, and keeps nobody else out."""
        self._inside -= 1
        try:
            yield
        finally:
            self._inside += 1

    # -- who ----------------------------------------------------------------------------------------------------

    def _who(self, scope: Scope) -> tuple[Caller | None, Answer | None]:
        context, tokens = self._context, self._context.tokens
        scheme, _, token = _header(scope, b"authorization").partition(" ")
        if tokens is None and not context.is_loopback:
            return None, refused(401, "off loopback every request needs a token; set DLX_ROUTER_API_TOKENS_FILE")
        if tokens is None:
            named, _ = authority(_header(scope, b"host")) or ("", "")
            return (LOCAL, None) if is_loopback(named) else (None, refused(403, f"{named!r} is not this machine"))
        if scheme.lower() != "bearer" or not token.strip():
            return None, refused(401, "no token; send Authorization: Bearer TOKEN")
        found = tokens.find(token.strip())
        return found, None if found is not None else refused(401, "the token is not valid; see API_TOKENS_FILE")

    def _foreign(self, scope: Scope) -> Answer | None:
        """A page in somebody's browser can send here; where no token is asked for, that is all that it needs."""
        if scope["method"] in _SAFE:
            return None
        origins, sites = _headers(scope, b"origin"), _headers(scope, b"sec-fetch-site")
        why = foreign_page(self._context.hosts, _header(scope, b"host"), origins, sites)
        return None if why is None else refused(403, why)

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

    def _full(self) -> Answer | None:
        """Each request that is read or answered slowly holds its body or its answer: those are all that may."""
        if self._inside < self._context.at_once:
            return None
        return refused(503, f"{self._inside} requests are being answered; ask again", retry_after_s=1)


class _Bounded:
    """What is received, up to a limit; what is longer ends as if the client had hung up."""

    def __init__(self, receive: Receive, limit: int) -> None:
        self._receive, self._left = receive, limit

    async def __call__(self) -> Message:
        message = await self._receive()
        self._left -= len(message.get("body", b""))
        return {"type": "http.disconnect"} if self._left < 0 else message


def _headers(scope: Scope, name: bytes) -> list[str]:
    headers: list[tuple[bytes, Any]] = scope["headers"]
    return [value.decode("latin-1") for key, value in headers if key == name]


def _header(scope: Scope, name: bytes) -> str:
    return next(iter(_headers(scope, name)), "")
