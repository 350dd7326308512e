"""Inboxes that INBOX_SHARDS does not name: what readiness says of those that are taken, and of those that cannot be."""

import asyncio
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, cast

import pytest

from dlx_router.broker.answers import ChannelClosed
from dlx_router.broker.management_words import ManagementError
from dlx_router.broker.topology import QueueCounts
from dlx_router.core.names import Names
from dlx_router.service.vhost import old_inboxes
from dlx_router.service.vhost.old_inboxes import OldInboxes
from dlx_router.telemetry.readiness import Readiness

REFUSED = ChannelClosed(403, "ACCESS_REFUSED - read access to queue 'p.inbox.3' in vhost '/' refused for user 'router'")


class Broker:
    """Where some inboxes stand, as a connection tells it. `silent`: queues that it says nothing of."""

    def __init__(self, *standing: str) -> None:
        self.standing, self.silent, self.asked = {*standing}, set[str](), Counter[str]()

    async def queue_counts(self, queues: Iterable[str]) -> QueueCounts:
        asked = {*queues} - self.silent
        self.asked.update(asked)
        counts = dict.fromkeys(sorted(asked & self.standing), (1, 0))
        return QueueCounts(counts, frozenset(asked - self.standing))


class Api:
    """The management API of such a broker; `why` it does not answer, if it does not."""

    def __init__(self, broker: Broker, why: str = "") -> None:
        self.broker, self.why = broker, why

    async def queues(self, _vhost: str, pattern: str) -> list[str]:
        if self.why:
            raise ManagementError(self.why)
        return [queue for queue in self.broker.standing if re.search(pattern, queue)]


class Session:
    """It takes what it may."""

    def __init__(self, **refusals: ChannelClosed) -> None:
        self.refusals, self.begun, self.taken = refusals, False, set[str]()

    async def take_too(self, queue: str) -> bool:
        if self.begun and (error := self.refusals.get(queue.rpartition(".")[2])) is not None:
            raise error
        self.taken |= {queue} if self.begun else set()
        return self.begun


async def notes(readiness: Readiness, holds: Callable[[list[str]], bool]) -> list[str]:
    """The notes, once they are so."""
    async with asyncio.timeout(60):
        while not holds(readiness.notes()):  # noqa: ASYNC110 - readiness has no events: people ask it
            await asyncio.sleep(0)
    return readiness.notes()


def test_an_inbox_that_may_not_be_read_is_said_to_keep_its_letters_until_it_is_taken(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(old_inboxes, "EVERY_S", 0.001)
    monkeypatch.setattr(old_inboxes, "SOON_S", 0.001)

    async def scene() -> None:
        readiness, session = Readiness(), Session(**{"3": REFUSED})
        watch = OldInboxes("/", Names("p", 2), None, readiness)
        broker = Broker("p.inbox.2", "p.inbox.3")
        work = asyncio.create_task(watch.watch(session, cast("Any", broker)))
        (note,) = await notes(readiness, bool)
        assert "p.inbox.2, p.inbox.3: inboxes that INBOX_SHARDS=2 does not name" in note
        session.begun = True
        (note,) = await notes(readiness, lambda texts: "p.inbox.3 is not taken: 403" in texts[0])
        assert "what lies there stays in it: `dlx-router permissions` with INBOX_SHARDS=2 prints the rights" in note
        assert "p.inbox.2 is not taken" not in note
        session.refusals.clear()
        await notes(readiness, lambda texts: texts[0].endswith("what lies there is taken too"))
        broker.standing.clear()
        await notes(readiness, lambda texts: not texts)
        work.cancel()

    asyncio.run(scene())


@contextmanager
def looked_for(broker: Broker, api: Api | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Readiness, Session]]:
    """The inboxes of a router with two shards are looked for again and again."""
    monkeypatch.setattr(old_inboxes, "EVERY_S", 0.001)
    monkeypatch.setattr(old_inboxes, "SOON_S", 0.001)
    monkeypatch.setattr(old_inboxes, "UNTOLD_S", 0.001)
    readiness, session = Readiness(), Session()
    session.begun = True
    watch = OldInboxes("/", Names("p", 2), cast("Any", api), readiness)
    work = asyncio.get_running_loop().create_task(watch.watch(session, cast("Any", broker)))
    try:
        yield readiness, session
    finally:
        work.cancel()


async def test_an_inbox_is_taken_though_the_management_api_does_not_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """It was filled for ever, and nothing was said: shards were reduced, and the API answers 401."""
    broker = Broker("p.inbox.2")
    api = Api(broker, "http://broker:15672: 401")
    with looked_for(broker, api, monkeypatch) as (readiness, session):
        (note,) = await notes(readiness, bool)
        assert "p.inbox.2: inboxes that INBOX_SHARDS=2 does not name; what lies there is taken too" in note
        assert session.taken == {"p.inbox.2"}
        api.why = ""
        broker.standing.add("p.inbox.3")
        await notes(readiness, lambda texts: "p.inbox.2, p.inbox.3" in texts[0])
        api.why = "http://broker:15672: 401"
        broker.standing.add("p.inbox.4")
        await notes(readiness, lambda texts: "p.inbox.4" in texts[0])
        assert broker.asked["p.inbox.5"] == 2, "once, and once more after the API had answered"


@pytest.mark.parametrize("has_api", [True, False])
async def test_an_inbox_that_could_not_be_counted_once_is_not_forgotten(
    has_api: bool,  # noqa: FBT001 - a table
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """A look that was too slow removed it for as long as the process lived."""
    broker = Broker("p.inbox.2", "p.inbox.3")
    broker.silent |= {"p.inbox.3"}
    with looked_for(broker, Api(broker, "no answer") if has_api else None, monkeypatch) as (readiness, session):
        (note,) = await notes(readiness, bool)
        assert "p.inbox.2: inboxes that INBOX_SHARDS=2 does not name; what lies there is taken too" in note
        why = "no answer; AMQP" if has_api else "AMQP"
        assert f"is not known: {why} does not tell of p.inbox.3" in note
        broker.silent.clear()
        await notes(readiness, lambda texts: "p.inbox.2, p.inbox.3" in texts[0] and "not known" not in texts[0])
        broker.silent |= {"p.inbox.2", "p.inbox.3"}
        await notes(readiness, lambda texts: "p.inbox.2, p.inbox.3" in texts[0] and "not known" in texts[0])
        broker.silent.clear()
        broker.standing.clear()
        await notes(readiness, lambda texts: not texts)
        assert session.taken == {"p.inbox.2", "p.inbox.3"}
