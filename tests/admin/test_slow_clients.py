"""Probes are answered whatever other clients do: decisions/0057."""

import asyncio
import itertools
import statistics
import time
from collections.abc import AsyncIterator, Callable, Iterator, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final

import httpx
import psutil
import pytest

from dlx_router.admin import connections
from dlx_router.admin.server import AdminServer
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from tests.support.bulk import dying_queue
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.plain_http import NO_TLS
from tests.support.policies import POLICY
from tests.support.router import Router
from tests.support.slow import SORTS, flood, in_time, probed, room_for_files, slow_clients

PROBES = 20
PATHS = ("/livez", "/readyz", "/metrics")
STATUS: Final = "/api/v1/status"
AT_ONCE: Final = 32  # requests that the API answers at once
Message = MutableMapping[str, Any]


async def reads_all(scope: Message, receive: Callable[..., Any], send: Callable[..., Any]) -> None:
    """An API that waits for the end of the request's body, as ours does."""
    while (message := await receive()).get("more_body"):
        pass
    if message["type"] == "http.request":
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b"{}"})


@asynccontextmanager
async def serving(series: int = 0) -> AsyncIterator[int]:
    """The port of a ready server with so many series more than it begins with, some 130 bytes each."""
    room_for_files()
    metrics, readiness = Metrics(), Readiness()
    readiness.clear("start")
    for number in range(series):
        metrics.policy_letters["/", f"{number:05d}-{'q' * 80}"] = 1
    server = AdminServer("127.0.0.1", 0, metrics, readiness, reads_all)
    await server.start()
    try:
        yield server.port
    finally:
        await server.stop()


@pytest.fixture
async def port() -> AsyncIterator[int]:
    async with serving() as open_port:
        yield open_port


@pytest.mark.slow
@pytest.mark.parametrize("count", [130, 1000])
@pytest.mark.parametrize("sort", SORTS)
async def test_probes_are_answered_beside_slow_clients(sort: str, count: int) -> None:
    series = 4000 if "reads" in sort else 0
    async with serving(series) as port, slow_clients(port, count, SORTS[sort]) as one_byte_more:
        for _ in range(PROBES):
            if sort != "nothing sent":
                one_byte_more()
            answers = {path: await probed(port, path) for path in PATHS}
            assert {status for status, _ in answers.values()} == {200}, answers
            assert in_time({path: took for path, (_, took) in answers.items()}), answers


async def test_probes_are_answered_while_others_come_and_stay(port: int) -> None:
    async def come() -> None:
        while True:
            async with slow_clients(port, 100, SORTS["half a head"]):
                await asyncio.sleep(0.1)

    coming = [asyncio.create_task(come()) for _ in range(3)]
    try:
        for _ in range(PROBES):
            for path in PATHS:
                status, took = await probed(port, path)
                assert (status, in_time({path: took})) == (200, True), (path, took)
    finally:
        for task in coming:
            task.cancel()
        await asyncio.gather(*coming, return_exceptions=True)


class Path:
    """A letter's way from its death into its dead-letter queue, timed."""

    def __init__(self, amqp: Client) -> None:
        self._amqp, self._work = amqp, dying_queue(amqp, "work")
        amqp.queue("DLQ.work")
        self._arrived = amqp.connection.channel().consume("DLQ.work", auto_ack=True, inactivity_timeout=60)

    def delay_s(self) -> float:
        began = time.monotonic()
        self._amqp.publish("letter", key=self._work)
        method, _, _ = next(self._arrived)
        assert method is not None, "no letter within 60 s"
        return time.monotonic() - began


def late_thrice(took_s: list[float], path: str) -> bool:
    """Whether a kubelet would end the router: it does so after three in a row (failureThreshold)."""
    late = [not in_time({path: took}) for took in took_s]
    return any(all(late[at : at + 3]) for at in range(len(late) - 2))


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("sort", ["half a head", "an answer that nobody reads"])
def test_letters_pass_and_probes_are_answered_in_a_flood_of_connections(
    amqp: Client, start_router: Callable[..., Router], sort: str
) -> None:
    router = start_router(POLICY)
    process, way = psutil.Process(router.pid), Path(amqp)
    before = statistics.median(way.delay_s() for _ in range(50))
    files, memory = process.num_fds(), process.memory_info().rss
    delays, answers = [], []
    with flood(router.port, 1000, SORTS[sort]) as opened:
        eventually(lambda: opened() > 600)
        number, until = 0, time.monotonic() + 60
        while (number < 150 or opened() < 2000) and time.monotonic() < until:
            number += 1
            delays.append(way.delay_s())
            answers += [(path, *asyncio.run(probed(router.port, path))) for path in PATHS] if number % 5 == 0 else []
        crowd, total = process.num_fds(), opened()
    assert total >= 2000
    assert {status for _, status, _ in answers} == {200}
    assert not any(late_thrice([took for path, _, took in answers if path == asked], asked) for asked in PATHS), answers
    assert statistics.median(delays) - before < 1
    assert crowd - files <= connections.MOST + 100
    assert process.memory_info().rss - memory < 100 << 20


@pytest.mark.usefixtures("newest")
def test_slow_requests_hold_neither_the_api_nor_the_probes(start_router: Callable[..., Router]) -> None:
    """Bodies that were never whole held all of the API's places: 32 of any account kept all others out for 10 s."""
    router = start_router(POLICY)

    async def scene() -> None:
        # more than the API has places, and with the probes fewer than one caller may ask at once
        async with slow_clients(router.port, 2 * AT_ONCE, SORTS["half a body"]):
            answers = [(path, *await probed(router.port, path)) for path in (*PATHS, STATUS) for _ in range(PROBES)]
            assert {status for _, status, _ in answers} == {200}
            assert all(in_time({path: took}) for path, _, took in answers), max(answers, key=lambda answer: answer[2])

    assert router.ask(STATUS)[0] == 200, "its framework is loaded"
    asyncio.run(scene())


@pytest.mark.usefixtures("newest")
def test_a_body_that_is_too_large_is_refused_whether_or_not_its_length_is_said(
    start_router: Callable[..., Router],
) -> None:
    router = start_router(POLICY)

    def pieces() -> Iterator[bytes]:
        yield from itertools.repeat(b" " * (64 << 10), 17)

    with httpx.Client(base_url=f"http://127.0.0.1:{router.port}", timeout=60, trust_env=False, verify=NO_TLS) as client:
        answers = [client.post("/api/v1/tasks", content=content) for content in (b" " * (2 << 20), pieces())]
    assert [(answer.status_code, "1048576 bytes" in answer.text) for answer in answers] == [(413, True)] * 2


@pytest.mark.parametrize(("files", "most"), [(256, 64), (1024, 256), (4096, 512), (1 << 20, 512), (16, 16), (-1, 512)])
def test_the_brokers_connections_keep_files_whatever_comes_by_http(files: int, most: int) -> None:
    assert connections.most_connections(files) == most
