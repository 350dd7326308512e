"""What the receiving half reads seldom, and what it says of bytes that are no frames."""

from collections.abc import Callable
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a small name
from typing import Any, Final, NoReturn

from pamqp import commands, frame
from pamqp.exceptions import PAMQPException

from dlx_router.wire.errors import WireError

KINDS: Final = frozenset((1, 2, 3, 8))  # method, header, body, heartbeat
END: Final = 0xCE
_short_at: Final = Struct(">H").unpack_from

# pamqp lets through what datetime, Decimal and a hostile depth of tables raise: all mean that it cannot be read.
UNREADABLE: Final = (
    PAMQPException,
    ValueError,
    TypeError,
    LookupError,
    ArithmeticError,
    OSError,
    RecursionError,
    StructError,
)


def strings(whole: bytes, at: int, count: int, after: int) -> list[bytes]:
    """`count` short strings from `at` on, with `after` bytes between them and the frame's end. IndexError otherwise."""
    parts = []
    for _ in range(count):
        stop = at + 1 + whole[at]
        parts.append(whole[at + 1 : stop])
        at = stop
    if at + after + 1 != len(whole):
        raise IndexError
    return parts


def close(kind: Callable[..., Any], whole: bytes) -> Any:
    """A close, whatever its text: RabbitMQ cuts texts at 255 bytes, also in the middle of a character; pamqp balks."""
    text = strings(whole, 13, 1, 4)[0].decode(errors="replace")
    return kind(_short_at(whole, 11)[0], text, *Struct(">HH").unpack_from(whole, len(whole) - 5))


def command(method: int, channel: int, whole: bytes) -> Any:
    """A method by its frame. WireError where it cannot be read."""
    try:
        return frame.unmarshal(whole)[2]
    except UNREADABLE as error:
        known: Any = commands.INDEX_MAPPING.get(method)
        name = known.name if known else f"method {method >> 16}.{method & 0xFFFF}"
        raise WireError(f"channel {channel}: {name} cannot be read: {error.args[-1]}") from error


def bad_end(data: bytes, at: int, stop: int) -> NoReturn:
    """Say that the bytes are no frame, or one without its end."""
    if data[at] not in KINDS:
        not_a_frame(data[at : at + 8])
    raise WireError(f"a frame that ends in 0x{data[stop]:02x} instead of 0x{END:02x}")


def not_a_frame(start: bytes) -> NoReturn:
    """Say what it is instead: the operator's usual slips are a wrong port and a wrong scheme."""
    if start.startswith(b"AMQP"):
        version = "-".join(map(str, start[4:]))
        raise WireError(f"the peer does not speak AMQP 0-9-1: it answered with protocol header {version}")
    hint = {0x15: "; it looks like TLS", 0x16: "; it looks like TLS", 0x48: "; it looks like HTTP"}.get(start[0], "")
    raise WireError(f"unexpected frame type {start[0]}{hint}")
