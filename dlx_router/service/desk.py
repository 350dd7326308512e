"""The desk: a delivery → a job that knows its decision and its copy. Reads the clock and throws the dice, no more."""

import random
import time
from dataclasses import dataclass
from zlib import crc32

from dlx_router.broker.consumer import Consumer
from dlx_router.core import publication
from dlx_router.core.decision import (
    DeadLetter,
    Decision,
    Discard,
    Hold,
    Park,
    Release,
    Retry,
    attempts_of,
    decide,
    hold,
    release,
    transient_queue,
)
from dlx_router.core.letter import Arrival, Letter, letter_id
from dlx_router.core.names import Names
from dlx_router.core.policy import Effective, PolicySet
from dlx_router.core.publication import Publication
from dlx_router.core.record import Record
from dlx_router.core.words import Action, Cause
from dlx_router.operate.journal import privacy
from dlx_router.operate.journal.events import KIND_OF, NO_BODY, Ruling, fragments, unreadable
from dlx_router.operate.journal.privacy import rule_of
from dlx_router.operate.journal.rulings import Clerk
from dlx_router.operate.journal.writer import Journal
from dlx_router.service import intake, standing
from dlx_router.service.job import Job, Resource
from dlx_router.service.standing import StandingOrders
from dlx_router.telemetry.metrics import Metrics
from dlx_router.wire import frames

MAX_CACHED = 10_000


def now_ms() -> int:
    """The wall clock in ms since the epoch; waits survive restarts, so a monotonic clock would not do."""
    return int(time.time() * 1000)


@dataclass(frozen=True, slots=True)
class Rules:
    """What is in force: one revision of policies and the settings that decisions depend on."""

    policies: PolicySet
    names: Names
    grace_ms: int
    router_id: str = "test"


