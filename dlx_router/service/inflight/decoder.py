"""Decoder: the bytes of a delivery → a letter, or Malformed.

The header table is walked once; x-death and record are decoded, everything else stays bytes.
"""

import secrets
from collections.abc import Container
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple
from zlib import crc32

from dlx_router.core import arrival, attending, clienterrors, declaration, record, remembered
from dlx_router.core.bounded import MIB, Remembered
from dlx_router.core.declaration import Declaration, DeclarationError
from dlx_router.core.letter import FIRST_SERIAL, Arrival, Death, First, History, Letter, Props, letter_id
from dlx_router.core.names import Names
from dlx_router.core.passing import Stamps, recorded
from dlx_router.core.places import looked_up
from dlx_router.core.publication import Content
from dlx_router.core.record import Record, RecordError
from dlx_router.core.words import UNKNOWN, State
from dlx_router.service.inflight import xdeath
from dlx_router.service.inflight.admissible import admissible
from dlx_router.service.inflight.clock import now_ms
from dlx_router.wire import frames, properties, table

# Written by the broker at each delivery; a stale copy would be taken for the broker's own word at the next queue.
DELIVERY_COUNT: Final = b"x-delivery-count"
DELIVERY_COUNTS: Final = frozenset({DELIVERY_COUNT, b"x-acquired-count"})
DELIVERY_HEADERS: Final = DELIVERY_COUNTS | {b"x-stream-offset"}
_RECORD: Final = record.HEADER.encode()
_DEATH: Final = declaration.HEADER.encode()
_FIRST: Final = (b"x-first-death-queue", b"x-first-death-exchange", b"x-first-death-reason")
_SERIALS: Final = (1 << 52) - FIRST_SERIAL  # and any that follow are numbers that every reader of JSON keeps
PROPERTIES_AT: Final = 12  # of the content header: class, weight and body size come before


class Malformed(ValueError):
    """The message cannot be read as a letter; it goes to quarantine as it came."""


class Envelope(NamedTuple):
    """A delivery taken apart: the raw pieces from which copies are made."""

    delivery: frames.Delivery
    props: properties.Properties
    found: dict[bytes, tuple[int, int, int]]
    content: Content
    broker_deaths: History
    foreign_record: bool
    record: Record | None
    is_untrusted: bool = False  # it tells of deaths, and nothing says that the broker wrote that: not looked at


class AnyExchange:
    """All exchanges."""

    def __contains__(self, _exchange: object) -> bool:
        return True


ANY_EXCHANGE: Final = AnyExchange()


@dataclass(frozen=True, slots=True)
class Place:
    """Where deliveries of one consumer come from.

    `dead_letter_exchanges`: by which besides our own the broker brings dead letters. What came by another exchange was
    published, and its x-death is the publisher's word. `trusted` is all of them: nothing else costs a letter a look.
    `rests`: our record alone tells what a letter has been through. `serials`: random for each channel; with the
    delivery tag it is the serial of a letter that has none yet, the same whenever this delivery is read.
    """

    vhost: str
    source: str
    arrival: Arrival
    names: Names
    key: bytes
    limit: int | None = None  # the broker deletes what is returned more often
    dead_letter_exchanges: "frozenset[bytes] | AnyExchange" = frozenset()
    rests: bool = False
    serials: int = field(default_factory=lambda: secrets.randbelow(_SERIALS) + FIRST_SERIAL)
    trusted: Container[bytes] = field(init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "trusted", self._trusted())

    def _trusted(self) -> Container[bytes]:
        named, names = self.dead_letter_exchanges, self.names
        if isinstance(named, AnyExchange) or self.source not in names.inlets:
            return named
        # Whoever may write to the default exchange reaches every queue by its name, with or without us.
        return named | {*map(str.encode, names.inlets), b""}


def text(data: bytes) -> str:
    """AMQP strings are bytes; ours are text, and what is not UTF-8 survives the round trip."""
    return data.decode(errors="surrogateescape")


