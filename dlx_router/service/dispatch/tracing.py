"""Record the outcome of each sampled delivery as a span, through a decider and a settler of their own.

A sampled letter takes the slow path, because its record has to name its span: the next span links to it. Spans hold no
headers and no body. See docs/tracing.md.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from dlx_router.broker.consumer import Consumer
from dlx_router.core.letter import First, Letter
from dlx_router.core.outcome import Decision, Hold, Retry
from dlx_router.core.policy import Effective
from dlx_router.core.words import Action
from dlx_router.journal.privacy import rule_of
from dlx_router.journal.writer import Journal
from dlx_router.service.dispatch.decider import Decider
from dlx_router.service.dispatch.settler import Settler, SettlerOwner
from dlx_router.service.inflight import decoder
from dlx_router.service.inflight.decoder import Envelope
from dlx_router.service.inflight.in_force import InForce
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.routes import Known
from dlx_router.service.inflight.runs import Outlets, Written
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.traces import Begun, Link, Outcome, Traces, Value
from dlx_router.wire import frames, properties, table

MEMBER: Final = "trace"  # of the record: the span that last decided about the letter, as a traceparent
DEFAULT: Final = "amq.default"
_GIVEN_BACK: Final = "given_back"
_ERRORS: Final = frozenset({Action.PARK, Action.QUARANTINE, Action.HOLD})


class Where(NamedTuple):
    """What all spans of a session share."""

    vhost: str
    host: str
    port: int
    quarantine: str
    observes: bool


def decider(in_force: InForce, metrics: Metrics, journal: Journal, traces: Traces | None) -> Decider:
    """The decider of a vhost, with or without traces."""
    if traces is None:
        return Decider(in_force, metrics, journal)
    return TracedDecider(in_force, metrics, journal, traces)


class TracedDecider(Decider):
    """A decider that begins a span of each delivery that is sampled, and notes it in the letter's record."""

    def __init__(self, in_force: InForce, metrics: Metrics, journal: Journal, traces: Traces) -> None:
        super().__init__(in_force, metrics, journal)
        self._traces = traces

    def judge(
        self, delivery: frames.Delivery, consumer: Consumer, place: decoder.Place, started_s: float, known: Known = None
    ) -> Job:
        """As without traces; what is sampled goes the long way."""
        begun = self._traces.begin(place.source, started_s)
        if begun is None:
            job = super().judge(delivery, consumer, place, started_s, known)
            job.span = None
            return job
        job = Job(consumer, delivery, started_s, self.in_force)
        job.span = begun
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

    def _opened(
        self, job: Job, place: decoder.Place, *, dies: str = "", came: First | None = None, lives: bool = False
    ) -> tuple[Letter, Envelope]:
        """As without traces; what the record says of the last span is kept for the link."""
        letter, envelope = super()._opened(job, place, dies=dies, came=came, lives=lives)
        begun = _begun(job)
        if begun is not None:
            begun.previous = _previous(letter)
        return letter, envelope

    def apply(self, job: Job, decision: Decision, now: int) -> None:
        """As without traces, but that the record names the span."""
        begun, letter = _begun(job), job.letter
        if begun is not None and letter is not None:
            job.letter = replace(letter, more={**(letter.more or {}), MEMBER: begun.traceparent})
        super().apply(job, decision, now)


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
            self._end(job, is_sent=not self._where.observes)

    def reject(self, job: Job) -> None:
        """As without traces."""
        is_settled = _is_settled_now(job)
        super().reject(job)
        if is_settled:
            self._end(job, is_sent=False)

    def give_back(self, job: Job, cause: str) -> None:
        """As without traces."""
        super().give_back(job, cause)
        if _begun(job) is not None:
            self._end(job, is_sent=False, given_back=cause)

    def _end(self, job: Job, *, is_sent: bool, given_back: str = "") -> None:
        try:
            begun = job.span if hasattr(job, "span") else self._traces.begin(job.consumer.queue, job.started_s)
            job.span = None
            if begun is not None:
                self._traces.end(
                    begun, outcome_of(job, begun.previous, self._where, is_sent=is_sent, given_back=given_back)
                )
        except Exception:  # noqa: BLE001 - the letter is settled: nothing about a span may end its session
            self._traces.count_lost()


def _begun(job: Job) -> Begun | None:
    begun: Begun | None = getattr(job, "span", None)
    return begun


def _is_settled_now(job: Job) -> bool:
    return job.consumer.is_open and all(batch.settled for batch in job.batches)


def _previous(letter: Letter) -> str | None:
    traceparent = (letter.more or {}).get(MEMBER)
    return traceparent if isinstance(traceparent, str) else None


