"""A session begins only where somebody will end it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from aio_pika.abc import AbstractConnection

from dlx_router.broker.address import Host, Login
from dlx_router.broker.topology import Topology
from dlx_router.core.names import Names
from dlx_router.core.policy import ordered
from dlx_router.journal.mode import Mode
from dlx_router.journal.writer import Journal
from dlx_router.service.inflight.in_force import Rules
from dlx_router.service.vhost import runner as vhosts
from dlx_router.service.vhost.own_queues import OwnQueues
from dlx_router.service.vhost.policy_letters import PolicyLetters
from dlx_router.service.vhost.runner import VhostRunner
from dlx_router.service.vhost.session import Limits
from dlx_router.service.vhost.signing_key import SigningKey
from dlx_router.service.vhost.state_queue import StateQueueWatch
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from dlx_router.telemetry.survey import Survey
from tests.support.vhost import Vhost

NAMES = Names("dlx-router")
pytestmark = pytest.mark.usefixtures("newest")


def _attendant(vhost: Vhost, key_file: Path, keeper: type[SigningKey] = SigningKey) -> VhostRunner:
    parts = urlsplit(vhost.amqp_url)
    where = [Host(parts.hostname or "", parts.port or 5672)], Login("guest", "guest", vhost.name), None
    metrics, readiness = Metrics(), Readiness()
    return VhostRunner(
        vhost=vhost.name,
        addresses=lambda _vhost: where,
        names=NAMES,
        rules=Rules(ordered([]), NAMES, 30_000),
        limits=Limits(100, 1 << 20, 30.0, 10, 100),
        keys=keeper(key_file, readiness),
        policy_letters=PolicyLetters(None, vhost.name, NAMES, metrics),
        guard=OwnQueues(None, NAMES, readiness),
        management=None,
        survey=Survey(metrics),
        metrics=metrics,
        readiness=readiness,
        sources=(),
        declare=True,
        journal=Journal(mode=Mode.OFF, name="j", vhost=vhost.name, router_id="r", readiness=readiness),
    )


async def test_no_session_begins_after_the_router_was_stopped(
    vhost: Vhost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody would drain it: it would be cut off with letters in flight, and the exit would say that all is well."""
    connecting, stopped = asyncio.Event(), asyncio.Event()

    class Slow(Topology):
        async def connect(self) -> AbstractConnection:
            connecting.set()
            await stopped.wait()
            return await super().connect()

    monkeypatch.setattr(vhosts, "Topology", Slow)
    (tmp_path / "key").write_text("k" * 40, encoding="utf-8")
    attendant = _attendant(vhost, tmp_path / "key")
    running = asyncio.create_task(attendant.run())
    try:
        await connecting.wait()
        assert await attendant.stop(asyncio.get_running_loop().time() + 5.0) == 0
        stopped.set()
        done, _ = await asyncio.wait({running}, timeout=60)
        assert done, "a session began"
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def test_no_session_begins_once_the_state_queue_was_lost(
    vhost: Vhost, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its key is somebody else's by then, and so are the duties of a leader."""
    lost = asyncio.Queue[None]()

    class Losing(SigningKey):
        @asynccontextmanager
        async def key(
            self, topology: Topology, stopping: asyncio.Event, on_lost: Callable[[str], None], watch: StateQueueWatch
        ) -> AsyncIterator[bytes | None]:
            async with super().key(topology, stopping, on_lost, watch) as key:
                on_lost("as somebody closed its connection")
                lost.put_nowait(None)
                yield key

    began: list[Any] = []
    monkeypatch.setattr(vhosts, "Session", lambda **wiring: began.append(wiring))
    attendant = _attendant(vhost, tmp_path / "key", Losing)
    (tmp_path / "key").write_text("k" * 40, encoding="utf-8")
    running = asyncio.create_task(attendant.run())
    try:
        async with asyncio.timeout(60):
            await lost.get()
            await lost.get()
        assert began == []
    finally:
        await attendant.stop(asyncio.get_running_loop().time() + 5.0)
        await asyncio.gather(running, return_exceptions=True)
