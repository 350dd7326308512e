"""What is ahead: letters that were taken and wait for their turn, so many that nobody waits, so few that they fit."""

from collections import deque
from itertools import islice
from typing import Final

from dlx_router.service.inflight.job import Job

AHEAD_S: Final = 20.0  # letters that wait for their turn are unacked for so long
MAX_AHEAD: Final = 2000
AHEAD_BYTES: Final = 32 << 20


class ReadAhead:
    """In their order. `rate` 0: they need not wait."""

    def __init__(self, rate: float) -> None:
        self.most = MAX_AHEAD if not rate else max(2, min(MAX_AHEAD, int(rate * AHEAD_S)))
        self._jobs: deque[Job] = deque()
        self._bytes = 0

    def __len__(self) -> int:
        return len(self._jobs)

    def put(self, job: Job) -> None:
        """Behind the others."""
        self._jobs.append(job)
        self._bytes += job.weight

    @property
    def first(self) -> Job:
        """The one whose turn is next."""
        return self._jobs[0]

    def next(self) -> Job:
        """The first, which waits no more."""
        job = self._jobs.popleft()
        self._bytes -= job.weight
        return job

    def fitting(self, most: int, room_bytes: int) -> int:
        """How many of the first so many fit; the last of them may be larger, or one that is would wait for ever."""
        if self._bytes <= room_bytes:
            return most
        count = 0
        for job in islice(self._jobs, most):
            if room_bytes <= 0:
                break
            room_bytes -= job.weight
            count += 1
        return count

    def clear(self) -> None:
        """None wait: they go back."""
        self._jobs.clear()
        self._bytes = 0

    @property
    def is_full(self) -> bool:
        """Whether no more should be taken."""
        return len(self._jobs) > self.most or self._bytes > AHEAD_BYTES

    @property
    def has_room(self) -> bool:
        """Whether more should be taken again; not the opposite of `is_full`, or it would be one in, one out."""
        return len(self._jobs) <= self.most // 2 and self._bytes <= AHEAD_BYTES // 2
