"""VHOSTS=*: which vhosts are served while some come and go, and what is said where nobody names them."""

import asyncio
import signal
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from functools import partial
from pathlib import Path
from typing import Any, cast
from urllib.parse import quote, urlsplit

import pytest

from dlx_router.broker.management import ManagementError
from dlx_router.config.environment.settings import Settings
from dlx_router.config.policy_files.loader import load_policies
from dlx_router.core.names import Names
from dlx_router.service.app import App
from dlx_router.service.vhost import all_vhosts
from dlx_router.service.vhost.all_vhosts import AllVhosts
from dlx_router.telemetry.readiness import Readiness
from tests.broker.scene import user
from tests.support.bulk import INBOX, PARKING
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.vhost import Vhost

TOTAL = 8 << 20


class Attendant:
    """Of a vhost that the broker has, or has not any more."""

    def __init__(self) -> None:
        self.is_gone = False


class Scene:
    """A broker's list of vhosts, None where it does not answer, and who is attended by it."""

    def __init__(self, *named: str) -> None:
        self.named: list[str] | None = [*named]
        self.readiness = Readiness()
        self.attendants = {vhost: Attendant() for vhost in named}
        self.begun: list[str] = []
        self.on_left: Callable[[], object] = lambda: None
        self.every = AllVhosts(cast("Any", self), self.readiness, self.attendants, self._begin, self._leave)

    async def vhosts(self) -> list[str]:
        if not self.named:  # none at all is an error of the client, too
            raise ManagementError("http://broker names no vhost" if self.named == [] else "http://broker: 401")
        return self.named

    def _begin(self, vhost: str) -> None:
        assert vhost not in self.attendants, "served twice"
        self.attendants[vhost] = Attendant()
        self.begun.append(vhost)

    async def _leave(self, vhost: str) -> None:
        await asyncio.sleep(0)
        del self.attendants[vhost]
        self.on_left()


@pytest.mark.parametrize(
    ("named", "gone", "left"),
    [
        (["a", "b"], [], ["a", "b"]),
        (["a", "b", "c"], [], ["a", "b", "c"]),
        (["a"], [], ["a", "b"]),  # a part of all, as of a node that starts
        (["a"], ["b"], ["a"]),
        (["a", "b"], ["b"], ["a", "b"]),  # made anew: who attends it tries again by itself
        (["c"], ["a", "b"], ["c"]),
        ([], ["a", "b"], ["a", "b"]),  # nothing is no answer
        (None, ["a"], ["a", "b"]),
    ],
)
async def test_a_look_begins_what_is_new_and_leaves_only_what_the_broker_says_is_gone(
    named: list[str] | None, gone: list[str], left: list[str]
) -> None:
    scene = Scene("a", "b")
    scene.named = named
    for vhost in gone:
        scene.attendants[vhost].is_gone = True
    for _ in range(2):
        await scene.every._look()
        assert sorted(scene.attendants) == left
    assert scene.begun == sorted({*left} - {"a", "b"})
    notes = scene.readiness.notes()
    assert len(notes) == (not named or not {*left} <= {*named}), notes  # nobody tells, or not of all that are served


async def test_a_vhost_that_is_there_again_while_another_is_left_is_not_left() -> None:
    """It was judged with the first, seconds before its turn: drained with a session, and served by nobody for long."""
    scene = Scene("a", "b", "c")
    scene.named = ["c"]
    for vhost in ("a", "b"):
        scene.attendants[vhost].is_gone = True
    attended = scene.attendants["b"]

    def made_anew() -> None:
        scene.named, attended.is_gone = ["b", "c"], False

    scene.on_left = made_anew
    await scene.every._look()
    assert {*scene.attendants} == {"b", "c"}
    assert scene.attendants["b"] is attended
    assert (scene.begun, scene.readiness.notes()) == ([], [])


class Failing:
    """An attendant whose stop is cut short by an error of ours."""

    async def stop(self, _until: float) -> int:
        raise ZeroDivisionError

    def limit_bytes(self, _most: int) -> None:
        """It has none."""


async def test_a_vhost_whose_leaving_failed_halfway_can_be_served_again(tmp_path: Path) -> None:
    """Its attendant, which had ended, stayed in the list for as long as the router ran."""
    (tmp_path / "p.yaml").write_text('{"version": 1, "policies": []}', encoding="utf-8")
    settings = Settings.load({"amqp_url": "amqp://guest:guest@127.0.0.1:1/", "policies": str(tmp_path)})
    app = App(settings, load_policies(tmp_path, Names()))
    app._begin("v")
    began, app.attendants["v"] = app._running["v"], Failing()  # type: ignore[assignment]  # it is asked for nothing else
    with pytest.raises(ZeroDivisionError):
        await app._leave("v")
    assert began.done()
    assert not any("'v'" in reason for reason in app.readiness.reasons()), "nothing is said of it"
    assert (app.attendants, app._key_of("v")) == ({}, None)
    app._begin("v")
    await app._leave("v")
    assert (app.attendants, app._running, app._over.is_set()) == ({}, {}, False)


