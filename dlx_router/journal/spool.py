"""The spool: batches that the stream has not got, in memory, bounded; and the count of what did not fit.

When it is full the newest is lost, so that what is missing is one stretch of time, and its gap stands in its place.
"""

from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass

from dlx_router.journal.batch import Batch


@dataclass(slots=True)
class Gap:
    """Events that were lost between two moments (epoch ms)."""

    events: int
    from_ms: int
    to_ms: int


class Spool:
    """In the order of their numbers. `limit_bytes` None: what it holds is bounded by those who wait for it."""

    def __init__(self, limit_bytes: int | None) -> None:
        self._limit = limit_bytes
        self._batches: deque[Batch] = deque()
        self.size = 0
        self.gap: Gap | None = None

    def __len__(self) -> int:
        return len(self._batches)

    @property
    def events(self) -> int:
        """Events in it."""
        return sum(batch.events for batch in self._batches)

    def keep(self, batch: Batch, now_ms: int) -> bool:
        """Take the newest batch; False where it had to be lost. Behind a gap nothing is taken until it is told."""
        if self._limit is not None and (self.gap is not None or self.size + batch.size > self._limit):
            gap = self.gap = self.gap or Gap(0, now_ms, now_ms)
            gap.events += batch.events
            gap.to_ms = now_ms
            return False
        self._batches.append(batch)
        self.size += batch.size
        return True

    def give_back(self, batches: Iterable[Batch]) -> None:
        """Take what was sent in vain; it was here before, so it always fits."""
        self._batches.extend(batches)
        self._batches = deque(sorted(self._batches, key=lambda batch: batch.number))
        self.size = sum(batch.size for batch in self._batches)

    def next(self) -> Batch:
        """The oldest, which leaves. IndexError when empty."""
        batch = self._batches.popleft()
        self.size -= batch.size
        return batch

    def discard_lines(self, mark: bytes) -> None:
        """Remove the lines that contain `mark` from all batches."""
        for batch in self._batches:
            batch.discard_lines(mark)
        self.size = sum(batch.size for batch in self._batches)

    def clear(self) -> None:
        """Forget all."""
        self._batches.clear()
        self.size, self.gap = 0, None
