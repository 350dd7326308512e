"""Connections of the console's own process: each ends with its answer, and none before."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Final

import httpx
import pytest

from dlx_router.admin.connections import DEADLINE_S
from dlx_router.console.router_api import ApiError, RouterApi
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tools.brokers import free_port

SLOW_S: Final = DEADLINE_S + 1


class SlowRouter(BaseHTTPRequestHandler):
    """Refuses whatever it is asked, later than a connection that waits for its client may last."""

    def do_GET(self) -> None:
        time.sleep(SLOW_S)  # it is what this router does
        body = b'{"error": "slowly refused"}'
        self.send_response(401)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_POST = do_GET  # noqa: N815 - the name that BaseHTTPRequestHandler looks for

    def log_message(self, *_: object) -> None:
        """Nothing."""


@pytest.fixture
def url() -> Iterator[str]:
    """A console over a slow router."""
    router = ThreadingHTTPServer(("127.0.0.1", 0), SlowRouter)
    threading.Thread(target=router.serve_forever, daemon=True).start()
    port = free_port()
    argv = [sys.executable, "-m", "dlx_router", "console", "--router", f"one=http://127.0.0.1:{router.server_port}"]
    console = subprocess.Popen([*argv, "--port", str(port)], cwd=Path(__file__).parents[2])
    try:
        yield f"http://127.0.0.1:{port}"
    finally:
        console.terminate()
        console.wait(10)
        router.shutdown()
        router.server_close()


@pytest.mark.slow
def test_a_change_that_takes_longer_than_a_connection_may_wait_is_answered_once(url: str) -> None:
    """A browser sends a change again where the connection that it used before is cut without an answer."""
    with httpx.Client(base_url=url, timeout=60, trust_env=False, verify=NO_TLS) as web:
        page = eventually(lambda: _page(web), 20, every=0.2)
        assert page is not None
        assert page.headers["connection"] == "close"
        began = time.monotonic()
        answer = web.post("/login", data={"token": "t" * 40})
    assert answer.status_code == httpx.codes.UNAUTHORIZED
    assert time.monotonic() - began >= SLOW_S


def _page(web: httpx.Client) -> httpx.Response | None:
    try:
        return web.get("/login")
    except httpx.TransportError:
        return None


class Silent(httpx.AsyncBaseTransport):
    """A network on which each request ends like this."""

    def __init__(self, error: httpx.TransportError) -> None:
        self.error = error

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        raise self.error


@pytest.mark.parametrize(
    ("method", "error", "advice"),
    [
        ("POST", httpx.ReadTimeout("late"), "it may have been done, so look before you do it again"),
        ("POST", httpx.RemoteProtocolError("cut"), "it may have been done, so look before you do it again"),
        ("POST", httpx.ConnectError("refused"), "is the router running?"),
        ("GET", httpx.ReadTimeout("late"), "is the router running?"),
    ],
)
async def test_a_change_that_was_sent_and_not_answered_may_have_been_done(
    method: str, error: httpx.TransportError, advice: str
) -> None:
    router = RouterApi("one", "http://router:9719", Silent(error))
    with pytest.raises(ApiError) as refused:
        await router.ask(method, "/tasks", "", body={} if method == "POST" else None)
    assert refused.value.error.endswith(advice)
