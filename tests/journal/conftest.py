"""`desk`: a journal at work in the test's vhost, on a link of its own, as a session has it."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any
from urllib.parse import unquote, urlsplit

import pytest

from dlx_router.broker.address import Host, Login
from dlx_router.broker.link import Link, open_link
from dlx_router.broker.stream import DEFAULT, Retention, ensure_stream, journal_stream
from dlx_router.broker.topology import Topology
from dlx_router.core.names import Names
from dlx_router.journal.batch import Batch
from dlx_router.journal.events import fragments
from dlx_router.journal.mode import Mode
from dlx_router.journal.writer import Journal
from dlx_router.telemetry.readiness import Readiness
from tests.core.core_samples import NOW, letter
from tests.journal.journal_samples import RULING
from tests.support.eventually import patience
from tests.support.vhost import Vhost

NAMES = Names()


class Desk:
    """A journal, the letters that wait for it, and what a test does to its surroundings."""

    def __init__(self, vhost: Vhost, **settings: Any) -> None:
        self.vhost = vhost
        self.readiness = Readiness()
        self.readiness.clear("start")
        self.settled: list[int] = []
        self.losses: list[int] = []
        url = urlsplit(vhost.amqp_url)
        self.login = Login(unquote(url.username or ""), unquote(url.password or ""), vhost.name)
        self.host = Host(url.hostname or "", url.port or 5672)
        plain: dict[str, Any] = {"mode": Mode.BEST_EFFORT, "name": NAMES.journal, "vhost": vhost.name}
        plain |= {"router_id": "router-a", "readiness": self.readiness, "on_lost": self.losses.append}
        self.journal = Journal(**(plain | settings))
        self.retention: Retention = DEFAULT
        self.declare = True

    @asynccontextmanager
    async def session(self) -> AsyncIterator[Link]:
        """One link, and the journal on it, as long as the block lasts."""
        link = await open_link(self.host, self.login, tls=None, heartbeat=10, name="journal test")
        topology = Topology(self.host, self.login, None, NAMES)

        async def ensure() -> None:
            await ensure_stream(topology, journal_stream(NAMES, self.retention), declare=self.declare)

        task = asyncio.create_task(self.journal.attend(link, ensure))
        try:
            yield link
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            await link.close()
            await topology.close()

    @asynccontextmanager
    async def on_links_of_its_own(self) -> AsyncIterator[list[Link]]:
        """As `session`, after a broken stream cost the letters their link; the links that were opened."""
        topology, links = Topology(self.host, self.login, None, NAMES), list[Link]()
        self.journal.needs_own_link = True

        async def own() -> Link:
            links.append(await open_link(self.host, self.login, tls=None, heartbeat=10, name="journal alone"))
            return links[-1]

        async def ensure() -> None:
            await ensure_stream(topology, journal_stream(NAMES, self.retention), declare=self.declare)

        shared = await own()
        links.clear()
        task = asyncio.create_task(self.journal.attend_either(shared, own, ensure, lambda: None))
        try:
            yield links
        finally:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
            for link in (shared, *links):
                await link.close()
            await topology.close()

    def tell(self, number: int) -> Batch:
        """One event of letter `number`, which then waits for it."""
        died, at = letter(), {"first_ms": 0, "last_ms": 0, "crc32": 7}
        batch = self.journal.record(self.journal.event(fragments(died, RULING), died.id, NOW, size=number, **at))
        batch.wait(self.settled.append, number)
        return batch

    def tell_all(self, numbers: range) -> None:
        """As one read of the socket would."""
        for number in numbers:
            self.tell(number)
        self.journal.flush()


@pytest.fixture
def desk(vhost: Vhost) -> Callable[..., Desk]:
    """desk(mode=…) → a journal in the test's vhost, not connected yet."""
    return partial(Desk, vhost)


async def soon(look: Callable[[], Any], within: float = 10) -> None:
    """Until it is true; as `eventually`, without holding up the loop."""
    async with asyncio.timeout(patience(within)):
        while not look():  # noqa: ASYNC110 - what is looked at has no events
            await asyncio.sleep(0.01)


async def stays(look: Callable[[], Any], for_s: float = 0.5) -> None:
    """True each time it is asked."""
    loop = asyncio.get_running_loop()
    end = loop.time() + for_s
    while loop.time() < end:
        assert look()
        await asyncio.sleep(0.01)
