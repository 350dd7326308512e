"""The sender: a letter that is meant → its copy, confirmed and not returned, and its event; then it is acked.

Whatever the mode of the journal: the stream itself has confirmed the event, because a discarded letter is nowhere else,
and a task that goes on after a crash counts by the journal what it has done.
"""

import time
from collections.abc import Callable
from functools import partial
from typing import Final

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.link import Link
from dlx_router.broker.publisher import NACKED, Publisher
from dlx_router.redrive.task import Kind, Spec
from dlx_router.service.dispatch.settler import Ending, once_sure
from dlx_router.service.inflight.clock import now_ms
from dlx_router.service.inflight.encoder import LAST_DEATHS_SINCE, UNWRITABLE, Encoder
from dlx_router.service.inflight.job import Job
from dlx_router.service.redrive.binding_facts import version_of
from dlx_router.service.redrive.bindings import Bindings
from dlx_router.service.redrive.context import Stopped, TaskContext
from dlx_router.service.redrive.copies import Copies
from dlx_router.service.redrive.counters import Counters
from dlx_router.wire import frames

MAX_TWICE: Final = 1000  # letters that a router sends again that was killed
WINDOW: Final = MAX_TWICE // 2  # that are on their way, or whose acks are; as many may wait in a channel of the broker
WINDOW_BYTES: Final = 16 << 20  # of them


class Unconfirmed(LinkError):
    """The broker confirms nothing in time: whether the copies have arrived nobody knows."""


