"""The desk: a delivery → a job that knows its decision and its copy. Reads the clock and throws the dice, no more."""

import random
import time
from collections.abc import Callable
from copy import copy
from dataclasses import dataclass, replace
from typing import Any
from zlib import crc32

from dlx_router.broker.consumer import Consumer
from dlx_router.core import publication
from dlx_router.core.breaker import CLOSED, Breakers, Verdict
from dlx_router.core.decision import (
    GRACED,
    DeadLetter,
    Decision,
    Discard,
    Forward,
    Hold,
    Park,
    Release,
    Retry,
    attempts_of,
    decide,
    died,
    hold,
    passes,
    release,
    waiting,
)
from dlx_router.core.letter import Arrival, First, Letter, letter_id
from dlx_router.core.names import Names
from dlx_router.core.passing import Target
from dlx_router.core.policy import Effective, PolicySet
from dlx_router.core.publication import Publication
from dlx_router.core.record import Record
from dlx_router.core.words import Action, Cause
from dlx_router.operate.journal import privacy
from dlx_router.operate.journal.events import KIND_OF, NO_BODY, Ruling, fragments, unreadable
from dlx_router.operate.journal.privacy import rule_of
from dlx_router.operate.journal.rulings import Clerk
from dlx_router.operate.journal.writer import Journal
from dlx_router.service import intake, passage, standing
from dlx_router.service.job import Job, Resource
from dlx_router.service.provision import dead_letter_resource
from dlx_router.service.standing import StandingOrders
from dlx_router.telemetry.logs import Once
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
    observes: bool = False


