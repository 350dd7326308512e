"""What probes and Prometheus get, and that nobody can hold the port."""

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import httpx
import pytest

from dlx_router.admin import connections
from dlx_router.admin.server import AdminError, AdminServer, Message, Receive, Send
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from tests.support.plain_http import NO_TLS
from tools import brokers


@pytest.fixture
def readiness() -> Readiness:
    state = Readiness()
    state.clear("start")
    return state


@pytest.fixture
async def server(readiness: Readiness) -> AsyncIterator[AdminServer]:
    admin = AdminServer("127.0.0.1", 0, Metrics(), readiness)
    await admin.start()
    yield admin
    await admin.stop()


@pytest.fixture
async def http(server: AdminServer) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{server.port}", trust_env=False, verify=NO_TLS) as client:
        yield client


async def ended(reader: asyncio.StreamReader) -> bool:
    """The other side hung up without a word."""
    try:
        return await reader.read() == b""
    except ConnectionError:
        return True


async def closed(writer: asyncio.StreamWriter) -> None:
    writer.close()
    with contextlib.suppress(ConnectionError):
        await writer.wait_closed()


async def test_alive_is_alive_even_when_not_ready(http: httpx.AsyncClient, readiness: Readiness) -> None:
    readiness.set("link", "no broker")
    assert (await http.get("/livez")).status_code == 200


async def test_ready_says_so(http: httpx.AsyncClient, readiness: Readiness) -> None:
    readiness.note("api", "own queues: policies not verified")
    answer = await http.get("/readyz")
    assert (answer.status_code, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json() == {"ready": True, "reasons": [], "notes": ["own queues: policies not verified"]}


async def test_not_ready_says_why(http: httpx.AsyncClient, readiness: Readiness) -> None:
    readiness.set("link", "vhost '/': no broker")
    readiness.set("own", "a policy is harmful")
    answer = await http.get("/readyz")
    assert answer.status_code == 503
    assert answer.json()["reasons"] == ["vhost '/': no broker", "a policy is harmful"]


async def test_metrics_are_in_prometheus_text_format(http: httpx.AsyncClient) -> None:
    answer = await http.get("/metrics")
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert "# TYPE dlx_router_decisions_total counter" in answer.text


@pytest.mark.parametrize("path", ["/livez", "/readyz", "/metrics"])
async def test_head_is_get_without_the_body(http: httpx.AsyncClient, path: str) -> None:
    answer = await http.head(path)
    assert (answer.status_code, answer.content) == (200, b"")
    assert int(answer.headers["content-length"]) > 0


async def test_other_methods_and_paths_are_refused(http: httpx.AsyncClient) -> None:
    assert (await http.get("/")).status_code == 404
    assert (await http.post("/nowhere", content=b"x" * 100_000)).status_code == 404
    refused = await http.post("/readyz", json={})
    assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")


async def test_a_request_that_never_ends_is_cut(server: AdminServer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connections, "DEADLINE_S", 0.2)
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /livez HTTP/1.1\r\nHost: x\r\nX-Slow: ")
    await writer.drain()
    async with asyncio.timeout(60):
        assert await ended(reader)
    await closed(writer)


@pytest.mark.parametrize("patient", [True, False])
async def test_only_a_request_whose_work_is_to_wait_may_take_longer(
    readiness: Readiness, monkeypatch: pytest.MonkeyPatch, *, patient: bool
) -> None:
    monkeypatch.setattr(connections, "DEADLINE_S", 0.2)

    async def waits(scope: Message, receive: Receive, send: Send) -> None:
        loop = asyncio.get_running_loop()
        if patient:
            scope[connections.PATIENT] = loop.time() + 5
        async with asyncio.timeout(60):
            assert (await receive())["type"] == "http.request"
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(0.8):
                    await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})

    admin = AdminServer("127.0.0.1", 0, Metrics(), readiness, waits)
    await admin.start()
    try:
        async with httpx.AsyncClient(
            base_url=f"http://127.0.0.1:{admin.port}", trust_env=False, verify=NO_TLS
        ) as client:
            if patient:
                assert (await client.get("/api/v1/x")).content == b"{}"
            else:
                with pytest.raises(httpx.TransportError):
                    await client.get("/api/v1/x")
    finally:
        await admin.stop()


async def test_a_head_without_end_is_refused(server: AdminServer) -> None:
    reader, writer = await asyncio.open_connection("127.0.0.1", server.port)
    writer.write(b"GET /livez HTTP/1.1\r\nX: " + b"y" * 50_000)
    async with asyncio.timeout(60):
        assert (await reader.readline()).startswith(b"HTTP/1.1 400")
    await closed(writer)


@pytest.mark.parametrize("method", ["GET", "HEAD"])
@pytest.mark.parametrize("path", ["/metrics", "/api/v1/status"])
async def test_a_body_that_is_no_http_is_no_fault_of_ours(
    readiness: Readiness, path: str, method: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The answer is on its way, or about to be, when the rest of the request turns out to be none."""
    begun = asyncio.Event()

    async def api(_scope: object, _receive: object, send: Callable[[dict[str, object]], Awaitable[None]]) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"2")]})
        begun.set()
        await asyncio.sleep(0.1)  # the app is at work
        await send({"type": "http.response.body", "body": b"{}"})

    admin = AdminServer("127.0.0.1", 0, Metrics(), readiness, api)
    await admin.start()
    for _ in range(20):
        reader, writer = await asyncio.open_connection("127.0.0.1", admin.port)
        writer.write(f"{method} {path} HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n".encode())
        if path != "/metrics":
            await begun.wait()
        writer.write(b"zz\r\n")
        assert (await reader.readline()).split()[1:2] in ([], [b"200"], [b"400"])
        await closed(writer)
    await admin.stop()
    assert [record for record in caplog.records if record.exc_info] == []


async def test_many_ask_at_once(http: httpx.AsyncClient) -> None:
    answers = await asyncio.gather(*(http.get("/readyz") for _ in range(50)))
    assert {answer.status_code for answer in answers} == {200}


async def test_a_port_that_is_taken_is_an_error_that_says_what_to_do(server: AdminServer) -> None:
    second = AdminServer("127.0.0.1", server.port, Metrics(), Readiness())
    with pytest.raises(AdminError, match=rf"127\.0\.0\.1:{server.port}.*in use.*DLX_ROUTER_HTTP_PORT"):
        await second.start()
    await second.stop()


async def test_nobody_answers_after_stop_and_stop_can_be_repeated() -> None:
    admin = AdminServer("127.0.0.1", brokers.free_port(), Metrics(), Readiness())
    await admin.start()
    await admin.stop()
    await admin.stop()
    with pytest.raises(OSError):
        await asyncio.open_connection("127.0.0.1", admin.port)
