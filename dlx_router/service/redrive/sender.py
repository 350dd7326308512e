"""The sender: a letter that is meant → its copy, confirmed and not returned, and its event; then it is acked.

Whatever the mode of the journal: the stream itself has confirmed the event, because a discarded letter is nowhere else,
and a task that goes on after a crash counts by the journal what it has done.

A copy keeps the letter's id; its record says one redrive more, the task's id, and no attempts: it begins again at its
failed queue. See docs/architecture.md ("Life of a letter").
"""

import time
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from itertools import islice
from typing import Any, Final
from zlib import crc32

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.link import Link
from dlx_router.broker.publisher import NACKED, Publisher
from dlx_router.core import publication
from dlx_router.core.fingerprint import fingerprint
from dlx_router.core.letter import Letter
from dlx_router.core.publication import Publication, Way
from dlx_router.core.record import AT_REST_BYTES
from dlx_router.core.words import State
from dlx_router.journal import privacy
from dlx_router.journal.events import NO_BODY, Ruling
from dlx_router.journal.privacy import Rule, error_of, rule_of
from dlx_router.redrive.letter_edits import Edit, Value
from dlx_router.redrive.task import KINDS, Counts, Kind, Spec
from dlx_router.service.dispatch.events import letter_line
from dlx_router.service.dispatch.settler import Ending, once_sure
from dlx_router.service.inflight.clock import now_ms
from dlx_router.service.inflight.decoder import Envelope
from dlx_router.service.inflight.encoder import LAST_DEATHS_SINCE, UNWRITABLE, Encoder
from dlx_router.service.inflight.job import Job
from dlx_router.service.redrive.bindings import Bindings
from dlx_router.service.redrive.context import Stopped, TaskContext
from dlx_router.wire import frames, properties, table

GROUPS: Final = 200
REASONS: Final = 1000  # to stay; each names a queue


class Counters:
    """Of one task. `stays`: why letters that are meant stay; `groups`: of a dry run, (group, failed queue, reason).

    `others`: consumers of the queue at its end.
    """

    def __init__(self, counts: Counts) -> None:
        self.counts = Counts(sent=counts.sent, meant=counts.sent)
        self.groups: Counter[tuple[str, str, str]] = Counter()
        self.stays: Counter[str] = Counter()
        self.others = 0

    def begin(self, expected: int, *, anew: bool) -> None:
        """Another look, at so many messages. `anew`: what was sent is forgotten too."""
        sent = 0 if anew else self.counts.sent
        self.counts = Counts(sent=sent, meant=sent, expected=expected)
        self.groups.clear()
        self.stays.clear()

    def count(self, *names: str) -> None:
        """Count a message in these members of the counts."""
        self.counts = replace(self.counts, **{name: getattr(self.counts, name) + 1 for name in names})

    def stays_though_meant(self, why: str) -> None:
        """A letter that was meant stays after all."""
        self.counts = replace(self.counts, meant=self.counts.meant - 1)
        self.left(why)

    def left(self, why: str = "") -> None:
        """A letter stays; with a reason where it was meant."""
        self.count("left")
        if why and (why in self.stays or len(self.stays) < REASONS):
            self.stays[why] += 1

    @property
    def why(self) -> str:
        """Why what was looked at and could have been meant is still there; "" where all of it went."""
        parts = [f"{number} stay: {why}" for why, number in self.stays.items()]
        if self.counts.not_letters:
            parts.append(f"not letters: {self.counts.not_letters}, left")
        if self.others:
            parts.append(f"others consume the queue ({self.others}), and may hold letters of it")
        return "; ".join(parts)

    def would_send(self, letter: Letter, group: str) -> None:
        """A dry run means this letter of that group."""
        self.count("meant", "sent")
        key = (group, letter.failed_queue, letter.reason)
        if key in self.groups or len(self.groups) < GROUPS:
            self.groups[key] += 1


def group_of(letter: Letter, rule: Rule) -> str:
    """The letter's group, as the index says, which knows no more than `rule` lets the journal tell."""
    error: Any = error_of(rule, letter.error)[0]
    return fingerprint(
        letter.vhost,
        letter.failed_queue,
        letter.reason,
        error_type=str(error.get("type") or ""),
        frame=str(error.get("frame") or ""),
        message=str(error.get("message") or ""),
    ).id


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


SHOWN_AS: Final = "dead_lettered"  # where the policy lets the journal keep a dead letter's body, an edited one's too


