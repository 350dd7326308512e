"""Doubt: what was in flight when a publishing channel closed is repeated one by one, so that only the culprit pays.

A channel that closes leaves all its unanswered publications in doubt, and says neither which of them was the cause nor
which of the others arrived. A copy may then exist twice, both with one letter id.
"""

from abc import ABC, abstractmethod
from typing import Final

from dlx_router.broker.answers import ChannelClosed
from dlx_router.broker.publisher import TIMEOUT
from dlx_router.core.letter import Arrival
from dlx_router.core.words import Action, Cause
from dlx_router.service.dispatch.cooldown import is_own, target_of
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.dispatch.settler import Owner, Settler
from dlx_router.service.inflight.encoder import UNWRITABLE
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.places import Places
from dlx_router.wire import frames

FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
PRECONDITION_FAILED: Final = 406


class Doubtful(ABC):
    """The part of a lane that repeats jobs alone."""

    _owner: Owner
    _probe: SerialPublisher
    _settling: Settler
    _places: Places
    _repeating: int  # letters that are sent alone, or are about to be, without another look at what they need

    @abstractmethod
    def _long_way(self, job: Job) -> None:
        """Judge it in full, where that was spared."""

    @abstractmethod
    def _answered(self, job: Job, why: str) -> None:
        """The broker said why not."""

    @abstractmethod
    def _arrived(self, jobs: list[Job]) -> None:
        """Their copies are where they should be."""

    @abstractmethod
    def _refused(self, job: Job, cause: Cause, why: str = "", *, final: bool = False) -> None:
        """The target is full, gone or forbidden."""

    @abstractmethod
    def _quarantine(self, job: Job, cause: str) -> None:
        """As it came, and alone."""

    @abstractmethod
    def _rests(self, job: Job) -> bool:
        """Its target refused or was silent just now."""

    @abstractmethod
    def _spare(self, job: Job) -> None:
        """It is not sent to a target that rests."""

    @abstractmethod
    def _hold_fast(self, job: Job, why: str) -> None:
        """It can neither be published nor rejected."""

    @abstractmethod
    def _keeps(self, job: Job) -> bool:
        """It was not sent, because the queue of ours that it goes to refuses."""

    @abstractmethod
    def _ask(self, job: Job) -> None:
        """Its target was silent; it asks beside the others whether it still is."""

    async def _alone(self, jobs: list[Job]) -> None:
        """One after the other. The lane waits for one confirm that does not come: then others' targets are spared."""
        self._repeating += len(jobs)
        try:
            await self._each_alone(jobs)
        finally:
            self._repeating -= len(jobs)

    async def _each_alone(self, jobs: list[Job]) -> None:
        in_time = True
        for job in jobs:
            if not job.consumer.is_open:
                self._settling.gone(job)
            elif self._rests(job):
                self._spare(job)
            elif self._keeps(job):
                pass
            elif self._owner.provision.silent.is_over(target_of(job)):
                self._ask(job)
            elif in_time or is_own(job):
                in_time = await self._one(job, self._probe) and in_time
            else:
                self._spare(job)

    async def _one(self, job: Job, probe: SerialPublisher) -> bool:
        """False: nobody answered in time."""
        if job.order is not None:
            self._long_way(job)
        try:
            answer = await probe.publish(job)
        except frames.FrameTooLarge as error:
            await self._without_frame(job, str(error))
            return True
        except UNWRITABLE as error:
            if job.raw:
                self._move_natively(job, str(error))
            else:
                self._quarantine(job, f"{Cause.MALFORMED}: {error}")
            return True
        if answer == "":
            self._owner.provision.silent.took(target_of(job))
            self._arrived([job])
        elif isinstance(answer, ChannelClosed):
            self._culprit(job, answer)
        else:
            self._answered(job, answer)
        return answer != TIMEOUT

    async def _without_frame(self, job: Job, why: str) -> None:
        """Its header fills more than a frame, mostly by what the broker wrote on top when it died."""
        place = self._places[job.consumer]
        if place.names.is_own(place.source):
            self._move_natively(job, why)
            return
        if not job.raw:
            self._quarantine(job, Cause.TOO_LARGE)
            return
        try:
            answer = await self._probe.publish(job, bare=True)
        except UNWRITABLE:
            self._move_natively(job, why)
            return
        if answer == "":
            self._arrived([job])
        elif isinstance(answer, ChannelClosed):
            self._culprit(job, answer)
        else:
            self._answered(job, answer)

    def _move_natively(self, job: Job, why: str) -> None:
        """Too large to be published by anybody: the broker moves it to quarantine by the queue's own DLX, unchecked."""
        place = self._places[job.consumer]
        if not place.names.is_own(place.source):  # a foreign queue may have no DLX: rejecting would drop the letter
            self._owner.leave_alone(place.source, f"a letter can neither be kept nor published: {why}")
            self._settling.gone(job)
            return
        if place.arrival is Arrival.RETIRED:  # that queue has no DLX: what ends there is in the journal
            self._owner.trouble(f"a letter of {place.source!r} can neither be kept nor published: {why}")
            return
        if place.source not in self._owner.provision.refusals.catching:  # rejecting might drop it
            self._hold_fast(job, why)
            return
        job.action, job.cause = Action.QUARANTINE, Cause.TOO_LARGE
        self._owner.decider.quarantined(job, place)
        self._settling.reject(job)

    def _culprit(self, job: Job, error: ChannelClosed) -> None:
        fault = error.code == PRECONDITION_FAILED  # of the letter
        if fault and (job.raw or "larger than" in error.text):
            self._move_natively(job, str(error))
        elif job.raw:
            self._refused(job, Cause.TARGET_REFUSED, str(error))
        elif error.code in {NOT_FOUND, FORBIDDEN}:
            self._owner.provision.forget(job.resource)
            self._refused(job, Cause.MISSING_EXCHANGE if error.code == NOT_FOUND else Cause.FORBIDDEN, str(error))
        else:
            self._quarantine(job, f"{Cause.MALFORMED}: {error}")
