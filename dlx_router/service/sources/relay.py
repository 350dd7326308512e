"""A relay: a source that leads to an exchange. What lives goes on in order, what is too old or too much dies here.

Rules for whoever edits this file:
1. The line is in the order of arrival, and only its head is judged or sent: as in the broker, age ends at the head.
2. A target that nacks is asked again with the same message, one at a time, after longer and longer pauses; nothing
   overtakes it from then on. Each confirm widens the window again.
3. What dies here goes to the worker of letters and never waits for the living.
"""

import asyncio
import time
from collections import deque
from typing import Final

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.consumer import Consumer
from dlx_router.core.next_step import BackInLine, HoldOnLadder, NextStep, ParkNow
from dlx_router.core.passing import EXPIRED, MAXLEN, Limits, Marks, Target, due_ms, excess
from dlx_router.core.refusal import RelayLine
from dlx_router.core.words import Action, Cause
from dlx_router.service.dispatch import arrivals
from dlx_router.service.dispatch.owner import Owner
from dlx_router.service.dispatch.resources import Refusal
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.dispatch.worker import Worker
from dlx_router.service.inflight import decoder
from dlx_router.service.inflight.clock import now_ms
from dlx_router.service.inflight.decoder import Place
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.routes import Resource
from dlx_router.wire import frames

WINDOW: Final = 256
LINE_PER_FLIGHT: Final = 8
CAREFUL_S: Final = 10.0
FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 60.0
SEVERAL_PAUSES_S: Final = (FIRST_PAUSE_S, 1.0, 4.0, 16.0)
COUNT_S: Final = 0.5
BUSY_BYTES: Final = 16 << 20
_WEIGHT: Final = 0.02  # of the newest body in the mean


