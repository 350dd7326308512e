"""A lane: deliveries of some consumers → jobs → one publishing channel → acks.

Rules for whoever edits this file:
1. A source is settled in settling.py and nowhere else, and that is called after a confirm without return.
2. Every job ends there, settled or `gone` (its consumer was lost; the broker still has the letter).
3. What a queue of ours refuses is kept and tried again: ending the session would return it. Never a drop.
"""

import asyncio
import time
from dataclasses import replace
from typing import Final

from dlx_router.broker.consumer import Consumer
from dlx_router.broker.publisher import TIMEOUT, Publisher
from dlx_router.core import attending
from dlx_router.core.names import RUNGS
from dlx_router.core.publication import Way
from dlx_router.core.words import Action, Cause
from dlx_router.service.dispatch import events
from dlx_router.service.dispatch.answers import Answering
from dlx_router.service.dispatch.cooldown import DOUBTED_S, FULL_S, Cooldown, LateConfirms, is_own, target_of
from dlx_router.service.dispatch.resources import PLAIN, Refusal
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.dispatch.settler import Owner
from dlx_router.service.inflight import compiled, decoder
from dlx_router.service.inflight.clock import now_ms
from dlx_router.service.inflight.decoder import Place
from dlx_router.service.inflight.encoder import UNWRITABLE
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.places import Places
from dlx_router.service.inflight.routes import Resource, Route
from dlx_router.wire import frames

Mark = tuple[Publisher[Job], int]
_LAST_HOPS: Final = frozenset({Way.RETURN, Way.FORWARD})


