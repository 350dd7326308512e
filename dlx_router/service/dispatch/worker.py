"""A letter's way, and all that can fail on it: take → decide → publish → confirmed → settle.

    take         a delivery: judged at once (decider), by a compiled route where one is known
    _submit      what its copy needs in the broker is there, or is seen to first (resources)
    _send        published on this worker's channel, with the current read's writes
    _arrived     the copy is where it should be, by whichever way that was heard: its source is acked (settler)
    _not_arrived it is not: core/refusal says what is done next (`_after`), and `_carry_out` does it
    _in_doubt    the channel is gone: what it leaves unanswered is repeated alone (retransmit)

What the broker's answers lead to, in short; core/refusal is the table:

    confirmed                 acked
    nack                      once more after a moment; again: held on the ladder, and the target gets less
    nack or silence, too often   parked: each such publish may have left a copy
    returned, 404, 403        held on the ladder for UNROUTABLE_GRACE, then parked
    nothing in time           held; the target is asked by one letter at a time until it answers
    channel closed            each that was in doubt alone: the culprit is held, parked or quarantined
    any of it, an internal queue kept unacked and asked again: never a drop, never parked
    any of it, in order       tried again each second; what lives in a relay goes back to its place

Rules for whoever edits this file:
1. A source is settled in settler.py and nowhere else, and that is called after a confirm without return.
2. What a target can fail never shares a channel with what goes to an internal queue: a closed channel leaves doubt.
3. Every job ends there, settled or `gone` (its consumer was lost; the broker still has the letter).
4. What an internal queue refuses is kept and tried again: ending the session would return it. Never a drop.
"""

import asyncio
import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from dlx_router.broker.consumer import Consumer
from dlx_router.broker.publisher import TIMEOUT, Publisher
from dlx_router.core import next_step, refusal
from dlx_router.core.names import RUNGS
from dlx_router.core.next_step import NextStep
from dlx_router.core.publication import Way
from dlx_router.core.refusal import (
    BrokerAnswer,
    CopyUnwritable,
    HeaderTooLarge,
    InDoubt,
    NotTaken,
    RelayLine,
    ResourceRefused,
)
from dlx_router.core.settlement import Part
from dlx_router.core.words import Action, Cause
from dlx_router.service.dispatch import events
from dlx_router.service.dispatch.cooldown import DOUBTED_S, LateConfirms
from dlx_router.service.dispatch.own_queue_waits import OwnQueueWaits
from dlx_router.service.dispatch.owner import Owner
from dlx_router.service.dispatch.refusal_facts import KnownTargets
from dlx_router.service.dispatch.resources import PLAIN, Refusal
from dlx_router.service.dispatch.retransmit import Heard, Retransmit
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.inflight import compiled, decoder
from dlx_router.service.inflight.clock import now_ms
from dlx_router.service.inflight.decoder import Place
from dlx_router.service.inflight.encoder import UNWRITABLE
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.places import Places
from dlx_router.service.inflight.routes import Resource, Route
from dlx_router.service.inflight.runs import Outlets
from dlx_router.wire import frames

Mark = tuple[Publisher[Job], int]
_HEARD: Final = frozenset({NotTaken.NACKED, NotTaken.RETURNED, NotTaken.TIMEOUT})