class Relay(Worker):
    """The way of one relayed queue."""

    in_runs = False

    def __init__(
        self, owner: Owner, probe: SerialPublisher, *, queue: str, target: Target, deaths: Worker, slack: int
    ) -> None:
        super().__init__(owner, probe)
        self._queue, self._target, self._deaths = queue, target, deaths
        self._line: deque[Job] = deque()
        self._line_bytes = 0
        self._left = 0  # how many have left the line so far
        self._marks, self._slack = Marks(slack), slack
        self._checked = 0  # have left the line, and are sent once the broker has said that what they need is there
        self._careful_until_s = self._again_s = 0.0
        self._size, self._threshold = float(WINDOW), WINDOW / 2  # of the window: by one a confirm, then by one a window
        self._excess = 0
        self._mean_bytes = 0.0
        self._pumping = self._is_strict = self._is_over = False

    def attend(self, consumer: Consumer, place: Place) -> None:
        """As of any worker; what was counted for an earlier consumer says nothing of this one."""
        super().attend(consumer, place)
        self._deaths.attend(consumer, place)
        self._marks, self._excess = Marks(self._slack), 0

    def leave(self, consumer: Consumer) -> None:
        """As of any worker."""
        super().leave(consumer)
        self._deaths.leave(consumer)

    def limit(self, consumer: Consumer, limit: int | None) -> None:
        """As of any worker, and it is spared in the line too."""
        super().limit(consumer, limit)
        self._deaths.limit(consumer, limit)
        for job in reversed([self._pop() for _ in range(len(self._line))]):
            self._put_back(job)

    @property
    def held_bytes(self) -> int:
        """Of the bytes in flight, those of the line while its target does not take its head."""
        return self._line_bytes if time.monotonic() < self._careful_until_s else 0

    def begin(self, consumer: Consumer, *, strict: bool) -> None:
        """Measure from now on. `strict`: one message at a time, as `ordering: fifo` says too."""
        self._is_strict = strict
        self._owner.spawn(self._measure(consumer))

    def give_back(self) -> None:
        """Send nothing more: what waits in the line goes back to the queue, in its order, as does what still comes."""
        self._is_over = True
        while self._line:
            self._settling.give_back(self._pop(), "left")

    @property
    def limits(self) -> Limits:
        """What holds now."""
        limits = arrivals.limits(self._owner.decider.in_force, self._queue)
        return limits._replace(strict=True) if self._is_strict else limits

    # -- in -----------------------------------------------------------------------------------------------------

    def take(self, delivery: frames.Delivery, consumer: Consumer) -> None:
        """A delivery arrives, at the end of the line."""
        owner, size = self._owner, len(delivery.body)
        owner.metrics.deliveries[owner.vhost, self._queue] += 1
        owner.weigh(size + len(delivery.header))
        job = Job(consumer, delivery, owner.read_s(), owner.decider.in_force)
        if self._is_near(job):
            self._marks.delivered(now_ms())
            self._deaths.spare(job)
            return
        job.arrived_ms = self._marks.delivered(now_ms())
        self._mean_bytes += (size - self._mean_bytes) * (_WEIGHT if self._marks.seen > 1 else 1.0)
        self._line.append(job)
        self._line_bytes += size
        self._pump()

    def _pump(self) -> None:
        """Whatever the head of the line may do now, it does."""
        if self._is_over:
            self.give_back()
        if self._pumping:
            return
        self._pumping = True
        try:
            while self._line and self._step(self._line[0]):
                pass
        finally:
            self._pumping = False

    def _step(self, head: Job) -> bool:
        """False: the head has to wait."""
        if not head.consumer.is_open:
            self._settling.gone(self._pop())
        elif self._excess > 0:
            self._excess -= 1
            self._deaths.bury(self._pop(), MAXLEN)
        elif self._is_due(head):
            self._deaths.bury(self._pop(), EXPIRED)
        elif self._may_send():
            job = self._pop()
            self._owner.decider.relayed(job, self._places[job.consumer], self._target)
            self._submit(job)
        else:
            return False
        return True

    def _pop(self) -> Job:
        job = self._line.popleft()
        self._line_bytes -= len(job.delivery.body)
        self._left += 1
        return job

    def _is_due(self, job: Job) -> bool:
        limits, now = self.limits, now_ms()
        if limits.ttl_ms is None and now - job.arrived_ms < 1:
            return False
        ends = due_ms(limits, decoder.stamps(job.delivery), job.arrived_ms)
        return ends is not None and ends <= now

    def _may_send(self) -> bool:
        if self._again_s > time.monotonic() or not self._publisher.is_open or self._owner.publish_link.blocked:
            return False
        return self._checked + len(self._publisher) < self._window()

    def _window(self) -> int:
        """One at a time, as long as that is fast enough: what is not on its way cannot be overtaken."""
        if self.limits.strict or self._line[0].refusals:
            return 1
        return min(max(1, len(self._line) // LINE_PER_FLIGHT), int(self._size))

    def _later(self, job: Job, resource: Resource) -> None:
        self._checked += 1
        self._owner.provision.later(resource, job, self._looked_up)

    def _looked_up(self, job: Job, resolved: str | Refusal) -> None:
        self._checked -= 1
        self._provided(job, resolved)
        if not self._checked:  # those that left the line earlier go first
            self._pump()

    # -- answers ------------------------------------------------------------------------------------------------

    def _confirmed(self, jobs: list[Job]) -> None:
        super()._confirmed(jobs)
        grows = len(jobs) if self._size < self._threshold else len(jobs) / self._size
        self._size = min(self._size + grows, WINDOW)
        self._pump()

    def _answered(self, job: Job, why: str) -> None:
        super()._answered(job, why)
        self._pump()

    def _line_of(self, job: Job) -> RelayLine | None:
        """What lives can go back to its place; what died goes the way of all letters."""
        if job.action is not Action.FORWARD:
            return None
        return RelayLine(strict=self.limits.strict, full=self._line_bytes >= BUSY_BYTES, over=self._is_over)

    def _carry_out(self, job: Job, step: NextStep) -> None:
        """As any step; who refuses what lives is not asked for a while, and then carefully."""
        refused = isinstance(step, HoldOnLadder | ParkNow) and step.cause is Cause.TARGET_REFUSED
        if job.action is Action.FORWARD and (refused or isinstance(step, BackInLine)):
            self._pauses(job, time.monotonic())
        if isinstance(step, BackInLine):
            self._put_back(job)
        else:
            super()._carry_out(job, step)
        self._pump()

    def _pauses(self, job: Job, now_s: float) -> None:
        pause_s = _pause_s(job)
        self._careful_until_s = now_s + max(CAREFUL_S, pause_s)
        if self._size > 1:
            self._threshold, self._size = max(self._size / 2, 2.0), 1.0
        if self._again_s < now_s + pause_s:
            self._again_s = now_s + pause_s
            asyncio.get_running_loop().call_later(pause_s, self._pump)

    def _is_near(self, job: Job) -> bool:
        return decoder.is_near(job.delivery, self._places[job.consumer].limit)

    def _put_back(self, job: Job) -> None:
        if self._is_near(job):  # its limit was not known when it came
            self._deaths.spare(job)
            return
        line, tag = self._line, job.delivery.tag
        at = next((at for at, queued in enumerate(line) if queued.delivery.tag > tag), len(line))
        line.insert(at, job)
        self._line_bytes += len(job.delivery.body)
        self._left -= 1

    # -- the length of the source -------------------------------------------------------------------------------

    async def _measure(self, consumer: Consumer) -> None:
        """Count what waits, twice a second, as long as the consumer is there."""
        while consumer.is_open:
            try:
                if self.limits.any:
                    await self._count(consumer)
            except (ChannelClosed, LinkError, TimeoutError):
                pass  # the consumer tells its end itself; a paused socket answers later
            self._pump()
            await asyncio.sleep(COUNT_S)

    async def _count(self, consumer: Consumer) -> None:
        asked, line, left = self._marks.seen, len(self._line), self._left
        ready, _ = await consumer.counted()
        self._marks.counted(ready, asked, now_ms())
        waiting = ready + max(0, line - (self._left - left))
        self._excess = excess(self.limits, waiting, self._mean_bytes)

    async def _recover(self, jobs: list[Job], *, own: bool) -> None:
        await super()._recover(jobs, own=own)
        self._pump()


def _pause_s(job: Job) -> float:
    """How long the target is not asked; longer where each publish may leave a copy in another queue."""
    times = max(job.refusals - 1, 0)
    if job.queue is None:
        return SEVERAL_PAUSES_S[min(times, len(SEVERAL_PAUSES_S) - 1)]
    return min(FIRST_PAUSE_S * 2.0 ** min(times, 20), LONGEST_PAUSE_S)
