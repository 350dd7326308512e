"""The copy of a declared message as bytes: what came goes out as it came, and nothing is written that is not exact.

Client libraries read AMQP's types into fewer of their own: pika cuts the fraction off 3.14159, pamqp divides a large
timestamp by a thousand, and both choose the width of an integer anew. So a copy is made of the bytes that came,
property by property and header by header; only what the consumer has changed since is encoded, here, or refused. Pure.
Source: AMQP 0-9-1 §4.2.5.5 and §4.2.6.1, with RabbitMQ's errata.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from decimal import Decimal
from struct import Struct
from typing import Any, Final

from dlx_router.client.declaration import InexactHeader

PROPERTIES: Final = {  # name → flag, from the highest down, as their values follow each other
    "content_type": 0x8000, "content_encoding": 0x4000, "headers": 0x2000, "delivery_mode": 0x1000, "priority": 0x0800,
    "correlation_id": 0x0400, "reply_to": 0x0200, "expiration": 0x0100, "message_id": 0x0080, "timestamp": 0x0040,
    "type": 0x0020, "user_id": 0x0010, "app_id": 0x0008, "cluster_id": 0x0004,
}  # fmt: skip
# a foreign user id would close the channel, and a message's own expiration would let it evaporate in the inbox
_TAKEN_OFF: Final = frozenset({"headers", "user_id", "expiration"})
_OCTETS: Final = frozenset({"delivery_mode", "priority"})
_SIZES: Final = {**dict.fromkeys(b"tbB", 1), **dict.fromkeys(b"sUu", 2), **dict.fromkeys(b"Iif", 4),
                 **dict.fromkeys(b"lLdT", 8), ord("D"): 5, ord("V"): 0}  # fmt: skip
_COUNTED: Final = frozenset(b"SxAF")
_MAX_NAME: Final = 255
_INT32, _INT64 = 1 << 31, 1 << 63
_MAX_SCALE: Final = 255
ADVICE: Final = "or reject the message, which keeps every byte of it"

_short: Final = Struct(">H")
_long: Final = Struct(">I")
_int32, _int64, _double, _decimal = (Struct(form).pack for form in (">i", ">q", ">d", ">Bi"))


@dataclass(frozen=True)
class Library:
    """How a client library reads a value (its type byte first), and why one that it has read may not be what came."""

    read: Callable[[bytes], object]
    doubt: Callable[[object], str]  # "" where there is none


def chunks(section: bytes) -> dict[str, bytes]:
    """Each property that is set → its bytes, lengths included. `section`: flags and values of a content header."""
    flags, at = _short.unpack_from(section)[0], 2
    values: dict[str, bytes] = {}
    for name, flag in PROPERTIES.items():
        if flags & flag:
            stop = at + _size(name, section, at)
            values[name] = section[at:stop]
            at = stop
    return values


def section_of(values: Mapping[str, bytes]) -> bytes:
    """Flags and values; what is empty is not set."""
    there = [name for name in PROPERTIES if values.get(name)]
    return _short.pack(sum(PROPERTIES[name] for name in there)) + b"".join([values[name] for name in there])


def copied(
    now: object, before: object, wire: bytes | None, headers: Mapping[Any, object], library: Library
) -> dict[str, bytes]:
    """The properties of a copy: by the bytes that came, `wire`, where they were not changed since.

    `now` has the properties as attributes, `before` as they were read; without `wire` all are encoded anew. `headers`:
    those of the copy.
    """
    values = {} if wire is None else chunks(wire)
    names = PROPERTIES.keys() - _TAKEN_OFF
    changed = [name for name in names if wire is None or getattr(now, name) != getattr(before, name)]
    as_they_are = {name: values[name] for name in names & values.keys()}
    renewed = {name: of_property(name, getattr(now, name)) for name in changed}
    return {**as_they_are, **renewed, "headers": table(headers, values.get("headers", b""), library)}


def declared(section: bytes, is_kept: Callable[[str | bytes], bool], added: Mapping[str, str]) -> bytes:
    """Flags and values of a copy that nobody has changed: its headers that are kept, and texts that are added."""
    values = chunks(section)
    parts = [_key(name) + wire for name, wire in _entries(values.get("headers", b"")[4:]) if is_kept(name)]
    parts += [_key(name) + b"S" + _counted(text.encode()) for name, text in added.items()]
    as_they_are = {name: wire for name, wire in values.items() if name not in _TAKEN_OFF}
    return section_of({**as_they_are, "headers": _counted(b"".join(parts))})


def _size(name: str, section: bytes, at: int) -> int:
    if name == "headers":
        return 4 + int(_long.unpack_from(section, at)[0])
    return 8 if name == "timestamp" else 1 if name in _OCTETS else 1 + section[at]


def table(headers: Mapping[Any, object], came: bytes, library: Library) -> bytes:
    """The headers as a table, its length first: each value that is still as it came by its own bytes, in its place.

    `came`: the table that was read, with its length; b"" where nobody kept it. InexactHeader: says which header, why,
    and what now.
    """
    before = _entries(came[4:])
    last = dict(before)
    as_came = {name for name, wire in last.items() if name in headers and _same(library.read(wire), headers[name])}
    parts = [_key(name) + wire for name, wire in before if name in as_came]
    parts += [_key(name) + encoded(value, name, library) for name, value in headers.items() if name not in as_came]
    return _counted(b"".join(parts))


def _entries(fields: bytes) -> list[tuple[str | bytes, bytes]]:
    """Names, as client libraries give them, and values with their type byte. A name that comes twice is there twice."""
    entries, at = [], 0
    while at < len(fields):
        kind = at + 1 + fields[at]
        tag = fields[kind]
        size = 4 + _long.unpack_from(fields, kind + 1)[0] if tag in _COUNTED else _SIZES[tag]
        entries.append((_name(fields[at + 1 : kind]), fields[kind : kind + 1 + size]))
        at = kind + 1 + size
    return entries


def _name(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _same(value: object, other: object) -> bool:
    """By what they show: True is not 1, 1 is not 1.0, and a NaN is what it was."""
    return type(value) is type(other) and repr(value) == repr(other)


def encoded(value: object, name: object, library: Library) -> bytes:
    """A value with its type: whole numbers as I or l, fractions as d. InexactHeader where that would change it."""
    if doubt := library.doubt(value):
        raise InexactHeader(f"header {name!r}: {doubt}, {ADVICE}")
    try:
        return _encoded(value, name, library)
    except (_Unfit, UnicodeEncodeError, RecursionError) as error:
        raise InexactHeader(f"header {name!r}: {error}; change it, remove it, {ADVICE}") from error


class _Unfit(ValueError):
    """Why a value has no exact form."""


def _encoded(value: object, name: object, library: Library) -> bytes:
    if isinstance(value, list):
        return b"A" + _counted(b"".join([encoded(item, name, library) for item in value]))
    if isinstance(value, dict):
        inner = [_key(key) + encoded(item, f"{name}.{key}", library) for key, item in value.items()]
        return b"F" + _counted(b"".join(inner))
    for kind, form in _FORMS.items():  # in their order: a bool is an int
        if isinstance(value, kind):
            return form(value)
    raise _Unfit(f"AMQP has no type for a {type(value).__name__}")


def _integer(value: int) -> bytes:
    if -_INT32 <= value < _INT32:
        return b"I" + _int32(value)
    if -_INT64 <= value < _INT64:
        return b"l" + _int64(value)
    raise _Unfit(f"{value} has more than 64 bits")


def _fixed(value: Decimal) -> bytes:
    """Scale and unscaled value: 1.50 stays 1.50."""
    sign, digits, exponent = value.as_tuple()
    if isinstance(exponent, int) and -_MAX_SCALE <= exponent <= _MAX_SCALE:
        number = int("".join(map(str, digits)) or "0") * 10 ** max(exponent, 0) * (-1 if sign else 1)
        if -_INT32 <= number < _INT32 and (number or not sign):
            return b"D" + _decimal(max(-exponent, 0), number)
    raise _Unfit(f"AMQP's decimals hold 32 bits and a scale of 255, not {value}")


def _seconds(value: datetime) -> bytes:
    moment = value if value.tzinfo is not None else value.replace(tzinfo=timezone.utc)  # as pika and pamqp take it
    if moment.microsecond or moment.timestamp() < 0:
        raise _Unfit(f"AMQP's timestamps are whole seconds since 1970, and {value} is not")
    return _int64(int(moment.timestamp()))


_FORMS: Final[dict[type, Callable[[Any], bytes]]] = {
    type(None): lambda _: b"V",
    bool: lambda value: b"t\x01" if value else b"t\x00",
    int: lambda value: _integer(int(value)),
    float: lambda value: b"d" + _double(value),
    Decimal: _fixed,
    datetime: lambda value: b"T" + _seconds(value),
    str: lambda value: b"S" + _counted(value.encode()),
    bytes: lambda value: b"x" + _counted(value),
    bytearray: lambda value: b"x" + _counted(bytes(value)),
}


def _key(name: object) -> bytes:
    data = name.encode() if isinstance(name, str) else name
    if not isinstance(data, bytes) or len(data) > _MAX_NAME:
        raise InexactHeader(
            f"header {name!r}: its name has to be text of at most {_MAX_NAME} bytes; change it, {ADVICE}"
        )
    return b"%c%b" % (len(data), data)


def _counted(payload: bytes) -> bytes:
    return _long.pack(len(payload)) + payload


def bytes_or_text(value: object) -> str:
    """Of bytes that are no text nobody knows whether they came as a text or as bytes."""
    if isinstance(value, bytes):
        try:
            value.decode()
        except UnicodeDecodeError:
            return "these bytes may have come as text; bytearray(...) says that they are bytes"
    return ""


def of_property(name: str, value: object) -> bytes:
    """A property that the consumer has set, lengths included; b"" for None. InexactHeader where it does not fit."""
    try:
        return _property(name, value)
    except (_Unfit, ValueError, OverflowError, TypeError) as error:
        raise InexactHeader(f"property {name!r}: {value!r} cannot be written: {error}; change it, {ADVICE}") from error


def _property(name: str, value: Any) -> bytes:  # noqa: ANN401 - a consumer may have set anything
    if value is None:
        return b""
    if name in _OCTETS:
        return bytes((int(value),))
    if name == "timestamp":
        return _seconds(value) if isinstance(value, datetime) else _int64(value)
    data = bytes(value) if isinstance(value, (bytes, bytearray)) else str(value).encode()
    if len(data) > _MAX_NAME:
        raise _Unfit(f"{len(data)} bytes, and {_MAX_NAME} are the most")
    return b"%c%b" % (len(data), data)