class Worker(Answering):
    """One publishing channel and the consumers whose letters go through it."""

    def __init__(self, owner: Owner, name: str, probe: SerialPublisher) -> None:
        self._owner = owner
        self._name = name
        self._probe = probe
        self._places = Places()
        self._backlog: list[Job] = []
        self._publisher: Publisher[Job] = self._new_publisher()
        self._moved_s = time.monotonic()
        self._full, self._late = Cooldown(FULL_S), LateConfirms()
        self._settling = owner.settling()
        self._missing = None
        self._kept = {}
        self._is_closed = False
        owner.provision.refusals.listen(self._refusals_changed)
        self._repeating = 0

    def _new_publisher(self) -> Publisher[Job]:
        return Publisher(
            self._owner.publish_link, on_answer=self._answered, on_done=self._confirmed, on_doubt=self._in_doubt
        )

    async def open(self) -> None:
        """Open the publishing channel."""
        await self._publisher.open()

    async def close(self) -> None:
        """Close the publishing channel for good; nothing is in flight any more."""
        self._is_closed = True
        self._owner.provision.refusals.unlisten(self._refusals_changed)
        await self._publisher.close()

    def mark(self) -> Mark:
        """What was published up to now, for `has_answered`."""
        return self._publisher, self._publisher.next_number

    def has_answered(self, mark: Mark) -> bool:
        """Whether all of it has its answer. False for good where its channel was closed: that is repeated alone."""
        publisher, number = mark
        return publisher.is_open and not self._repeating and not publisher.unanswered(number)

    def attend(self, consumer: Consumer, place: Place) -> None:
        """Deliveries of this consumer come from that place."""
        self._places[consumer] = place

    def limit(self, consumer: Consumer, limit: int | None) -> None:
        """What its source deletes after so many returns is spared from now on; that was not known as it began."""
        if consumer in self._places:
            self._places[consumer] = replace(self._places[consumer], limit=limit)

    def trust(self, consumer: Consumer, exchanges: frozenset[bytes]) -> None:
        """By these the broker brings dead letters to its queue from now on."""
        if consumer in self._places:
            self._places[consumer] = replace(self._places[consumer], dead_letter_exchanges=exchanges)

    def leave(self, consumer: Consumer) -> None:
        """The consumer is gone, and the broker has what came by it; what is on its way from it still ends here."""
        self._places.leave(consumer)

    # -- in -----------------------------------------------------------------------------------------------------

    def take(self, delivery: frames.Delivery, consumer: Consumer) -> None:
        """A delivery arrives: decided at once, published with the current read's writes."""
        owner, place = self._owner, self._places[consumer]
        owner.metrics.deliveries[owner.vhost, place.source] += 1
        owner.weigh(len(delivery.body) + len(delivery.header))
        if place.limit is not None and attending.is_near(decoder.returns(delivery), place.limit):
            self.spare(Job(consumer, delivery, owner.read_s(), owner.decider.in_force))
            return
        job = owner.decider.judge(delivery, consumer, place, owner.read_s(), owner.provision.known)
        order = job.order  # what it needs is there
        if order is not None and not self._full and not owner.provision.silent and self._publisher.is_open:
            self._send_ordered(job, order)
            return
        self._submit(job)

    def bury(self, job: Job, reason: str) -> None:
        """A message of a relay or a guarded queue dies, by our own decision: a letter like any other from here on."""
        self._owner.decider.dies(job, self._places[job.consumer], reason)
        self._submit(job)

    def spare(self, job: Job) -> None:
        """Its source deletes what is returned once too often, and every lost connection returns it: into parking."""
        self._owner.decider.spared(job, self._places[job.consumer])
        self._submit(job)

    def _send_ordered(self, job: Job, order: Route) -> None:
        """The short way: everything is there, as its order says."""
        publisher = self._publisher
        if not len(publisher):
            self._moved_s = time.monotonic()
        try:
            section = compiled.section(job, order, publisher.stamp(), self._owner.encoder.user)
            publisher.publish(job, order.exchange, order.routing_key, section, job.delivery.body)
        except frames.FrameTooLarge:
            self._quarantine(job, Cause.TOO_LARGE)
        except UNWRITABLE as error:
            self._quarantine(job, f"{Cause.MALFORMED}: {error}")

    def _submit(self, job: Job) -> None:
        """Towards the target: what it needs is there, or is seen to first."""
        if job.action is Action.RETIRE:
            self._settling.retire(job)
            return
        if job.action is Action.DISCARD:
            self._settling.carried_out(job)
            return
        if job.order is not None:
            self._provide(job)
            return
        action = job.action  # compared by identity: an enum's hash is a call to Python
        if action is Action.RELEASE or action is Action.RETRY or action is Action.HOLD or action is Action.FORWARD:
            wait = self._timer_s(job)
            if wait > 0:
                asyncio.get_running_loop().call_later(wait, self._resume, job)
                return
        self._provide(job)

    @staticmethod
    def _timer_s(job: Job) -> float:
        """Remainders below the lowest rung are waited for here: never early, and no rung is worth 60 ms.

        Whatever the clock says, it is no more than that.
        """
        copy = job.copy
        if copy is None or copy.way not in _LAST_HOPS or copy.record.due_ms is None:
            return 0.0
        return min(copy.record.due_ms - now_ms(), RUNGS[0]) / 1000

    def _resume(self, job: Job) -> None:
        """After a while; where the session has ended meanwhile, another has the letter and nothing is to be told."""
        if self._owner.publish_link.is_open:
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
        self._owner.provision.later(resource, job, self._provided)

    def _provided(self, job: Job, resolved: str | Refusal) -> None:
        if isinstance(resolved, Refusal):
            events.tell_late(job)
            self._refused(job, resolved.cause, str(resolved), final=resolved.final)
            return
        order = job.order
        needs = None if order is None else order.resource
        if needs is not None and needs[0] == "dlq" and resolved != needs[1]:
            self._long_way(job)
        copy = job.copy
        if copy is not None and copy.needs_queue is not None and resolved != copy.needs_queue:
            job.copy = replace(copy, needs_queue=resolved, routing_key=resolved)
        elif copy is not None and copy.way is Way.RETURN and resolved == PLAIN:
            job.copy, job.resource = self._owner.decider.return_copy(job, copy.record, PLAIN), None
        events.tell_late(job)
        self._send(job)

    # -- out ----------------------------------------------------------------------------------------------------

    def _send(self, job: Job) -> None:
        publisher = self._publisher
        if not publisher.is_open:
            self._backlog.append(job)
            return
        if not len(publisher):
            self._moved_s = time.monotonic()
        if (self._full or self._owner.provision.silent) and not self._may_ask(job):
            return
        if job.raw:
            self._owner.spawn(self._alone([job]))
            return
        if job.order is not None:
            self._send_ordered(job, job.order)
            return
        try:
            exchange, key, section = self._owner.encoder.write(job, publisher.stamp())
            publisher.publish(job, exchange, key, section, job.delivery.body)
        except frames.FrameTooLarge:
            self._quarantine(job, Cause.TOO_LARGE)
        except UNWRITABLE as error:
            self._quarantine(job, f"{Cause.MALFORMED}: {error}")

    def _long_way(self, job: Job) -> None:
        """Something about this letter is not as its order said: judge it in full."""
        self._owner.decider.in_full(job, self._places[job.consumer])

    def _quarantine(self, job: Job, cause: str) -> None:
        """As it came and alone on its channel: what cannot be stamped must not be confused with a neighbour."""
        job.raw, job.action, job.cause = True, Action.QUARANTINE, cause
        job.copy = job.resource = job.order = None
        self._owner.decider.quarantined(job, self._places[job.consumer])
        self._send(job)

    # -- doubt --------------------------------------------------------------------------------------------------

    def check(self, timeout_s: float) -> None:
        """Called each second: a confirm that does not come closes the channel, whatever else is confirmed."""
        publisher = self._publisher
        self._settling.check()
        self._full.forget_over()
        if self._kept and not self._owner.publish_link.blocked:
            self._ask_own()
        if self._owner.publish_link.blocked or not publisher.is_open:
            self._late.forget()
            self._moved_s = time.monotonic()
            return
        late = publisher.unanswered(self._late.before(publisher.next_number, timeout_s))
        if not late:
            return
        if time.monotonic() - self._moved_s < timeout_s:  # else nobody answers, and each is asked alone
            for job in late:
                if not is_own(job):
                    self._owner.provision.silent.rest(target_of(job), DOUBTED_S)
        self._owner.metrics.publish_refused[TIMEOUT] += 1
        self._owner.spawn(publisher.close())

    def _in_doubt(self, jobs: list[Job], _error: Exception) -> None:
        """The channel is gone: repeat what is in doubt one by one, so that only the culprit pays."""
        if self._is_closed or not self._owner.publish_link.is_open:
            return  # the session ends, and the broker still has every letter
        self._owner.metrics.publish_refused["closed"] += 1
        self._owner.spawn(self._recover(jobs))

    async def _recover(self, jobs: list[Job]) -> None:
        await self._alone(jobs)
        if self._is_closed:
            return  # nobody would close what is opened now
        self._publisher = self._new_publisher()
        await self._publisher.open()
        self._late.forget()
        self._moved_s = time.monotonic()
        backlog, self._backlog = self._backlog, []
        for job in backlog:
            self._provide(job)  # what it needs may be what was just missed