class Desk:
    """Judges deliveries of one vhost."""

    def __init__(self, rules: Rules, vhost: str, metrics: Metrics, journal: Journal) -> None:
        self._vhost = vhost
        self._metrics = metrics
        self.user = b""
        self.relays: dict[str, Target] = {}  # where each relayed queue leads
        self._journal = journal
        self._once = Once()
        self.breakers = Breakers()
        self.kinds: dict[str, str] = {}  # the types of queues, where policies ask for them
        self.use(rules)

    def renewed(self, rules: Rules) -> "Desk":
        """A desk for what is decided from now on. All but the rules is shared; jobs stay with the desk they came to."""
        desk = copy(self)
        desk.use(rules)
        return desk

    def use(self, rules: Rules) -> None:
        """Judge by these, and forget what was worked out by others."""
        self._rules = rules
        self._resolved: dict[tuple[str, str], Effective | None] = {}
        self._orders = StandingOrders()
        self._clerk = Clerk(rules.router_id, rules.policies.revision, rules.observes)

    @property
    def policies(self) -> PolicySet:
        """The policies that this desk judges by."""
        return self._rules.policies

    def know(self, kinds: dict[str, str]) -> None:
        """The types of all queues; what was worked out by others is forgotten."""
        if kinds != self.kinds:
            self.kinds = kinds
            self.use(self._rules)

    def judge(self, delivery: frames.Delivery, consumer: Consumer, place: intake.Place, started_s: float) -> Job:
        """The job of a delivery. Never raises: what cannot be read becomes a job for quarantine."""
        job = Job(consumer, delivery, started_s, self)
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
        letter = self.opened(job, place)
        if letter is None or job.envelope is None:
            return
        if place.arrival is Arrival.RETIRED:
            self._retire(job, letter, job.envelope)
            return
        if place.arrival is Arrival.RELEASE and self._released(job, letter, job.envelope.record):
            return
        if place.arrival is Arrival.RELEASE and passes(letter):
            passage.goes_on(self, job, letter, place, now_ms())
        else:
            self.decided(job, letter)

    def opened(self, job: Job, place: intake.Place, *, dies: str = "", came: First | None = None) -> Letter | None:
        """The letter, or None: it cannot be read and goes to quarantine."""
        job.order = None
        try:
            job.letter, job.envelope = intake.read(job.delivery, place, dies=dies, came=came)
        except intake.Malformed as error:
            job.raw, job.cause = True, f"{Cause.MALFORMED}: {error}"
            self.quarantined(job, place)
            return None
        return job.letter

    def _retire(self, job: Job, letter: Letter, envelope: intake.Envelope) -> None:
        """Nothing is published: the journal is where it is kept."""
        record = envelope.record
        if record is not None:  # it died here in its grave; where and why it failed is what its record says
            said: dict[str, Any] = {
                "failed_queue": record.failed_queue,
                "reason": record.reason,
                "base_attempts": record.attempts,
            }
            letter = job.letter = replace(letter, **said)
        job.action, job.cause = Action.RETIRE, Cause.RETENTION.value
        job.policy = self.resolve(letter)
        self._tell(job, self._clerk.retired(letter, job.policy.policy if job.policy else ""), now_ms())

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

    def decided(self, job: Job, letter: Letter) -> None:
        """Decide about the letter, and give the job what carries it out."""
        policy = job.policy = self.resolve(letter)
        now, draw = now_ms(), random.uniform(-1.0, 1.0)  # noqa: S311 - jitter, no secret
        job.draw = draw if policy is not None and policy.jitter else None
        self.carry_out(job, decide(letter, policy, now, draw, self._breaker(job, letter, now)), letter.reason, now)

    def carry_out(self, job: Job, decision: Decision, reason: str, now: int | None = None) -> None:
        """As `apply`, of a decision that is the first about this delivery, and counted."""
        self.apply(job, decision, now_ms() if now is None else now)
        if job.letter is not None and job.letter.redrives:
            self._came_back(job.letter, decision)
        self._metrics.decisions[job.policy.policy if job.policy is not None else "", job.action.value, reason] += 1

    def _came_back(self, letter: Letter, decision: Decision) -> None:
        """Counted where it died for good; what is judged anew after a wait died before that wait."""
        is_new = letter.arrival is not Arrival.RELEASE and not self._rules.observes
        if is_new and isinstance(decision, DeadLetter | Park):
            self._metrics.redrive_letters["came_back"] += 1

    def _breaker(self, job: Job, letter: Letter, now: int) -> Callable[[], Verdict]:
        """Asks the breaker of the letter's queue; what it said is part of the event."""

        def ask() -> Verdict:
            policy = job.policy
            if policy is None or policy.outage is None:
                return CLOSED
            breaker = self.breakers.of(letter.failed_queue, policy.outage, now)
            verdict = breaker.ask(letter.id, now, deaths=died(letter, policy), tries=letter.tries)
            job.breaker = verdict.state.value
            return verdict

        return ask

    def resolve(self, letter: Letter) -> Effective | None:
        """The effective policy of a letter; resolved once for each (queue, reason) of a revision."""
        return self.policy_of(letter.failed_queue, letter.reason)

    def policy_of(self, queue: str, reason: str) -> Effective | None:
        """As `resolve`, of a queue and a reason."""
        key = (queue, reason)
        try:
            return self._resolved[key]
        except KeyError:
            if len(self._resolved) >= MAX_CACHED:
                self._resolved.clear()
            own = self._rules.names.is_own(queue)
            found = self._rules.policies.resolve(
                vhost=self._vhost, queue=queue, reason=reason, own=own, kind=self.kinds.get(queue)
            )
            self._resolved[key] = found
            return found

    def apply(self, job: Job, decision: Decision, now: int) -> None:
        """Give the job this decision and the copy that carries it out."""
        letter, envelope = job.letter, job.envelope
        assert letter is not None and envelope is not None  # noqa: PT018 - raw jobs are never judged
        job.decision, job.action, job.nacks = decision, decision.action, 0
        job.cause = decision.cause.value if decision.cause else ""
        if failed := getattr(decision, "failed", ()):
            self._failed(letter, failed)
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
            case Forward():
                self._metrics.missing_headers += decision.missing_headers
                self._place(job, publication.to_relayed(decision, record))
            case Park():
                self._place(job, publication.to_parking(letter, record, self._rules.names.parking))

        name, breaker, job.breaker = policy.policy if policy else "", job.breaker, ""
        self._tell(job, self._clerk.decided(decision, job.copy, name, breaker), now)

    def _failed(self, letter: Letter, failed: tuple[str, ...]) -> None:
        """A condition that cannot be evaluated is counted, and told once for each queue and text."""
        self._metrics.condition_errors += len(failed)
        for said in failed:
            self._once.warn(
                f"{letter.failed_queue} {said}",
                "condition.failed",
                queue=letter.failed_queue,
                condition=said,
                letter=letter.id,
                fate="it counts as false for this letter; others of this kind are not logged again",
            )

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
        if isinstance(job.decision, Forward):
            job.letter = waiting(job.letter)
        attempts = attempts_of(job.letter, job.policy) if job.policy else job.letter.base_attempts
        copy = job.copy
        target = copy.record.failed_queue if copy.way is publication.Way.RETURN else copy.exchange or copy.routing_key
        now = now_ms()
        self.apply(job, hold(job.letter, cause, attempts, now, grace_ms=self._rules.grace_ms, target=target), now)

    def overdue(self, cause: Cause, waited_s: float) -> bool:
        """Whether a letter that may not be overtaken has waited long enough for a target that is not there."""
        return cause in GRACED and waited_s * 1000 >= self._rules.grace_ms

    def park(self, job: Job, cause: Cause) -> None:
        """Straight to parking."""
        assert job.letter is not None
        self.apply(job, Park(cause, job.letter.base_attempts), now_ms())

    def _waiting_copy(self, job: Job, record: Record, due_ms: int, now: int) -> None:
        names = self._rules.names
        rung = names.rung_for(due_ms - now)
        if rung is not None:
            came = job.letter.routing_key if job.letter is not None else ""
            self._place(job, publication.to_rung(record, names.delay(rung), rung, came))
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
            return dead_letter_resource(policy, copy.needs_queue, copy.exchange, copy.record.failed_queue)
        case publication.Way.TARGET | publication.Way.FORWARD if copy.exchange:
            return ("exchange", copy.exchange)
        case _:
            return None
