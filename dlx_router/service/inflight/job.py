"""A job: one delivery on its way through decide → publish → settle."""

from typing import Any

from dlx_router.broker.consumer import Consumer
from dlx_router.core.letter import Letter
from dlx_router.core.names import Names
from dlx_router.core.outcome import Decision
from dlx_router.core.policy import Effective
from dlx_router.core.publication import Publication, Way
from dlx_router.core.words import APPLICATION, Action
from dlx_router.journal.batch import Batch
from dlx_router.journal.events import Ruling
from dlx_router.journal.writer import Journal
from dlx_router.service.inflight.decoder import Envelope, text
from dlx_router.service.inflight.in_force import InForce
from dlx_router.service.inflight.routes import DECLARED, Key, Resource, Route, dead_letter_resource
from dlx_router.wire import frames

Destination = tuple[str, str, str | None]  # exchange, routing key, BCC


class Job:
    """Mutable on purpose: one letter, its current copy, and how often that was refused.

    `letter` is None for what cannot be read: then `raw` headers go to quarantine as they came.
    """

    __slots__ = (
        "action",
        "added",
        "arrived_ms",
        "batches",
        "breaker",
        "cause",
        "consumer",
        "copy",
        "decision",
        "delivery",
        "draw",
        "envelope",
        "in_force",
        "key",
        "letter",
        "policy",
        "props",
        "published_ms",
        "raw",
        "refusals",
        "resource",
        "route",
        "span",
        "started_s",
        "untold",
        "why",
    )

    span: Any
    published_ms: int

    def __init__(self, consumer: Consumer, delivery: frames.Delivery, started_s: float, in_force: InForce) -> None:
        self.consumer = consumer
        self.delivery = delivery
        self.in_force = in_force  # it is judged by that to its end, whatever is in force meanwhile
        self.started_s = started_s
        self.arrived_ms = 0  # in a relay: since when it has surely been in the queue
        self.letter: Letter | None = None
        self.envelope: Envelope | None = None
        self.policy: Effective | None = None
        self.decision: Decision | None = None
        self.copy: Publication | None = None
        self.resource: Resource | None = None
        self.action = Action.QUARANTINE
        self.cause = ""
        self.why = ""  # the target refused it, in the broker's words
        self.raw = False
        self.refusals = 0  # how often its copy was sent to where it goes now, and not confirmed
        self.batches: tuple[Batch, ...] = ()  # of the journal: the source is settled once these are
        self.untold: tuple[Journal, Ruling, int] | None = None  # until it is known where the copy goes
        self.breaker = ""  # what the breaker said, where it was asked
        self.draw: float | None = None  # where the decision looked at it
        self.route: Route | None = None
        self.added = b""  # by a compiled route: the header table, but for the stamp
        self.key: Key | None = None
        self.props: Any = None
        # `span` is set by tracing.py only, `published_ms` by redrive tasks only: elsewhere they must cost nothing.

    @property
    def weight(self) -> int:
        """How many bytes in flight it is."""
        return len(self.delivery.body) + len(self.delivery.header)

    @property
    def disclosing(self) -> Effective | None:
        """What says how much of the letter may be told: what judged it, or would hide it; None: nothing was read."""
        if self.policy is not None:
            return self.policy
        letter = self.letter
        return None if letter is None or self.envelope is None else self.in_force.resolve(letter)

    @property
    def target(self) -> Destination:
        """Where the copy goes; what two jobs have in common takes or refuses both."""
        route, copy = self.route, self.copy
        if route is not None:
            return text(route.exchange), text(route.routing_key), None
        return ("", "", None) if copy is None else (copy.exchange, copy.routing_key, copy.bcc)

    @property
    def queue(self) -> str | None:
        """The one queue to which the copy goes; None where an exchange or a CC key may lead it to several."""
        route, copy = self.route, self.copy
        if route is not None:
            return None if route.exchange else text(route.routing_key)
        if copy is None or copy.way is Way.RETURN:
            return None if copy is None else copy.record.failed_queue
        several = copy.exchange or copy.cc or (copy.cc is None and self.envelope and b"CC" in self.envelope.found)
        return None if several else copy.routing_key

    @property
    def to_own(self) -> bool:
        """Whether the copy goes to a queue of ours, which must never refuse."""
        if self.route is not None:
            return self.route.action is Action.RETRY  # to a rung
        return self.copy is None or self.copy.way in {Way.RUNG, Way.PARKING}

    def own_queue(self, names: Names) -> str | None:
        """The queue of ours that the copy goes to; None where it goes to somebody else's."""
        route, copy = self.route, self.copy
        if route is not None:
            return text(route.exchange) if route.action is Action.RETRY else None
        if copy is None:
            return names.quarantine
        if copy.way is Way.RUNG:
            return copy.exchange
        return copy.routing_key if copy.way is Way.PARKING else None


def resource_of(copy: Publication, policy: Effective | None) -> Resource | None:
    """What must exist in the broker before the copy can be sent; None for what always does."""
    match copy.way:
        case Way.RUNG:
            return ("rung", str(copy.rung_ms))
        case Way.RETURN if copy.bcc is not None:
            declared = copy.record.reason.startswith(APPLICATION)  # no other death is at a stream
            return ("return", copy.record.failed_queue, *([DECLARED] if declared else []))
        case Way.TARGET if copy.needs_queue is not None and policy is not None:
            return dead_letter_resource(policy, copy.needs_queue, copy.exchange, copy.record.failed_queue)
        case Way.TARGET | Way.FORWARD if copy.exchange:
            return ("exchange", copy.exchange)
        case _:
            return None