async def test_nothing_is_served_before_a_vhost_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    """A node that starts named none, and the router was ready for ever, serving nothing."""
    monkeypatch.setattr(all_vhosts, "ASK_AGAIN_S", 0.001)
    scene, stop = Scene(), asyncio.Event()
    asked = asyncio.create_task(scene.every.first(stop))
    try:
        async with asyncio.timeout(60):
            while "names no vhost" not in "".join(scene.readiness.reasons()):  # noqa: ASYNC110 - it has no events
                await asyncio.sleep(0)
        scene.named = ["a"]
        assert await asked == ["a"]
    finally:
        asked.cancel()
    scene.named = []
    stop.set()
    assert await scene.every.first(stop) == []


@asynccontextmanager
async def running(app: App) -> AsyncIterator[None]:
    """The router at work inside the block; it ends by a signal, and well."""
    work = asyncio.create_task(app.run())
    try:
        yield
        app._signalled(signal.SIGTERM)
        async with asyncio.timeout(60):
            assert await work == 0
    finally:
        work.cancel()
        await asyncio.gather(work, return_exceptions=True)


async def soon(holds: Callable[[], object], within: float = 20) -> None:
    await asyncio.to_thread(eventually, holds, within)


def shares(app: App) -> set[int]:
    """What each vhost may have in flight, as it is and as its next session will have it."""
    now = {runner._session._in_flight._most for runner in app.attendants.values() if runner._session is not None}
    return now | {runner._limits.in_flight_bytes for runner in app.attendants.values()}


def is_served(app: App, *vhosts: str) -> bool:
    assert app.metrics.broker_connected == dict.fromkeys(vhosts, 1)
    assert {*app.attendants} == {*vhosts}
    assert app.readiness.ready, app.readiness.reasons()
    return shares(app) == {TOTAL // len(vhosts)}


def consumers(client: Client, queue: str) -> int:
    return int(client.channel.queue_declare(queue, passive=True).method.consumer_count)


def letter(vhost: Vhost) -> int:
    """One that died there is taken, and parked; → how many consumers the inbox has.

    It dies once the inbox is consumed: while a vhost is made anew nothing catches it.
    """
    with Client(vhost.amqp_url) as client:
        eventually(lambda: client.exists(INBOX) and consumers(client, INBOX))
        client.queue("work", dead_letter_exchange=INBOX)
        client.publish("hello", key="work")
        client.fail("work")
        assert client.take(PARKING).body == b"hello"
        return consumers(client, INBOX)


class Lister:
    """A user of the management API that is told of the vhosts that it may enter, and of no others."""

    def __init__(self, vhost: Vhost) -> None:
        self.name, password = user(vhost, "lister", "management")
        self.sees_no_more(vhost)
        at = urlsplit(vhost.management_url)
        self.url = f"http://{self.name}:{quote(password, safe='')}@{at.hostname}:{at.port}"

    def sees(self, vhost: Vhost) -> None:
        vhost.put(f"permissions/{vhost.quoted}/{self.name}", {"configure": "^$", "write": "^$", "read": ".*"})

    def sees_no_more(self, vhost: Vhost) -> None:
        vhost.api.delete(f"permissions/{vhost.quoted}/{self.name}").raise_for_status()


@pytest.fixture
def lister(vhost: Vhost) -> Iterator[Lister]:
    made = Lister(vhost)
    yield made
    vhost.api.delete(f"users/{made.name}")


@pytest.fixture
def app(vhost: Vhost, lister: Lister, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> App:
    """A router of all vhosts, which asks for them many times a second."""
    monkeypatch.setattr(all_vhosts, "ASK_AGAIN_S", 0.1)
    monkeypatch.setattr(all_vhosts, "EVERY_S", 0.2)
    (tmp_path / "p.yaml").write_text('{"version": 1, "policies": []}', encoding="utf-8")
    given = {"amqp_url": vhost.amqp_url, "management_url": lister.url, "vhosts": "*", "in_flight_bytes": "8MiB"}
    return App(Settings.load(given | {"policies": str(tmp_path)}), load_policies(tmp_path, Names()))


async def test_a_vhost_that_is_made_while_the_router_runs_is_served(vhost: Vhost, lister: Lister, app: App) -> None:
    """It was left to itself, though `apply` led its letters to the inbox; and a router that saw none was ready."""
    other = Vhost.make(vhost.broker, f"{vhost.name}-other")
    both = partial(is_served, app, vhost.name, other.name)
    try:
        async with running(app):
            await soon(lambda: "names no vhost" in "".join(app.readiness.reasons()))
            lister.sees(vhost)
            await soon(partial(is_served, app, vhost.name))
            lister.sees(other)
            await soon(both)
            await asyncio.to_thread(letter, other)
            lister.sees_no_more(other)
            assert await asyncio.to_thread(consistently, both, 1.0), "a list may be a part of all"
    finally:
        other.close()
