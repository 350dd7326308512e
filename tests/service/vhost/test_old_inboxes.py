"""Inboxes that INBOX_SHARDS does not name: what readiness says of those that are taken, and of those that cannot be."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, cast

import pytest

from dlx_router.broker.answers import ChannelClosed
from dlx_router.core.names import Names
from dlx_router.service.vhost import old_inboxes
from dlx_router.service.vhost.old_inboxes import OldInboxes
from dlx_router.telemetry.readiness import Readiness

REFUSED = ChannelClosed(403, "ACCESS_REFUSED - read access to queue 'p.inbox.3' in vhost '/' refused for user 'router'")


class Broker:
    """Where some inboxes stand, as a connection tells it."""

    def __init__(self, *standing: str) -> None:
        self.standing = {*standing}

    async def censuses(self, queues: Iterable[str]) -> dict[str, tuple[int, int]]:
        return {queue: (1, 0) for queue in queues if queue in self.standing}


class Session:
    """It takes what it may."""

    def __init__(self, **refusals: ChannelClosed) -> None:
        self.refusals, self.begun = refusals, False

    async def take_too(self, queue: str) -> bool:
        if self.begun and (error := self.refusals.get(queue.rpartition(".")[2])) is not None:
            raise error
        return self.begun


async def notes(readiness: Readiness, holds: Callable[[list[str]], bool]) -> list[str]:
    """The notes, once they are so."""
    async with asyncio.timeout(20):
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