def read(
    delivery: frames.Delivery, place: Place, *, dies: str = "", came: First | None = None, lives: bool = False
) -> tuple[Letter, Envelope]:
    """The letter and its envelope. Raises Malformed, never anything else, and loses nothing: the delivery stays.

    `dies`: it fails here and now, by our own decision, for this reason; `came`: how it came here, where the delivery
    does not tell. `lives`: it is to go on, so nothing is decided by what it tells of deaths, and that stays on it.
    """
    try:
        props = properties.parse(delivery.header, PROPERTIES_AT)
        entries = table.entries(props.headers)
        declared = _is_declared(delivery, place)
        declared_death = _declaration(props.headers, entries, place) if declared else None
        broker_deaths = () if declared else xdeath.deaths_of(props.headers, entries)
        if declared_death is not None and declared_death.invented_id:
            props = properties.parse(props.without("message_id"), 0)
        props, entries = admissible(props, entries)
    except (table.TableError, frames.WireError, xdeath.OddHistory) as error:
        raise Malformed(str(error)) from error
    own, foreign = record_of(props.headers, entries, place)
    content, belongs = content_of(delivery.body, props, own)
    if place.arrival is Arrival.RELEASE and not belongs:
        raise Malformed(f"the record in {place.source} is about another letter")
    exchange = text(delivery.exchange)
    is_trusted = lives or place.arrival is not Arrival.INBOX or _is_trusted(delivery, place, own if belongs else None)
    deaths = broker_deaths if is_trusted else ()
    if dies:
        copies = _carbon_copies(props.headers, entries) if came is None else ()
        own, before = _until_now(own, deaths, belongs=belongs)
        deaths = recorded(before, _death_here(delivery, place, content, copies, dies, came))
    facts = arrival.Facts(
        vhost=place.vhost,
        source=place.source,
        arrival=place.arrival,
        exchange=exchange,
        routing_key=text(delivery.routing_key),
        deaths=deaths,
        record=own,
        belongs=belongs,
        native=not dies
        and place.arrival is Arrival.INBOX
        and (_by_death(exchange, place) or _retried(deaths, place.names)),
        first=_first_of(props.headers, entries) if own is None and not declared else None,
        now_ms=now_ms(),
        header=lambda name: _header(props.headers, entries, name),
        body=looked_up(delivery.body),
        content_type="" if props.content_type is None else text(props.content_type),
        size=len(delivery.body),
        declaration=declared_death,
        error=None if clienterrors.NAMES.isdisjoint(entries) else _error(props.headers, entries),
        serial=place.serials + delivery.tag,
        redelivered=delivery.redelivered,
        rests=not dies and (place.rests or place.arrival is Arrival.RELEASE),
    )

    def new_id(failed_queue: str) -> str:
        return identity(delivery, props, entries, place.vhost, failed_queue)

    letter = arrival.read(facts, place.names.is_own, new_id)
    untrusted = bool(broker_deaths) and not (is_trusted or dies)
    return letter, Envelope(
        delivery, props, entries, content, broker_deaths if is_trusted else (), foreign, own, untrusted
    )


def _is_trusted(delivery: frames.Delivery, place: Place, own: Record | None) -> bool:
    """Whether the broker wrote x-death: the letter came by a dead-letter exchange.

    What we parked as new keeps what somebody had written on it, and may be moved back by its queue's name.
    """
    if delivery.exchange not in place.trusted:
        return False
    return bool(delivery.exchange) or own is None or own.reason != UNKNOWN


def _until_now(own: Record | None, broker_deaths: History, *, belongs: bool) -> tuple[Record | None, History]:
    """What counts of a message that dies by our decision: our own record of it, else what the broker told.

    A message that was held on its way was alive: what its record keeps of deaths is what somebody had written on it.
    """
    if own is None or not belongs:
        return own, broker_deaths
    if own.state == State.HELD and own.reason == UNKNOWN:
        return replace(own, deaths=()), ()
    return own, broker_deaths or own.deaths


def _is_declared(delivery: frames.Delivery, place: Place) -> bool:
    """The exchange tells the kind: write rights on it can be granted apart. In the inbox the header says nothing."""
    return text(delivery.exchange) == place.names.declared and place.source in {place.names.inbox, place.names.observe}


def _declaration(headers: bytes, entries: dict[bytes, table.Span], place: Place) -> Declaration | None:
    extent = entries.get(_DEATH)
    if extent is None:
        return None
    if headers[extent[1] : extent[1] + 1] not in {b"S", b"x"}:
        raise Malformed(f"{declaration.HEADER}: not a string")
    try:
        declared_death = declaration.read(headers[extent[1] + 5 : extent[2]])
    except DeclarationError as error:
        raise Malformed(f"{declaration.HEADER}: {error}") from error
    if place.names.is_own(declared_death.queue):
        raise Malformed(f"{declaration.HEADER}: 'queue' {declared_death.queue!r} is the router's own")
    return declared_death


def _error(headers: bytes, entries: dict[bytes, table.Span]) -> dict[str, str] | None:
    return clienterrors.told(lambda name: _header(headers, entries, name))


def _header(headers: bytes, entries: dict[bytes, tuple[int, int, int]], name: str) -> str | None:
    """A header as text for a template; None where it is missing or has a structure."""
    extent = entries.get(name.encode())
    if extent is None or headers[extent[1] : extent[1] + 1] in (b"A", b"F", b"V", b"x"):
        return None
    value = table.decode_value(headers, extent[1])
    if isinstance(value, bool):
        return "true" if value else "false"
    return text(value) if isinstance(value, bytes) else str(value)


def _death_here(
    delivery: frames.Delivery,
    place: Place,
    content: Content,
    copies: tuple[str, ...],
    reason: str,
    came: First | None,
) -> Death:
    """The entry that the broker would have written."""
    if came is None:
        keys = (text(delivery.routing_key), *copies)
        came = First(place.source, text(delivery.exchange), keys, reason)
    now = now_ms() // 1000
    return Death(came.queue, reason, 1, now, came.exchange, came.routing_keys, content.props.expiration)