class Copies:
    """Makes jobs and events of one task. `tell_tasks`: who looks for tasks in the journal has to see the events."""

    tell_tasks = False

    def __init__(self, task_id: str, spec: Spec, context: TaskContext, edit: Edit | None = None) -> None:
        self._task_id, self._spec, self._context, self._edit = task_id, spec, context, edit
        self._before: dict[int, tuple[Envelope, bytes]] = {}  # by delivery tag, of letters that are edited

    def job(self, consumer: Consumer, delivery: frames.Delivery, letter: Letter, envelope: Envelope) -> Job:
        """The letter as the task will send it; its copy is made when the way is known."""
        job = Job(consumer, delivery, 0.0, self._context.in_force())
        job.letter = replace(
            letter,
            redrives=letter.redrives + (self._spec.kind is Kind.REDRIVE),
            possible_copy=letter.possible_copy or letter.state is None,  # an import may have told of it
        )
        job.envelope, job.policy = envelope, job.in_force.resolve(letter)
        if self._edit is not None:
            self._before[delivery.tag] = (envelope, delivery.body)
            job.delivery, job.envelope = edited(delivery, envelope, self._edit)
        return job

    def address(self, job: Job, return_key: str) -> None:
        """Give the job its copy; `return_key` is the binding that leads to the failed queue, "" by its plain name."""
        letter, envelope = job.letter, job.envelope
        assert letter is not None and envelope is not None  # noqa: PT018 - made by `job`
        policy = job.policy.policy if job.policy is not None else ""
        revision = job.in_force.policies.revision
        record = publication.redriven(
            letter, envelope.content, policy=policy, revision=revision, redrive_id=self._task_id
        )
        to = self._spec.to
        if self._spec.kind is Kind.PARK:
            job.copy = publication.to_parking(letter, replace(record, state=State.PARKED), self._context.names.parking)
        elif to is None:
            job.copy = publication.to_return(record, self._context.names.return_, return_key)
        else:
            mode, priority = record.props.delivery_mode, record.props.priority
            job.copy = Publication(
                Way.TARGET,
                to.exchange,
                to.routing_key,
                record,
                AT_REST_BYTES,
                cc=(),
                delivery_mode=mode,
                priority=priority,
            )

    def events(self, job: Job, now_ms: int) -> list[bytes]:
        """The lines of the journal about this letter; the same for a letter that is sent again after a crash.

        An edited letter has two: `edited` tells it as it was, `redriven` as it goes.
        """
        assert job.envelope is not None
        after = self._event(job, KINDS[self._spec.kind], job.envelope, job.delivery.body, now_ms)
        before = self._before.pop(job.delivery.tag, None)
        return [after] if before is None else [self._event(job, "edited", *before, now_ms), after]

    def _event(self, job: Job, kind: str, envelope: Envelope, body: bytes, now_ms: int) -> bytes:
        letter, copy, rule = job.letter, job.copy, rule_of(job.policy)
        assert letter is not None
        ruling = Ruling(
            kind,
            0,
            self._context.router_id,
            policy=job.policy.policy if job.policy is not None else "",
            revision=job.in_force.policies.revision,
            exchange=None if copy is None else copy.exchange,
            routing_key="" if copy is None else copy.routing_key,
            redrive_id=self._task_id,
        )
        own = NO_BODY
        if letter.error is not None or not rule.is_plain:
            shown = kind if self._edit is None else SHOWN_AS
            own = privacy.disclosed(rule, shown, headers=envelope.props.headers, body=body, error=letter.error)
        return letter_line(letter, envelope, ruling, rule, ts_ms=now_ms, extra=own)


def edited(delivery: frames.Delivery, envelope: Envelope, edit: Edit) -> tuple[frames.Delivery, Envelope]:
    """The delivery with the new body, and the envelope that fits it; every byte that is not edited is as it came."""
    body = delivery.body if edit.body is None else edit.body
    props, entries = envelope.props, envelope.found
    names = {_bytes(name) for name in edit.headers}
    added = b"".join(_entry(_bytes(name), value) for name, value in edit.headers.items() if value is not None)
    headers = table.splice(props.headers, entries, names & entries.keys(), added)
    new = properties.parse(props.replaced(headers=headers), 0)
    content = replace(envelope.content, crc32=crc32(body), size=len(body))
    changed = envelope._replace(props=new, found=table.entries(new.headers), content=content)
    return delivery._replace(body=body), changed


def _entry(name: bytes, value: Value) -> bytes:
    if isinstance(value, bool):
        return table.boolean(name, value)
    if isinstance(value, int):
        return table.long_(name, value)
    return table.longstr(name, _bytes(value or ""))


def _bytes(text: str) -> bytes:
    return text.encode(errors="surrogateescape")


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
            last_deaths=out.version >= LAST_DEATHS_SINCE,
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
            self._counters.count("sent")
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


FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 5.0
LONGEST_UNCONFIRMED_S: Final = 60.0  # each run then leaves a copy more at a target that may have it


@dataclass(frozen=True, slots=True)
class Attempt:
    """A run of a task: `failures` and `unconfirmed` ones (no confirm in time) since the last that sent anything.

    `follows`: the broker may still hold letters for the run before.
    """

    follows: bool = False
    failures: int = 0
    unconfirmed: int = 0

    def after(self, *, moved: bool, unconfirmed: bool) -> "Attempt":
        """The next one, where the broker interrupted this. `moved`: it had sent some."""
        before = Attempt() if moved else self
        return Attempt(follows=True, failures=before.failures + 1, unconfirmed=before.unconfirmed + unconfirmed)

    @property
    def pause_s(self) -> float:
        """How long to wait before it."""
        most = LONGEST_UNCONFIRMED_S if self.unconfirmed else LONGEST_PAUSE_S
        return float(min(FIRST_PAUSE_S * 2.0 ** min(self.failures - 1, 20), most))

    @property
    def is_careful(self) -> bool:
        """Whether one letter alone is sent until the broker confirms it."""
        return self.unconfirmed > 0


def left_behind(sent: int, limit: int) -> str:
    """Say how many sent letters an interrupted task may leave in the queue where it ends at its limit."""
    if not limit or sent < limit:
        return ""  # it has looked through all of the queue, and sent these again
    left = min(sent, MAX_TWICE)
    return f"up to {left} of those that were sent may still lie in the queue, because a connection was lost"
