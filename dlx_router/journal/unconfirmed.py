"""Waiting: batches that keep letters back, each for a quarter of a second at most where the journal is best-effort."""

import asyncio
from collections.abc import Callable
from typing import Final

from dlx_router.journal.batch import Batch

PATIENCE_S: Final = 0.25


class Waiting:
    """Batches that were closed and are not settled. `after()` is called where letters were let go by a timer."""

    def __init__(self) -> None:
        self.after: Callable[[], None] = lambda: None
        self.lags = False  # the stream kept somebody waiting for too long: nobody else waits until it answers
        self._open: dict[int, Batch] = {}
        self._timer: asyncio.TimerHandle | None = None

    def add(self, batch: Batch) -> None:
        """Its letters wait for it."""
        self._open[batch.number] = batch

    def release(self, batch: Batch) -> None:
        """Its letters may go on."""
        self._open.pop(batch.number, None)
        batch.settle()

    def release_all(self) -> None:
        """Nobody waits any more."""
        for batch in [*self._open.values()]:
            self.release(batch)
        self.after()

    def arm(self, batch: Batch) -> None:
        """Release it in time, whether the stream has it by then or not."""
        loop = asyncio.get_running_loop()
        batch.deadline_s = loop.time() + PATIENCE_S
        if self._timer is None:
            self._timer = loop.call_at(batch.deadline_s, self._overdue)

    def _overdue(self) -> None:
        """One timer for all: it looks at the oldest, four times a second at most."""
        loop = asyncio.get_running_loop()
        self._timer = None
        for batch in [*self._open.values()]:
            if batch.deadline_s > loop.time():
                self._timer = loop.call_at(batch.deadline_s, self._overdue)
                break
            self.lags = True
            self.release(batch)
        self.after()

    def forget(self) -> None:
        """The session of those who wait has ended: they are delivered again."""
        self.after = lambda: None
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for batch in self._open.values():
            batch.forget()
        self._open.clear()
