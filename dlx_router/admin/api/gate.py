"""The gate before every path: who asks, how often, and how much. Nothing behind it sees an unknown caller.

A router that listens on loopback asks for no token unless API_TOKENS_FILE is set; then whoever came by a name that is
no loopback's is refused, because that is a page in somebody's browser. So is whoever changes something for a page of
another origin, with or without a token. What another replica hands over has no token: it is sealed (envelope.py).

Who sends a body slowly has no place among those that are answered, and of a GET's there is nothing to wait for.
"""

import time
from collections import OrderedDict
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

from starlette.types import Receive, Scope, Send

from dlx_router.admin.api import envelope
from dlx_router.admin.api.answers import Answer, refused
from dlx_router.admin.api.asgi import CALLER, WAITING, replayed, send_answer
from dlx_router.admin.api.context import Context
from dlx_router.admin.api.envelope import Answered, Opened, Seen, Unsealed
from dlx_router.admin.api.leader_proxy import LeaderProxy
from dlx_router.admin.connections import PATIENT
from dlx_router.admin.held_bodies import BodyRefused, HeldBodies
from dlx_router.config.api_access.allowed_hosts import authority, foreign_page, is_loopback
from dlx_router.config.api_access.passes import is_pass
from dlx_router.config.api_access.tokens import LOCAL, Caller
from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.wall_clock import wall_ms

MAX_CLIENTS: Final = 10_000
MAX_BODIES_BYTES: Final = 32 << 20  # of all together; and as much of what replicas hand over
JSON: Final = "application/json"
_SAFE: Final = frozenset({"GET", "HEAD", "OPTIONS"})
_BODILESS: Final = frozenset({"GET", "HEAD"})  # RFC 9110: what they send besides has no meaning
_BUSY: Final = 503