class Worker:
    """One publishing channel and the consumers whose letters go through it."""

    in_runs = True  # whether what comes together may go together; who takes letters otherwise takes each by itself

    def __init__(self, owner: Owner, probe: SerialPublisher) -> None:
        self._owner, self._settling = owner, owner.settling()
        self._places = Places()
        self._backlog: list[Job] = []
        self._publisher = self._new_publisher(own=False)
        self._own_publisher = self._new_publisher(own=True)
        self._moved_s = time.monotonic()
        self._targets, self._late, self._own_late = KnownTargets(owner), LateConfirms(), LateConfirms()
        self._is_closed = False
        heard = Heard(self._arrived, self._after, self._carry_out, lambda job: self._waits.refused(job))  # noqa: PLW0108 - made below
        self._alone = Retransmit(owner, self._settling, probe, heard)
        self._waits = OwnQueueWaits(
            owner, self._places, self._settling, probe=probe, alone=self._alone, heard=heard, provide=self._provide
        )

    def _new_publisher(self, *, own: bool) -> Publisher[Job]:
        return Publisher(
            self._owner.publish_link,
            on_answer=self._answered,
            on_done=self._confirmed,
            on_runs=self._confirmed_runs,
            on_doubt=partial(self._in_doubt, own),
        )

    async def open(self) -> None:
        """Open the publishing channels, where they are not."""
        for publisher in (self._publisher, self._own_publisher):
            if not publisher.is_open:
                await publisher.open()

    async def close(self) -> None:
        """Close the publishing channels for good; nothing is in flight any more."""
        self._is_closed = True
        self._waits.close()
        await self._publisher.close()
        await self._own_publisher.close()

    def mark(self) -> Mark:
        """What was published to targets up to now, for `has_answered`."""
        return self._publisher, self._publisher.next_number

    def has_answered(self, mark: Mark) -> bool:
        """Whether all of it has its answer. False for good where its channel was closed: that is repeated alone."""
        publisher, number = mark
        return publisher.is_open and not self._alone.running and not publisher.unanswered(number)

    def attend(self, consumer: Consumer, place: Place) -> None:
        """Deliveries of this consumer come from that place."""
        self._places[consumer] = place

    def limit(self, consumer: Consumer, limit: int | None) -> None:
        """What its source deletes after so many returns is spared from now on; that was not known as it began."""
        self._places.change(consumer, limit=limit)

    def trust(self, consumer: Consumer, exchanges: frozenset[bytes]) -> None:
        """By these the broker brings dead letters to its queue from now on."""
        self._places.change(consumer, dead_letter_exchanges=exchanges)

    def leave(self, consumer: Consumer) -> None:
        """The consumer is gone, and the broker has what came by it; what is on its way from it still ends here."""
        self._places.leave(consumer)

    # -- take and decide ----------------------------------------------------------------------------------------

    def take(self, delivery: frames.Delivery, consumer: Consumer) -> None:
        """A delivery arrives: decided at once, published with the current read's writes."""
        owner, place = self._owner, self._places[consumer]
        owner.metrics.deliveries[owner.vhost, place.source] += 1
        owner.weigh(len(delivery.body) + len(delivery.header))
        if place.limit is not None and decoder.is_near(delivery, place.limit):
            self.spare(Job(consumer, delivery, owner.read_s(), owner.decider.in_force))
            return
        job = owner.decider.judge(delivery, consumer, place, owner.read_s(), owner.provision.known)
        route = job.route  # what it needs is there
        provision = owner.provision
        if route is None or self._targets.full or provision.silent or provision.refusals.forbidden:
            self._submit(job)
            return
        publisher = self._own_publisher if route.action is Action.RETRY else self._publisher
        if publisher.is_open:
            self._publish(job, route, publisher)
        else:
            self._backlog.append(job)

    def take_run(self, deliveries: Sequence[frames.Delivery], at: int, consumer: Consumer) -> int:
        """As `take`, of as many from `at` on as have a mould; → how many. 0: nothing was done."""
        owner, place = self._owner, self._places[consumer]
        own, targets = self._own_publisher.outlet, self._publisher.outlet
        provision = owner.provision
        if self._targets.full or provision.silent or provision.refusals.forbidden or not own[0] or not targets[0]:
            return 0
        outlets = Outlets(own, targets, owner.encoder.user)
        written = owner.decider.run(deliveries, at, place, outlets, owner.provision.known)
        if written is None:
            return 0
        publisher = self._own_publisher if written.moulds[0].route.action is Action.RETRY else self._publisher
        if not len(publisher):
            self._moved_s = time.monotonic()
        weight = 0
        for run in written.runs(consumer, owner.decider.in_force, owner.read_s()):
            publisher.publish_run(run, len(run))
            weight += run.weight
        owner.weigh(weight)
        publisher.send(written.parts, weight)
        owner.metrics.deliveries[owner.vhost, place.source] += len(written.tables)
        return len(written.tables)

    def bury(self, job: Job, reason: str) -> None:
        """A message of a relay or a guarded queue dies, by our own decision: a letter like any other from here on."""
        self._owner.decider.dies(job, self._places[job.consumer], reason)
        self._submit(job)

    def spare(self, job: Job) -> None:
        """Its source deletes what is returned once too often, and every lost connection returns it: into parking."""
        self._owner.decider.spared(job, self._places[job.consumer])
        self._submit(job)

    # -- publish ------------------------------------------------------------------------------------------------

    def _submit(self, job: Job) -> None:
        """Towards the target. What is left of a wait below the lowest rung is waited for here: never early."""
        action, copy = job.action, job.copy  # compared by identity: an enum's hash is a call to Python
        if action is Action.RETIRE:
            self._settling.retire(job)
            return
        if action is Action.DISCARD:
            self._settling.carried_out(job)
            return
        if copy is not None and (copy.way is Way.RETURN or copy.way is Way.FORWARD) and copy.record.due_ms is not None:
            wait_ms = min(copy.record.due_ms - now_ms(), RUNGS[0])  # whatever the clock says, it is no more than that
            if wait_ms > 0:
                asyncio.get_running_loop().call_later(wait_ms / 1000, self._resume, job)
                return
        self._provide(job)

    def _resume(self, job: Job) -> None:
        """After a while; where its consumer or the session has ended, another has it and nothing is to be told."""
        if self._owner.publish_link.is_open and job.consumer.is_open:
            self._provide(job)
        else:
            self._settling.gone(job)

    def _provide(self, job: Job) -> None:
        resource = job.resource
        if resource is None:
            self._send(job)
            return
        resolved = self._owner.provision.known.get(resource)
        if resolved is None:
            self._later(job, resource)
        else:
            self._provided(job, resolved)

    def _later(self, job: Job, resource: Resource) -> None:
        """Once the broker has said whether that is there."""
        self._owner.provision.later(resource, job, self._provided_late)

    def _provided_late(self, job: Job, resolved: str | Refusal) -> None:
        if job.consumer.is_open:
            self._provided(job, resolved)
        else:
            self._settling.gone(job)

    def _provided(self, job: Job, resolved: str | Refusal) -> None:
        if isinstance(resolved, Refusal):
            events.tell_late(job)
            self._not_arrived(job, ResourceRefused(resolved.cause, str(resolved), resolved.final))
            return
        needs = None if job.route is None else job.route.resource
        if needs is not None and needs[0] == "dlq" and resolved != needs[1]:
            self._owner.decider.in_full(job, self._places[job.consumer])  # it is not as its route said
        copy = job.copy
        if copy is not None and copy.needs_queue is not None and resolved != copy.needs_queue:
            job.copy = replace(copy, needs_queue=resolved, routing_key=resolved)
        elif copy is not None and copy.way is Way.RETURN and resolved == PLAIN:
            job.copy, job.resource = self._owner.decider.return_copy(job, copy.record, PLAIN), None
        events.tell_late(job)
        self._send(job)

    def _send(self, job: Job) -> None:
        copy, route, provision = job.copy, job.route, self._owner.provision
        if route is not None:
            own = route.action is Action.RETRY
        else:
            own = copy is None or copy.way is Way.RUNG or copy.way is Way.PARKING
        publisher = self._own_publisher if own else self._publisher
        if not publisher.is_open:
            self._backlog.append(job)
        elif job.raw:
            self._owner.spawn(self._alone.each([job]))
        elif own:
            self._publish(job, route, publisher)
        elif provision.silent and (provision.silent.has(job.target) or provision.silent.is_over(job.target)):
            self._not_arrived(job, InDoubt(was_silent=True))
        elif self._targets.full and not self._targets.admits(job):
            self._not_arrived(job, NotTaken.RESTS)
        elif provision.refusals.forbidden and provision.refusals.forbidden.has(job.target[0]):
            self._owner.spawn(self._alone.each([job]))
        else:
            self._publish(job, route, publisher)

    def _publish(self, job: Job, route: Route | None, publisher: Publisher[Job]) -> None:
        """As its route says, or its copy."""
        encoder = self._owner.encoder
        if not len(publisher):
            self._moved_s = time.monotonic()
        try:
            if route is not None:
                section = compiled.section(job, route, publisher.stamp(), encoder.user)
                publisher.publish(job, route.exchange, route.routing_key, section, job.delivery.body)
            else:
                exchange, key, section = encoder.write(job, publisher.stamp())
                publisher.publish(job, exchange, key, section, job.delivery.body)
        except frames.FrameTooLarge as error:
            self._not_arrived(job, HeaderTooLarge(str(error), alone=False))
        except UNWRITABLE as error:
            self._not_arrived(job, CopyUnwritable(str(error)))

    # -- confirmed, and settle ----------------------------------------------------------------------------------

    def _confirmed(self, jobs: list[Job]) -> None:
        self._moved_s = time.monotonic()
        silent = self._owner.provision.silent
        if silent:
            for job in jobs:
                silent.took(job.target)
        self._arrived(jobs)

    def _confirmed_runs(self, parts: list[Part[Job]]) -> None:
        """As `_confirmed`; where a target is known that did not take letters, each is looked at by itself."""
        self._moved_s = time.monotonic()
        provision, targets = self._owner.provision, self._targets
        if provision.silent or targets.full or targets.head is not None or provision.refusals.queues:
            self._confirmed([job for part in parts for job in part.jobs()])
        else:
            self._settling.confirmed_runs(parts)

    def _arrived(self, jobs: list[Job]) -> None:
        if self._targets.full or self._targets.head is not None or self._owner.provision.refusals.deferred:
            self._targets.arrived(jobs)
        if self._owner.provision.refusals.queues:
            self._waits.took(jobs)
        self._settling.confirmed(jobs)

    # -- refused ------------------------------------------------------------------------------------------------

    def _answered(self, job: Job, why: str) -> None:
        """The broker said of this one where its copy is, or (`why`) that it is nowhere."""
        self._moved_s = time.monotonic()
        if why:
            self._not_arrived(job, NotTaken(why))
        else:
            self._arrived([job])

    def _not_arrived(self, job: Job, answer: BrokerAnswer) -> None:
        self._carry_out(job, self._after(job, answer))

    def _after(self, job: Job, answer: BrokerAnswer, now_s: float | None = None) -> NextStep:
        """What is done next, as core/refusal says; what the answer teaches is remembered.

        A letter that took the short way is judged in full for it, unless the same bytes are sent again, or what came:
        then it is only read, in `_quarantine`.
        """
        place, now_s = self._places[job.consumer], time.monotonic() if now_s is None else now_s
        if answer in _HEARD:
            self._owner.metrics.publish_refused[str(answer)] += 1
        step, learned = refusal.after(answer, self._targets.facts(job, place, self._line_of(job), now_s))
        once_more = learned.refused and isinstance(step, next_step.TryAgain) and self._targets.head is None
        if job.route is not None and not once_more and not isinstance(step, next_step.QuarantineRaw):
            self._owner.decider.in_full(job, place)
            step, learned = refusal.after(answer, self._targets.facts(job, place, self._line_of(job), now_s))
        self._targets.learn(job, learned, now_s)
        return step

    def _line_of(self, _job: Job) -> RelayLine | None:
        """Where the job can go back to; only a relay has that."""
        return None

    def _carry_out(self, job: Job, step: NextStep) -> None:  # noqa: C901 - one arm for each, and none is missing
        """Do this step; core/next_step says what each is."""
        decider, place = self._owner.decider, self._places[job.consumer]
        match step:
            case next_step.TryAgain(after_s):
                asyncio.get_running_loop().call_later(after_s, self._resume, job)
            case next_step.HoldOnLadder(cause, steps):
                refused = cause is Cause.TARGET_REFUSED
                unsent_ms = self._targets.defers(job, sent=steps > 0) if refused else 0
                decider.refused(job, cause, steps, unsent_ms)
                self._submit(job)
            case next_step.ParkNow(cause):
                self._targets.ends(job)
                decider.park(job, cause)
                self._submit(job)
            case next_step.AskAlone(beside=True):
                self._alone.beside(job)
            case next_step.AskAlone():
                self._owner.spawn(self._alone.each([job]))
            case next_step.KeepForOwnQueue(why):
                self._waits.keep(job, why)
            case next_step.QuarantineRaw(cause):
                self._quarantine(job, cause)
            case next_step.MoveNatively():
                job.action, job.cause = Action.QUARANTINE, Cause.TOO_LARGE
                decider.quarantined(job, place)
                self._settling.reject(job)
            case next_step.StayStuck(why, back_after_s):
                self._owner.provision.refusals.stuck(place.source, why)
                asyncio.get_running_loop().call_later(back_after_s, self._settling.give_back, job, refusal.OWN_QUEUE)
            case next_step.LeaveSourceAlone(why):
                self._owner.leave_alone(place.source, f"a letter can neither be kept nor published: {why}")
                self._settling.gone(job)
            case next_step.GiveBack(why):
                self._settling.give_back(job, why)
            case next_step.BackInLine():
                raise AssertionError(job)  # only a relay has a line

    def _quarantine(self, job: Job, cause: str) -> None:
        """As it came and alone on its channel: what cannot be stamped must not be confused with a neighbour."""
        decider, place = self._owner.decider, self._places[job.consumer]
        if job.route is not None:
            decider.identified(job, place)  # the short way has told of it under the letter's id, and told a success
        job.raw, job.action, job.cause = True, Action.QUARANTINE, cause
        job.copy = job.resource = job.route = None
        job.refusals = 0
        decider.quarantined(job, place)
        self._send(job)

    # -- in doubt -----------------------------------------------------------------------------------------------

    def check(self, timeout_s: float) -> None:
        """Called each second: a confirm that does not come closes the channel, whatever else is confirmed."""
        self._settling.check()
        self._targets.check()
        self._owner.provision.refusals.check()
        if not self._owner.publish_link.blocked:
            self._waits.check()
        self._check_confirms(self._publisher, self._late, timeout_s)
        self._check_confirms(self._own_publisher, self._own_late, timeout_s)

    def _check_confirms(self, publisher: Publisher[Job], confirms: LateConfirms, timeout_s: float) -> None:
        if self._owner.publish_link.blocked or not publisher.is_open:
            confirms.forget()
            self._moved_s = time.monotonic()
            return
        late = publisher.unanswered(confirms.before(publisher.next_number, timeout_s))
        if not late:
            return
        if time.monotonic() - self._moved_s < timeout_s:  # else nobody answers, and each is asked alone
            for job in late:
                if not job.to_own:
                    self._owner.provision.silent.rest(job.target, DOUBTED_S)
        self._owner.metrics.publish_refused[TIMEOUT] += 1
        self._owner.spawn(publisher.close())

    def _in_doubt(self, own: bool, jobs: list[Job], _error: Exception) -> None:  # noqa: FBT001 - bound by partial
        """The channel is gone: repeat what is in doubt one by one, so that only the culprit pays."""
        if self._is_closed or not self._owner.publish_link.is_open:
            return  # the session ends, and the broker still has every letter
        self._owner.metrics.publish_refused["closed"] += 1
        for job in jobs:
            job.refusals += not own  # it may have left a copy
        self._owner.spawn(self._recover(jobs, own=own))

    async def _recover(self, jobs: list[Job], *, own: bool) -> None:
        await self._alone.each(jobs)
        if self._is_closed:
            return  # nobody would close what is opened now
        publisher = self._new_publisher(own=own)
        await publisher.open()
        if own:
            self._own_publisher = publisher
            self._own_late.forget()
        else:
            self._publisher = publisher
            self._late.forget()
        self._moved_s = time.monotonic()
        backlog, self._backlog = self._backlog, []
        for job in backlog:
            self._resume(job)  # what it needs may be what was just missed
