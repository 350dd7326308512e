"""A batch: some lines of the journal that go to the stream as one message, and the letters that wait for it."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

from dlx_router.journal import fields, packing
from dlx_router.journal.entry import Entry, Shared, line_of
from dlx_router.journal.reading import lines_of

MAX_EVENTS: Final = 500
MAX_BYTES: Final = 262_144


class Batch:
    """`settled` says that letters may go on: the stream has the lines, or does not have to have them now."""

    __slots__ = (
        "_lines",
        "_shared",
        "_sure",
        "_waiting",
        "body",
        "confirmed",
        "deadline_s",
        "events",
        "format",
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
        self.format = fields.LINES
        self.deadline_s = 0.0
        self._lines: list[str] = []
        self._shared: dict[Shared, int] = {}
        self._waiting: list[tuple[Callable[[Any], None], Any]] = []
        self._sure: list[tuple[Callable[[Any], None], Any]] = []

    def add(self, event: bytes | Entry) -> bool:
        """One event more: a line, its end included (an empty one is no event), or an entry. False: no room for it.

        The first always has.
        """
        if isinstance(event, bytes):
            if self.events and (self.events >= MAX_EVENTS or self.size + len(event) > MAX_BYTES):
                return False
            self._lines.append(event.decode())
            self.events += bool(event)
            self.size += len(event)
            return True
        shared, row = event
        if self.events and (self.events >= MAX_EVENTS or self.size + len(row) > MAX_BYTES):
            return False
        number = self._shared.get(shared)
        if number is None:
            number = self._shared[shared] = len(self._shared)
            line = line_of(shared)
            self._lines.append(line)
            self.size += len(line)
        self._lines.append(f"[{number}{row}")
        self.events += 1
        self.size += len(row)
        return True

    def add_entries(self, entries: Sequence[Entry]) -> int:
        """As `add` of one after the other, for as long as there is room; → how many."""
        lines, size, start, last = self._lines, self.size, "", None
        count = 0
        room = MAX_EVENTS - self.events
        for count, (shared, row) in enumerate(entries):
            if count == room or (size + len(row) > MAX_BYTES and (count or self.events)):
                break
            if shared is not last:
                number = self._shared.get(shared)
                if number is None:
                    number = self._shared[shared] = len(self._shared)
                    lines.append(line_of(shared))
                    size += len(lines[-1])
                last, start = shared, f"[{number}"
            lines += start, row
            size += len(row)
        else:
            count = len(entries)
        self.events += count
        self.size = size
        return count

    def close(self) -> None:
        """No more events. What tells of a task is plain lines: others look for tasks, and unpack nothing for it."""
        text = "".join(self._lines).encode()
        if text and not self.tells_tasks and len(text) <= packing.MAX_BYTES:
            self.body, self.format = packing.packed(text), fields.ROWS
        else:
            self.body = b"".join(lines_of(text)) if self._shared else text
        self.size = len(self.body)  # of what is kept until it is sent
        self._lines.clear()
        self._shared.clear()

    def discard_lines(self, mark: bytes) -> None:
        """Remove the lines that contain `mark`: what of the batch is sent from now on is sent without them."""
        if not self.tells_tasks:
            return
        text = mark.decode()
        self._lines = [line for line in self._lines if text not in line]
        if mark in self.body:
            self.body = b"".join(line for line in self.body.splitlines(keepends=True) if mark not in line)
            self.size = len(self.body)

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
        self._call_the_sure()

    def lose(self) -> None:
        """The stream will never have it."""
        self.lost = True
        self._call_the_sure()

    def _call_the_sure(self) -> None:
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
        known = asyncio.Event()
        batch.wait_sure(asyncio.Event.set, known)
        await known.wait()
    return unsure(every) is None


def settled() -> Batch:
    """The batch of those who write no journal: it keeps nobody waiting."""
    batch = Batch(0)
    batch.settled = True
    return batch