class Gate:
    """An ASGI app around another."""

    def __init__(self, app: LeaderProxy, context: Context) -> None:
        self._app, self._context = app, context
        self._seen, self._once = Seen(), Once()
        self._bodies = HeldBodies(context.max_body_bytes, MAX_BODIES_BYTES)
        self._handed_bodies = HeldBodies(context.max_body_bytes, MAX_BODIES_BYTES)
        self._buckets: OrderedDict[str, tuple[float, float]] = OrderedDict()  # token name → questions left, since
        self._inside = 0

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        if scope["path"] == envelope.PATH:
            await self._handed(scope, receive, send)
            return
        who = self._who(scope)
        if isinstance(who, Caller):
            await self._asked(who, scope, receive, send)
        else:
            await who(scope, receive, send)

    async def _asked(self, who: Caller, scope: Scope, receive: Receive, send: Send) -> None:
        refusal = self._foreign(scope) or self._slow_down(who) or self._too_large(scope)
        if refusal is not None:
            await refusal(scope, receive, send)
            return
        scope[CALLER], scope[WAITING] = who, Waiting(self, scope)
        if scope["method"] in _BODILESS:
            await self._answer(scope, replayed(b"", receive), send)
            return
        try:
            async with self._bodies.whole(receive) as body:
                await self._answer(scope, replayed(body, receive), send)
        except BodyRefused as error:
            if error.status:
                after = 1 if error.status == _BUSY else None
                await refused(error.status, str(error), retry_after_s=after)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        if (busy := self._full()) is not None:
            await busy(scope, receive, send)
            return
        with self.inside():
            await self._app(scope, receive, send)

    @contextmanager
    def inside(self, by: int = 1) -> Iterator[None]:
        """Inside the block so many requests more (or less) are answered here; see `_full`."""
        self._inside += by
        try:
            yield
        finally:
            self._inside -= by

    # -- from another replica -----------------------------------------------------------------------------------

    async def _handed(self, scope: Scope, receive: Receive, send: Send) -> None:
        """What a replica was asked that does not lead. Who has no key is refused before anything of it is read."""
        try:
            opened = self._opened(scope)
            async with self._handed_bodies.whole(receive) as body:
                request = opened.with_body(body)
        except (Unsealed, BodyRefused) as error:
            self._once.warn("forwarded", "api.forward_refused", error=str(error), fate="it was not done")
            await refused(401, str(error))(scope, receive, send)
            return
        self._once.healed("forwarded", "api.forward_taken")
        busy = self._slow_down(request.who) or self._full()
        if busy is not None:
            answered = Answered(busy.status_code, JSON, bytes(busy.body), busy.headers.get("retry-after", ""))
        else:
            scope[WAITING] = Waiting(self, scope)
            with self.inside():
                answered = await self._app.handed(scope, request, receive)
        await send_answer(answered, send, opened.answer(answered))

    def _opened(self, scope: Scope) -> Opened:
        context, tokens = self._context, self._context.tokens
        if scope["method"] != "POST":
            raise Unsealed("it is no POST")
        if tokens is None and not context.is_loopback:
            raise Unsealed("off loopback every request needs a token; set DLX_ROUTER_API_TOKENS_FILE")
        return envelope.unseal(
            self._app.keys,
            _header(scope, envelope.HEAD.encode()),
            _header(scope, envelope.MAC.encode()),
            to=context.router_id,
            now_ms=wall_ms(),
            seen=self._seen,
            is_open=tokens is None,
        )

    # -- who ----------------------------------------------------------------------------------------------------

    def _who(self, scope: Scope) -> Caller | Answer:
        """Who asks; else why that is nobody."""
        context, tokens = self._context, self._context.tokens
        scheme, _, token = _header(scope, b"authorization").partition(" ")
        if is_pass(token.strip()):
            passed = context.passes.caller(token.strip(), tokens, wall_ms())
            return passed or refused(401, "the session is over; log in again")
        if tokens is None and not context.is_loopback:
            return refused(401, "off loopback every request needs a token; set DLX_ROUTER_API_TOKENS_FILE")
        if tokens is None:
            named, _ = authority(_header(scope, b"host")) or ("", "")
            return LOCAL if is_loopback(named) else refused(403, f"{named!r} is not this machine")
        if scheme.lower() != "bearer" or not token.strip():
            return refused(401, "no token; send Authorization: Bearer TOKEN")
        return tokens.find(token.strip()) or refused(401, "the token is not valid; see API_TOKENS_FILE")

    def _foreign(self, scope: Scope) -> Answer | None:
        """A page in somebody's browser can send here; where no token is asked for, that is all that it needs."""
        if scope["method"] in _SAFE:
            return None
        origins, sites = _headers(scope, b"origin"), _headers(scope, b"sec-fetch-site")
        why = foreign_page(self._context.hosts, _header(scope, b"host"), origins, sites)
        return None if why is None else refused(403, why)

    # -- how often ----------------------------------------------------------------------------------------------

    def _slow_down(self, who: Caller) -> Answer | None:
        """A bucket a token name, a second's worth for each second.

        Wrong tokens are not counted: one costs a digest, and nobody pays for what another sends from their address.
        """
        client, now, burst = who.name, time.monotonic(), float(self._context.burst)
        left, since = self._buckets.pop(client, (burst, now))
        left = min(burst, left + (now - since) * self._context.per_second)
        allowed = left >= 1
        self._buckets[client] = (left - 1 if allowed else left, now)
        if len(self._buckets) > MAX_CLIENTS:
            self._buckets.popitem(last=False)
        return None if allowed else refused(429, "too many requests", retry_after_s=1)

    # -- how much -----------------------------------------------------------------------------------------------

    def _too_large(self, scope: Scope) -> Answer | None:
        length = _header(scope, b"content-length")
        if length.isascii() and length.isdigit() and int(length) > self._context.max_body_bytes:
            return refused(413, f"at most {self._context.max_body_bytes} bytes")
        return None

    def _full(self) -> Answer | None:
        """Each request that is answered slowly holds its answer: those are all that may."""
        if self._inside < self._context.at_once:
            return None
        return refused(503, f"{self._inside} requests are being answered; ask again", retry_after_s=1)


class Waiting:
    """Of a request that came by this port, however often it is handed on inside."""

    def __init__(self, gate: Gate, scope: Scope) -> None:
        self._gate, self._scope = gate, scope

    @contextmanager
    def until(self, until_s: float) -> Iterator[None]:
        """Inside the block it only waits: it keeps nobody else out, and its connection lasts until then (loop's clock).

        What it holds is a small body; its answer has not begun.
        """
        self._scope[PATIENT] = until_s
        with self._gate.inside(-1):
            yield


def _headers(scope: Scope, name: bytes) -> list[str]:
    headers: list[tuple[bytes, Any]] = scope["headers"]
    return [value.decode("latin-1") for key, value in headers if key == name]


def _header(scope: Scope, name: bytes) -> str:
    return next(iter(_headers(scope, name)), "")
