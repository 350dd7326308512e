"""A file that cannot be used is made anew, and not without a pause."""

import asyncio
from pathlib import Path

import pytest

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
