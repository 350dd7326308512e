"""Keeping: what a queue of ours refused stays unacked, for a return might be its last, and is tried again one by one.

This is the one exception from "no letter stays unacked over a minute", and not for the letters of our own queues, which
may be returned any number of times: they go back after a while and come again.
"""

import asyncio
import time
from abc import abstractmethod
from collections import deque
from typing import Final

from dlx_router.core import attending
from dlx_router.core.words import Cause
from dlx_router.service.dispatch.own_queues_refusing import own_queue
from dlx_router.service.dispatch.retransmit import Doubtful
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.inflight import decoder
from dlx_router.service.inflight.job import Job

AGAIN_S: Final = 1.0
LONGEST_AGAIN_S: Final = 5.0
BACK_S: Final = 45.0
REFUSED: Final = "own_queue"


class WaitingForOwnQueue:
    """The letters for one own queue, the one that asks it among them, and when the next asks."""

    def __init__(self) -> None:
        self.jobs: deque[Job] = deque()
        self.asking: Job | None = None
        self.pause_s = AGAIN_S
        self.again_s = time.monotonic() + AGAIN_S

    def __len__(self) -> int:
        return len(self.jobs) + (self.asking is not None)


class Keeping(Doubtful):
    """The part of a lane that holds letters for own queues."""

    _kept: dict[str, WaitingForOwnQueue]

    @abstractmethod
    def _provide(self, job: Job) -> None:
        """Towards its target, once what it needs is there."""

    def _keep(self, job: Job, why: str) -> None:
        place, refusals = self._places[job.consumer], self._owner.provision.refusals
        queue = own_queue(job, place.names)
        assert queue is not None
        job.nacks = 1  # the next refusal is final
        self._asks_no_more(job)
        self._kept.setdefault(queue, WaitingForOwnQueue()).jobs.append(job)
        self._tell_held()
        limit = place.limit
        spent = limit is not None and attending.is_near(decoder.returns(job.delivery), limit)
        refusals.refused(queue, why, place.source, spent=spent)

    def _hold_fast(self, job: Job, why: str) -> None:
        """It can neither be published nor rejected: it stays in its queue, and readiness says so."""
        queue = self._places[job.consumer].source
        self._owner.provision.refusals.stuck(queue, why)
        asyncio.get_running_loop().call_later(BACK_S, self._settling.give_back, job, REFUSED)

    def _keeps(self, job: Job) -> bool:
        """The queue of ours that it goes to refused others: it is held too, and not sent."""
        queues = self._owner.provision.refusals.queues
        if not queues:
            return False
        queue = own_queue(job, self._places[job.consumer].names)
        if queue is None or queue not in queues:
            return False
        self._refused(job, Cause.TARGET_REFUSED, queues[queue])
        return True

    def _took(self, jobs: list[Job]) -> None:
        """Copies arrived while own queues refuse: those that they went to, do not any more."""
        for job in jobs:
            self._asks_no_more(job)
            queue = own_queue(job, self._places[job.consumer].names)
            if queue is not None:
                self._owner.provision.refusals.took(queue)
        self._tell_held()

    def _refusals_changed(self) -> None:
        """What was held for queues that take letters again is sent."""
        refusing = self._owner.provision.refusals.queues
        for queue in [one for one in self._kept if one not in refusing]:
            jobs = self._kept.pop(queue).jobs
            raw = [job for job in jobs if job.raw]
            for job in jobs:
                if not job.raw:
                    self._provide(job)
            if raw:
                self._owner.spawn(self._alone(raw))
        self._tell_held()

    def _ask_own(self) -> None:
        """Called each second: one letter asks each queue that refuses, after longer and longer pauses."""
        now = time.monotonic()
        for queue, kept in [*self._kept.items()]:
            self._let_go(kept, now)
            if not kept:
                del self._kept[queue]  # what refuses is known, and asked by the next
            elif kept.jobs and kept.asking is None and now >= kept.again_s:
                self._try(kept, now)
        self._tell_held()

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
            await self._one(job, probe)
        finally:
            self._probe.take_back(probe)
        self._asks_no_more(job)
        self._tell_held()

    def _asks_no_more(self, job: Job) -> None:
        for kept in self._kept.values():
            if kept.asking is job:
                kept.asking = None

    def _let_go(self, kept: WaitingForOwnQueue, now: float) -> None:
        """What the broker has again anyway, and what may be returned any number of times."""
        if kept.asking is not None and not kept.asking.consumer.is_open:
            kept.asking = None  # it ends where it is
        staying: deque[Job] = deque()
        for job in kept.jobs:
            place = self._places[job.consumer]
            if not job.consumer.is_open:
                self._settling.gone(job)
            elif place.names.is_own(place.source) and now - job.started_s > BACK_S:
                self._settling.give_back(job, REFUSED)
            else:
                staying.append(job)
        kept.jobs = staying

    def _tell_held(self) -> None:
        self._owner.provision.refusals.holds(self, sum(map(len, self._kept.values())))
