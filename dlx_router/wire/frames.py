"""The frames we send, and the door to those that come: `Parser` and its events.

Every function returns whole frames, ready for the socket. Source: AMQP 0-9-1 §4.2.3 (frames), §4.2.6 (content),
amqp0-9-1.extended.xml (method arguments).
"""

from collections.abc import Callable
from functools import cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a small name
from typing import Any, Final, NamedTuple

from pamqp import frame

from dlx_router.wire.errors import FrameTooLarge, WireError
from dlx_router.wire.events import Cancelled, Confirm, Delivery, Event, Got, Heartbeat, Method, Returned
from dlx_router.wire.parser import Parser

__all__ = [
    "HEARTBEAT",
    "Buffer",
    "Cancelled",
    "Confirm",
    "Delivery",
    "Event",
    "FrameTooLarge",
    "Got",
    "Heartbeat",
    "Method",
    "Parser",
    "PublishMould",
    "Returned",
    "WireError",
    "ack",
    "bodies",
    "lenient",
    "method",
    "nack",
    "publish",
    "publish_mould",
    "reject",
]

HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
LARGEST: Final = 1 << 31  # where no limit was agreed on
Buffer = bytes | memoryview
FRAME_OVERHEAD: Final = 8  # type, channel, size; and the end byte

_PUBLISH: Final = 0x003C_0028
_ACK: Final = 0x003C_0050
_REJECT: Final = 0x003C_005A
_NACK: Final = 0x003C_0078

# basic.publish up to the exchange's length: type, channel, size | method | reserved | length
_pack_publish: Final = Struct(">BHIIHB").pack
# The end of basic.publish and the start of the header: mandatory, end | type, channel, size | class, weight, body size
_pack_header: Final = Struct(">BBBHIHHQ").pack
_pack_body: Final = Struct(">BBHI").pack  # the end of the frame before | type, channel, size
_pack_short: Final = Struct(">H").pack
_pack_settle: Final = Struct(">BHIIQBB").pack  # type, channel, size | method, tag, bits | end


def publish(  # noqa: PLR0913, PLR0917 - a frame has these parts, and keywords cost time in the hot path
    channel: int,
    exchange: bytes,
    routing_key: bytes,
    properties: bytes,
    body: bytes,
    frame_max: int,
    mandatory: bool = True,  # noqa: FBT001, FBT002 - AMQP's own argument
) -> bytes:
    """basic.publish, content header and as many body frames as `frame_max` asks for (0: no limit), in one piece.

    `properties` begin with their flags. Raises FrameTooLarge when the header does not fit one frame, ValueError when
    exchange or routing key is over 255 bytes.
    """
    size, header_size = len(body), 12 + len(properties)
    largest = frame_max - FRAME_OVERHEAD if frame_max else max(size, header_size)
    if header_size > largest:
        raise FrameTooLarge(f"content header of {header_size} bytes; a frame of this connection holds {largest}")
    try:
        start = _pack_publish(1, channel, 9 + len(exchange) + len(routing_key), _PUBLISH, 0, len(exchange))
        length = b"%c" % len(routing_key)
    except (StructError, OverflowError) as error:
        raise ValueError(f"a name over 255 bytes, or no channel number: {exchange!r}, {routing_key!r}") from error
    header = _pack_header(mandatory, 0xCE, 2, channel, header_size, 60, 0, size)
    if 0 < size <= largest:
        first = _pack_body(0xCE, 3, channel, size)
        return b"".join((start, exchange, length, routing_key, header, properties, first, body, b"\xce"))
    return b"".join((start, exchange, length, routing_key, header, properties, *bodies(channel, body, largest)))


class PublishMould(NamedTuple):
    """What the frames of `publish` have in common for messages of one kind.

    Each message is `pack_lead(lead, header_bytes + own, 60, 0, size, start, table_bytes + own)`, its table of `own`
    bytes, `pack_back(table_end, number, octets behind the table, 0xCE, 3, channel, size)`, its body of `size` and 0xCE.
    """

    lead: bytes
    start: bytes
    table_end: bytes
    pack_lead: Callable[..., bytes]
    pack_back: Callable[..., bytes]
    header_bytes: int
    table_bytes: int


def publish_mould(
    channel: int, exchange: bytes, routing_key: bytes, *, start: bytes, table_end: bytes, tail_bytes: int
) -> PublishMould:
    """For messages of one exchange and key.

    `start`: the property section up to the length of the header table; `table_end`: what stands at the end of each
    table, before a number of eight bytes; `tail_bytes`: of the section behind the table. ValueError as `publish`.
    """
    try:
        method = _pack_publish(1, channel, 9 + len(exchange) + len(routing_key), _PUBLISH, 0, len(exchange))
        lead = b"".join((method, exchange, b"%c" % len(routing_key), routing_key, b"\1\xce\2", _pack_short(channel)))
    except (StructError, OverflowError) as error:
        raise ValueError(f"a name over 255 bytes, or no channel number: {exchange!r}, {routing_key!r}") from error
    table_bytes = len(table_end) + 8
    return PublishMould(
        lead,
        start,
        table_end,
        Struct(f">{len(lead)}sIHHQ{len(start)}sI").pack,
        Struct(f">{len(table_end)}sq{tail_bytes}sBBHI").pack,
        12 + len(start) + 4 + table_bytes + tail_bytes,
        table_bytes,
    )


def bodies(channel: int, body: bytes, largest: int) -> list[Buffer]:
    """The end of the header frame, then the body in frames of `largest` bytes, in parts; nothing is copied."""
    parts: list[Buffer] = []
    whole = memoryview(body)
    for at in range(0, len(body), largest):
        piece = whole[at : at + largest]
        parts += (_pack_body(0xCE, 3, channel, len(piece)), piece)
    return [*parts, b"\xce"]


def ack(channel: int, tag: int, multiple: bool) -> bytes:  # noqa: FBT001 - AMQP's own argument
    """basic.ack: the delivery `tag`, or with `multiple` all up to it, is done."""
    return _pack_settle(1, channel, 13, _ACK, tag, multiple, 0xCE)


def nack(channel: int, tag: int, multiple: bool, requeue: bool) -> bytes:  # noqa: FBT001 - AMQP's own arguments
    """basic.nack: refuse the delivery, or all up to it; `requeue` gives it back."""
    return _pack_settle(1, channel, 13, _NACK, tag, multiple | requeue << 1, 0xCE)


def reject(channel: int, tag: int, requeue: bool) -> bytes:  # noqa: FBT001 - AMQP's own argument
    """basic.reject: refuse one delivery; without `requeue` the broker dead-letters it."""
    return _pack_settle(1, channel, 13, _REJECT, tag, requeue, 0xCE)


def method(channel: int, command: Any) -> bytes:
    """Any other method, from pamqp's object."""
    return frame.marshal(command, channel)


@cache
def lenient(kind: type[Any]) -> type[Any]:
    """The pamqp command without pamqp's checks: RabbitMQ allows queues and exchanges any name of 255 bytes in UTF-8.

    `method(1, lenient(commands.Queue.Declare)(queue="größe", passive=True))`; pamqp alone refuses that name.
    """
    return type(kind.__name__, (kind,), {"__module__": __name__, "validate": lambda _self: None})
