"""The admin endpoint.

| path     | answer                                                                            |
|----------|-----------------------------------------------------------------------------------|
| /livez   | 200 while the event loop turns                                                    |
| /readyz  | 200 {"ready": true, …}, or 503 with the reasons against it; notes are no reasons  |
| /metrics | Prometheus' text format                                                           |
| /api/…   | another app's, where there is one; it asks for tokens                             |
| /, …     | the console's, where there is one                                                 |

The first three need no token and show no message data or secrets. /readyz and /metrics name queues, so they are not for
pages in a browser that came by a name of their own (config/api_access/allowed_hosts.py). Nobody can hold it: see
connections.py. Why uvicorn: docs/decisions/0003-http.md.
"""

import asyncio
import json
import os
import socket
import time
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from functools import partial
from typing import Any, Final, cast

import uvicorn

from dlx_router.admin.connections import BACKLOG, PIECE_BYTES, Connections, OneRequest, listener
from dlx_router.config.api_access.allowed_hosts import Hosts, not_ours
from dlx_router.telemetry.metrics import CONTENT_TYPE, Metrics
from dlx_router.telemetry.readiness import Readiness

DRAIN_S: Final = 1
MAX_HEAD_BYTES: Final = 16 * 1024
JSON: Final = "application/json"
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Answer = tuple[int, str, bytes]
App = Callable[[Message, Receive, Send], Awaitable[None]]


class AdminError(Exception):
    """The address cannot be served at; says which, why, and what now."""


class AdminServer:
    """An ASGI app that answers at its port between `start` and `stop`. Port 0: any free one, see `port`."""

    def __init__(
        self,
        host: str,
        port: int,
        metrics: Metrics,
        readiness: Readiness,
        api: App | None = None,
        *,
        hosts: Hosts | None = None,
    ) -> None:
        self.port = port
        self.console: App | None = None
        self._hosts = hosts or Hosts(host)
        self._api = api
        self._host = host
        self._metrics = _Metrics(metrics)
        self._readiness = readiness
        self._serving: asyncio.Task[None] | None = None
        config = uvicorn.Config(
            self,
            http=cast(type[asyncio.Protocol], partial(OneRequest, connections=Connections())),  # it is only called
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,  # uvicorn believes loopback who a request is of; here see trusted_proxies.py
            backlog=BACKLOG,  # uvicorn listens a second time
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            timeout_graceful_shutdown=DRAIN_S,
        )
        self._server = _Server(config)

    async def start(self) -> None:
        """Listens when this returns. Raises AdminError where the address cannot be had."""
        bound = _listening(self._host, self.port)
        self.port = bound.getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets=[bound]))

    async def stop(self) -> None:
        """Listens no more when this returns; safe to repeat."""
        self._server.should_exit = True
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving

    async def __call__(self, scope: Message, receive: Receive, send: Send) -> None:
        send = _in_pieces(send)
        if self._api is not None and scope["path"].startswith("/api/"):
            await self._api(scope, receive, _closing(send))
            return
        if self.console is not None and scope["path"] not in _PATHS:
            await self.console(scope, receive, send)
            return
        status, kind, body = await self._answer(scope)
        fields = {"content-type": kind, "content-length": str(len(body)), "cache-control": "no-store"}
        fields |= {"connection": "close", "x-content-type-options": "nosniff"}
        fields |= {"allow": "GET, HEAD"} if status == _NOT_ALLOWED[0] else {}
        headers = [(name.encode(), value.encode()) for name, value in fields.items()]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    async def _answer(self, scope: Message) -> Answer:
        method, path = scope["method"], scope["path"]
        if path not in _PATHS:
            paths = [*_PATHS, *(["/api/v1/openapi.json"] if self._api is not None else [])]
            return 404, JSON, json.dumps({"error": "no such path", "paths": paths}).encode()
        if method not in {"GET", "HEAD"}:
            return _NOT_ALLOWED
        if path == "/livez":
            return 200, JSON, b'{"live": true}'  # whoever asks, and by whatever name: nothing is told
        if not self._hosts.allow(named := _host(scope)):
            return 403, JSON, json.dumps({"error": not_ours(named)}).encode()
        return self._readyz() if path == "/readyz" else (200, CONTENT_TYPE, await self._metrics.text())

    def _readyz(self) -> Answer:
        of = self._readiness
        document = {"ready": of.ready, "reasons": of.reasons(), "notes": of.notes()}
        return 200 if of.ready else 503, JSON, json.dumps(document).encode()


def _host(scope: Message) -> str | None:
    hosts = (value.decode("latin-1") for name, value in scope["headers"] if name == b"host")
    return next(hosts, None)


_PATHS: Final = ("/livez", "/metrics", "/readyz")
_NOT_ALLOWED: Final[Answer] = (405, JSON, b'{"error": "only GET and HEAD"}')


def _closing(send: Send) -> Send:
    """Each connection serves one request; the answer says so."""

    async def closing(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (b"connection", b"close"), *_PLAIN]
        await send(message)

    return closing


def _in_pieces(send: Send) -> Send:
    """A body is handed over as fast as its client reads it, so that slow readers do not fill the memory."""

    async def sending(message: Message) -> None:
        body = memoryview(message.get("body", b""))
        while len(body) > PIECE_BYTES:
            await send({"type": message["type"], "body": bytes(body[:PIECE_BYTES]), "more_body": True})
            body = body[PIECE_BYTES:]
        await send({**message, "body": bytes(body)} if "body" in message else message)

    return sending


_PLAIN: Final = ((b"x-content-type-options", b"nosniff"),)


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: draining is the router's business."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _Metrics:
    """The metrics as text. Making it stops the letters, so whoever asks meanwhile gets one made after it asked.

    It takes a tenth of the time at most, and slow readers of the same text share it.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._one_at_a_time = asyncio.Lock()
        self._text = b""
        self._made_at = self._not_before = 0.0

    async def text(self) -> bytes:
        """As the router is now, or was after this was called."""
        asked_at = time.monotonic()
        async with self._one_at_a_time:
            if self._made_at <= asked_at:
                await asyncio.sleep(self._not_before - time.monotonic())
                self._made_at = time.monotonic()
                self._text = self._metrics.text()
                took_s = time.monotonic() - self._made_at
                self._not_before = self._made_at + min(10 * took_s, _MAX_PAUSE_S)
            return self._text


_MAX_PAUSE_S: Final = 0.5


def _listening(host: str, port: int) -> socket.socket:
    try:
        return listener(host, port)
    except OSError as error:
        known = error.errno is not None and error.errno > 0  # asyncio and socket add the address, which we tell
        reason = os.strerror(error.errno) if known and error.errno is not None else error.strerror or error
        why = f"{reason}; set DLX_ROUTER_HTTP_HOST and DLX_ROUTER_HTTP_PORT to an address that is free"
        raise AdminError(f"cannot serve HTTP at {host}:{port}: {why}") from None
