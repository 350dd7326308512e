"""Answering: what a lane does when the broker says that a letter is where it should be, or why it is not."""

import asyncio
import time
from abc import abstractmethod
from typing import Final, NamedTuple

from dlx_router.broker.consumer import Consumer
from dlx_router.broker.publisher import NACKED, RETURNED, TIMEOUT
from dlx_router.core.decision import GRACED
from dlx_router.core.words import Cause
from dlx_router.service.dispatch.cooldown import NO_CONFIRM, Cooldown, Target, is_own, target_of
from dlx_router.service.dispatch.own_queue_waits import Keeping
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.inflight.job import Job

NACK_PAUSE_S: Final = 0.2
INSIST_PAUSE_S: Final = 1.0
INSIST_S: Final = 45.0  # no letter stays unacked over a minute


class TargetMissingSince(NamedTuple):
    """The letter that nothing overtakes, and since when its target is missing; it is remembered when it is given back.

    One is enough: the next comes from that consumer when this one is where it belongs.
    """

    consumer: Consumer
    letter_id: str
    since_s: float


class Answering(Keeping):
    """The part of a lane that hears answers."""

    _missing: TargetMissingSince | None
    _full: Cooldown
    _moved_s: float

    @abstractmethod
    def _submit(self, job: Job) -> None:
        """Towards its target, once what it needs is there."""

    @abstractmethod
    def _send(self, job: Job) -> None:
        """Publish."""

    @abstractmethod
    def _resume(self, job: Job) -> None:
        """After a while, where the session still lasts."""

    def _may_ask(self, job: Job) -> bool:
        """False: its target rests and it is held, or it asks alone whether the target answers again."""
        if self._rests(job):
            self._spare(job)
        elif self._owner.provision.silent.is_over(target_of(job)):
            self._ask(job)
        else:
            return True
        return False

    def _ask(self, job: Job) -> None:
        """Whether a silent target answers again: one letter for each such target, and few such targets at once."""
        probe = self._probe.lend()
        if probe is None:
            self._spare(job)
            return
        target = target_of(job)
        self._owner.provision.silent.asked.add(target)
        self._repeating += 1
        self._owner.spawn(self._asked(job, probe, target))

    async def _asked(self, job: Job, probe: SerialPublisher, target: Target) -> None:
        try:
            if job.consumer.is_open:
                await self._one(job, probe)
            else:
                self._settling.gone(job)
        finally:
            self._owner.provision.silent.asked.discard(target)
            self._probe.take_back(probe)
            self._repeating -= 1

    def _rests(self, job: Job) -> bool:
        """A target that refused a letter twice just now, or was silent, is not asked again at once."""
        target = target_of(job)
        return self._full.has(target) or self._owner.provision.silent.has(target)

    def _spare(self, job: Job) -> None:
        self._hold(job, Cause.TARGET_REFUSED)

    def _confirmed(self, jobs: list[Job]) -> None:
        self._moved_s = time.monotonic()
        if self._owner.provision.silent:
            for job in jobs:
                self._owner.provision.silent.took(target_of(job))
        self._arrived(jobs)

    def _arrived(self, jobs: list[Job]) -> None:
        if self._missing is not None and any(job.consumer is self._missing.consumer for job in jobs):
            self._missing = None
        if self._owner.provision.refusals.queues:
            self._took(jobs)
        self._settling.confirmed(jobs)

    def _answered(self, job: Job, why: str) -> None:
        self._moved_s = time.monotonic()
        if not why:
            self._arrived([job])
            return
        self._owner.metrics.publish_refused[why] += 1
        if why == NACKED and job.nacks == 0 and not self._rests(job):
            job.nacks = 1
            asyncio.get_running_loop().call_later(NACK_PAUSE_S, self._resume, job)  # its queue may be gone by then
            return
        if why == RETURNED:
            self._owner.provision.forget(job.resource)
            self._refused(job, Cause.UNROUTABLE)
            return
        if why == TIMEOUT and not is_own(job):
            self._owner.provision.silent.rest(target_of(job))
        self._refused(job, Cause.TARGET_REFUSED, NO_CONFIRM if why == TIMEOUT else "")

    def _refused(self, job: Job, cause: Cause, why: str = "", *, final: bool = False) -> None:
        """A target that is full, gone or forbidden; our own queues must never be. Parked at once where it is final.

        `why`: the broker's own words, where it had some.
        """
        if job.order is not None:
            self._long_way(job)
        job.why = why
        if is_own(job):
            self._keep(job, why or cause)
            return
        if final:
            self._owner.decider.park(job, cause)
            self._submit(job)
            return
        if cause is Cause.TARGET_REFUSED:
            self._full.rest(target_of(job))
        self._hold(job, cause)

    def _hold(self, job: Job, cause: Cause) -> None:
        if job.order is not None:
            self._long_way(job)
        place = self._places[job.consumer]
        if place.source == place.names.fifo:
            self._insist(job, cause)
            return
        self._owner.decider.refused(job, cause)
        self._submit(job)

    def _insist(self, job: Job, cause: Cause) -> None:
        """In order means that nothing overtakes: tried each second, parked where its target is missing for too long."""
        if self._owner.decider.overdue(job, cause, self._missing_s(job, cause)):
            self._owner.decider.park(job, cause)
            self._submit(job)
        elif time.monotonic() - job.started_s > INSIST_S:
            self._settling.give_back(job, "fifo")
        else:
            asyncio.get_running_loop().call_later(INSIST_PAUSE_S, self._resume, job)

    def _missing_s(self, job: Job, cause: Cause) -> float:
        """For how long the target of this letter has been missing, in the deliveries before this one too."""
        now, letter_id = time.monotonic(), job.letter.id if job.letter is not None else ""
        if cause not in GRACED:
            self._missing = None
        elif self._missing is None or self._missing.letter_id != letter_id:
            self._missing = TargetMissingSince(job.consumer, letter_id, now)
        return 0.0 if self._missing is None else now - self._missing.since_s
