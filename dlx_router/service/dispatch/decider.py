"""The desk: a delivery → a job that knows its decision and its copy. Reads the clock and throws the dice, no more."""

import random
from collections.abc import Callable
from dataclasses import replace

from dlx_router.broker.consumer import Consumer
from dlx_router.core import publication
from dlx_router.core.breaker import Breakers
from dlx_router.core.decision import GRACED, Release, attempts_of, decide, hold, passes, release, waiting
from dlx_router.core.letter import Arrival, First, Letter
from dlx_router.core.outcome import DeadLetter, Decision, Discard, Forward, Hold, Park, Retry
from dlx_router.core.publication import Publication
from dlx_router.core.record import Record
from dlx_router.core.waiting import left
from dlx_router.core.words import UNKNOWN, Action, Cause, counted
from dlx_router.journal.events import Ruling
from dlx_router.journal.writer import Journal
from dlx_router.service.dispatch import arrivals, delaying, events
from dlx_router.service.dispatch.outage import breaker_of
from dlx_router.service.dispatch.resources import resource_of
from dlx_router.service.dispatch.retiring import buried
from dlx_router.service.inflight import compiled, decoder
from dlx_router.service.inflight.clock import CLOCK, now_ms, steady_ms
from dlx_router.service.inflight.in_force import InForce
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.routes import Known
from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.metrics import Metrics
from dlx_router.wire import frames


