"""`receive` of the client against a router that answers as it is told: what is cancelled, refused, broken or late."""

import asyncio
import json
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Final

import pytest

from dlx_router.client import worker
from dlx_router.client.worker import Letter, Router, WorkerError, receive
from tests.journal.conftest import soon
from tests.support.eventually import consistently

SECRET: Final = "hunter2hunter2"
IDLE: Final = 40  # more than asyncio's own threads, on most machines


class _Server(ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 2 * IDLE


class Stub:
    """A router's API. It remembers what it was asked; who waits for letters waits until `may_answer`."""

    def __init__(self) -> None:
        self.asked: list[dict[str, Any]] = []
        self.instead: deque[bytes] = deque()  # bytes that are sent instead of the next answers
        self.handles: list[str] = []  # of the letters that it gives
        self.status = 200  # of what it answers about leases
        self.may_answer = threading.Event()
        self._server = _Server(("127.0.0.1", 0), self._handler())
        threading.Thread(target=self._server.serve_forever, args=(0.02,), daemon=True).start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def actions(self, action: str) -> list[str]:
        """Handles of leases about which this was said, in order."""
        return [asked["path"].rpartition("/")[2] for asked in self.asked if asked.get("action") == action]

    def close(self) -> None:
        self.may_answer.set()
        self._server.shutdown()
        self._server.server_close()

    def answer(self, path: str) -> tuple[int, dict[str, Any]]:
        if not path.endswith("/receive"):
            return self.status, {"error": "no", "ended": None, "until_ms": 0}
        self.may_answer.wait(30)
        return 200, {"letters": [{"handle": handle, "until_ms": 0} for handle in self.handles]}

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        stub = self

        class Handler(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = json.loads(self.rfile.read(int(self.headers["content-length"])))
                stub.asked.append({**body, "path": self.path, "authorization": self.headers["authorization"]})
                if stub.instead:
                    self.wfile.write(stub.instead.popleft())
                    return
                status, document = stub.answer(self.path)
                self.send_response(status)
                self.end_headers()
                self.wfile.write(json.dumps(document).encode())

            def log_message(self, *_: object) -> None:
                pass

        return Handler


@pytest.fixture
def stub() -> Iterator[Stub]:
    one = Stub()
    yield one
    one.close()


def letter(stub: Stub, handle: str = "h", visibility: float = 60.0) -> Letter:
    return Letter(Router(stub.url, patience=0.0), {"handle": handle}, visibility)


async def first(letters: AsyncIterator[Letter]) -> Letter:
    return await anext(letters)


def threads() -> list[threading.Thread]:
    """Those of calls that are not over."""
    return [thread for thread in threading.enumerate() if thread.name == worker.THREAD]


# -- broken answers ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "broken",
    [b"HTTP/1.1 200 OK\r\ncontent-length: 100\r\n\r\n{", b"nonsense\r\n\r\n", b"", b"HTTP/1.1 200 OK\r\n\r\nnonsense"],
    ids=["breaks off", "no HTTP", "nothing", "no JSON"],
)
async def test_an_answer_that_is_broken_is_asked_for_again(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, broken: bytes
) -> None:
    monkeypatch.setattr(worker, "AGAIN_S", 0.01)
    stub.instead += [broken, broken]
    assert "until_ms" in await Router(stub.url).post("/leases/h", {"action": "extend"})
    assert stub.actions("extend") == ["h"] * 3


async def test_a_refusal_whose_text_breaks_off_is_a_refusal(stub: Stub) -> None:
    stub.instead.append(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 100\r\n\r\n{")
    with pytest.raises(WorkerError, match="403 Forbidden") as refused:
        await letter(stub).release()
    assert refused.value.status == 403


# -- the token ---------------------------------------------------------------------------------------------------------


async def test_a_token_that_was_read_with_its_line_break_is_a_token(stub: Stub) -> None:
    await Router(stub.url, f" {SECRET}\r\n").post("/leases/h", {})
    assert stub.asked[0]["authorization"] == f"Bearer {SECRET}"
    await Router(stub.url, "\n").post("/leases/h", {})
    assert stub.asked[1]["authorization"] is None


@pytest.mark.parametrize("token", [f"{SECRET}\nmore", f"{SECRET}é", f"a\x00{SECRET}"])
def test_what_no_header_can_carry_is_refused_and_not_shown(token: str) -> None:
    with pytest.raises(ValueError, match="token: ") as refused:
        Router("http://127.0.0.1:9", token)
    assert SECRET not in str(refused.value)


# -- threads, and cancelled waits --------------------------------------------------------------------------------------


async def test_forty_that_wait_for_letters_keep_no_lease_from_being_extended(stub: Stub) -> None:
    idle = [asyncio.create_task(first(receive("DLQ", url=stub.url))) for _ in range(IDLE)]
    await asyncio.sleep(0)  # all of them have begun
    async with asyncio.timeout(15):  # less than the others wait
        await letter(stub).extend(5)
    assert stub.actions("extend") == ["h"]
    for task in idle:
        task.cancel()
    await asyncio.gather(*idle, return_exceptions=True)


async def test_letters_that_come_after_the_wait_was_cancelled_are_given_back(stub: Stub) -> None:
    stub.handles = ["h1", "h2"]
    waiting = asyncio.create_task(first(receive("DLQ", url=stub.url, batch=2)))
    await soon(lambda: stub.asked)
    waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    assert stub.actions("release") == []
    stub.may_answer.set()
    await soon(lambda: stub.actions("release") == ["h1", "h2"])


@pytest.mark.parametrize("later", [False, True], ids=["before the loop knows", "before the task goes on"])
async def test_an_answer_that_was_there_when_its_wait_was_cancelled_is_given_back(*, later: bool) -> None:
    given: list[dict[str, Any]] = []
    answer: dict[str, Any] = {"letters": []}
    waiting = asyncio.create_task(worker._on_its_own_thread(lambda: answer, given.append))
    await asyncio.sleep(0)
    for thread in threads():
        thread.join(10)  # it has told the loop, which is in here
    if later:
        asyncio.get_running_loop().call_soon(waiting.cancel)
    else:
        waiting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await waiting
    await soon(lambda: given == [answer])


async def test_a_call_that_fails_after_it_was_cancelled_is_told_to_nobody() -> None:
    given: list[dict[str, Any]] = []
    may_fail = threading.Event()

    def fails() -> dict[str, Any]:
        may_fail.wait(10)
        raise WorkerError("too late")

    waiting = asyncio.create_task(worker._on_its_own_thread(fails, given.append))
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    may_fail.set()
    await soon(lambda: not threads())
    assert given == []


async def test_what_cannot_be_given_back_late_is_not_asked_for_one_by_one(stub: Stub) -> None:
    stub.handles, stub.status = ["h1", "h2", "h3"], 503
    waiting = asyncio.create_task(first(receive("DLQ", url=stub.url, batch=3)))
    await soon(lambda: stub.asked)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    stub.may_answer.set()
    await soon(lambda: stub.actions("release"))
    await asyncio.to_thread(consistently, lambda: stub.actions("release") == ["h1"])


# -- refusals ----------------------------------------------------------------------------------------------------------


@asynccontextmanager
async def extended(stub: Stub, monkeypatch: pytest.MonkeyPatch, status: int) -> AsyncIterator[Letter]:
    """A letter that is worked on, whose lease the router answers so."""
    monkeypatch.setattr(worker, "AGAIN_S", 0.01)
    async with letter(stub, visibility=0.1) as held:
        stub.status = status
        yield held


@pytest.mark.parametrize("status", [410, 409, 403])
async def test_an_extension_that_is_refused_for_good_is_asked_for_once(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    async with extended(stub, monkeypatch, status) as held:
        await soon(lambda: stub.actions("extend"))
        await asyncio.to_thread(consistently, lambda: stub.actions("extend") == ["h"])
        held.is_over = True  # nothing is said of it


@pytest.mark.parametrize("status", [503, 429, 500])
async def test_an_extension_that_may_come_later_is_asked_for_again(
    stub: Stub, monkeypatch: pytest.MonkeyPatch, status: int
) -> None:
    async with extended(stub, monkeypatch, status):
        await soon(lambda: len(stub.actions("extend")) > 2)
        stub.status = 200


async def test_the_rest_of_a_batch_is_not_offered_to_a_router_that_is_not_there(stub: Stub) -> None:
    rest = [letter(stub, f"h{number}") for number in range(3)]
    rest[0].is_over = True
    stub.status = 410
    await worker._release(rest)
    assert stub.actions("release") == ["h1", "h2"], "one that had ended keeps no other from it"
    stub.status = 503
    await worker._release([letter(stub, f"g{number}") for number in range(3)])
    assert stub.actions("release") == ["h1", "h2", "g0"]
