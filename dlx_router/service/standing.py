"""Standing orders: what was worked out for one new letter, kept for the next that died the same way.

Letters that died at one queue, for one reason, in one second, by one key differ in id, content and time only; what they
share (decision, target, headers, most of the record) is a third of the work of a letter and nine tenths of its code. An
order is compiled from a job that went the long way, and only where the outcome depends on nothing else of the letter:
a new letter, no chance, no header asked for, no alias. A law in tests/service holds both ways equal, byte for byte.
"""

import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from dlx_router.core import record as records
from dlx_router.core.decision import DeadLetter, Retry
from dlx_router.core.letter import Arrival, Props
from dlx_router.core.publication import Way
from dlx_router.core.words import Action
from dlx_router.service import intake
from dlx_router.service.intake import Place
from dlx_router.service.job import Job, Resource
from dlx_router.wire import frames, properties, table

MAX_ORDERS: Final = 4096
_SPECIAL: Final = (
    frozenset({b"dlx-router", b"dlx-router-id", b"dlx-router-pub", b"CC", b"BCC"}) | intake.DELIVERY_HEADERS
)
_EDGE: Final = 96  # bytes that the variable part of a record may grow by before the long way has to look at its limit
Key = tuple[Any, ...]


class Order(NamedTuple):
    """All that such letters share. `wait_ms` None: dead-lettered; else retried after it, always by the same rung."""

    failed_queue: str
    action: Action
    decided: tuple[str, str, str]
    resource: Resource | None
    exchange: bytes
    routing_key: bytes
    standing: str
    deaths: str
    first_ms: int
    wait_ms: int | None
    keeps_priority: bool
    longest: int


class StandingOrders:
    """The orders of one desk; thrown away with its policies."""

    def __init__(self) -> None:
        self._orders: dict[Key, Order] = {}

    def find(self, job: Job, place: Place) -> Order | None:
        """The order for this delivery, or None: the long way. Fills in what both ways have read."""
        delivery = job.delivery
        try:
            props = job.props = properties.parse(delivery.header, intake.PROPERTIES_AT)
            found = table.entries(props.headers)
        except (table.TableError, frames.WireError):
            return None
        if place.arrival is Arrival.RELEASE or not _SPECIAL.isdisjoint(found):
            return None
        job.key = key = _key(delivery, props.headers, found, place.source)
        return None if key is None else self._orders.get(key)

    def learn(self, job: Job) -> None:
        """Keep an order for the like of this job, where there can be one."""
        if job.key is None or (order := _compiled(job)) is None:
            return
        if len(self._orders) >= MAX_ORDERS:
            self._orders.clear()
        self._orders[job.key] = order


def _key(delivery: frames.Delivery, headers: bytes, found: dict[bytes, table.Span], source: str) -> Key | None:
    try:
        deaths = found[b"x-death"]
        queue, exchange = found[b"x-first-death-queue"], found[b"x-first-death-exchange"]
        reason = found[b"x-first-death-reason"]
    except KeyError:
        return None
    return (
        headers[deaths[1] : deaths[2]],
        delivery.routing_key,
        delivery.exchange,
        source,
        headers[queue[1] : queue[2]],
        headers[exchange[1] : exchange[2]],
        headers[reason[1] : reason[2]],
    )


def _compiled(job: Job) -> Order | None:
    letter, envelope, copy, policy, decision = job.letter, job.envelope, job.copy, job.policy, job.decision
    if letter is None or envelope is None or copy is None or policy is None or letter.parent is not None:
        return None
    if envelope.record is not None or envelope.foreign_record or letter.history != envelope.broker_deaths:
        return None
    if (
        copy.cc
        or copy.record.cc
        or copy.aliases
        or (policy.routing_key is not None and policy.routing_key.uses_headers)
    ):
        return None
    match decision, copy.way:
        case DeadLetter(), Way.TARGET:
            wait = None
        case Retry(wait_ms=wait), Way.RUNG if not policy.jitter:
            pass
        case _:
            return None
    record = copy.record
    return Order(
        letter.failed_queue,
        job.action,
        (policy.policy, job.action.value, letter.reason),
        job.resource,
        copy.exchange.encode(errors="surrogateescape"),
        copy.routing_key.encode(errors="surrogateescape"),
        records.standing(record),
        records.told(record.deaths),
        record.first_death_ms,
        wait,
        copy.way is Way.TARGET,
        copy.record_bytes - _EDGE,
    )


def write(job: Job, order: Order, place: Place, key: bytes, user: bytes) -> Callable[[bytes], bytes] | None:
    """Stamp → property section, as the long way would write it; None where the record might not fit its limit."""
    delivery = job.delivery
    props: properties.Properties = job.props
    letter_id = intake.identity(delivery, props, place.vhost, order.failed_queue)
    content = intake.content_of(delivery.body, props)
    now = int(time.time() * 1000)
    due = None if order.wait_ms is None else now + order.wait_ms
    text = records.assembled(
        letter_id,
        order.standing,
        order.deaths,
        due_ms=due,
        first_ms=order.first_ms,
        last_ms=now,
        props=content.props,
        crc32=content.crc32,
        size=content.size,
    )
    if len(text) > order.longest:
        return None
    added = b"".join(
        (
            props.headers,
            _ID,
            letter_id.encode(),
            table.longstr(b"dlx-router", records.sign(text.encode(), key)),
        )
    )
    keep = props.user_id if props.user_id == user else None
    priority = content.props.priority if order.keeps_priority else None

    def section(stamp: bytes) -> bytes:
        headers = added + stamp
        return props.replaced(headers=headers, delivery_mode=2, priority=priority, expiration=None, user_id=keep)

    return section


_ID: Final = table.longstr(b"dlx-router-id", b"0" * 32)[:-32]
__all__ = ["Order", "Props", "StandingOrders", "write"]
