"""What of an AMQP 1.0 message no AMQP 0-9-1 client can be given, and a copy of it that can be kept. Without I/O.

RabbitMQ 4.x ends the connection of the 0-9-1 client that it should hand such a message to: 541. The rules are what its
conversion was seen to do, type by type (tests/service/test_amqp10_poison.py asks the broker again).
"""

import math
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple

from dlx_router.wire.amqp10 import Amqp10Error, TooDeep, Value, composite, decode, encode, field

HEADER: Final = 0x70
DELIVERY_ANNOTATIONS: Final = 0x71
ANNOTATIONS: Final = 0x72
PROPERTIES: Final = 0x73
APPLICATION_PROPERTIES: Final = 0x74
DATA: Final = 0x75
SHORT: Final = 255
ALL_SINCE: Final = (4, 3)  # decimals and numbers that are none are handed over
_TEXT: Final = frozenset({"string", "symbol", "binary", "uuid"})  # they are bytes, and become a short string
_INTEGER: Final = frozenset({"ubyte", "ushort", "uint", "ulong", "byte", "short", "int", "long", "timestamp", "char"})
_DECIMAL: Final = frozenset({"decimal32", "decimal64", "decimal128"})
_ID: Final = frozenset({"uuid", "ulong", "binary", "string", "null"})
_NOT_TEXT: Final = "is a {}, where AMQP 0-9-1 has a short string"
_SHORT_STRINGS: Final = {6: "content-type", 7: "content-encoding"}
_IDS: Final = {0: "message-id", 5: "correlation-id"}
_CREATION_TIME: Final = 8
_ROUTING_KEY: Final = b"x-routing-key"  # of the delivery; MQTT, STOMP and AMQP 1.0 publish by longer ones
_NOT_HEADERS: Final = frozenset({b"x-exchange", b"x-death"})
_DEATHS: Final = b"x-opt-deaths"
_DEATH: Final = (
    (b"queue", "string"),
    (b"reason", "symbol"),
    (b"count", "ulong"),
    (b"first-time", "timestamp"),
    (b"last-time", "timestamp"),
    (b"exchange", "string"),
    (b"routing-keys", "array"),
)
Version = tuple[int, ...]


class Section(NamedTuple):
    """One section of a message: its code, its content, and where it lies."""

    code: int
    value: Value
    start: int
    end: int


def sections(message: bytes) -> Iterator[Section]:
    """Those before the body, and the first one of the body. Raises Amqp10Error."""
    at = 0
    while at < len(message):
        if message[at : at + 3] == b"\x00\x53\x75":  # a body may be long, and nothing asks what it is
            yield Section(DATA, Value("binary"), at, len(message))
            return
        value, end = decode(message, at)
        if value.type != "described" or value.of[0].type != "ulong":
            raise Amqp10Error("a section was expected")
        yield Section(value.of[0].of, value.of[1], at, end)
        if value.of[0].of >= DATA:
            return
        at = end


def objection(message: bytes, version: Version) -> str:
    """What keeps RabbitMQ of this version from handing it to an AMQP 0-9-1 client; "" where nothing does.

    Never raises: bytes that are no AMQP 1.0 are no reason, because the broker has read them too. What is nested too
    deep for us is one: it could be handed over, and would go to quarantine then.
    """
    try:
        values = {section.code: section.value for section in sections(message)}
    except TooDeep as error:
        return f"a value is {error}"
    except Amqp10Error:
        return ""
    return next(_objections(values, version), "")


def _objections(values: dict[int, Value], version: Version) -> Iterator[str]:
    for name, value in _pairs(values.get(APPLICATION_PROPERTIES)):
        if name.type == "string" and len(name.of) <= SHORT and (why := _value(value, version)):
            yield f"application property {_shown(name.of)} {why}"
    for name, value in _pairs(values.get(ANNOTATIONS)):
        if name.type == "symbol" and (why := _annotation(name.of, value, version, is_data=DATA in values)):
            yield f"message annotation {_shown(name.of)} {why}"
    properties = values.get(PROPERTIES)
    if properties is not None and properties.type == "list":
        yield from _properties(properties.of)


def _pairs(section: Value | None) -> tuple[tuple[Value, Value], ...]:
    return section.of if section is not None and section.type == "map" else ()


def _properties(values: tuple[Value, ...]) -> Iterator[str]:
    for at, value in enumerate(values):
        if at in _SHORT_STRINGS and (why := _short_string(value)):
            yield f"property {_SHORT_STRINGS[at]} {why}"
        elif at in _IDS and value.type not in _ID:
            yield f"property {_IDS[at]} is a {value.type}"
        elif at == _CREATION_TIME and value.type not in _INTEGER | {"null"}:
            yield f"property creation-time is a {value.type}"


