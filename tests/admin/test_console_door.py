"""The door to the console: what is said where its process does not answer, and to whom it is never handed on."""

import asyncio
import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest
from structlog.testing import capture_logs

from dlx_router.admin import console_door
from dlx_router.admin.console_door import ConsoleDoor
from dlx_router.config.api_access.passes import Passes
from dlx_router.config.environment.settings import Settings

ANSWER = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Door(ConsoleDoor):
    """With a process that a test has made."""

    def __init__(self, listening: int | OSError) -> None:
        super().__init__(Settings.load({}), Passes())
        self.listening, self.reached = listening, 0

    async def _reach(self) -> int:
        self.reached += 1
        if isinstance(self.listening, OSError):
            raise self.listening
        return self.listening

    async def asked(self, method: str = "GET", *, host: bool = True) -> tuple[int, dict[bytes, bytes], bytes]:
        """Status, headers and body of its answer."""
        sent: list[Any] = []
        headers = [(b"host", b"127.0.0.1:9718")] if host else []
        scope = {"type": "http", "method": method, "path": "/", "raw_path": b"/", "query_string": b""}

        async def receive() -> Any:
            return {"type": "http.request", "body": b"", "more_body": False}

        async def send(message: Any) -> None:
            sent.append(message)

        await self({**scope, "headers": headers, "client": ("127.0.0.1", 1)}, receive, send)
        return sent[0]["status"], dict(sent[0]["headers"]), b"".join(message["body"] for message in sent[1:])


class Process:
    """Takes each request; answers it while `works`, and else never."""

    def __init__(self) -> None:
        self.works, self.requests = False, 0

    async def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        self.requests += 1
        if self.works:
            writer.write(ANSWER)
            await writer.drain()
        else:
            await reader.read()  # until the door hangs up
        writer.close()


@asynccontextmanager
async def behind_a_door() -> AsyncIterator[tuple[Door, Process]]:
    process = Process()
    server = await asyncio.start_server(process, "127.0.0.1", 0)
    async with server:
        yield Door(server.sockets[0].getsockname()[1]), process


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(console_door, "TIMEOUT_S", 0.2)


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_a_change_that_may_have_been_done_is_not_asked_for_again(method: str) -> None:
    """It was answered as a page that nobody had made: with "ask again", and a Retry-After that clients obey."""
    async with behind_a_door() as (door, process):
        status, headers, body = await door.asked(method)
    assert (status, process.requests, b"retry-after" in headers) == (503, 1, False)
    assert "it may have been done, so look before you do it again" in json.loads(body)["error"]
    assert "ask again" not in json.loads(body)["error"]


async def test_a_page_that_was_not_made_is_asked_for_again() -> None:
    async with behind_a_door() as (door, _):
        status, headers, body = await door.asked("GET")
    assert (status, headers[b"retry-after"]) == (503, b"2")
    assert json.loads(body)["error"].endswith("ask again")


async def test_a_change_that_reached_no_process_is_asked_for_again() -> None:
    status, headers, body = await Door(OSError("no more processes")).asked("POST")
    assert (status, headers[b"retry-after"]) == (503, b"2")
    assert json.loads(body)["error"].endswith("ask again")


async def test_a_request_without_a_host_is_refused_and_starts_no_process() -> None:
    """HTTP/1.0 may leave it out. It was handed on, so that it started the process, and was a warning each time."""
    async with behind_a_door() as (door, process):
        with capture_logs() as logs:
            status, headers, body = await door.asked(host=False)
    assert (status, b"retry-after" in headers, door.reached, process.requests) == (400, False, 0, 0)
    assert "Host" in json.loads(body)["error"]
    assert logs == []


async def test_a_process_that_does_not_answer_is_told_once_and_so_is_that_it_does_again() -> None:
    async with behind_a_door() as (door, process):
        with capture_logs() as logs:
            for _ in range(3):
                assert (await door.asked())[0] == 503
            process.works = True
            for _ in range(2):
                assert (await door.asked("POST"))[::2] == (200, b"ok")
    assert [entry["event"] for entry in logs] == ["console.failed", "console.answers"]
