"""Settler: the end of every job. A source is acked only when its copy is confirmed and the journal has its events.

Rule for whoever edits this file: `Consumer.settle`, `reject` and `give_back` are called here and nowhere else, which
tests/rules/test_only_here.py holds.
"""

import asyncio
import time
from collections.abc import Callable
from enum import Enum, auto
from functools import partial
from typing import Final, Protocol

from dlx_router.broker.consumer import Consumer, Holder
from dlx_router.core.settlement import Part
from dlx_router.journal.batch import Batch, unsure
from dlx_router.service.inflight.encoder import Encoder
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.runs import Run
from dlx_router.telemetry.metrics import Metrics

LOST_PAUSE_S: Final = 5.0  # the journal is full of what it could not write: no use in asking it at once
UNSURE_S: Final = 30.0


class SettlerOwner(Protocol):
    """What a settler asks of its session."""

    vhost: str
    metrics: Metrics
    encoder: Encoder

    def retire_later(self, batch: Batch) -> None:
        """Take nothing more of what retention took out, until the stream has this batch or never will."""

    def weigh(self, size: int) -> None:
        """Count bytes in flight; the consuming socket pauses over the limit."""


class Ending(Enum):
    """How a letter of a task ended."""

    SETTLED = auto()
    GONE = auto()  # its consumer was lost, and the broker has it again
    LOST = auto()  # the stream never gets its event: it stays in its queue


def once_sure(job: Job, ended: Callable[[Job, Ending], None]) -> None:
    """Ack a letter of a task, once the stream itself has all of its events, and say how that ended."""
    batch = unsure(job.batches)
    if batch is not None and not batch.lost:
        batch.wait_sure(partial(once_sure, ended=ended), job)
    elif batch is not None:
        ended(job, Ending.LOST)
    else:
        ended(job, Ending.SETTLED if job.consumer.settle(job.delivery.tag) else Ending.GONE)


def returned(consumer: Consumer, tag: int) -> bool:
    """Back to its place: what was only looked at, or whose lease is over. False where the broker has it already."""
    return consumer.give_back(tag)


def returned_up_to(holder: Holder, tag: int) -> None:
    """As `returned`, of this and all that the channel holds of before."""
    holder.give_back_up_to(tag)


class Settler:
    """Settles the jobs of one worker, in runs, because a confirm speaks for letters that came together."""

    def __init__(self, owner: SettlerOwner) -> None:
        self._owner = owner
        self._unsure: dict[Job, None] = {}  # retired letters whose event the stream has not confirmed, the oldest first

    def confirmed(self, jobs: list[Job]) -> None:
        """The copies of these jobs are where they should be."""
        weight = 0
        runs: dict[tuple[float, str], int] = {}
        waiting: dict[Batch, list[Job]] = {}
        for job in jobs:
            for batch in job.batches:
                if not batch.settled:
                    waiting.setdefault(batch, []).append(job)
                    break
            else:
                delivery = job.delivery
                weight += len(delivery.body) + len(delivery.header)
                if job.consumer.settle(delivery.tag):
                    run = job.started_s, job.action._value_
                    runs[run] = runs.get(run, 0) + 1
                    if job.route is None:
                        self._owner.encoder.tell(job)
        self._owner.weigh(-weight)
        self._count(runs)
        for batch, some in waiting.items():
            batch.wait(self.confirmed, some)

    def confirmed_runs(self, parts: list[Part[Job]]) -> None:
        """As `confirmed`, of what of runs was."""
        for part in parts:
            self._confirmed_part(part)

    def _confirmed_part(self, part: Part[Job]) -> None:
        run, start, stop = part
        assert isinstance(run, Run)  # nothing else is published
        batch, owner = run.batch, self._owner
        if batch is not None and not batch.settled:
            batch.wait(self._confirmed_part, part)
            return
        if run.consumer.settle_run(run.first_tag + start, run.first_tag + stop):
            self._count({(run.started_s, action): count for action, count in run.actions(start, stop).items()})
        owner.weigh(-run.forget(start, stop))

    def carried_out(self, job: Job) -> None:
        """As `confirmed`, of a job that needed no copy."""
        self.confirmed([job])

    def retire(self, job: Job) -> None:
        """The journal is the only place where the letter will be: acked once the stream itself has confirmed it.

        Given back where that takes too long, because bytes in flight are the room of all letters.
        """
        batch = unsure(job.batches)
        if batch is None:
            self.carried_out(job)
        elif batch.lost:
            asyncio.get_running_loop().call_later(LOST_PAUSE_S, self.give_back, job, "journal")
        else:
            self._unsure[job] = None
            batch.wait_sure(self._sure, job)

    def _sure(self, job: Job) -> None:
        if job in self._unsure:  # else it was given back meanwhile
            del self._unsure[job]
            self.retire(job)

    def check(self) -> None:
        """Called each second."""
        oldest = next(iter(self._unsure), None)
        batch = None if oldest is None else unsure(oldest.batches)
        if oldest is None or batch is None or time.monotonic() - oldest.started_s < UNSURE_S:
            return
        back, self._unsure = self._unsure, {}
        self._owner.retire_later(batch)
        for job in back:
            self.give_back(job, "journal")

    def _count(self, runs: dict[tuple[float, str], int]) -> None:
        metrics, vhost, now = self._owner.metrics, self._owner.vhost, time.monotonic()
        for (started_s, action), n in runs.items():
            metrics.settled[vhost, action] += n
            metrics.confirm_seconds.observe(now - started_s, n)
            metrics.route_seconds.observe(now - started_s, n)

    def reject(self, job: Job) -> None:
        """Let the broker move the letter by its queue's own DLX, once the journal has its event."""
        for batch in job.batches:
            if not batch.settled:
                batch.wait(self.reject, job)
                return
        if job.consumer.reject(job.delivery.tag, requeue=False):
            self._owner.metrics.settled[self._owner.vhost, job.action.value] += 1
            self._owner.encoder.tell(job)
        self.gone(job)

    def give_back(self, job: Job, cause: str) -> None:
        """The message was only looked at: back to its place."""
        if job.consumer.give_back(job.delivery.tag):
            self._owner.metrics.given_back[self._owner.vhost, cause] += 1
        self.gone(job)

    def gone(self, job: Job) -> None:
        """The job is over: nothing of it is in memory any more."""
        self._owner.weigh(-len(job.delivery.body) - len(job.delivery.header))
