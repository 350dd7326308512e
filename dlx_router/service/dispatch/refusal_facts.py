"""What a worker knows of targets that did not take letters, as core/refusal asks for it, and what it learns of them."""

import time
from collections.abc import Sequence
from typing import Final, NamedTuple

from dlx_router.broker.consumer import Consumer
from dlx_router.core.next_step import Learned
from dlx_router.core.refusal import IN_ORDER_MOST, SEVERAL_MOST, SINGLE_MOST, RefusalFacts, RelayLine
from dlx_router.core.words import Cause, State
from dlx_router.service.dispatch.cooldown import MAX_RESTING, Pace
from dlx_router.service.dispatch.owner import Owner
from dlx_router.service.inflight.decoder import Place
from dlx_router.service.inflight.job import Destination, Job

NO_PACE_MS: Final = 5000


class HeadInOrder(NamedTuple):
    """The letter that nothing overtakes, how often it was refused, and since when its target is missing.

    It is remembered when it is given back. One is enough: the next comes from that consumer when this one is where it
    belongs.
    """

    consumer: Consumer
    letter_id: str
    missing_since_s: float | None
    refusals: int


class KnownTargets:
    """Of one worker; silent targets and internal queues are known to all workers of a session."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.full: dict[Destination, Pace] = {}  # refused letters just now; the hot path asks if it is empty
        self.head: HeadInOrder | None = None

    def admits(self, job: Job) -> bool:
        """Whether its target takes so many letters; then it is sent."""
        pace = self.full.get(job.target)
        return pace is None or pace.admits(time.monotonic())

    def defers(self, job: Job, *, sent: bool) -> int:
        """It is held. How long it waits if it was not sent, in ms."""
        if not _is_deferred(job):
            self._owner.provision.refusals.defers(_name(job.target), 1)
        if sent:
            return 0
        pace = self.full.get(job.target)
        return NO_PACE_MS if pace is None else round(pace.wait_s(time.monotonic()) * 1000)

    def ends(self, job: Job) -> None:
        """It is not deferred any more, if it was."""
        if _is_deferred(job):
            self._owner.provision.refusals.defers(_name(job.target), -1)

    def facts(self, job: Job, place: Place, line: RelayLine | None, now_s: float) -> RefusalFacts:
        """What is known of it and its target; `line`: where it can go back to, and then only a silent target rests."""
        head, provision, pace = self.head, self._owner.provision, self.full.get(job.target)
        if head is not None and head.letter_id != _letter_id(job):
            head = None
        in_order = place.source == place.names.fifo
        rests = provision.silent.has(job.target) or (line is None and pace is not None and pace.rests(now_s))
        since_s = None if head is None else head.missing_since_s
        return RefusalFacts(
            provision.refusals.kind_of(place),
            to_own=job.to_own,
            raw=job.raw,
            in_order=in_order,
            line=line,
            refusals=_refusals(job) if head is None else max(head.refusals, _refusals(job)),
            most=self._most(job, in_order=in_order or (line is not None and line.strict)),
            rests=rests,
            missing_ms=0 if since_s is None else (now_s - since_s) * 1000,
            unacked_ms=(now_s - job.started_s) * 1000,
            grace_ms=job.in_force.rules.grace_ms,
        )

    def _most(self, job: Job, *, in_order: bool) -> int:
        """How many publishes its target may refuse."""
        queue = job.queue
        if queue is None:
            return SEVERAL_MOST
        if queue in self._owner.decider.overflowing:
            return 1
        return IN_ORDER_MOST if in_order else SINGLE_MOST

    def learn(self, job: Job, learned: Learned, now_s: float) -> None:
        """Remember what an answer taught."""
        provision, target = self._owner.provision, job.target
        if learned.why is not None:
            job.why = learned.why
        if learned.refused:
            job.refusals += 1
            if not job.to_own and (queue := job.queue) is not None:
                self._owner.decider.overflowing.nacked(queue)
        if learned.forget:
            provision.forget(job.resource)
        if learned.full:
            if len(self.full) > MAX_RESTING:
                self.full.clear()
            self.full.setdefault(target, Pace(now_s)).refused(now_s, learned.pause_s)
        if learned.silent:
            provision.silent.rest(target)
        if learned.forbidden:
            provision.refusals.forbids(target[0], job.why)
        if learned.missing is not None:
            self._remember_head(job, now_s, missing=learned.missing)

    def _remember_head(self, job: Job, now_s: float, *, missing: bool) -> None:
        head, name = self.head, _letter_id(job)
        known = head is not None and head.letter_id == name
        since_s = head.missing_since_s if head is not None and known else None
        refusals = max(_refusals(job), head.refusals if head is not None and known else 0)
        self.head = HeadInOrder(job.consumer, name, (since_s or now_s) if missing else None, refusals)

    def arrived(self, jobs: Sequence[Job]) -> None:
        """Their copies are where they belong; asked where anything is known of a target."""
        if self.head is not None and any(job.consumer is self.head.consumer for job in jobs):
            self.head = None
        for job in jobs:
            pace = self.full.get(job.target)
            if pace is not None:
                pace.took()
            self.ends(job)

    def check(self) -> None:
        """Called each second."""
        now_s = time.monotonic()
        for target in [target for target, pace in self.full.items() if pace.is_over(now_s)]:
            del self.full[target]


def _letter_id(job: Job) -> str:
    return job.letter.id if job.letter is not None else ""


def _refusals(job: Job) -> int:
    return job.refusals + (job.letter.refusals if job.letter is not None and not job.to_own else 0)


def _is_deferred(job: Job) -> bool:
    letter = job.letter
    return letter is not None and letter.state == State.HELD and letter.cause == Cause.TARGET_REFUSED


def _name(target: Destination) -> str:
    exchange, key, bcc = target
    if bcc is not None:
        return f"queue {bcc.removeprefix('to:')!r}"
    return f"exchange {exchange!r}" if exchange else f"queue {key!r}"