class Desk:
    """Judges deliveries of one vhost."""

    def __init__(self, rules: Rules, vhost: str, metrics: Metrics, journal: Journal) -> None:
        self._rules = rules
        self._vhost = vhost
        self._metrics = metrics
        self._resolved: dict[tuple[str, str], Effective | None] = {}
        self._orders = StandingOrders()
        self.user = b""
        self._journal = journal
        self._clerk = Clerk(rules.router_id, rules.policies.revision)

    @property
    def policies(self) -> PolicySet:
        """The policies that this desk judges by."""
        return self._rules.policies

    def judge(self, delivery: frames.Delivery, consumer: Consumer, place: intake.Place, started_s: float) -> Job:
        """The job of a delivery. Never raises: what cannot be read becomes a job for quarantine."""
        job = Job(consumer, delivery, started_s)
        order = self._orders.find(job, place)
        if order is not None and standing.write(job, order, place.key, self._journal):
            job.order, job.action, job.resource = order, order.action, order.resource
            self._metrics.decisions[order.decided] += 1
            return job
        self.read(job, place)
        if job.key is not None and not job.raw:
            self._learn(job)
        return job

    def _learn(self, job: Job) -> None:
        """The next of its like goes the short way, and its event is written from the same fragments."""
        rule, told = rule_of(job.policy), None
        letter, decision, copy, policy = job.letter, job.decision, job.copy, job.policy
        if letter is None or decision is None or copy is None or policy is None:
            return
        if self._journal.is_on and rule.wants(KIND_OF[job.action]):
            told = fragments(letter, self._clerk.decided(decision, copy, policy.policy))
        self._orders.learn(job, told, rule)

    def read(self, job: Job, place: intake.Place) -> None:
        """The long way: the whole letter, its decision and its copy."""
        job.order = None
        delivery = job.delivery
        try:
            job.letter, job.envelope = intake.read(delivery, place)
        except intake.Malformed as error:
            job.raw, job.cause = True, f"{Cause.MALFORMED}: {error}"
            self.quarantined(job, place)
            return
        if place.arrival is Arrival.RELEASE and self._released(job, job.letter, job.envelope.record):
            return
        self._decide(job, job.letter)

    def _released(self, job: Job, letter: Letter, record: Record | None) -> bool:
        """Send a letter from release on its way; False where it was held and is to be judged anew."""
        now = now_ms()
        step = release(letter, now)
        if step is Release.JUDGE or record is None:
            return False
        job.action = Action.RELEASE
        job.policy = self.resolve(letter)
        self._waiting_copy(job, record, record.due_ms or 0, now)
        if job.copy is not None and job.copy.way is publication.Way.RETURN:
            self._tell(job, self._clerk.released(letter, job.copy, job.policy.policy if job.policy else ""), now)
        if step is Release.RETURN:
            self._metrics.release_lateness.observe((now - (record.due_ms or now)) / 1000)
        return True

    def _decide(self, job: Job, letter: Letter) -> None:
        policy = job.policy = self.resolve(letter)
        now, draw = now_ms(), random.uniform(-1.0, 1.0)  # noqa: S311 - jitter, no secret
        job.draw = draw if policy is not None and policy.jitter else None
        self.apply(job, decide(letter, policy, now, draw), now)
        name = policy.policy if policy is not None else ""
        self._metrics.decisions[name, job.action.value, letter.reason] += 1

    def resolve(self, letter: Letter) -> Effective | None:
        """The effective policy of a letter; resolved once for each (queue, reason) of a revision."""
        key = (letter.failed_queue, letter.reason)
        try:
            return self._resolved[key]
        except KeyError:
            if len(self._resolved) >= MAX_CACHED:
                self._resolved.clear()
            own = self._rules.names.is_own(letter.failed_queue)
            found = self._rules.policies.resolve(
                vhost=self._vhost, queue=letter.failed_queue, reason=letter.reason, own=own
            )
            self._resolved[key] = found
            return found

    def apply(self, job: Job, decision: Decision, now: int) -> None:
        """Give the job this decision and the copy that carries it out."""
        letter, envelope = job.letter, job.envelope
        assert letter is not None and envelope is not None  # noqa: PT018 - raw jobs are never judged
        job.decision, job.action, job.nacks = decision, decision.action, 0
        job.cause = decision.cause.value if decision.cause else ""
        if isinstance(decision, Discard):
            job.copy, job.resource = None, None
            self._tell(job, self._clerk.decided(decision, None, job.policy.policy if job.policy else ""), now)
            return
        policy = job.policy
        record = publication.record_of(
            letter,
            decision,
            envelope.content,
            policy=policy.policy if policy else "",
            revision=self._rules.policies.revision,
        )
        match decision:
            case Retry() | Hold():
                self._waiting_copy(job, record, decision.due_ms, now)
            case DeadLetter():
                self._metrics.missing_headers += decision.missing_headers
                copy = publication.to_target(decision, letter, record, policy.aliases if policy else ())
                if letter.shadowed is None:
                    self._metrics.shadowed_headers += len(copy.record.shadowed or ())
                self._place(job, copy)
            case Park():
                self._place(job, publication.to_parking(letter, record, self._rules.names.parking))

        self._tell(job, self._clerk.decided(decision, job.copy, job.policy.policy if job.policy else ""), now)

    def _tell(self, job: Job, ruling: Ruling, now: int) -> None:
        """The event of a decision that went the long way; its source waits for it."""
        rule, letter, envelope = rule_of(job.policy), job.letter, job.envelope
        if letter is None or not self._journal.is_on or not rule.wants(ruling.kind):
            return
        own = NO_BODY
        if envelope is not None and (letter.error is not None or not rule.is_plain):
            headers, body = envelope.props.headers, job.delivery.body
            own = privacy.disclosed(rule, ruling.kind, headers=headers, body=body, error=letter.error)
        content = envelope.content if envelope is not None else None
        line = fragments(letter, ruling).line(
            letter.id,
            now,
            first_ms=letter.first_death_ms,
            last_ms=letter.last_death_ms,
            crc32=content.crc32 if content is not None else crc32(job.delivery.body),
            size=len(job.delivery.body),
            props=envelope.props if envelope is not None else None,
            due_ms=job.copy.record.due_ms if job.copy is not None else None,
            draw=job.draw,
            extra=own,
        )
        job.draw = None
        job.batches += (self._journal.record(line),)

    def quarantined(self, job: Job, place: intake.Place) -> None:
        """The event of what goes to quarantine, letter or not."""
        now, delivery = now_ms(), job.delivery
        if job.letter is None:
            exchange, key = intake.text(delivery.exchange), intake.text(delivery.routing_key)
            raw = delivery.header[intake.PROPERTIES_AT :]
            name = letter_id(
                place.vhost, place.source, delivery.exchange, delivery.routing_key, raw, b"", delivery.body
            )
            job.letter = unreadable(name, place.vhost, place.source, place.arrival, exchange, key, now)
            self._tell(job, self._clerk.quarantined(job.letter, job.cause, place.names.quarantine), now)
            job.letter = None
            return
        self._tell(job, self._clerk.quarantined(job.letter, job.cause, place.names.quarantine), now)

    def refused(self, job: Job, cause: Cause) -> None:
        """The copy's target refused it: on to the ladder, or into parking when the grace is over."""
        assert job.letter is not None and job.copy is not None  # noqa: PT018 - discards are not published
        attempts = attempts_of(job.letter, job.policy) if job.policy else job.letter.base_attempts
        copy = job.copy
        target = copy.record.failed_queue if copy.way is publication.Way.RETURN else copy.exchange or copy.routing_key
        now = now_ms()
        self.apply(job, hold(job.letter, cause, attempts, now, grace_ms=self._rules.grace_ms, target=target), now)

    def park(self, job: Job, cause: Cause) -> None:
        """Straight to parking."""
        assert job.letter is not None
        self.apply(job, Park(cause, job.letter.base_attempts), now_ms())

    def _waiting_copy(self, job: Job, record: Record, due_ms: int, now: int) -> None:
        names = self._rules.names
        rung = names.rung_for(due_ms - now)
        if rung is not None:
            self._place(job, publication.to_rung(record, names.delay(rung), rung))
        else:
            self._place(job, self.return_copy(record, names.return_key(record.failed_queue)))

    def return_copy(self, record: Record, key: str) -> Publication:
        """The copy back to the failed queue; an empty key means by the default exchange."""
        return publication.to_return(record, self._rules.names.return_, key)

    @staticmethod
    def _place(job: Job, copy: Publication) -> None:
        job.copy = copy
        job.resource = resource_of(copy, job.policy)


def resource_of(copy: Publication, policy: Effective | None) -> Resource | None:
    """What must exist in the broker before the copy can be sent; None for what always does."""
    match copy.way:
        case publication.Way.RUNG:
            return ("rung", str(copy.rung_ms))
        case publication.Way.RETURN if copy.bcc is not None:
            return ("return", copy.record.failed_queue)
        case publication.Way.TARGET if copy.needs_queue is not None and policy is not None:
            others = transient_queue(policy)
            return ("dlq", copy.needs_queue, copy.exchange, copy.record.failed_queue, policy.dlq_type, others)
        case publication.Way.TARGET if copy.exchange:
            return ("exchange", copy.exchange)
        case _:
            return None
