"""A file that cannot be used is made anew: not without a pause, and not because of one that is closed already."""

import asyncio
from pathlib import Path

import pytest

from dlx_router.broker.control import Lost
from dlx_router.index import worker as subject
from dlx_router.index.schema import Damaged
from dlx_router.index.store import Store
from dlx_router.index.worker import Worker
from tests.journal.conftest import soon


class Following(Worker):
    """Of one vhost, whose state is known."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self._vhosts["/"], self._orders["/"] = {}, {}


class Damages(Following):
    """Its file can never be opened."""

    tries = 0

    def _opened(self) -> Store:
        self.tries += 1
        assert self.tries < 50, "nobody else had a turn"
        raise Damaged("layout 3, not 7")


async def test_a_file_that_stays_damaged_is_tried_again_after_a_pause(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was tried for ever at once: mounted by itself, or in a folder that cannot be written, it does not go away."""
    monkeypatch.setattr(subject, "AGAIN_S", 0.05)
    damages = Damages(tmp_path)  # a folder is no file that can be removed
    following = asyncio.create_task(damages._keep_following("/"))
    await soon(lambda: damages.tries > 2 or following.done())
    assert damages._rebuilds == 0
    assert "layout 3, not 7, and it cannot be removed" in str(damages._trouble)
    damages._orders.clear()
    await following


class Shared(Following):
    """Another vhost finds the file damaged while this one waits for the broker; the next time that is away."""

    after: Store | None = None

    async def _read(self, vhost: str, store: Store) -> None:
        if self.after is not None:
            raise Lost("no broker")
        self._throw_away("damaged")
        self.after = self._opened()
        store.position(vhost)


async def test_a_file_that_another_vhost_has_made_anew_is_not_thrown_away_with_the_old_one(file: Path) -> None:
    """The closed one could not be read, so it counted as damaged: what the other vhost had read by then was deleted."""
    shared = Shared(file)
    await shared._keep_following("/")
    now = shared._store
    assert now is not None
    assert now is shared.after
    assert (shared._rebuilds, shared._vhosts["/"]["state"], now.position("/")) == (1, "lost", None)
    now.close()
    assert shared._lock is not None
    shared._lock.close()
