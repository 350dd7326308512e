"""A batch: some lines of the journal that go to the stream as one message, and the letters that wait for it."""

import asyncio
from collections.abc import Callable, Iterable
from typing import Any, Final

MAX_EVENTS: Final = 100
MAX_BYTES: Final = 262_144


class Batch:
    """`settled` says that letters may go on: the stream has the lines, or does not have to have them now."""

    __slots__ = (
        "_lines",
        "_sure",
        "_waiting",
        "body",
        "confirmed",
        "deadline_s",
        "events",
        "lost",
        "number",
        "settled",
        "size",
        "tells_tasks",
    )

    def __init__(self, number: int) -> None:
        self.number = number
        self.settled = False
        self.confirmed = False
        self.lost = False
        self.events = 0
        self.size = 0
        self.tells_tasks = False
        self.body = b""
        self.deadline_s = 0.0
        self._lines: list[bytes] = []
        self._waiting: list[tuple[Callable[[Any], None], Any]] = []
        self._sure: list[tuple[Callable[[Any], None], Any]] = []

    def add(self, line: bytes) -> None:
        """One line more, its end included; an empty one is no event."""
        self._lines.append(line)
        self.events += bool(line)
        self.size += len(line)

    def takes(self, line: bytes) -> bool:
        """Whether this line still fits; the first always does."""
        return not self.events or (self.events < MAX_EVENTS and self.size + len(line) <= MAX_BYTES)

    def close(self) -> None:
        """No more lines."""
        self.body = b"".join(self._lines)
        self._lines.clear()

    def wait(self, call: Callable[[Any], None], job: Any) -> None:  # noqa: ANN401 - the caller's own
        """`call(job)` once the batch is settled; at once where it is."""
        if self.settled:
            call(job)
        else:
            self._waiting.append((call, job))

    def settle(self) -> None:
        """Let go of those who wait, in their order. Safe to repeat."""
        self.settled = True
        waiting, self._waiting = self._waiting, []
        for call, job in waiting:
            call(job)

    def wait_sure(self, call: Callable[[Any], None], job: Any) -> None:  # noqa: ANN401 - the caller's own
        """`call(job)` once the stream has confirmed the batch, whatever the mode, or once it is `lost`."""
        if self.confirmed or self.lost:
            call(job)
        else:
            self._sure.append((call, job))

    def confirm(self) -> None:
        """The stream has it."""
        self.confirmed = True
        self._tell_the_sure()

    def lose(self) -> None:
        """The stream will never have it."""
        self.lost = True
        self._tell_the_sure()

    def _tell_the_sure(self) -> None:
        sure, self._sure = self._sure, []
        for call, job in sure:
            call(job)

    def forget(self) -> None:
        """Nobody waits any more: the session that they belonged to has ended."""
        self._waiting.clear()
        self._sure.clear()


def unsure(batches: Iterable[Batch]) -> Batch | None:
    """The first that the stream has not confirmed, or never will (`lost`); None where it has all."""
    return next((batch for batch in batches if not batch.confirmed), None)


async def sure(batches: Iterable[Batch]) -> bool:
    """Whether the stream has confirmed all, once that is known of each: False where it never will."""
    every = [*batches]
    for batch in every:
        told = asyncio.Event()
        batch.wait_sure(asyncio.Event.set, told)
        await told.wait()
    return unsure(every) is None


def settled() -> Batch:
    """The batch of those who write no journal: it keeps nobody waiting."""
    batch = Batch(0)
    batch.settled = True
    return batch
