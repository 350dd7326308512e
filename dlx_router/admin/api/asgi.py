"""Requests and answers as ASGI has them, and as they are handed on."""

import asyncio
from collections.abc import Coroutine, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import unquote

from starlette.types import Message, Receive, Scope, Send

from dlx_router.admin.api import envelope
from dlx_router.admin.api.envelope import Answered, Request
from dlx_router.config.api_access.tokens import Caller

OK: Final = 200
HANDED: Final = "dlx_router.handed"  # in a scope: it came from another replica
CALLER: Final = "dlx_router.caller"
WAITING: Final = "dlx_router.waiting"  # gate.Waiting
_OF_THE_PORT: Final = ("type", "asgi", "http_version", "scheme", "server", "client", WAITING)
Told = TypeVar("Told")


class Gone(Exception):
    """Nobody is there any more for whom it was asked."""


class Taken:
    """What an app sends, kept."""

    def __init__(self) -> None:
        self._status, self._headers, self._body = 500, dict[bytes, bytes](), bytearray()

    async def __call__(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self._status = message["status"]
            self._headers = {name.lower(): value for name, value in message.get("headers", ())}
        else:
            self._body += message.get("body", b"")

    def answered(self) -> Answered:
        """All of it."""
        kind, after = (self._headers.get(name, b"").decode("latin-1") for name in (b"content-type", b"retry-after"))
        return Answered(self._status, kind or "application/json", bytes(self._body), after)


def replayed(body: bytes, receive: Receive) -> Receive:
    """A body that was read by this, to be read again; and whether the client has gone."""
    messages = [{"type": "http.request", "body": body, "more_body": False}]

    async def again() -> Message:
        return messages.pop() if messages else await receive()

    return again


async def unless_gone(receive: Receive, work: Coroutine[Any, Any, Told]) -> Told:
    """What the work gives. Gone: the client, whose body was read by this, hung up; then the work was cancelled."""
    working, leaving = asyncio.create_task(work), asyncio.create_task(_hung_up(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        if not working.done():
            raise Gone
        return working.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.gather(working, leaving, return_exceptions=True)


async def _hung_up(receive: Receive) -> None:
    while (await receive())["type"] == "http.request":
        pass


async def send_answer(answered: Answered, send: Send, sealed: Mapping[str, str] | None = None) -> None:
    """The answer as the API's own are; `sealed`: with these headers, inside a 200, for another replica."""
    status = answered.status if sealed is None else OK
    headers = [(b"content-type", answered.kind.encode("latin-1")), (b"cache-control", b"no-store")]
    headers.append((b"content-length", str(len(answered.body)).encode()))
    headers += [(b"retry-after", answered.retry_after.encode())] if answered.retry_after else []
    headers += [(name.encode(), value.encode()) for name, value in (sealed or {}).items()]
    await send({"type": "http.response.start", "status": status, "headers": headers})
    await send({"type": "http.response.body", "body": answered.body})


def request_of(scope: Scope, who: Caller, body: bytes) -> Request:
    """What is handed on of a request: of its headers the content type alone."""
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    query: bytes = scope.get("query_string") or b""
    target = (raw + (b"?" + query if query else b"")).decode("latin-1")
    kind = next((value.decode("latin-1") for name, value in scope["headers"] if name == b"content-type"), "")
    return Request(scope["method"], target, who, envelope.printable(kind) if kind else "", body)


def scope_of(scope: Scope, request: Request) -> Scope:
    """A scope in which nothing is but what was sealed."""
    raw, _, query = request.target.partition("?")
    kind = [(b"content-type", request.kind.encode("latin-1", "replace"))] if request.kind else []
    made = {name: scope[name] for name in _OF_THE_PORT if name in scope}
    return {
        **made,
        "method": request.method,
        "path": unquote(raw),
        "raw_path": raw.encode("latin-1"),
        "query_string": query.encode("latin-1"),
        "root_path": "",
        "headers": [*kind, (b"content-length", str(len(request.body)).encode())],
        CALLER: request.who,
        HANDED: True,
    }