class Decider:
    """Judges deliveries of one vhost."""

    def __init__(self, in_force: InForce, metrics: Metrics, journal: Journal) -> None:
        self.in_force = in_force  # what is decided from now on is decided by it; what was begun refers to its own
        self._metrics = metrics
        self._journal = journal
        self._once = Once()
        self.breakers = Breakers()

    def judge(
        self, delivery: frames.Delivery, consumer: Consumer, place: decoder.Place, started_s: float, known: Known = None
    ) -> Job:
        """The job of a delivery. Never raises: what cannot be read becomes a job for quarantine.

        `known`: what is there in the broker, and under which name; None where nothing will be sent.
        """
        job = Job(consumer, delivery, started_s, self.in_force)
        order = compiled.find(job, place)
        if order is not None and compiled.write(job, order, place.key, self._journal, known):
            job.order, job.action, job.resource = order, order.action, order.resource
            self._metrics.decisions[order.decided] += 1
            return job
        self.in_full(job, place)
        if order is None and job.key is not None and not job.raw:
            self._learn(job)
        return job

    def in_full(self, job: Job, place: decoder.Place) -> None:
        """The long way; never raises."""
        self.safely(job, place, lambda: self.read(job, place))

    def safely(self, job: Job, place: decoder.Place, work: Callable[[], None]) -> None:
        """Do this about the job. An error that nobody foresaw sends it to quarantine: others must not wait for it."""
        try:
            work()
        except Exception as error:  # noqa: BLE001 - or it would end the session of all others, again and again
            job.letter = job.envelope = job.decision = job.copy = job.resource = job.order = None
            self.unreadable(job, place, decoder.Malformed(repr(error)))

    def _learn(self, job: Job) -> None:
        """The next of its like goes the short way, and its event is written from the same fragments."""
        lesson = events.lesson(self._journal, job)
        if lesson is not None:
            compiled.learn(job, *lesson)

    def read(self, job: Job, place: decoder.Place) -> None:
        """The long way: the whole letter, its decision and its copy."""
        letter = self.opened(job, place)
        if letter is None or job.envelope is None:
            return
        record = job.envelope.record
        if place.arrival is Arrival.RETIRED:
            self._retire(job, letter, record)
            return
        if place.arrival is Arrival.RELEASE and record is not None and place.names.is_delayed(letter.failed_queue):
            delaying.goes_on(self, job, place, letter, record)
            return
        if place.arrival is Arrival.RELEASE and self._released(job, letter, record):
            return
        if place.arrival is Arrival.RELEASE and passes(letter):
            arrivals.goes_on(self, job, letter, place, now_ms())
        else:
            self.decided(job, letter)

    def opened(
        self, job: Job, place: decoder.Place, *, dies: str = "", came: First | None = None, lives: bool = False
    ) -> Letter | None:
        """The letter, or None: it cannot be read and goes to quarantine."""
        job.order = None
        try:
            job.letter, job.envelope = decoder.read(job.delivery, place, dies=dies, came=came, lives=lives)
        except decoder.Malformed as error:
            self.unreadable(job, place, error)
            return None
        except Exception as error:  # noqa: BLE001 - a letter that nobody foresaw must not stop the others
            self.unreadable(job, place, decoder.Malformed(repr(error)))
            return None
        if job.envelope.foreign_record or job.envelope.is_untrusted:
            self._not_obeyed(job.envelope, place)
        return job.letter

    def _not_obeyed(self, envelope: decoder.Envelope, place: decoder.Place) -> None:
        if envelope.foreign_record:
            self._metrics.foreign_records[place.vhost] += 1
        if envelope.is_untrusted:
            self._metrics.untrusted_deaths[place.vhost] += 1
            events.untrusted(self._once, place.source, decoder.text(envelope.delivery.exchange))

    def unreadable(self, job: Job, place: decoder.Place, error: decoder.Malformed) -> None:
        """It goes to quarantine as it came."""
        job.raw, job.cause = True, f"{Cause.MALFORMED}: {error}"
        self.quarantined(job, place)

    def _retire(self, job: Job, letter: Letter, record: Record | None) -> None:
        letter = job.letter = buried(letter, record)
        job.action, job.cause = Action.RETIRE, Cause.RETENTION.value
        job.policy = job.in_force.resolve(letter)
        self._tell(job, job.in_force.event_factory.retired(letter, job.policy.policy if job.policy else ""), now_ms())

    def _released(self, job: Job, letter: Letter, record: Record | None) -> bool:
        """Send a letter from release on its way; False where it was held and is to be judged anew."""
        now = now_ms()
        left_ms = self.left_ms(job, letter, record, now)
        step = release(letter, left_ms)
        if step is Release.JUDGE or record is None:
            return False
        job.action = Action.RELEASE
        job.policy = job.in_force.resolve(letter)
        self.wait_on(job, replace(record, deaths=letter.history) if record.cut else record, left_ms, now)
        if job.copy is not None and job.copy.way is publication.Way.RETURN:
            self._tell(
                job, job.in_force.event_factory.released(letter, job.copy, job.policy.policy if job.policy else ""), now
            )
        if step is Release.RETURN:
            self._metrics.release_lateness.observe((now - (record.due_ms or now)) / 1000)
        return True

    def decided(self, job: Job, letter: Letter) -> None:
        """Decide about the letter, and give the job what carries it out."""
        policy = job.policy = job.in_force.resolved.policy_of(letter.failed_queue, letter.reason)
        now, draw = now_ms(), random.uniform(-1.0, 1.0)  # noqa: S311 - jitter, no secret
        job.draw = draw if policy is not None and policy.jitter else None
        breaker = breaker_of(self.breakers, job, letter, steady_ms())
        self.carry_out(job, decide(letter, policy, now, draw, breaker), letter.reason, now)

    def carry_out(self, job: Job, decision: Decision, reason: str, now: int | None = None) -> None:
        """As `apply`, of a decision that is the first about this delivery, and counted; by an order it was already."""
        self.apply(job, decision, now_ms() if now is None else now)
        if job.letter is not None and job.letter.redrives:
            self._came_back(job, job.letter, decision)
        if job.added:
            return
        policy = job.policy.policy if job.policy is not None else ""
        self._metrics.decisions[policy, job.action.value, counted(reason)] += 1

    def _came_back(self, job: Job, letter: Letter, decision: Decision) -> None:
        """Counted where it died for good; what is judged anew after a wait died before that wait."""
        is_new = letter.arrival is not Arrival.RELEASE and not job.in_force.rules.observes
        if is_new and isinstance(decision, DeadLetter | Park):
            self._metrics.redrive_letters["came_back"] += 1

    def apply(self, job: Job, decision: Decision, now: int) -> None:
        """Give the job this decision and the copy that carries it out."""
        letter, envelope = job.letter, job.envelope
        assert letter is not None and envelope is not None  # noqa: PT018 - raw jobs are never judged
        job.decision, job.action, job.nacks = decision, decision.action, 0
        job.cause = decision.cause.value if decision.cause else ""
        if failed := getattr(decision, "failed", ()):
            self._metrics.condition_errors += len(failed)
            events.failed_conditions(self._once, letter, failed)
        if isinstance(decision, Discard):
            job.copy, job.resource = None, None
            self._tell(
                job, job.in_force.event_factory.decided(decision, None, job.policy.policy if job.policy else ""), now
            )
            return
        policy = job.policy
        record = publication.record_of(
            letter,
            decision,
            envelope.content,
            policy=policy.policy if policy else "",
            revision=job.in_force.rules.policies.revision,
        )
        match decision:
            case Retry() | Hold():
                self.wait_on(job, record, decision.due_ms - now, now)
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
                if letter.reason == UNKNOWN:  # it was alive, in a relay: what somebody wrote on it is no death of ours
                    record = replace(record, deaths=())
                self._place(job, publication.to_parking(letter, record, job.in_force.rules.names.parking))
        name, breaker, job.breaker = policy.policy if policy else "", job.breaker, ""
        ruling = job.in_force.event_factory.decided(decision, job.copy, name, breaker)
        events.tell_where(self._journal, job, ruling, now)

    def _tell(self, job: Job, ruling: Ruling, now: int) -> None:
        events.tell(self._journal, job, ruling, now)

    def quarantined(self, job: Job, place: decoder.Place) -> None:
        """The event of what goes to quarantine, letter or not."""
        now, letter = now_ms(), job.letter
        told = job.letter = letter if letter is not None else events.unread(job, place, now)
        self._tell(job, job.in_force.event_factory.quarantined(told, job.cause, place.names.quarantine), now)
        job.letter = letter

    def refused(self, job: Job, cause: Cause) -> None:
        """The copy's target refused it: on to the ladder, or into parking when the grace is over."""
        assert job.letter is not None and job.copy is not None  # noqa: PT018 - discards are not published
        self._remember_the_way(job)
        attempts = attempts_of(job.letter, job.policy) if job.policy else job.letter.base_attempts
        now, target = now_ms(), publication.leads_to(job.copy)
        self.apply(
            job, hold(job.letter, cause, attempts, now, grace_ms=job.in_force.rules.grace_ms, target=target), now
        )

    @staticmethod
    def _remember_the_way(job: Job) -> None:
        """What a relay cannot send on is known by where it was, not by what somebody wrote on it."""
        if job.letter is not None and isinstance(job.decision, Forward):
            job.letter = waiting(job.letter)

    @staticmethod
    def overdue(job: Job, cause: Cause, waited_s: float) -> bool:
        """Whether a letter that may not be overtaken has waited long enough for a target that is not there."""
        return cause in GRACED and waited_s * 1000 >= job.in_force.rules.grace_ms

    def park(self, job: Job, cause: Cause) -> None:
        """Straight to parking."""
        assert job.letter is not None
        self._remember_the_way(job)
        target = publication.leads_to(job.copy) if job.copy is not None else ""
        self.apply(job, Park(cause, job.letter.base_attempts, target), now_ms())

    def late(self, by_ms: int) -> None:
        """A wait ended so many ms after its time."""
        self._metrics.release_lateness.observe(max(0, by_ms) / 1000)

    def left_ms(self, job: Job, letter: Letter, record: Record | None, now: int) -> int:
        """What is left of its wait now that a rung is over; what the clock disagrees about is counted."""
        deaths = job.envelope.broker_deaths if job.envelope is not None else ()
        rungs = (job.in_force.rules.names.rung_of(death.queue) for death in deaths)
        rung = next((one for one in rungs if one is not None), None)
        wait_ms = None if record is None else record.wait_ms
        found = left(wait_ms=wait_ms, due_ms=letter.due_ms, rung_ms=rung, now_ms=now)
        if found.cut_ms:
            self._metrics.waits_cut += 1
            CLOCK.differs(found.cut_ms)
        return found.ms

    def wait_on(self, job: Job, record: Record, left_ms: int, now: int) -> None:
        """On the largest rung that is not too long; back at once where that is none."""
        names = job.in_force.rules.names
        rung = names.rung_for(left_ms)
        waits = publication.waiting(record, left_ms if rung is not None else None, now + left_ms)
        if rung is not None:
            came = job.letter.routing_key if job.letter is not None else ""
            self._place(job, publication.to_rung(waits, names.delay(rung), rung, came))
        else:
            self._place(job, self.return_copy(job, waits, names.return_key(record.failed_queue)))

    @staticmethod
    def return_copy(job: Job, record: Record, key: str) -> Publication:
        """The copy back to the failed queue; an empty key means by the default exchange."""
        return publication.to_return(record, job.in_force.rules.names.return_, key)

    def _place(self, job: Job, copy: Publication) -> None:
        if job.in_force.rules.names.is_delayed(copy.record.failed_queue):
            copy = delaying.delayed_copy(copy)
        job.copy = copy
        job.resource = resource_of(copy, job.policy)
