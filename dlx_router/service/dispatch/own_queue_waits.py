"""Waits for own queues: what one of them refused stays unacked, for a return might be its last, and asks again.

This is the one exception from "no letter stays unacked over a minute", and not for the letters of our own queues, which
may be returned any number of times: they go back after a while and come again.
"""

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final

from dlx_router.core.next_step import KeepForOwnQueue
from dlx_router.core.refusal import NotTaken
from dlx_router.service.dispatch.owner import Owner
from dlx_router.service.dispatch.retransmit import Heard, Retransmit
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.dispatch.settler import Settler
from dlx_router.service.inflight import decoder
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.places import Places

AGAIN_S: Final = 1.0
LONGEST_AGAIN_S: Final = 5.0


class WaitingForOwnQueue:
    """The letters for one own queue, the one that asks it among them, and when the next asks."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.asking: Job | None = None
        self.pause_s = AGAIN_S
        self.again_s = time.monotonic() + AGAIN_S
        self.held_bytes = 0

    def __len__(self) -> int:
        return len(self.jobs) + (self.asking is not None)

    def add(self, job: Job) -> None:
        """It waits, behind those that do."""
        self.jobs.append(job)
        self.held_bytes += job.weight

    def take_all(self) -> deque[Job]:
        """All but the one that asks; none of them waits here any more."""
        jobs, self.jobs = self.jobs, deque[Job]()
        self.held_bytes -= sum(job.weight for job in jobs)
        return jobs

    def ends_asking(self) -> None:
        """Who asked has its answer, or ends where it is."""
        if self.asking is not None:
            self.held_bytes -= self.asking.weight
            self.asking = None


class OwnQueueWaits:
    """Of one worker. `provide` sends a job, once what it needs is there."""

    def __init__(  # noqa: PLR0913 - what it holds letters between
        self,
        owner: Owner,
        places: Places,
        settling: Settler,
        *,
        probe: SerialPublisher,
        alone: Retransmit,
        heard: Heard,
        provide: Callable[[Job], None],
    ) -> None:
        self._owner, self._places, self._settling = owner, places, settling
        self._probe, self._alone, self._heard, self._provide = probe, alone, heard, provide
        self._kept: dict[str, WaitingForOwnQueue] = {}
        owner.provision.refusals.listen(self._refusals_changed)

    def close(self) -> None:
        """Nothing is held any more."""
        self._owner.provision.refusals.unlisten(self._refusals_changed)

    def keep(self, job: Job, why: str) -> None:
        """Its queue refused it, or others before."""
        place, refusals = self._places[job.consumer], self._owner.provision.refusals
        queue = job.own_queue(place.names)
        assert queue is not None
        self._asks_no_more(job)
        self._kept.setdefault(queue, WaitingForOwnQueue()).add(job)
        self._report_held()
        spent = decoder.is_near(job.delivery, place.limit)
        is_rung = place.names.rung_of(queue) is not None
        refusals.refused(queue, why, place.source, is_rung=is_rung, spent=spent)

    @property
    def held_bytes(self) -> int:
        """Of the bytes in flight, those of letters that wait here."""
        return sum(kept.held_bytes for kept in self._kept.values())

    def refused(self, job: Job) -> str:
        """Why the internal queue that it goes to refused others; "" where it did not."""
        queues = self._owner.provision.refusals.queues
        queue = job.own_queue(self._places[job.consumer].names) if queues else None
        return "" if queue is None else queues.get(queue, "")

    def took(self, jobs: Sequence[Job]) -> None:
        """Copies arrived while own queues refuse: those that they went to, do not any more."""
        for job in jobs:
            self._asks_no_more(job)
            queue = job.own_queue(self._places[job.consumer].names)
            if queue is not None:
                self._owner.provision.refusals.took(queue)
        self._report_held()

    def _refusals_changed(self) -> None:
        """What was held for queues that take letters again is sent."""
        refusing = self._owner.provision.refusals.queues
        for queue in [queue for queue in self._kept if queue not in refusing]:
            jobs = self._kept.pop(queue).jobs
            raw = [job for job in jobs if job.raw]
            for job in jobs:
                if not job.raw:
                    self._provide(job)
            if raw:
                self._owner.spawn(self._alone.each(raw))
        self._report_held()

    def check(self) -> None:
        """Called each second: one letter asks each queue that refuses, after longer and longer pauses."""
        if not self._kept:
            return
        now = time.monotonic()
        for queue, kept in [*self._kept.items()]:
            self._let_go(kept)
            if not kept:
                del self._kept[queue]  # what refuses is known, and asked by the next
            elif kept.jobs and kept.asking is None and now >= kept.again_s:
                self._try(kept, now)
        self._report_held()

    def _try(self, kept: WaitingForOwnQueue, now: float) -> None:
        job, probe = kept.jobs[0], self._probe.lend()
        if probe is None:
            return
        kept.asking = kept.jobs.popleft()
        kept.pause_s = min(2 * kept.pause_s, LONGEST_AGAIN_S)
        kept.again_s = now + kept.pause_s
        if job.resource is not None and job.resource not in self._owner.provision.known:
            self._probe.take_back(probe)
            self._provide(job)
        else:
            self._owner.spawn(self._tried(job, probe))

    async def _tried(self, job: Job, probe: SerialPublisher) -> None:
        """Alone, beside all others: a queue that does not confirm may take the whole timeout."""
        try:
            if job.why == "" and job.resource is None:  # it came back: the queue may be gone
                await self._owner.provision.mend()
            await self._alone.publish_alone(job, probe)
        finally:
            self._probe.take_back(probe)
        self._asks_no_more(job)
        self._report_held()

    def _asks_no_more(self, job: Job) -> None:
        for kept in self._kept.values():
            if kept.asking is job:
                kept.ends_asking()

    def _let_go(self, kept: WaitingForOwnQueue) -> None:
        """What the broker has again anyway, and what may be returned any number of times."""
        if kept.asking is not None and not kept.asking.consumer.is_open:
            kept.ends_asking()
        for job in kept.take_all():
            step = self._heard.after(job, NotTaken.KEPT) if job.consumer.is_open else None
            if step is None:
                self._settling.gone(job)
            elif isinstance(step, KeepForOwnQueue):
                kept.add(job)
            else:
                self._heard.carry_out(job, step)

    def _report_held(self) -> None:
        self._owner.provision.refusals.holds(self, frozenset(queue for queue, kept in self._kept.items() if kept))
