"""Compiled routes: what was worked out for one new letter, kept for the next that died the same way.

Letters that died at one queue, for one reason, in one second, by one key differ in id, content and time only; what they
share (decision, target, headers, most of the record) is a third of the work of a letter and nine tenths of its code. A
route is compiled from a job that went the long way, and only where the outcome depends on nothing else of the letter:
a new letter, no chance, no header asked for, no alias. A law in tests/service holds both ways equal, byte for byte.
"""

from struct import Struct
from typing import Final, cast
from zlib import crc32

from dlx_router.broker.consumer import Consumer
from dlx_router.core import clienterrors
from dlx_router.core import record as records
from dlx_router.core.letter import Arrival, letter_id_of
from dlx_router.core.outcome import DeadLetter, Retry
from dlx_router.core.publication import Way
from dlx_router.core.words import counted
from dlx_router.journal import privacy
from dlx_router.journal.events import KIND_OF, NO_BODY, Fragments
from dlx_router.journal.privacy import Rule
from dlx_router.journal.writer import Journal
from dlx_router.service.inflight import admissible, clock, decoder
from dlx_router.service.inflight.decoder import Place
from dlx_router.service.inflight.in_force import InForce
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.moulds import ID, RECORD, Mould, kept
from dlx_router.service.inflight.routes import Key, Known, Route, Shape, Spans
from dlx_router.service.inflight.xdeath import SHARED_BYTES
from dlx_router.wire import frames, properties, table

_OWNED: Final = frozenset({b"x-death", b"x-first-death-queue", b"x-first-death-exchange", b"x-first-death-reason"})
_SPECIAL: Final = (
    frozenset({b"dlx-router", b"dlx-router-id", b"dlx-router-pub", b"dlx-death"})
    | admissible.NAMES
    | decoder.DELIVERY_HEADERS
    | clienterrors.NAMES
)
_EDGE: Final = 96  # bytes that the variable part of a record may grow by before the long way has to look at its limit
_SHAPES: Final = 4  # kept for letters of one key and length: queues of one exchange die in turn
_NOBODY: Final = cast("Consumer", None)
_pack_long: Final = Struct(">I").pack


def find(job: Job, place: Place) -> Route | None:
    """The route of this delivery, or None: the long way. Fills in what both ways have read."""
    delivery = job.delivery
    if delivery.exchange not in place.trusted:  # its x-death is the publisher's word
        return None
    try:
        props = job.props = properties.parse(delivery.header, decoder.PROPERTIES_AT)
    except frames.WireError:
        return None
    if props.reply_to == admissible.DIRECT_REPLY:
        return None
    headers = props.headers
    key = (delivery.routing_key, delivery.exchange, place.source, len(headers))
    shapes = job.in_force.routes.by_shape.get(key)
    if shapes is not None:
        for fixed, route, counts in shapes:
            for start, stop, entry in fixed:
                if headers[start:stop] != entry:
                    break
            else:
                return _uncounted(job, route, counts) if counts else route
    return _walked(job, place, key)


def _uncounted(job: Job, route: Route, counts: Spans) -> Route:
    """The route, and the headers without what the broker counted: where that decides, `Worker.take` has looked."""
    headers = job.props.headers
    job.props.headers = b"".join([headers[piece] for piece in kept(0, len(headers), counts)])
    return route


def _walked(job: Job, place: Place, alike: Key) -> Route | None:
    headers, routes = job.props.headers, job.in_force.routes
    try:
        entries = table.entries(headers)
    except table.TableError:
        return None
    counts: Spans = ()
    if place.arrival is not Arrival.INBOX:
        return None
    if not _SPECIAL.isdisjoint(entries):
        if not _SPECIAL & entries.keys() <= decoder.DELIVERY_COUNTS:
            return None
        counts = _counts(entries)
    job.key = key = _key(job.delivery, headers, entries, place.source)
    route = None if key is None else routes.by_key.get(key)
    if route is None or entries.__class__ is not dict:
        return None if counts else route
    shapes = Shape(_fixed(headers, entries), route, counts), *routes.by_shape.get(alike, ())
    routes.by_shape[alike] = shapes[:_SHAPES]
    return _uncounted(job, route, counts) if counts else route


def mould(in_force: InForce, delivery: frames.Delivery, place: Place, user: bytes) -> Mould | None:
    """The mould of this delivery; one that is not there is made now and then, where a route is known.

    `user`: who we are. What a policy discloses of a letter is no part of a mould. Where the queue limits returns, those
    of one mould were returned equally often, and none that has few returns left has a mould (attending).
    """
    if delivery.exchange not in place.trusted or place.arrival is not Arrival.INBOX:
        return None
    header, routes = delivery.header, in_force.routes
    key = place.source, delivery.exchange, delivery.routing_key, len(header), user, place.limit
    known = routes.mould(key, header)
    if known is not None:
        return known
    if not routes.is_due(key) or decoder.is_near(delivery, place.limit):
        return None
    job = Job(_NOBODY, delivery, 0.0, in_force)  # to be looked at only
    route = find(job, place)
    if route is None or (route.told is not None and not route.rule.is_plain):
        return None
    headers = properties.parse(header, decoder.PROPERTIES_AT).headers
    entries = table.entries(headers)
    if entries.__class__ is not dict:
        return None
    source = delivery.exchange, delivery.routing_key
    whole = _OWNED if place.limit is None else _OWNED | {decoder.DELIVERY_COUNT}
    made = Mould(header, source, Shape(_fixed(headers, entries, whole), route, _counts(entries)), user)
    _, value, stop = entries[b"x-death"]
    at = made.table.start
    routes.keep_mould(key, header, slice(at + value, at + stop), made)
    return made