def outcome_of(job: Job, previous: str | None, where: Where, *, is_sent: bool, given_back: str = "") -> Outcome:
    """Return the attributes and links of a settled delivery; of its properties only the two IDs."""
    attributes = _message(job) | _route(job) | _decided(job, where)
    if given_back:
        attributes |= {"dlx_router.action": _GIVEN_BACK, "dlx_router.cause": given_back}
    if is_sent:
        attributes |= _sent(job, where)
    error = _cause(job) if job.action in _ERRORS and not given_back else ""
    return Outcome(attributes | _place(where), _links(job, previous), error)


def _message(job: Job) -> dict[str, Value]:
    attributes: dict[str, Value] = {"messaging.message.body.size": len(job.delivery.body)}
    props = _properties(job)
    if props is not None and props.message_id is not None:
        attributes["messaging.message.id"] = decoder.text(props.message_id)
    if props is not None and props.correlation_id is not None:
        attributes["messaging.message.conversation_id"] = decoder.text(props.correlation_id)
    return attributes


def _route(job: Job) -> dict[str, Value]:
    """Source: OpenTelemetry's semantic conventions for RabbitMQ, consumers: {exchange}:{routing key}:{queue}."""
    exchange, key = decoder.text(job.delivery.exchange), decoder.text(job.delivery.routing_key)
    if _discloses_hidden(job.disclosing):
        key = ""
    queue = job.consumer.queue
    parts = (exchange, key, queue) if key != queue else (exchange, queue)
    return {
        "messaging.operation.name": "process",
        "messaging.operation.type": "process",
        "messaging.destination.name": ":".join(part for part in parts if part),
        "messaging.destination.template": queue,
        **({"messaging.rabbitmq.destination.routing_key": key} if key else {}),
        "messaging.rabbitmq.message.delivery_tag": job.delivery.tag,
    }


def _place(where: Where) -> dict[str, Value]:
    return {
        "messaging.system": "rabbitmq",
        "server.address": where.host,
        "server.port": where.port,
        "dlx_router.vhost": where.vhost,
    }


def _decided(job: Job, where: Where) -> dict[str, Value]:
    attributes: dict[str, Value] = {"dlx_router.action": job.action.value}
    letter, decision, policy = job.letter, job.decision, job.policy
    if cause := _cause(job):
        attributes["dlx_router.cause"] = cause
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
    if policy is not None:
        attributes["dlx_router.policy"] = policy.policy
    attributes["dlx_router.revision"] = job.in_force.policies.revision
    if isinstance(decision, Retry):
        attributes["dlx_router.delay_ms"] = decision.wait_ms
    if isinstance(decision, Hold):
        attributes["dlx_router.tries"] = decision.tries
    return attributes


def _cause(job: Job) -> str:
    """A cause of the bounded set; what a malformed message said is not repeated."""
    return job.cause.partition(": ")[0]


def _sent(job: Job, where: Where) -> dict[str, Value]:
    """Return where the confirmed copy went; nothing if there was no copy."""
    copy = job.copy
    if job.action is Action.DISCARD or job.action is Action.RETIRE or (copy is None and not job.raw):
        return {}
    exchange, key = ("", where.quarantine) if copy is None else (copy.exchange, copy.routing_key)
    if _discloses_hidden(job.disclosing):
        key = ""
    return {
        "dlx_router.way": "quarantine" if copy is None else copy.way.value,
        "dlx_router.target": ":".join(part for part in (exchange, key) if part) or DEFAULT,
    }


def _discloses_hidden(policy: Effective | None) -> bool:
    """Whether the policy makes its routing key of a header that it redacts."""
    if policy is None or policy.routing_key is None:
        return False
    rule = rule_of(policy)
    return any(rule.hides(part[1]) for part in policy.routing_key.parts if isinstance(part, tuple))


def _links(job: Job, previous: str | None) -> tuple[Link, ...]:
    """The producer's span, as the message names it, and our own that decided about the letter before."""
    links = []
    parent = _header(job, b"traceparent")
    if parent is not None and not rule_of(job.disclosing).hides("traceparent"):
        links.append(Link(parent, "producer"))
    if previous is not None:
        links.append(Link(previous, "previous"))
    return tuple(links)


def _properties(job: Job) -> properties.Properties | None:
    if job.envelope is not None:
        return job.envelope.props
    try:
        return properties.parse(job.delivery.header, decoder.PROPERTIES_AT)
    except (table.TableError, frames.WireError):
        return None


def _header(job: Job, name: bytes) -> str | None:
    """A header that is a string; None where there is none."""
    props = _properties(job)
    try:
        entries = {} if props is None else table.entries(props.headers)
    except table.TableError:
        return None
    at = entries.get(name)
    if props is None or at is None or props.headers[at[1] : at[1] + 1] != b"S":
        return None
    return decoder.text(props.headers[at[1] + 5 : at[2]])
