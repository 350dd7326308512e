"""Tables and streams of frames for the tests, made by rules of their own or by pamqp: not by the code under test."""

# ruff: noqa: FBT003 - AMQP has flags

import struct
from collections.abc import Iterator
from datetime import UTC, datetime
from decimal import Decimal
from itertools import pairwise
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from pamqp import body, commands, encode, frame, header

from dlx_router.wire import frames

law = settings(max_examples=60, deadline=None)

BROKER_X_DEATH = bytes.fromhex(  # one entry as RabbitMQ 4 writes it: count, reason, queue, time, exchange, routing-keys
    "41 0000007d 46 00000078"
    "05 636f756e74 6c 0000000000000001"
    "06 726561736f6e 53 00000008 72656a6563746564"
    "05 7175657565 53 00000006 6f7264657273"
    "04 74696d65 54 000000006553f100"
    "08 65786368616e6765 53 00000004 73686f70"
    "0c 726f7574696e672d6b657973 41 00000012 53 0000000d 6f726465722e63726561746564"
)

_INTEGERS = {"b": 8, "s": 16, "I": 32, "l": 64, "L": 64}
_NATURALS = {"B": 8, "u": 16, "i": 32, "T": 64}


def _scalars() -> Iterator[st.SearchStrategy[tuple[str, Any]]]:
    for tag, bits in _INTEGERS.items():
        yield st.tuples(st.just(tag), st.integers(-(1 << bits - 1), (1 << bits - 1) - 1))
    for tag, bits in _NATURALS.items():
        yield st.tuples(st.just(tag), st.integers(0, (1 << bits) - 1))
    yield st.tuples(st.just("t"), st.booleans())
    yield st.tuples(st.just("f"), st.floats(width=32, allow_nan=False))
    yield st.tuples(st.just("d"), st.floats(allow_nan=False))
    yield st.tuples(st.just("V"), st.none())
    yield st.tuples(
        st.just("D"),
        st.builds(
            lambda scale, number: Decimal((0, tuple(map(int, str(number))), -scale)),
            st.integers(0, 255),
            st.integers(0, 2**32 - 1),
        ),
    )
    yield st.tuples(st.sampled_from("Sx"), st.binary(max_size=12))


names = st.binary(max_size=12).map(lambda raw: raw.decode(errors="surrogateescape")) | st.sampled_from(
    ["x-death", "dlx-router", "x-delivery-count", "", "n" * 255]
)


def _nested(values: st.SearchStrategy[tuple[str, Any]]) -> st.SearchStrategy[tuple[str, Any]]:
    table = st.lists(st.builds(lambda name, value: (name, *value), names, values), max_size=4)
    return st.tuples(st.just("A"), st.lists(values, max_size=4)) | st.tuples(st.just("F"), table)


values = st.recursive(st.one_of(*_scalars()), _nested, max_leaves=4)
fields = st.lists(st.builds(lambda name, value: (name, *value), names, values), max_size=8)


def _by_pamqp(table: Any) -> bytes:
    return bytes(encode.field_table(table)[4:])


_pythonic = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(width=32, allow_nan=False)
    | st.text(max_size=20)
    | st.binary(max_size=20).map(bytearray)
    | st.decimals(0, 1000, places=2)
    | st.integers(0, 2**32 - 1).map(lambda seconds: datetime.fromtimestamp(seconds, UTC)),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=10), inner, max_size=3),
    max_leaves=4,
)
pamqp_tables = st.dictionaries(st.text(max_size=12), _pythonic, max_size=6).map(_by_pamqp)

_short = st.text("abc.:#", max_size=20)
_tags = st.integers(1, 2**63 - 1)


def _content(properties: str, size: int, largest: int) -> tuple[list[Any], bytes, bytes]:
    """Content frames for pamqp, and what our events should hold: header payload and body."""
    payload = bytes(index % 251 for index in range(size))
    head = header.ContentHeader(0, size, commands.Basic.Properties(message_id=properties, headers={"n": size}))
    pieces = [body.ContentBody(payload[at : at + largest]) for at in range(0, size, largest)]
    return [head, *pieces], bytes(head.marshal()), payload


@st.composite
def units(draw: st.DrawFn, channel: int) -> tuple[list[bytes], Any]:
    """The frames of one method with its content if any, and the event that its last frame completes."""
    kind = draw(st.sampled_from(["deliver", "deliver", "return", "get-ok", "ack", "nack", "cancel", "beat", "empty"]))
    tag, exchange, key, flag = draw(_tags), draw(_short), draw(_short), draw(st.booleans())
    content, head, payload = _content(draw(_short), draw(st.integers(0, 60)), draw(st.integers(1, 70)))
    names = (exchange.encode(), key.encode())
    match kind:
        case "deliver":
            commanded = [commands.Basic.Deliver("ctag", tag, flag, exchange, key), *content]
            event: Any = frames.Delivery(channel, b"ctag", tag, flag, *names, head, payload)
        case "return":
            commanded = [commands.Basic.Return(312, "NO_ROUTE", exchange, key), *content]
            event = frames.Returned(channel, 312, b"NO_ROUTE", *names, head, payload)
        case "get-ok":
            commanded = [commands.Basic.GetOk(tag, flag, exchange, key, 7), *content]
            event = frames.Got(channel, tag, flag, *names, 7, head, payload)
        case "ack":
            commanded, event = [commands.Basic.Ack(tag, flag)], frames.Confirm(channel, tag, flag, True)
        case "nack":
            commanded, event = [commands.Basic.Nack(tag, flag)], frames.Confirm(channel, tag, flag, False)
        case "cancel":
            commanded, event = [commands.Basic.Cancel(key, False)], frames.Cancelled(channel, key.encode())
        case "beat":
            return [frames.HEARTBEAT], frames.Heartbeat()
        case _:
            commanded, event = [commands.Basic.GetEmpty()], "empty"
    return [bytes(frame.marshal(command, channel)) for command in commanded], event


@st.composite
def streams(draw: st.DrawFn) -> tuple[bytes, list[Any]]:
    """Frames of three channels, interleaved as AMQP allows, and the events in the order of their last frames."""
    queues = [draw(st.lists(units(channel), max_size=4)) for channel in (1, 2, 65535)]
    flat = [
        [(part, event if part is parts[-1] else None) for parts, event in queue for part in parts] for queue in queues
    ]
    stream, events = b"", []
    while any(flat):
        part, event = draw(st.sampled_from([queue for queue in flat if queue])).pop(0)
        stream += part
        events += [] if event is None else [event]
    return stream, events


def cut(stream: bytes, at: list[int]) -> list[bytes]:
    """The stream in pieces."""
    edges = [0, *sorted(edge % (len(stream) + 1) for edge in at), len(stream)]
    return [stream[start:stop] for start, stop in pairwise(edges)]


def raw_frame(kind: int, channel: int, payload: bytes, end: bytes = b"\xce") -> bytes:
    """A frame, right or wrong."""
    return struct.pack(">BHI", kind, channel, len(payload)) + payload + end
