"""The outlet of an export: lines wait here until somebody takes them, and the worker waits where there are too many.

Lines are numbered from 0. Who asks says how many it has; those are forgotten, the others may be asked for again.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from dlx_router.service.redrive.context import Stopped

FULL_BYTES: Final = 8 << 20
CHUNK_BYTES: Final = 1 << 20
IDLE_S: Final = 30.0
WAIT_S: Final = 4.0  # an answer of the API takes ten seconds at most


class ExportTaken(Exception):
    """The lines that were asked for are not here; says which are."""


class ExportStream:
    """Of one export. `on_room` is called when lines were taken."""

    def __init__(self, on_room: Callable[[], None] = lambda: None) -> None:
        self.on_room = on_room
        self._lines: deque[bytes] = deque()
        self._first = 0  # the number of the first line that is kept
        self._bytes = 0
        self._ended = False
        self._news = asyncio.Event()
        self._asked_s = time.monotonic()

    @property
    def is_full(self) -> bool:
        """Whether no more should be put."""
        return self._bytes >= FULL_BYTES

    def check(self) -> None:
        """Stopped where nobody has asked for IDLE_S."""
        if time.monotonic() - self._asked_s > IDLE_S:
            raise Stopped(f"nobody has asked for its letters for {IDLE_S:g} s; export again")

    def put(self, line: bytes) -> None:
        """One letter more."""
        self._lines.append(line)
        self._bytes += len(line)
        self._news.set()

    def end(self) -> None:
        """No more will come."""
        self._ended = True
        self._news.set()

    async def take(self, after: int) -> tuple[list[bytes], int | None]:
        """Some of the lines behind the first `after`, and what to ask for next; None: these were the last.

        Waits WAIT_S at most for the first of them; there may be none yet. ExportTaken: this outlet is not at `after`.
        """
        self._forget(after)
        if not self._lines and not self._ended:
            self._news.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(WAIT_S):
                    await self._news.wait()
            self._forget(after)  # somebody else may have asked meanwhile
        lines, size = [], 0
        for line in self._lines:
            lines.append(line)
            size += len(line)
            if size >= CHUNK_BYTES:
                break
        is_last = self._ended and len(lines) == len(self._lines)
        return lines, None if is_last else self._first + len(lines)

    def _forget(self, after: int) -> None:
        self._asked_s = time.monotonic()
        if not self._first <= after <= self._first + len(self._lines):
            there = f"{self._first} … {self._first + len(self._lines)}"
            raise ExportTaken(
                f"after {after}: this export can go on after {there}; ask with the `next` of the last answer"
            )
        for _ in range(after - self._first):
            self._bytes -= len(self._lines.popleft())
        self._first = after
        self.on_room()
