"""A leader reads the journal where a node lets it, and says so while none does."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast

import pika
import pytest

from dlx_router.broker.address import Host
from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.config.environment.settings import Settings
from dlx_router.config.policy_files.loader import load_policies
from dlx_router.core.names import Names
from dlx_router.service.app import App
from dlx_router.service.redrive.context import JournalHosts
from dlx_router.service.redrive.task_log import NotLeader
from dlx_router.service.vhost.connect import addresses
from dlx_router.service.vhost.runner import VhostRunner
from dlx_router.telemetry.readiness import Readiness
from tests.support.eventually import eventually
from tools import brokers
from tools.brokers.cluster import Cluster

HOSTS: Final = [Host("a", 1), Host("b", 2), Host("c", 3)]
NO_REPLICA: Final = ChannelClosed(406, "PRECONDITION_FAILED - no replica on the local node")


class Link:
    """A connection that is closed once it was used."""

    def __init__(self, host: Host) -> None:
        self.host, self.is_closed = host, False
        self.on_read: Callable[[], None] = lambda: None

    async def close(self) -> None:
        self.is_closed = True


class Scene:
    """Which nodes were connected to, and what is said."""

    def __init__(self) -> None:
        self.readiness, self.links = Readiness(), list[Link]()
        self.hosts = JournalHosts(HOSTS, "v", self.readiness)
        self.readers = asyncio.Barrier(1)  # that are connected at once

    async def connected(self, host: Host) -> Any:
        self.links.append(Link(host))
        return self.links[-1]

    async def read(self, error: Exception | None = None) -> str:
        """The node that is asked, and answers so."""

        async def link(host: Host) -> Any:
            if isinstance(error, LinkError):
                raise error
            return await self.connected(host)

        async with self.hosts.reading(link) as opened:
            await self.readers.wait()
            if error is not None:
                raise error
            return cast("Link", opened).host.name


async def test_after_a_failure_the_next_node_is_asked_and_the_note_goes_once_it_was_read() -> None:
    scene = Scene()
    assert [await scene.read(), await scene.read()] == ["a", "a"]
    for error in (NO_REPLICA, LinkError("c is away")):
        with pytest.raises(type(error)):
            await scene.read(error)
        assert str(error) in "".join(scene.readiness.notes())
    assert "leads, and cannot read the journal at b:2" in "".join(scene.readiness.notes())
    assert await scene.read() == "c"
    assert (scene.readiness.notes(), scene.readiness.ready) == ([], False)
    assert all(link.is_closed for link in scene.links)


async def test_the_note_goes_as_soon_as_it_is_read_however_long_somebody_reads() -> None:
    """A canary has its connection for as long as it watches, and /readyz said all that time that nothing is read."""
    scene = Scene()
    with pytest.raises(ChannelClosed):
        await scene.read(NO_REPLICA)
    async with scene.hosts.reading(scene.connected) as opened:
        assert scene.readiness.notes(), "it is connected, and read nothing yet"
        opened.on_read()
        assert scene.readiness.notes() == []


async def test_two_that_fail_at_one_node_pass_over_none() -> None:
    scene = Scene()
    scene.readers = asyncio.Barrier(2)
    await asyncio.gather(scene.read(NO_REPLICA), scene.read(NO_REPLICA), return_exceptions=True)
    scene.readers = asyncio.Barrier(1)
    assert await scene.read() == "b"


async def test_an_error_of_our_own_says_nothing_of_a_node() -> None:
    scene = Scene()
    with pytest.raises(ZeroDivisionError):
        await scene.read(ZeroDivisionError())
    assert (await scene.read(), scene.readiness.notes()) == ("a", [])


# -- a cluster -------------------------------------------------------------------------------------------------------


@pytest.fixture
def nodes(broker: brokers.Broker) -> Iterator[list[brokers.Node]]:
    """Two nodes; the journal has a replica at the second alone, as where the first came into the cluster later."""
    if not isinstance(broker, brokers.Node):
        pytest.skip("a cluster is made of nodes of our own")
    cluster = Cluster(broker.program, 2)
    try:
        connection = pika.BlockingConnection(pika.URLParameters(cluster.nodes[1].amqp_url))
        alone = {"x-queue-type": "stream", "x-initial-cluster-size": 1}
        connection.channel().queue_declare("dlx-router.journal", durable=True, arguments=alone)
        connection.close()
        yield cluster.nodes
    finally:
        cluster.close()


@asynccontextmanager
async def leading(folder: Path, *nodes: brokers.Node) -> AsyncIterator[tuple[VhostRunner, Readiness]]:
    """A router of vhost / that begins at the first of these nodes."""
    (folder / "p.yaml").write_text('{"version": 1, "policies": []}', encoding="utf-8")
    hosts = ",".join(f"127.0.0.1:{node.ports['amqp']}" for node in nodes)
    settings = Settings.load({"amqp_url": f"amqp://guest:guest@{hosts}/", "policies": str(folder)})
    app = App(settings, load_policies(folder, Names()))
    app._where = addresses(settings)
    runner = app._attendant("/")
    running = asyncio.create_task(runner.run())
    try:
        yield runner, app.readiness
        await runner.stop(asyncio.get_running_loop().time() + settings.drain_seconds)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)


async def soon(holds: Callable[[], object]) -> None:
    await asyncio.to_thread(eventually, holds, 60)


def knows(runner: VhostRunner) -> bool:
    try:
        return runner.tasks.all() == []
    except NotLeader:
        return False


def unread(readiness: Readiness) -> bool:
    return "cannot read the journal at" in "".join(readiness.notes())


@pytest.mark.slow
async def test_a_leader_whose_node_has_no_replica_of_the_journal_reads_it_at_another(
    nodes: list[brokers.Node], tmp_path: Path
) -> None:
    """It kept the duties for ever, and could carry out none: redrives, exports and leases were refused."""
    async with leading(tmp_path, nodes[0]) as (runner, readiness):
        await soon(lambda: unread(readiness) and runner.leadership.is_ours)
        assert not knows(runner)
    async with leading(tmp_path, *nodes) as (runner, readiness):
        await soon(lambda: knows(runner) and runner.leases._known.is_set())
        assert runner._place is not None
        assert runner._place[0].port == nodes[0].ports["amqp"], "letters are taken where they were"
        await soon(lambda: not unread(readiness))
