"""Decider: a delivery → a job that knows its decision and its copy. Reads the clock, throws the dice, tells and counts.

What to do with a letter that has just died says core/decision, and with any other arrival arrivals.py: both by values.
"""

import contextlib
import random
from collections.abc import Callable, Sequence
from dataclasses import replace

from dlx_router.broker.consumer import Consumer
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.core import publication
from dlx_router.core.breaker import CLOSED, Breakers, Verdict
from dlx_router.core.decision import attempts_of, decide, died, hold, waiting
from dlx_router.core.letter import Arrival, First, Letter
from dlx_router.core.outcome import DeadLetter, Decision, Discard, Forward, Hold, Park, Retry
from dlx_router.core.passing import MAXLEN, Target
from dlx_router.core.publication import Publication, Way
from dlx_router.core.record import Record
from dlx_router.core.waiting import left
from dlx_router.core.words import UNKNOWN, Action, Cause, counted
from dlx_router.journal.events import Ruling
from dlx_router.journal.writer import Journal
from dlx_router.service.dispatch import arrivals, events
from dlx_router.service.dispatch.cooldown import OverflowingQueues
from dlx_router.service.inflight import clock, compiled, decoder, delayed_message, runs
from dlx_router.service.inflight.clock import now_ms, steady_ms
from dlx_router.service.inflight.decoder import Envelope
from dlx_router.service.inflight.in_force import InForce
from dlx_router.service.inflight.job import Job, resource_of
from dlx_router.service.inflight.moulds import Mould
from dlx_router.service.inflight.routes import Known
from dlx_router.service.inflight.runs import Outlets, Written
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
        self.overflowing = OverflowingQueues()

    def judge(
        self, delivery: frames.Delivery, consumer: Consumer, place: decoder.Place, started_s: float, known: Known = None
    ) -> Job:
        """The job of a delivery. Never raises: what cannot be read becomes a job for quarantine.

        `known`: what is there in the broker, and under which name; None where nothing will be sent.
        """
        job = Job(consumer, delivery, started_s, self.in_force)
        route = compiled.find(job, place)
        if route is not None and compiled.write(job, route, place, self._journal, known):
            job.route, job.action, job.resource = route, route.action, route.resource
            self._metrics.decisions[route.decided] += 1
            return job
        self.in_full(job, place)
        if route is None and job.key is not None and not job.raw:
            self._learn(job)
        return job

    def run(
        self,
        deliveries: Sequence[frames.Delivery],
        at: int,
        place: decoder.Place,
        outlets: Outlets,
        known: Known = None,
    ) -> Written | None:
        """As `judge`, of as many from `at` on as are alike; None: that one is to be judged by itself. Never raises."""
        try:
            return self._run(deliveries, at, place, outlets, known)
        except Exception as error:  # noqa: BLE001 - nothing was done, and alone its errors cost nobody else anything
            events.not_in_runs(self._once, place.source, error)
            return None

    def _run(
        self, deliveries: Sequence[frames.Delivery], at: int, place: decoder.Place, outlets: Outlets, known: Known
    ) -> Written | None:
        in_force = self.in_force

        def find(delivery: frames.Delivery) -> Mould | None:
            mould = compiled.mould(in_force, delivery, place, outlets.user)
            if mould is None or (mould.shared is not None and not self._journal.is_on):
                return None
            resource = mould.route.resource
            return mould if resource is None or known is None or known.get(resource) == resource[1] else None

        written = runs.written(find, deliveries[at:] if at else deliveries, place, outlets, clock.CLOCK.now_ms())
        if written is not None:
            written.batches[:] = self._journal.record_run(written.entries)
            for decided, count in written.decided().items():
                self._metrics.decisions[decided] += count
        return written

    def in_full(self, job: Job, place: decoder.Place) -> None:
        """The long way: the whole letter, its decision and its copy; never raises."""
        self.safely(job, place, lambda: self._read(job, place))

    def dies(self, job: Job, place: decoder.Place, reason: str) -> None:
        """A message of a relay or a guarded queue fails here and now, by our own decision: a letter from here on."""
        self.safely(job, place, lambda: self._dies(job, place, reason))

    def relayed(self, job: Job, place: decoder.Place, target: Target) -> None:
        """A message of a relay lives, and its turn has come."""
        self.safely(job, place, lambda: self._lives(job, place, target))

    def delayed(self, job: Job, place: decoder.Place, entry: Delayed) -> None:
        """A message was published to a delayed exchange."""
        self.safely(job, place, lambda: self._begins(job, place, entry))

    def spared(self, job: Job, place: decoder.Place) -> None:
        """Its source deletes what is returned once too often, and every lost connection returns it: into parking."""
        self.safely(job, place, lambda: self._spared(job, place))

    def safely(self, job: Job, place: decoder.Place, work: Callable[[], None]) -> None:
        """Do this about the job. An error that nobody foresaw sends it to quarantine: others must not wait for it."""
        try:
            work()
        except decoder.Malformed as error:
            self._unreadable(job, place, error)
        except Exception as error:  # noqa: BLE001 - or it would end the session of all others, again and again
            job.letter = job.envelope = job.decision = job.copy = job.resource = job.route = None
            self._unreadable(job, place, decoder.Malformed(repr(error)))

    def identified(self, job: Job, place: decoder.Place) -> None:
        """A job of the short way knows its letter and its policy, and nothing is decided or told; never raises.

        What is told of it next goes by the same id, and by the same policy, as what its route has told.
        """
        with contextlib.suppress(Exception):  # a route was known for it, so it can be read; else it goes unread
            job.policy = job.in_force.resolve(self._opened(job, place)[0])

    def _learn(self, job: Job) -> None:
        """The next of its like goes the short way, and its event is written from the same fragments."""
        lesson = events.lesson(self._journal, job)
        if lesson is not None:
            compiled.learn(job, *lesson)

    def _read(self, job: Job, place: decoder.Place) -> None:
        letter, envelope = self._opened(job, place)
        if place.arrival is Arrival.INBOX:
            self._judged(job, letter)
        elif place.arrival is Arrival.RETIRED:
            self._retired(job, arrivals.retired(letter, envelope.record))
        else:
            now = now_ms()
            left_ms = self._left_ms(job, letter, envelope, now)
            self._follow(job, place, arrivals.released(job.in_force, letter, envelope, left_ms, now), now)

    def _opened(
        self, job: Job, place: decoder.Place, *, dies: str = "", came: First | None = None, lives: bool = False
    ) -> tuple[Letter, Envelope]:
        """The letter, as `decoder.read`; what is not obeyed of it is told. Raises Malformed."""
        job.route = None
        job.letter, job.envelope = letter, envelope = decoder.read(
            job.delivery, place, dies=dies, came=came, lives=lives
        )
        if envelope.foreign_record or envelope.is_untrusted:
            self._not_obeyed(envelope, place)
        return letter, envelope

    def _not_obeyed(self, envelope: Envelope, place: decoder.Place) -> None:
        if envelope.foreign_record:
            self._metrics.foreign_records[place.vhost] += 1
        if envelope.is_untrusted:
            self._metrics.untrusted_deaths[place.vhost] += 1
            events.untrusted(self._once, place.source, decoder.text(envelope.delivery.exchange))

    def _dies(self, job: Job, place: decoder.Place, reason: str, came: First | None = None) -> None:
        """A letter as the broker would have made it, judged like any other."""
        self._judged(job, self._opened(job, place, dies=reason, came=came)[0])

    def _lives(self, job: Job, place: decoder.Place, target: Target) -> None:
        letter, _ = self._opened(job, place, lives=True)
        self._follow(job, place, arrivals.relayed(job.in_force, letter, target), now_ms())

    def _begins(self, job: Job, place: decoder.Place, entry: Delayed) -> None:
        now = now_ms()
        job.letter, job.envelope = letter, envelope = delayed_message.read(job.delivery, place, now)
        self._follow(job, place, arrivals.delayed(job.in_force, letter, envelope, entry, now), now)

    def _spared(self, job: Job, place: decoder.Place) -> None:
        self._opened(job, place)
        self.park(job, Cause.ATTEMPTS_SPENT)

    def _unreadable(self, job: Job, place: decoder.Place, error: decoder.Malformed) -> None:
        """It goes to quarantine as it came."""
        job.raw, job.cause = True, f"{Cause.MALFORMED}: {error}"
        self.quarantined(job, place)

    def _retired(self, job: Job, letter: Letter) -> None:
        job.letter, job.policy = letter, job.in_force.resolve(letter)
        job.action, job.cause = Action.RETIRE, Cause.RETENTION.value
        self._record(job, job.in_force.event_factory.retired(letter, _name(job)), now_ms())

    def _follow(self, job: Job, place: decoder.Place, outcome: arrivals.Outcome, now: int) -> None:
        """Do what an arrival calls for."""
        match outcome:
            case arrivals.Dies(reason, came):
                self._dies(job, place, reason, came)
            case arrivals.Waits():
                job.action, job.policy = Action.RELEASE, outcome.policy
                self._wait_on(job, outcome.record, outcome.left_ms, now)
                if job.letter is not None and job.copy is not None and job.copy.way is Way.RETURN:
                    self._record(job, job.in_force.event_factory.released(job.letter, job.copy, _name(job)), now)
                self._was_late(outcome.late_ms)
            case arrivals.Decided():
                job.letter, job.policy = outcome.letter, outcome.policy
                self._carry_out(job, outcome.decision, outcome.reason, now)
                if outcome.due_ms is not None and job.copy is not None:
                    job.copy = replace(job.copy, record=replace(job.copy.record, due_ms=outcome.due_ms))
                self._was_late(outcome.late_ms)
            case None if job.letter is not None:
                self._judged(job, job.letter)

    def _was_late(self, by_ms: int | None) -> None:
        """A wait ended so many ms after its time."""
        if by_ms is not None:
            self._metrics.release_lateness.observe(by_ms / 1000)

    def _judged(self, job: Job, letter: Letter) -> None:
        """Decide about the letter, and give the job what carries it out."""
        policy = job.policy = job.in_force.resolved.policy_of(letter.failed_queue, letter.reason)
        now, draw = now_ms(), random.uniform(-1.0, 1.0)  # noqa: S311 - jitter, no secret
        job.draw = draw if policy is not None and policy.jitter else None

        def breaker() -> Verdict:
            """Of the letter's queue; asked at most once, and what it said is part of the event."""
            if policy is None or policy.outage is None:
                return CLOSED
            steady = steady_ms()
            asked = self.breakers.of(letter.failed_queue, policy.outage, steady)
            verdict = asked.ask(letter.id, steady, deaths=died(letter, policy), tries=letter.tries)
            job.breaker = verdict.state.value
            return verdict

        decision = decide(letter, policy, now, draw, breaker)
        if letter.state is not None and letter.fresh and letter.reason == MAXLEN:
            decision = self._overflowed(letter, decision)
        self._carry_out(job, decision, letter.reason, now)

    def _overflowed(self, letter: Letter, decision: Decision) -> Decision:
        """A copy came back from the queue it was sent to: if that dead-letters what it refuses, it is parked."""
        queue = letter.fresh[0].queue
        self.overflowing.returned(queue)
        if isinstance(decision, Retry) and queue in self.overflowing:
            return Park(Cause.TARGET_REFUSED, decision.attempts, queue)
        return decision

    def _carry_out(self, job: Job, decision: Decision, reason: str, now: int) -> None:
        """As `apply`, of a decision that is the first about this delivery, and counted; by a route it was already."""
        self.apply(job, decision, now)
        if not reason:
            return
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
        job.decision, job.action = decision, decision.action
        job.cause = decision.cause.value if decision.cause else ""
        if failed := getattr(decision, "failed", ()):
            self._metrics.condition_errors += len(failed)
            events.failed_conditions(self._once, letter, failed)
        if isinstance(decision, Discard):
            job.copy, job.resource = None, None
            self._record(job, job.in_force.event_factory.decided(decision, None, _name(job)), now)
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
                self._wait_on(job, record, decision.due_ms - now, now)
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
                if letter.reason == UNKNOWN:  # it was alive, in a relay: its x-death is no death here
                    record = replace(record, deaths=())
                self._place(job, publication.to_parking(letter, record, job.in_force.rules.names.parking))
        name, breaker, job.breaker = policy.policy if policy else "", job.breaker, ""
        ruling = job.in_force.event_factory.decided(decision, job.copy, name, breaker)
        events.tell_where(self._journal, job, ruling, now)

    def _record(self, job: Job, ruling: Ruling, now: int) -> None:
        events.tell(self._journal, job, ruling, now)

    def quarantined(self, job: Job, place: decoder.Place) -> None:
        """The event of what goes to quarantine, letter or not."""
        now, letter = now_ms(), job.letter
        event_letter = job.letter = letter if letter is not None else events.unread(job, place, now)
        self._record(job, job.in_force.event_factory.quarantined(event_letter, job.cause, place.names.quarantine), now)
        job.letter = letter

    def refused(self, job: Job, cause: Cause, steps: int = 1, unsent_ms: int = 0) -> None:
        """The copy's target refused it: on to the ladder, or into parking when the grace is over.

        `steps` 0: it was not sent, and waits for `unsent_ms`.
        """
        assert job.letter is not None and job.copy is not None  # noqa: PT018 - discards are not published
        self._remember_the_way(job)
        now, target, grace_ms = now_ms(), publication.leads_to(job.copy), job.in_force.rules.grace_ms
        decision = hold(
            job.letter,
            cause,
            _attempts(job, job.letter),
            now,
            grace_ms=grace_ms,
            target=target,
            steps=steps,
            unsent_ms=unsent_ms,
            refusals=job.letter.refusals + job.refusals,
        )
        job.refusals = 0  # it goes to an internal queue now
        self.apply(job, decision, now)

    @staticmethod
    def _remember_the_way(job: Job) -> None:
        """What a relay cannot send on is known by where it was, not by what somebody wrote on it."""
        if job.letter is not None and isinstance(job.decision, Forward):
            job.letter = waiting(job.letter)

    def park(self, job: Job, cause: Cause) -> None:
        """Straight to parking."""
        assert job.letter is not None
        self._remember_the_way(job)
        target = publication.leads_to(job.copy) if job.copy is not None else ""
        job.refusals = 0
        self.apply(job, Park(cause, _attempts(job, job.letter), target), now_ms())

    def _left_ms(self, job: Job, letter: Letter, envelope: Envelope, now: int) -> int:
        """What is left of its wait now that a rung is over; what the clock disagrees about is counted."""
        names, record = job.in_force.rules.names, envelope.record
        rungs = (names.rung_of(death.queue) for death in envelope.broker_deaths)
        rung = next((rung for rung in rungs if rung is not None), None)
        wait_ms = None if record is None else record.wait_ms
        remaining = left(wait_ms=wait_ms, due_ms=letter.due_ms, rung_ms=rung, now_ms=now)
        if remaining.cut_ms:
            self._metrics.waits_cut += 1
        return remaining.ms

    def _wait_on(self, job: Job, record: Record, left_ms: int, now: int) -> None:
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
            copy = arrivals.put_aside(copy)
        job.copy = copy
        job.resource = resource_of(copy, job.policy)


def _name(job: Job) -> str:
    return job.policy.policy if job.policy is not None else ""


def _attempts(job: Job, letter: Letter) -> int:
    return letter.base_attempts if job.policy is None else attempts_of(letter, job.policy)