def learn(job: Job, fragments: Fragments | None, rule: Rule) -> None:
    """Keep a route for the like of this job, where there can be one."""
    if job.key is None or (route := _compiled(job, fragments, rule)) is None:
        return
    job.in_force.routes.by_key[job.key] = route


def _counts(entries: dict[bytes, table.Span]) -> Spans:
    """Where the entries of the broker's counts are, in order."""
    places = [entries[name] for name in decoder.DELIVERY_COUNTS & entries.keys()]
    return tuple(sorted((start, stop) for start, _, stop in places))


def _fixed(
    headers: bytes, entries: dict[bytes, table.Span], whole: frozenset[bytes] = _OWNED
) -> tuple[tuple[int, int, bytes], ...]:
    """Entries of these names as they are, of all others name, type and length; neighbours put together."""
    spans: list[tuple[int, int]] = []
    for name, (start, value, stop) in entries.items():
        end = stop if name in whole else value + 5 if headers[value] in b"SAFx" else value + 1
        begin = spans.pop()[0] if spans and spans[-1][1] == start else start
        spans.append((begin, end))
    return tuple((start, end, headers[start:end]) for start, end in spans)


def _key(delivery: frames.Delivery, headers: bytes, entries: dict[bytes, table.Span], source: str) -> Key | None:
    try:
        deaths = entries[b"x-death"]
        queue, exchange = entries[b"x-first-death-queue"], entries[b"x-first-death-exchange"]
        reason = entries[b"x-first-death-reason"]
    except KeyError:
        return None
    if deaths[2] - deaths[1] > SHARED_BYTES:  # a history of its own: no other letter will have it
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


def _compiled(job: Job, fragments: Fragments | None, rule: Rule) -> Route | None:
    letter, envelope, copy, policy, decision = job.letter, job.envelope, job.copy, job.policy, job.decision
    if letter is None or envelope is None or copy is None or policy is None or letter.parent is not None:
        return None
    if not letter.history or letter.history != envelope.broker_deaths:  # without deaths its time is its own
        return None
    if envelope.record is not None or envelope.foreign_record or policy.looks_further or policy.fifo:
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
    return Route(
        letter.failed_queue,
        (letter.vhost.encode(errors="surrogateescape"), letter.failed_queue.encode(errors="surrogateescape")),
        job.action,
        (policy.policy, job.action.value, counted(letter.reason)),
        job.resource,
        copy.exchange.encode(errors="surrogateescape"),
        copy.routing_key.encode(errors="surrogateescape"),
        records.standing(record),
        records.told(record.deaths),
        record.first_death_ms,
        wait,
        copy.way is Way.TARGET,
        copy.record_bytes - _EDGE,
        fragments,
        rule,
    )


def write(job: Job, route: Route, place: Place, journal: Journal, known: Known = None) -> bool:
    """Write the letter's own entries, as the long way would, into `job.added`, and tell the journal.

    False, and nothing written or told, where the record might not fit its limit, or what the route needs is not there
    by the name that the event would tell. `known` as `judge` takes it.
    """
    resource = route.resource
    if resource is not None and known is not None and known.get(resource) != resource[1]:
        return False
    delivery, props = job.delivery, job.props
    body, headers = delivery.body, props.headers
    vhost, failed_queue = route.where
    letter_id = letter_id_of(vhost, failed_queue, delivery.exchange, delivery.routing_key, props.bare(), headers, body)
    now = clock.CLOCK.now_ms()
    due_ms = None if route.wait_ms is None else now + route.wait_ms
    checksum, size, serial = crc32(body), len(body), place.serials + delivery.tag
    message_id = props.message_id
    text = records.assembled(
        letter_id,
        route.standing,
        route.deaths,
        due_ms=due_ms,
        wait_ms=route.wait_ms,
        first_ms=route.first_ms,
        last_ms=now,
        props=records.properties_of(
            None if message_id is None else message_id.decode(errors="surrogateescape"),
            props.user_id,
            props.expiration,
            props.priority,
            props.delivery_mode,
        ),
        crc32=checksum,
        size=size,
        serial=serial,
    )
    if len(text) > route.longest:
        return False
    signed = records.sign(text.encode(), place.key)
    job.added = b"".join((headers, ID, letter_id.encode(), RECORD, _pack_long(len(signed)), signed))
    fragments = route.told
    if fragments is not None:
        extra = NO_BODY
        if not route.rule.is_plain:
            extra = privacy.disclosed(route.rule, KIND_OF[route.action], headers=headers, body=body)
        event = journal.event(
            fragments,
            letter_id,
            now,
            first_ms=route.first_ms,
            last_ms=now,
            crc32=checksum,
            size=size,
            props=props,
            due_ms=due_ms,
            serial=serial,
            possible_copy=delivery.redelivered,
            extra=extra,
        )
        job.batches = (journal.record(event),)
    return True


def section(job: Job, route: Route, stamp: bytes, user: bytes) -> bytes:
    """The property section of a job that `write` has written, stamped."""
    props: properties.Properties = job.props
    return props.replaced(
        headers=job.added + stamp,
        delivery_mode=2,
        priority=props.priority if route.keeps_priority else None,
        expiration=None,
        user_id=props.user_id if props.user_id == user else None,
    )
