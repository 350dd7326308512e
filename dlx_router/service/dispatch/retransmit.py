"""Retransmit: what was in flight when a publishing channel closed is repeated alone, so that only the culprit pays.

A channel that closes leaves all its unanswered publications in doubt, and says neither which of them was the cause nor
which of the others arrived. A copy may then exist twice, both with one letter id. What an answer leads to is said by
core/refusal, and done by the worker: here it is only published, and told.
"""

from collections.abc import Callable
from typing import NamedTuple

from dlx_router.broker.answers import ChannelClosed
from dlx_router.core.next_step import AskAlone, NextStep
from dlx_router.core.refusal import (
    BrokerAnswer,
    CopyUnwritable,
    HeaderTooLarge,
    InDoubt,
    NotTaken,
    PublishClosedChannel,
)
from dlx_router.service.dispatch.owner import Owner
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.dispatch.settler import Settler
from dlx_router.service.inflight.encoder import UNWRITABLE
from dlx_router.service.inflight.job import Destination, Job
from dlx_router.wire import frames


class Heard(NamedTuple):
    """Whom what is heard of a job is told: it arrived; what is next after an answer; and do it.

    `refused`: why the internal queue that it goes to refused others, "" where it did not.
    """

    arrived: Callable[[list[Job]], None]
    after: Callable[[Job, BrokerAnswer], NextStep]
    carry_out: Callable[[Job, NextStep], None]
    refused: Callable[[Job], str]


class Retransmit:
    """Of one worker. `running`: letters that are sent alone, or are about to be."""

    def __init__(self, owner: Owner, settling: Settler, probe: SerialPublisher, heard: Heard) -> None:
        self._owner, self._settling, self._probe, self._heard = owner, settling, probe, heard
        self.running = 0

    async def each(self, jobs: list[Job]) -> None:
        """One after the other. It waits for one confirm that does not come: then others' targets are spared."""
        self.running += len(jobs)
        try:
            in_time = True
            for job in jobs:
                if not job.consumer.is_open:
                    self._settling.gone(job)
                elif self._is_asked(job, in_time=in_time):
                    in_time = await self.publish_alone(job, self._probe) and in_time
        finally:
            self.running -= len(jobs)

    def _is_asked(self, job: Job, *, in_time: bool) -> bool:
        """Whether it is published now; else what is done instead was done."""
        was_silent = self._owner.provision.silent.is_over(job.target)
        step = self._heard.after(job, InDoubt(self._heard.refused(job), was_silent=was_silent, in_time=in_time))
        if step == AskAlone():
            return True
        self._heard.carry_out(job, step)
        return False

    async def publish_alone(self, job: Job, probe: SerialPublisher, *, bare: bool = False) -> bool:
        """Publish it, and do what the answer leads to. False: nobody answered in time."""
        answer = await self._published(job, probe, bare=bare)
        if answer is None:
            self._owner.provision.silent.took(job.target)
            self._heard.arrived([job])
            return True
        step = self._heard.after(job, answer)
        if isinstance(step, AskAlone) and step.bare:
            return await self.publish_alone(job, probe, bare=True)
        self._heard.carry_out(job, step)
        return answer is not NotTaken.TIMEOUT

    @staticmethod
    async def _published(job: Job, probe: SerialPublisher, *, bare: bool) -> BrokerAnswer | None:
        try:
            answer = await probe.publish(job, bare=bare)
        except frames.FrameTooLarge as error:
            return HeaderTooLarge(str(error), bare=bare)
        except UNWRITABLE as error:
            return CopyUnwritable(str(error))
        if isinstance(answer, ChannelClosed):
            return PublishClosedChannel(answer.code, answer.text)
        return NotTaken(answer) if answer else None

    def beside(self, job: Job) -> None:
        """It asks whether a silent target answers again: one letter for each such target, and few at once."""
        probe = self._probe.lend()
        if probe is None:
            self._heard.carry_out(job, self._heard.after(job, NotTaken.RESTS))
            return
        self._owner.provision.silent.asked.add(job.target)
        self.running += 1
        self._owner.spawn(self._asked(job, probe, job.target))

    async def _asked(self, job: Job, probe: SerialPublisher, target: Destination) -> None:
        try:
            if job.consumer.is_open:
                await self.publish_alone(job, probe)
            else:
                self._settling.gone(job)
        finally:
            self._owner.provision.silent.asked.discard(target)
            self._probe.take_back(probe)
            self.running -= 1