class Sender:
    """Over one connection. `pending` letters are on their way, `flying` of them published and not answered.

    `failure`: what ended it, for the worker to raise; `answered_s`: when broker or stream last confirmed any of it.
    `window`: how many may be on their way until the broker confirms the first.
    """

    def __init__(
        self,
        spec: Spec,
        context: TaskContext,
        copies: Copies,
        *,
        ways: Bindings,
        counters: Counters,
        wake: Callable[[], None],
    ) -> None:
        self.pending = self._pending_bytes = 0
        self.flying = 0
        self.window = WINDOW
        self.failure: Exception | None = None
        self._spec, self._context, self._copies = spec, context, copies
        self._ways, self._counters, self._wake = ways, counters, wake
        self._moved_s = self.answered_s = 0.0
        self._out: Link
        self._publisher: Publisher[Job]
        self._encoder: Encoder

    async def open(self, out: Link) -> None:
        """Ready to send."""
        self._out = out
        self._encoder = Encoder(
            user=self._context.login.user,
            last_deaths=version_of(out) >= LAST_DEATHS_SINCE,
            key=self._context.sign_with(),
            quarantine=self._context.names.quarantine,
        )
        self._publisher = Publisher(out, on_answer=self._answered, on_done=self._confirmed, on_doubt=self._in_doubt)
        await self._publisher.open()
        self.rests()

    async def close(self) -> None:
        """Send no more: for who goes on with the connection. Copies that were not answered are in doubt."""
        await self._publisher.close()

    @property
    def is_open(self) -> bool:
        """Whether what is on its way can still be confirmed, and told."""
        return self._publisher.is_open and self._context.journal.is_working

    @property
    def room(self) -> int:
        """How many more may be on their way; none while the broker reads nothing, or the journal does not work."""
        return self.window - self.pending if self._context.journal.is_working and not self._out.blocked else 0

    @property
    def room_bytes(self) -> int:
        """How large they may be together, all but the last."""
        return WINDOW_BYTES - self._pending_bytes

    @property
    def is_held_up(self) -> bool:
        """Whether copies may still lie in our socket, because the broker reads nothing."""
        return self.flying > 0 and self._out.blocked

    def rests(self) -> None:
        """Nothing is late: the time in which the broker must confirm begins anew."""
        self._moved_s = time.monotonic()

    def check(self) -> None:
        """Unconfirmed where the broker confirms no more."""
        if not self.flying or self._out.blocked:
            self.rests()
        elif time.monotonic() - self._moved_s > self._context.confirm_timeout_s:
            raise Unconfirmed(f"the broker confirmed nothing for {self._context.confirm_timeout_s:g} s")

    async def send(self, job: Job) -> None:
        """On its way, or counted as one that stays."""
        if not self.flying:
            self.rests()
        if self._spec.kind is Kind.DISCARD:
            self._begins(job)
            job.published_ms = now_ms()
            self._record_events(job)
            return
        key = ""
        if self._spec.kind is Kind.REDRIVE and self._spec.to is None:
            assert job.letter is not None
            way = await self._ways.to(job.letter.failed_queue)
            if way is None:
                self._counters.stays_though_meant(self._ways.why_not(job.letter.failed_queue))
                return
            key = way
        self._copies.address(job, key)
        self._publish(job)

    def _publish(self, job: Job) -> None:
        try:
            exchange, key, section = self._encoder.write(job, self._publisher.stamp())
            job.published_ms = now_ms()  # from now on it may die again, before the broker's confirm comes
            self._publisher.publish(job, exchange, key, section, job.delivery.body)
            self._begins(job)
            self.flying += 1
        except frames.FrameTooLarge:
            self._stays(job, "their headers fill a frame")
        except UNWRITABLE as error:
            self._stays(job, f"they cannot be written: {error}")

    def _begins(self, job: Job) -> None:
        self.pending += 1
        self._pending_bytes += job.weight

    def _is_over(self, job: Job) -> None:
        self.pending -= 1
        self._pending_bytes -= job.weight

    def _stays(self, job: Job, why: str) -> None:
        job.copy = None
        self._counters.stays_though_meant(why)

    # -- answers ------------------------------------------------------------------------------------------------

    def _confirmed(self, jobs: list[Job]) -> None:
        self._landed(len(jobs))
        for job in jobs:
            self._record_events(job)

    def _landed(self, letters: int) -> None:
        self.rests()
        self.answered_s = self._moved_s
        self.flying -= letters
        self.window = WINDOW

    def _record_events(self, job: Job) -> None:
        lines = self._copies.events(job, job.published_ms)
        record = partial(self._context.journal.record, of_task=self._copies.tell_tasks)
        job.batches = tuple(map(record, lines))
        once_sure(job, self._ended)

    def _ended(self, job: Job, how: Ending) -> None:
        """Where the journal has lost its event all is begun anew."""
        self._is_over(job)
        self.answered_s = time.monotonic()
        if how is Ending.LOST:
            self.failure = LinkError("the journal is too far behind to take what is done; see /readyz")
        elif how is Ending.SETTLED:
            self._counters.sent()
            self._context.metrics.redrive_letters["sent"] += 1
        self._wake()

    def _answered(self, job: Job, why: str) -> None:
        self._landed(1)
        if not why:
            self._record_events(job)
            return
        self._is_over(job)
        self._context.metrics.redrive_letters[why] += 1
        assert job.copy is not None and job.letter is not None  # noqa: PT018 - it was published
        if why == NACKED:
            self.failure = Stopped(f"{_target(job)} takes no more; what was not sent stays; resume when it has room")
        elif self._spec.to is not None or self._spec.kind is Kind.PARK:
            self.failure = Stopped(f"{_target(job)} leads to no queue; what was not sent stays")
        else:
            self._ways.is_gone(job.letter.failed_queue)
            self._stays(job, self._ways.why_not(job.letter.failed_queue))
        job.copy = None  # it is nowhere
        self._wake()

    def _in_doubt(self, jobs: list[Job], error: Exception) -> None:
        self.flying -= len(jobs)
        for job in jobs:
            self._is_over(job)
            job.copy = None  # it may be nowhere
        if isinstance(error, ChannelClosed):
            self.failure = Stopped(f"the broker refuses the destination: {error}; what was not sent stays")
        else:
            self.failure = error
        self._wake()


def _target(job: Job) -> str:
    assert job.copy is not None
    if job.copy.bcc is not None or not job.copy.exchange:
        return f"queue {job.letter.failed_queue if job.copy.bcc and job.letter else job.copy.routing_key!r}"
    return f"exchange {job.copy.exchange!r} with key {job.copy.routing_key!r}"
