"""The admin endpoint.

| path     | answer                                                                            |
|----------|-----------------------------------------------------------------------------------|
| /livez   | 200 while the event loop turns                                                    |
| /readyz  | 200 {"ready": true, …}, or 503 with the reasons against it; notes are no reasons  |
| /metrics | Prometheus' text format                                                           |
| /api/…   | another app's, where there is one; it asks for tokens                             |

The first three need no token and show no message data or secrets. Nobody can hold it: a connection serves one request
and ends after ten seconds whatever it did. Why uvicorn: docs/decisions/0003-http.md.
"""

import asyncio
import json
import os
import socket
from collections.abc import Awaitable, Callable, Iterator, MutableMapping
from contextlib import contextmanager
from typing import Any, Final

import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

from dlx_router.telemetry.metrics import CONTENT_TYPE, Metrics
from dlx_router.telemetry.readiness import Readiness

DEADLINE_S: Final = 10.0
DRAIN_S: Final = 1
MAX_CONNECTIONS: Final = 100
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
    """Answers between `start` and `stop`. Port 0: any free one, see `port`."""

    def __init__(self, host: str, port: int, metrics: Metrics, readiness: Readiness, api: App | None = None) -> None:
        self.port = port
        self._api = api
        self._host = host
        self._metrics = metrics
        self._readiness = readiness
        self._serving: asyncio.Task[None] | None = None
        config = uvicorn.Config(
            self._app,
            http=_OneRequest,
            ws="none",
            lifespan="off",
            interface="asgi3",
            log_config=None,
            access_log=False,
            server_header=False,
            limit_concurrency=MAX_CONNECTIONS,
            h11_max_incomplete_event_size=MAX_HEAD_BYTES,
            timeout_graceful_shutdown=DRAIN_S,
        )
        self._server = _Server(config)

    async def start(self) -> None:
        """Listens when this returns. Raises AdminError where the address cannot be had."""
        listener = _listener(self._host, self.port)
        self.port = listener.getsockname()[1]
        self._serving = asyncio.create_task(self._server.serve(sockets=[listener]))

    async def stop(self) -> None:
        """Listens no more when this returns; safe to repeat."""
        self._server.should_exit = True
        serving, self._serving = self._serving, None
        if serving is not None:
            await serving

    async def _app(self, scope: Message, receive: Receive, send: Send) -> None:
        if self._api is not None and scope["path"].startswith("/api/"):
            await self._api(scope, receive, _closing(send))
            return
        status, kind, body = self._answer(scope["method"], scope["path"])
        fields = {"content-type": kind, "content-length": str(len(body)), "cache-control": "no-store"}
        fields |= {"connection": "close", "x-content-type-options": "nosniff"}
        fields |= {"allow": "GET, HEAD"} if status == _NOT_ALLOWED[0] else {}
        headers = [(name.encode(), value.encode()) for name, value in fields.items()]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _answer(self, method: str, path: str) -> Answer:
        routes: dict[str, Callable[[], Answer]] = {
            "/livez": lambda: (200, JSON, b'{"live": true}'),
            "/readyz": self._readyz,
            "/metrics": lambda: (200, CONTENT_TYPE, self._metrics.text()),
        }
        if path not in routes:
            paths = [*sorted(routes), *(["/api/v1/openapi.json"] if self._api is not None else [])]
            return 404, JSON, json.dumps({"error": "no such path", "paths": paths}).encode()
        return routes[path]() if method in {"GET", "HEAD"} else _NOT_ALLOWED

    def _readyz(self) -> Answer:
        of = self._readiness
        document = {"ready": of.ready, "reasons": of.reasons(), "notes": of.notes()}
        return 200 if of.ready else 503, JSON, json.dumps(document).encode()


_NOT_ALLOWED: Final[Answer] = (405, JSON, b'{"error": "only GET and HEAD"}')


def _closing(send: Send) -> Send:
    """Each connection serves one request; the answer says so."""

    async def closing(message: Message) -> None:
        if message["type"] == "http.response.start":
            message["headers"] = [*message.get("headers", ()), (b"connection", b"close"), *_PLAIN]
        await send(message)

    return closing


_PLAIN: Final = ((b"x-content-type-options", b"nosniff"),)


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: draining is the router's business."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield


class _OneRequest(H11Protocol):
    """A connection with an end: uvicorn alone would wait for ever for the rest of a request."""

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._deadline = self.loop.call_later(DEADLINE_S, transport.abort)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        super().connection_lost(exc)


def _listener(host: str, port: int) -> socket.socket:
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
        return socket.create_server((host, port), family=family, backlog=MAX_CONNECTIONS)
    except OSError as error:
        known = error.errno is not None and error.errno > 0  # asyncio and socket add the address, which we tell
        said = os.strerror(error.errno) if known and error.errno is not None else error.strerror or error
        why = f"{said}; set DLX_ROUTER_HTTP_HOST and DLX_ROUTER_HTTP_PORT to an address that is free"
        raise AdminError(f"cannot serve HTTP at {host}:{port}: {why}") from None