def _short_string(value: Value) -> str:
    if value.type == "null":
        return ""
    if value.type not in _TEXT:
        return _NOT_TEXT.format(value.type)
    return f"has {len(value.of)} bytes, and AMQP 0-9-1 has room for {SHORT}" if len(value.of) > SHORT else ""


def _annotation(name: bytes, value: Value, version: Version, *, is_data: bool) -> str:
    """Those that begin with x- become headers; those that begin with x-basic- become properties."""
    if name == b"x-basic-type":
        return _short_string(value) if is_data else ""
    if name in {b"x-basic-expiration", _ROUTING_KEY}:
        return _short_string(value)
    if name in {b"x-basic-delivery-mode", b"x-basic-priority"}:
        return "" if value.type in _INTEGER | {"null"} else f"is a {value.type}, where AMQP 0-9-1 has a number"
    if name == _DEATHS:
        return _deaths(value)
    if not name.startswith(b"x-") or name.startswith(b"x-basic-") or name in _NOT_HEADERS or len(name) > SHORT:
        return ""
    return _value(value, version)


def _deaths(value: Value) -> str:
    """What is no array of maps is left out; maps that are not as the broker writes them cannot be read."""
    if value.type != "array" or not value.of or value.of[0].type != "map":
        return ""
    return "" if all(map(_is_death, value.of)) else "is no history of deaths as the broker writes it"


def _is_death(entry: Value) -> bool:
    pairs = entry.of[1:] if entry.of and entry.of[0][0] == Value("symbol", b"ttl") else entry.of
    return len(pairs) == len(_DEATH) and all(
        key == Value("symbol", name) and value.type == kind
        for (key, value), (name, kind) in zip(pairs, _DEATH, strict=True)
    )


def _value(value: Value, version: Version, *, inside: bool = False) -> str:
    """Why it cannot be a header's value; "" where it can. `inside`: of a list or an array."""
    if value.type in {"uuid", "char", "described"} or (inside and value.type in {"ulong", "array"}):
        return f"{'holds' if inside else 'is'} a value of type {value.type}, which AMQP 0-9-1 has not"
    if version < ALL_SINCE and (value.type in _DECIMAL or _is_no_number(value)):
        return f"{'holds' if inside else 'is'} a number of type {value.type} that this broker cannot convert"
    if value.type in {"list", "array"}:
        return next((why for item in value.of if (why := _value(item, version, inside=True))), "")
    if value.type == "map":
        return next((why for key, item in value.of if (why := _key(key) or _value(item, version))), "")
    return ""


def _key(key: Value) -> str:
    if key.type not in _TEXT:
        return f"holds a map with a key of type {key.type}, and AMQP 0-9-1 has strings only"
    return f"holds a map with a key of {len(key.of)} bytes; {SHORT} are possible" if len(key.of) > SHORT else ""


def _is_no_number(value: Value) -> bool:
    if value.type not in {"float", "double"}:
        return False
    number: float = struct.unpack("!f" if value.type == "float" else "!d", value.of)[0]
    return not math.isfinite(number)


def _shown(name: bytes) -> str:
    """Somebody else's name, as text of bounded length."""
    return repr(name[:64].decode(errors="replace"))


def kept(message: bytes, annotations: dict[str, str]) -> bytes:
    """The message as it is to be kept: durable, without an end of its time, and with these annotations.

    What the annotations, properties and body were is copied byte for byte. Raises Amqp10Error.
    """
    header: tuple[Any, ...] = ()
    added = tuple(
        (Value("symbol", key.encode("ascii")), Value("string", text.encode(errors="replace")))
        for key, text in annotations.items()
    )
    came: tuple[tuple[Value, Value], ...] = ()
    rest = len(message)
    for section in sections(message):
        if section.code == HEADER and section.value.type == "list":
            header = section.value.of
        elif section.code == ANNOTATIONS:
            came = _pairs(section.value)
        elif section.code != DELIVERY_ANNOTATIONS:
            rest = section.start
            break
    priority = header[1] if field(header, 1) is not None else Value("null")
    mine = {key for key, _ in added}
    both = Value("map", (*added, *(pair for pair in came if pair[0] not in mine)))
    head = encode(composite(HEADER, Value("boolean", True), priority))  # noqa: FBT003 - a field's value
    return head + encode(Value("described", (Value("ulong", ANNOTATIONS), both))) + message[rest:]
