"""The admin endpoint.

| path     | answer                                                                            |
|----------|-----------------------------------------------------------------------------------|
| /livez   | 200 while the event loop turns                                                    |
| /readyz  | 200 {"ready": true, "notes": […]}, or 503 with the reasons against it             |
| /metrics | Prometheus' text format                                                           |

None needs a token, none shows message data or secrets. An ASGI application on uvicorn, because a later API lives there.
"""

import json
from collections.abc import Awaitable, Callable, MutableMapping
from contextlib import contextmanager
from typing import Any, Final

import uvicorn

from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness

JSON: Final = b"application/json"
TEXT: Final = b"text/plain; version=0.0.4; charset=utf-8"
Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Answer = tuple[int, bytes, bytes]


class _Server(uvicorn.Server):
    """uvicorn without its own signal handlers: draining is the router's business."""

    @contextmanager
    def capture_signals(self) -> Any:
        yield


class AdminServer:
    """Serves until `stop`. Raises OSError from `start` where the port is taken."""

    def __init__(self, host: str, port: int, metrics: Metrics, readiness: Readiness) -> None:
        self._metrics = metrics
        self._readiness = readiness
        self._server = _Server(
            uvicorn.Config(
                self._app, host=host, port=port, log_config=None, access_log=False, lifespan="off", interface="asgi3",
                timeout_keep_alive=30, limit_concurrency=100, server_header=False,
            )
        )

    async def serve(self) -> None:
        """Serve until told to stop. Raises SystemExit where the port cannot be had."""
        await self._server.serve()

    def stop(self) -> None:
        """End `serve` soon."""
        self._server.should_exit = True

    async def _app(self, scope: Scope, _receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, kind, body = self._answer(scope["method"], scope["path"])
        headers = [(b"content-type", kind), (b"content-length", str(len(body)).encode()), (b"cache-control", b"no-store")]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else body})

    def _answer(self, method: str, path: str) -> Answer:
        routes: dict[str, Callable[[], Answer]] = {
            "/livez": lambda: (200, JSON, b'{"live": true}'), "/readyz": self._readyz, "/metrics": self._metricsz,
        }
        if path not in routes:
            return 404, JSON, json.dumps({"error": "no such path", "paths": sorted(routes)}).encode()
        if method not in {"GET", "HEAD"}:
            return 405, JSON, b'{"error": "only GET and HEAD"}'
        return routes[path]()

    def _readyz(self) -> Answer:
        ready = self._readiness.ready
        document = {"ready": ready, "reasons": self._readiness.reasons(), "notes": self._readiness.notes()}
        return 200 if ready else 503, JSON, json.dumps(document).encode()

    def _metricsz(self) -> Answer:
        return 200, TEXT, self._metrics.text()
