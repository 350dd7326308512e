"""A message as it is on the wire, every value with its AMQP type; decoded here, so that no library bends a type.

A value is (type, content): ("l", 1), ("S", b"x"), ("A", (value, …)), ("F", ((name, value), …)), fields in their order.
Source: AMQP 0-9-1 §4.2.5.5 and §4.2.6.1, with RabbitMQ's errata.
"""

import struct
from dataclasses import dataclass
from typing import Any, Final

from tests.support.raw import RawMessage

Value = tuple[str, Any]
Fields = tuple[tuple[str, Value], ...]

_FIXED: Final = {
    "t": ">?", "b": ">b", "B": ">B", "s": ">h", "u": ">H", "I": ">i", "i": ">I", "l": ">q", "L": ">Q",
    "f": ">f", "d": ">d", "D": ">BI", "T": ">Q", "V": ">",
}  # fmt: skip
_PROPERTIES: Final = (  # from the highest flag down; s: short string, F: table, B: octet, T: seconds
    ("content_type", "s"), ("content_encoding", "s"), ("headers", "F"), ("delivery_mode", "B"), ("priority", "B"),
    ("correlation_id", "s"), ("reply_to", "s"), ("expiration", "s"), ("message_id", "s"), ("timestamp", "T"),
    ("type", "s"), ("user_id", "s"), ("app_id", "s"), ("cluster_id", "s"),
)  # fmt: skip


@dataclass(frozen=True)
class Seen:
    """One message as a consumer got it; properties that are not set are not there."""

    body: bytes
    exchange: str
    routing_key: str
    redelivered: bool
    properties: Fields
    headers: Fields

    @property
    def names(self) -> dict[str, Value]:
        """The headers by name."""
        return dict(self.headers)


def seen(message: RawMessage) -> Seen:
    """The message with all its types."""
    properties = dict(_properties(message.properties))
    _, headers = properties.pop("headers", ("F", ()))
    method = message.method
    where = (method.exchange or "", method.routing_key or "", bool(method.redelivered))
    return Seen(message.body, *where, tuple(properties.items()), headers)


def text(value: Value) -> str:
    """The text of a string value."""
    return bytes(value[1]).decode()


def long(name: bytes, tag: bytes, value: bytes) -> bytes:
    """An entry of a header table, byte for byte."""
    return bytes([len(name)]) + name + tag + value


def counted(value: bytes) -> bytes:
    """A value behind its length."""
    return struct.pack(">I", len(value)) + value


def _properties(section: bytes) -> Fields:
    flags, at, fields = struct.unpack_from(">H", section)[0], 2, []
    for place, (name, kind) in enumerate(_PROPERTIES):
        if not flags & 1 << 15 - place:
            continue
        if kind == "s":
            fields.append((name, ("s", section[at + 1 : at + 1 + section[at]])))
            at += 1 + section[at]
        else:
            value, at = _value(kind, section, at)
            fields.append((name, (kind, value)))
    assert at == len(section), "properties that do not fill the frame"
    return tuple(fields)


def _value(tag: str, data: bytes, at: int) -> tuple[Any, int]:
    if tag in _FIXED:
        numbers = struct.unpack_from(_FIXED[tag], data, at)
        return (numbers[0] if len(numbers) == 1 else numbers), at + struct.calcsize(_FIXED[tag])
    size = struct.unpack_from(">I", data, at)[0]
    inner, end = data[at + 4 : at + 4 + size], at + 4 + size
    match tag:
        case "F":
            return _table(inner), end
        case "A":
            return _array(inner), end
        case "S" | "x":
            return inner, end
    raise AssertionError(f"unknown AMQP type {tag!r}")


def _table(data: bytes) -> Fields:
    at, fields = 0, []
    while at < len(data):
        tag_at = at + 1 + data[at]
        name, tag = data[at + 1 : tag_at].decode(), chr(data[tag_at])
        value, at = _value(tag, data, tag_at + 1)
        fields.append((name, (tag, value)))
    return tuple(fields)


def _array(data: bytes) -> tuple[Value, ...]:
    at, elements = 0, []
    while at < len(data):
        tag = chr(data[at])
        value, at = _value(tag, data, at + 1)
        elements.append((tag, value))
    return tuple(elements)
