"""The frames we send, and the door to those that come: `Parser` and its events.

Every function returns whole frames, ready for the socket. Source: AMQP 0-9-1 §4.2.3 (frames), §4.2.6 (content),
amqp0-9-1.extended.xml (method arguments).
"""

from functools import cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a small name
from typing import Any, Final

from pamqp import frame

from dlx_router.wire.errors import FrameTooLarge, WireError
from dlx_router.wire.events import Cancelled, Confirm, Delivery, Event, Got, Heartbeat, Method, Returned
from dlx_router.wire.parser import Parser

__all__ = [
    "HEARTBEAT",
    "Cancelled",
    "Confirm",
    "Delivery",
    "Event",
    "FrameTooLarge",
    "Got",
    "Heartbeat",
    "Method",
    "Parser",
    "Returned",
    "WireError",
    "ack",
    "lenient",
    "method",
    "nack",
    "publish",
    "reject",
]

HEARTBEAT: Final = b"\x08\x00\x00\x00\x00\x00\x00\xce"
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
    return b"".join((start, exchange, length, routing_key, header, properties, *_bodies(channel, body, largest)))


def _bodies(channel: int, body: bytes, largest: int) -> list[bytes]:
    """The end of the header frame, then the body in frames of `largest` bytes."""
    parts: list[bytes] = []
    for at in range(0, len(body), largest):
        piece = body[at : at + largest]
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
