"""MANAGEMENT_URL may name several hosts: they are tried in turn, and one that is frozen is not asked each time."""

import asyncio
import contextlib
import json
import socket
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from dlx_router.broker.management import SHORT_S, Management, ManagementError


class Api(ThreadingHTTPServer):
    """Says that there is one vhost; counts how often it was asked."""

    daemon_threads = True

    def __init__(self, status: int = 200) -> None:
        asked = self.asked = []  # type: list[str]

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                asked.append(self.path)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps([{"name": "shop"}] if status == 200 else {}).encode())

            def log_message(self, *_: Any) -> None:
                pass

        super().__init__(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.serve_forever, args=(0.02,), daemon=True).start()


@pytest.fixture
def api() -> Iterator[Api]:
    server = Api()
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture
def frozen() -> Iterator[int]:
    """A port where everything is taken and nothing answered."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def url(*ports: int) -> str:
    return f"http://u:hunter2@{','.join(f'127.0.0.1:{port}' for port in ports)}"


async def test_who_waits_for_a_frozen_host_no_longer_has_the_next_one_asked(api: Api, frozen: int) -> None:
    """Questions with a bound of their own never came to the host that answers."""
    management = Management(url(frozen, api.server_port))
    for _ in range(2):
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(0.3):
                await management.vhosts()
    assert api.asked
    await management.close()


async def test_a_frozen_host_costs_its_short_timeout_once(api: Api, frozen: int) -> None:
    management = Management(url(frozen, api.server_port))
    began = time.monotonic()
    assert await management.vhosts() == ["shop"]
    assert SHORT_S - 0.1 <= time.monotonic() - began < 10 * SHORT_S
    began = time.monotonic()
    for _ in range(5):
        assert await management.vhosts() == ["shop"]
    assert time.monotonic() - began < 5 * SHORT_S, "the frozen host is not asked again"
    assert len(api.asked) == 6
    await management.close()


async def test_a_host_that_refuses_or_fails_is_passed_over(api: Api) -> None:
    failing = Api(503)
    with socket.create_server(("127.0.0.1", 0)) as gone:
        port = gone.getsockname()[1]
    management = Management(url(port, failing.server_port, api.server_port))
    assert await management.vhosts() == ["shop"]
    assert (len(failing.asked), len(api.asked)) == (1, 1)
    assert await management.vhosts() == ["shop"]
    assert (len(failing.asked), len(api.asked)) == (1, 2)
    await management.close()
    failing.shutdown()
    failing.server_close()


async def test_where_none_answers_each_is_named_and_no_password() -> None:
    ports = []
    for _ in range(2):
        with socket.create_server(("127.0.0.1", 0)) as gone:
            ports.append(gone.getsockname()[1])
    management = Management(url(*ports))
    with pytest.raises(ManagementError) as caught:
        await management.vhosts()
    assert all(str(port) in str(caught.value) for port in ports)
    assert "hunter2" not in str(caught.value)


async def test_a_refusal_is_an_answer(api: Api) -> None:
    """401 comes of the user and not of the node: the others are not asked with a password that is wrong."""
    refusing = Api(401)
    management = Management(url(refusing.server_port, api.server_port))
    with pytest.raises(ManagementError, match="401"):
        await management.vhosts()
    assert not api.asked
    await management.close()
    refusing.shutdown()
    refusing.server_close()
