"""What a worker knows of targets that did not take letters, as core/refusal asks for it, and what it learns of them."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dlx_router.broker.consumer import Consumer
from dlx_router.core.next_step import Learned
from dlx_router.core.refusal import RefusalFacts, RelayLine
from dlx_router.service.dispatch.cooldown import Cooldown
from dlx_router.service.dispatch.owner import Owner
from dlx_router.service.inflight.decoder import Place
from dlx_router.service.inflight.job import Job

FULL_S: Final = 5.0


class TargetMissingSince(NamedTuple):
    """The letter that nothing overtakes, and since when its target is missing; it is remembered when it is given back.

    One is enough: the next comes from that consumer when this one is where it belongs.
    """

    consumer: Consumer
    letter_id: str
    since_s: float


class KnownTargets:
    """Of one worker; silent targets and queues of ours are known to all workers of a session."""

    def __init__(self, owner: Owner) -> None:
        self._owner = owner
        self.full = Cooldown(FULL_S)  # refused a letter twice just now
        self.missing: TargetMissingSince | None = None

    def rests(self, job: Job) -> bool:
        """It refused a letter, or was silent just now, and is not asked again at once."""
        target = job.target
        return self.full.has(target) or self._owner.provision.silent.has(target)

    def facts(self, job: Job, place: Place, line: RelayLine | None, now_s: float) -> RefusalFacts:
        """What is known of it and its target; `line`: where it can go back to, and then only a silent target rests."""
        missing, provision = self.missing, self._owner.provision
        is_missing = missing is not None and missing.letter_id == _letter_id(job)
        return RefusalFacts(
            provision.refusals.kind_of(place),
            to_own=job.to_own,
            raw=job.raw,
            in_order=place.source == place.names.fifo,
            line=line,
            nacks=job.nacks,
            rests=self.rests(job) if line is None else provision.silent.has(job.target),
            missing_ms=(now_s - missing.since_s) * 1000 if missing is not None and is_missing else 0,
            unacked_ms=(now_s - job.started_s) * 1000,
            grace_ms=job.in_force.rules.grace_ms,
        )

    def learn(self, job: Job, learned: Learned, now_s: float) -> None:
        """Remember what an answer taught."""
        if learned.why is not None:
            job.why = learned.why
        if learned.nacked:
            job.nacks = 1  # the next is one too many
        if learned.forget:
            self._owner.provision.forget(job.resource)
        if learned.full:
            self.full.rest(job.target)
        if learned.silent:
            self._owner.provision.silent.rest(job.target)
        if learned.missing is False:
            self.missing = None
        elif learned.missing and (self.missing is None or self.missing.letter_id != _letter_id(job)):
            self.missing = TargetMissingSince(job.consumer, _letter_id(job), now_s)

    def arrived(self, jobs: Sequence[Job]) -> None:
        """Their copies are where they belong."""
        if self.missing is not None and any(job.consumer is self.missing.consumer for job in jobs):
            self.missing = None


def _letter_id(job: Job) -> str:
    return job.letter.id if job.letter is not None else ""