def _carbon_copies(headers: bytes, entries: dict[bytes, tuple[int, int, int]]) -> tuple[str, ...]:
    extent = entries.get(b"CC")
    if extent is None or headers[extent[1] : extent[1] + 1] != b"A":
        return ()
    try:
        return tuple(text(key) for tag, key in table.decode_value(headers, extent[1]) if tag == "S")
    except table.TableError as error:
        raise Malformed(f"CC: {error}") from error


def stamps(delivery: frames.Delivery | frames.Got) -> Stamps:
    """What the message tells of its age; nothing where it cannot be read."""
    try:
        props = properties.parse(delivery.header, PROPERTIES_AT)
        extent = table.entries(props.headers).get(b"timestamp_in_ms")
        value = None if extent is None else table.decode_value(props.headers, extent[1])
    except (table.TableError, frames.WireError):
        return Stamps()
    broker_ms = value if isinstance(value, int) and not isinstance(value, bool) else None
    return Stamps(broker_ms, props.timestamp, None if props.expiration is None else text(props.expiration))


def returns(delivery: frames.Delivery | frames.Got) -> int:
    """How often the broker says that this message was returned before; only quorum queues count."""
    try:
        props = properties.parse(delivery.header, PROPERTIES_AT)
        extent = table.entries(props.headers).get(DELIVERY_COUNT)
        count = 0 if extent is None else table.decode_value(props.headers, extent[1])
    except (table.TableError, frames.WireError):
        return 0
    return count if isinstance(count, int) else 0


def is_near(delivery: frames.Delivery, limit: int | None) -> bool:
    """Whether its source deletes it soon, after so many returns (`attending.is_near`); None: never."""
    return limit is not None and attending.is_near(returns(delivery), limit)


def _by_death(exchange: str, place: Place) -> bool:
    return exchange in place.names.inlets or place.source == place.names.observe


def _retried(deaths: History, names: Names) -> bool:
    """Whether a death tells of our own return exchange: it happened after our last publication."""
    return any(names.is_own(death.exchange) and not names.is_own(death.queue) for death in deaths)


def record_of(headers: bytes, entries: dict[bytes, tuple[int, int, int]], place: Place) -> tuple[Record | None, bool]:
    """Our record, and whether a foreign one stands in its place. In release only a signed one is obeyed.

    One key may sign for several vhosts and brokers: a record that was copied here from another vhost is foreign too.
    """
    extent = entries.get(_RECORD)
    if extent is not None and headers[extent[1] : extent[1] + 1] == b"S":
        try:
            own = remembered.decode(headers[extent[1] + 5 : extent[2]], place.key)
            if own.vhost == place.vhost:
                return own, False
            raise RecordError(f"it is of vhost {own.vhost!r}, and this is {place.vhost!r}")  # noqa: TRY301 - told below
        except RecordError as error:
            if place.arrival is Arrival.RELEASE:
                raise Malformed(f"the record in {place.source} is not ours: {error}") from error
    if place.arrival is Arrival.RELEASE:
        raise Malformed(f"no record in {place.source}: nothing says where this letter belongs")
    return None, extent is not None


def content_of(body: bytes, props: properties.Properties, own: Record | None) -> tuple[Content, bool]:
    """What a record is bound to, and whether `own` is: a consumer may have copied it onto another message."""
    checksum, message_id = crc32(body), None if props.message_id is None else text(props.message_id)
    belongs = own is not None and own.is_about(crc32=checksum, size=len(body), message_id=message_id)
    message_props = Props(
        message_id,
        None if props.user_id is None else text(props.user_id),
        None if props.expiration is None else text(props.expiration),
        props.priority,
        props.delivery_mode,
    )
    return Content(checksum, len(body), own.props if own is not None and belongs else message_props), belongs


def _first_of(headers: bytes, entries: dict[bytes, tuple[int, int, int]]) -> First | None:
    try:
        queue, exchange, reason = entries[_FIRST[0]], entries[_FIRST[1]], entries[_FIRST[2]]
    except KeyError:
        return None
    return _FIRSTS[headers[queue[1] : queue[2]], headers[exchange[1] : exchange[2]], headers[reason[1] : reason[2]]]


def _first(queue: bytes, exchange: bytes, reason: bytes) -> First | None:
    if queue[:1] + exchange[:1] + reason[:1] != b"SSS":
        return None
    return First(text(queue[5:]), text(exchange[5:]), (), text(reason[5:]))


_FIRSTS: Final = Remembered[tuple[bytes, bytes, bytes], First | None](
    lambda key: _first(*key), most=4096, most_bytes=2 * MIB
)


def identity(
    delivery: frames.Delivery,
    props: properties.Properties,
    entries: dict[bytes, tuple[int, int, int]],
    vhost: str,
    failed_queue: str,
) -> str:
    """The letter id of a message that has none yet; stale headers of deliveries are no part of it."""
    stale = DELIVERY_HEADERS & entries.keys()
    headers = table.splice(props.headers, entries, stale, b"") if stale else props.headers
    return letter_id(vhost, failed_queue, delivery.exchange, delivery.routing_key, props.bare(), headers, delivery.body)
