"""A message of a delayed exchange: its bytes → a letter that never failed, or Malformed."""

from dlx_router.core.letter import First, Letter
from dlx_router.core.record import Record
from dlx_router.core.words import UNKNOWN, State
from dlx_router.service.inflight import decoder, saved_headers
from dlx_router.service.inflight.admissible import admissible
from dlx_router.service.inflight.decoder import Envelope, Malformed, Place
from dlx_router.wire import frames, properties, table


def read(delivery: frames.Delivery, place: Place, now_ms: int) -> tuple[Letter, Envelope]:
    """The message, whatever its headers tell of deaths; a record counts only where it was written of this very wait."""
    try:
        props = properties.parse(delivery.header, decoder.PROPERTIES_AT)
        props, entries = admissible(props, table.entries(props.headers))
        own = _came_back(delivery, props, entries, place)
        content, _ = decoder.content_of(delivery.body, props, own)
        envelope = Envelope(delivery, props, entries, content, (), foreign_record=False, record=own)
        if not saved_headers.is_sound(envelope):
            raise Malformed(f"{saved_headers.HEADER.decode()}: what was put aside cannot be read")
        saved_headers.asked_ms(envelope)
    except (table.TableError, frames.WireError) as error:
        raise Malformed(str(error)) from error
    return _letter(delivery, envelope, place, now_ms), envelope


def _came_back(
    delivery: frames.Delivery, props: properties.Properties, entries: dict[bytes, table.Span], place: Place
) -> Record | None:
    """Our record of this message's first wait: somebody moved it back here, out of parking say."""
    own, _ = decoder.record_of(props.headers, entries, place)
    if own is None or own.failed_queue != place.source or own.first is None:
        return None
    return own if decoder.content_of(delivery.body, props, own)[1] else None


def _letter(delivery: frames.Delivery, envelope: Envelope, place: Place, now_ms: int) -> Letter:
    own, source = envelope.record, place.source
    exchange, key = decoder.text(delivery.exchange), decoder.text(delivery.routing_key)
    return Letter(
        id=own.id if own else decoder.identity(delivery, envelope.props, envelope.found, place.vhost, source),
        vhost=place.vhost,
        source=source,
        arrival=place.arrival,
        exchange=exchange,
        routing_key=key,
        history=(),
        first=own.first if own else First(source, exchange, (key,), UNKNOWN),
        failed_queue=source,
        reason=UNKNOWN,
        fresh=(),
        base_attempts=0,
        redrives=0,
        tries=0,
        state=State.HELD if own else None,
        first_death_ms=own.first_death_ms if own else now_ms,
        last_death_ms=now_ms,
        size=len(delivery.body),
        serial=place.serials + delivery.tag if own is None or own.serial is None else own.serial,
        possible_copy=delivery.redelivered if own is None else own.serial is None,
    )
