"""The router's side of the index: its process is real, and what it is to read lies behind a port that nobody serves."""

import asyncio
import os
import signal
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.index import supervisor as subject
from dlx_router.index.supervisor import Supervisor
from dlx_router.telemetry.readiness import Readiness
from tests.journal.conftest import soon, stays

GONE = "AMQP_URL_FILE /run/secrets/url: No such file or directory"


class Scene:
    """A supervisor of `file`, and where it reads addresses. `trouble`: why they cannot be read just now."""

    def __init__(self, file: Path) -> None:
        self.readiness, self.trouble = Readiness(), ""
        self.index = Supervisor(file, "journal", self.where, self.readiness)

    def where(self, vhost: str) -> tuple[Sequence[Host], Login, Tls | None]:
        if self.trouble:
            raise ValueError(self.trouble)
        return [Host("127.0.0.1", 1)], Login("guest", "guest", vhost), None

    def state(self, vhost: str = "/") -> Any:
        return ((self.index.status.get("vhosts") or {}).get(vhost) or {}).get("state")

    def notes(self) -> str:
        return "\n".join(self.readiness.notes())

    @asynccontextmanager
    async def running(self) -> AsyncIterator[Supervisor]:
        task = asyncio.create_task(self.index.run())
        try:
            yield self.index
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)


@pytest.fixture
def scene(file: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    monkeypatch.setattr(subject, "AGAIN_S", 0.1)
    return Scene(file)


async def test_a_vhost_whose_address_could_not_be_read_is_read_once_it_can_be(scene: Scene) -> None:
    """It was never, where that was so as the process started; and the next status took the note of it back."""
    scene.trouble = GONE
    scene.index.follow("/")
    async with scene.running() as index:
        await soon(lambda: index.status["trouble"] is None, within=20)
        await stays(lambda: GONE in scene.notes(), for_s=1.2)
        index.follow("other")
        scene.trouble = ""
        await soon(lambda: scene.state() and scene.state("other"), within=10)
        await soon(lambda: GONE not in scene.notes())


async def test_a_vhost_that_is_left_is_no_trouble_any_more(scene: Scene) -> None:
    scene.trouble = GONE
    scene.index.follow("/")
    async with scene.running() as index:
        await soon(lambda: index.status["trouble"] is None, within=20)
        index.leave("/")
        await soon(lambda: GONE not in scene.notes())


CURRENT: Any = {"state": "current", "behind_ms": 0, "has_caught_up": True}


def suspended(index: Supervisor) -> int:
    """Its process says nothing from now on; → which one that is."""
    assert index._process is not None
    os.kill(index._process.pid, signal.SIGSTOP)
    return index._process.pid


async def test_a_process_that_says_nothing_any_more_falls_behind(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last thing that it had said was true for ever: current, and behind by nothing."""
    monkeypatch.setattr(subject, "LATE_S", 1.5)
    monkeypatch.setattr(subject, "SILENT_S", 1.0)
    async with scene.running() as index:
        await soon(lambda: index.status["trouble"] is None, within=20)
        pid = suspended(index)
        try:
            index.follow("/")
            index.status = {**index.status, "vhosts": {"/": CURRENT}}
            assert (scene.state(), index.as_of_ms("/", 10**6)) == ("current", 10**6)
            await soon(lambda: scene.state() == "reading")
            assert index.as_of_ms("/", 10**6) < 10**6 - 1500
            assert index.has_caught_up("/"), "what it has read it has"
            await soon(lambda: "has not said how it is" in scene.notes())
        finally:
            os.kill(pid, signal.SIGCONT)
        await soon(lambda: scene.state() == "lost", within=10)
        assert scene.notes() == ""


async def test_what_a_process_said_ends_with_it(scene: Scene) -> None:
    """The next one is started up to half a minute later, and it may never begin."""
    async with scene.running() as index:
        await soon(lambda: index.status["trouble"] is None, within=20)
        pid = suspended(index)
        index.follow("/")
        index.status = {**index.status, "vhosts": {"/": CURRENT}}
        os.kill(pid, signal.SIGKILL)
        await soon(lambda: "ended with" in str(index.status["trouble"]))
        assert (scene.state(), index.as_of_ms("/", 10**6), index.has_caught_up("/")) == (None, 0, False)
        assert "ended with" in scene.notes()
