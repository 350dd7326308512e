"""Record the outcome of each sampled delivery as a span, through a decider and a settler of their own.

A sampled message is decided the long way, because its span names the letter and the policy. Spans hold no headers and
no body. See docs/tracing.md.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dlx_router.broker.consumer import Consumer
from dlx_router.core.outcome import Retry
from dlx_router.core.policy import Effective
from dlx_router.core.words import Action
from dlx_router.journal.privacy import rule_of
from dlx_router.journal.writer import Journal
from dlx_router.service.dispatch.decider import Decider
from dlx_router.service.dispatch.settler import Settler, SettlerOwner
from dlx_router.service.inflight import decoder
from dlx_router.service.inflight.in_force import InForce
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.routes import Known
from dlx_router.service.inflight.runs import Outlets, Written
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.traces import Traces, Value
from dlx_router.wire import frames

DEFAULT: Final = "amq.default"
_FAILED: Final = frozenset({Action.PARK, Action.QUARANTINE, Action.HOLD})


class Where(NamedTuple):
    """What all spans of a session share."""

    vhost: str
    host: str
    port: int
    quarantine: str
    observes: bool


def decider(in_force: InForce, metrics: Metrics, journal: Journal, traces: Traces | None) -> Decider:
    """The decider of a vhost, with or without traces."""
    return Decider(in_force, metrics, journal) if traces is None else TracedDecider(in_force, metrics, journal, traces)


class TracedDecider(Decider):
    """A decider that begins a span of each delivery that is sampled."""

    def __init__(self, in_force: InForce, metrics: Metrics, journal: Journal, traces: Traces) -> None:
        super().__init__(in_force, metrics, journal)
        self._traces = traces

    def judge(
        self, delivery: frames.Delivery, consumer: Consumer, place: decoder.Place, started_s: float, known: Known = None
    ) -> Job:
        """As without traces; what is sampled goes the long way."""
        span = self._traces.begin(place.source, started_s)
        if span is None:
            job = super().judge(delivery, consumer, place, started_s, known)
            job.span = None
            return job
        job = Job(consumer, delivery, started_s, self.in_force)
        job.span = span
        self.in_full(job, place)
        return job

    def run(
        self,
        deliveries: Sequence[frames.Delivery],
        at: int,
        place: decoder.Place,
        outlets: Outlets,
        known: Known = None,
    ) -> Written | None:
        """None: whether it is sampled is asked of each letter."""


class TracedSettler(Settler):
    """A settler that ends the spans of what is settled. A span that cannot be made is counted, and costs no letter."""

    def __init__(self, owner: SettlerOwner, traces: Traces, where: Where) -> None:
        super().__init__(owner)
        self._traces, self._where = traces, where

    def confirmed(self, jobs: list[Job]) -> None:
        """As without traces."""
        settled = [job for job in jobs if _is_settled_now(job)]
        super().confirmed(jobs)
        for job in settled:
            self._end(job, _copied_to(job, self._where))

    def reject(self, job: Job) -> None:
        """As without traces."""
        is_settled = _is_settled_now(job)
        super().reject(job)
        if is_settled:
            self._end(job, {})

    def give_back(self, job: Job, cause: str) -> None:
        """As without traces."""
        super().give_back(job, cause)
        if getattr(job, "span", None) is not None:
            self._end(job, {"dlx_router.action": "given_back", "dlx_router.cause": cause})

    def _end(self, job: Job, outcome: dict[str, Value]) -> None:
        try:
            span = job.span if hasattr(job, "span") else self._traces.begin(job.consumer.queue, job.started_s)
            job.span = None
            if span is not None:
                attributes = _attributes(job, self._where) | outcome
                failed = job.action in _FAILED and attributes["dlx_router.action"] == job.action.value
                self._traces.end(span, attributes, producer=_producer(job), failed=failed)
        except Exception:  # noqa: BLE001 - the letter is settled: nothing about a span may end its session
            self._traces.count_lost()


def _is_settled_now(job: Job) -> bool:
    return job.consumer.is_open and all(batch.settled for batch in job.batches)


def _attributes(job: Job, where: Where) -> dict[str, Value]:
    """Return what a span says of a delivery. Of its properties only the message id."""
    queue, letter, decision = job.consumer.queue, job.letter, job.decision
    key = "" if _discloses_hidden(job.disclosing) else decoder.text(job.delivery.routing_key)
    parts = decoder.text(job.delivery.exchange), key if key != queue else "", queue
    attributes: dict[str, Value] = {
        "messaging.system": "rabbitmq",
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": ":".join(filter(None, parts)),
        "messaging.message.body.size": len(job.delivery.body),
        "server.address": where.host,
        "server.port": where.port,
        "dlx_router.vhost": where.vhost,
        "dlx_router.action": job.action.value,
        "dlx_router.revision": job.in_force.policies.revision,
    }
    if job.envelope is not None and job.envelope.props.message_id is not None:
        attributes["messaging.message.id"] = decoder.text(job.envelope.props.message_id)
    if job.cause:  # of the bounded set; what a malformed message said is not repeated
        attributes["dlx_router.cause"] = job.cause.partition(": ")[0]
    if where.observes:
        attributes["dlx_router.observed"] = "true"
    if letter is not None:
        attributes |= {
            "dlx_router.letter.id": letter.id,
            "dlx_router.failed_queue": letter.failed_queue,
            "dlx_router.reason": letter.reason,
            "dlx_router.attempt": letter.base_attempts if decision is None else decision.attempts,
            "dlx_router.redrives": letter.redrives,
        }
    if job.policy is not None:
        attributes["dlx_router.policy"] = job.policy.policy
    if isinstance(decision, Retry):
        attributes["dlx_router.delay_ms"] = decision.wait_ms
    return attributes


def _copied_to(job: Job, where: Where) -> dict[str, Value]:
    """Return where the confirmed copy went; nothing if there was no copy."""
    copy = job.copy
    if where.observes or job.action in {Action.DISCARD, Action.RETIRE} or (copy is None and not job.raw):
        return {}
    way, exchange, key = "quarantine", "", where.quarantine
    if copy is not None:
        way, exchange, key = copy.way.value, copy.exchange, copy.routing_key
    if _discloses_hidden(job.disclosing):
        key = ""
    return {"dlx_router.way": way, "dlx_router.target": ":".join(filter(None, (exchange, key))) or DEFAULT}


def _discloses_hidden(policy: Effective | None) -> bool:
    """Whether the policy makes its routing key of a header that it redacts."""
    if policy is None or policy.routing_key is None:
        return False
    rule = rule_of(policy)
    return any(rule.hides(part[1]) for part in policy.routing_key.parts if isinstance(part, tuple))


def _producer(job: Job) -> str:
    """The header `traceparent`, where it is a string and may be shown."""
    envelope = job.envelope
    at = None if envelope is None else envelope.found.get(b"traceparent")
    if envelope is None or at is None or rule_of(job.disclosing).hides("traceparent"):
        return ""
    field = envelope.props.headers[at[1] : at[2]]
    return decoder.text(field[5:]) if field[:1] == b"S" else ""
