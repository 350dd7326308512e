"""AMQP 1.0 without I/O: values, messages, and what of a message no AMQP 0-9-1 client can be given.

Any bytes give a value or Amqp10Error, in time and memory that grow with their number only. RabbitMQ 4.x ends the
connection of the 0-9-1 client that it should hand such a message to: 541. The rules are what its conversion was seen to
do, type by type (tests/service/test_amqp10_poison.py asks the broker again). Source: AMQP 1.0 part 1, "Types".
"""

import math
import struct
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple

MAX_DEPTH: Final = 64  # deeper is hostile, and would end in a RecursionError
MAX_EMPTY: Final = 4096  # elements of an array that take no bytes each: their number costs nobody anything to write


class Amqp10Error(ValueError):
    """These bytes are no AMQP 1.0."""


class TooDeep(Amqp10Error):
    """A value is nested deeper than anybody needs."""


class Value(NamedTuple):
    """A value and its AMQP type. Strings and symbols are bytes; lists and arrays tuples of Values; maps of pairs.

    `described`: (descriptor, value). Types that nobody computes with (decimals) are their bytes.
    """

    type: str
    of: Any = None


NULL: Final = Value("null")
TRUE, FALSE = Value("boolean", True), Value("boolean", False)  # noqa: FBT003 - what it holds

# Code → type and layout, of what has a fixed width.
_FIXED: Final[dict[int, tuple[str, str]]] = {
    0x50: ("ubyte", "B"),
    0x51: ("byte", "b"),
    0x52: ("uint", "B"),
    0x53: ("ulong", "B"),
    0x54: ("int", "b"),
    0x55: ("long", "b"),
    0x60: ("ushort", "!H"),
    0x61: ("short", "!h"),
    0x70: ("uint", "!I"),
    0x71: ("int", "!i"),
    0x72: ("float", "4s"),  # as bytes: a NaN keeps its payload, and can be compared
    0x73: ("char", "!I"),
    0x74: ("decimal32", "4s"),
    0x80: ("ulong", "!Q"),
    0x81: ("long", "!q"),
    0x82: ("double", "8s"),
    0x83: ("timestamp", "!q"),
    0x84: ("decimal64", "8s"),
    0x94: ("decimal128", "16s"),
    0x98: ("uuid", "16s"),
}
_EMPTY: Final = {
    0x40: NULL,
    0x41: TRUE,
    0x42: FALSE,
    0x43: Value("uint", 0),
    0x44: Value("ulong", 0),
    0x45: Value("list", ()),
}
_VARIABLE: Final = {0xA0: "binary", 0xA1: "string", 0xA3: "symbol", 0xB0: "binary", 0xB1: "string", 0xB3: "symbol"}
_COMPOUND: Final = {0xC0: "list", 0xC1: "map", 0xD0: "list", 0xD1: "map", 0xE0: "array", 0xF0: "array"}
_SMALL: Final = frozenset({0x52, 0x53, 0x54, 0x55})  # other codes take the same types, and larger values
_WIDE: Final[dict[str, int]] = {  # type → the code that takes every value of it
    **{kind: code for code, (kind, _layout) in _FIXED.items() if code not in _SMALL},
    "null": 0x40,
    "boolean": 0x56,
    "binary": 0xB0,
    "string": 0xB1,
    "symbol": 0xB3,
    "list": 0xD0,
    "map": 0xD1,
    "array": 0xF0,
}


def decode(data: bytes, at: int = 0, depth: int = MAX_DEPTH) -> tuple[Value, int]:
    """The value that begins there, and where the next one does. Raises Amqp10Error."""
    code, at = _code(data, at)
    if code:
        return _plain(code, data, at, depth)
    if not depth:
        raise TooDeep(f"nested deeper than {MAX_DEPTH}")
    descriptor, at = decode(data, at, depth - 1)
    value, at = decode(data, at, depth - 1)
    return Value("described", (descriptor, value)), at


def _code(data: bytes, at: int) -> tuple[int, int]:
    if at >= len(data):
        raise Amqp10Error("a value is missing at the end")
    return data[at], at + 1


def _plain(code: int, data: bytes, at: int, depth: int) -> tuple[Value, int]:
    """As `decode`, of a value whose constructor was read."""
    if (empty := _EMPTY.get(code)) is not None:
        return empty, at
    if (fixed := _FIXED.get(code)) is not None:
        return _fixed(*fixed, data, at)
    if (kind := _VARIABLE.get(code)) is not None:
        start, end = _span(data, at, wide=code >= 0xB0)  # noqa: PLR2004 - the second half has four bytes of length
        return Value(kind, data[start:end]), end
    if code == 0x56:  # noqa: PLR2004 - a boolean in a byte
        value, at = _fixed("boolean", "B", data, at)
        return Value("boolean", value.of != 0), at
    if (kind := _COMPOUND.get(code)) is not None:
        return _compound(kind, data, at, depth, wide=code & 0xF0 in {0xD0, 0xF0})
    raise Amqp10Error(f"unknown constructor 0x{code:02x}")


def _fixed(kind: str, layout: str, data: bytes, at: int) -> tuple[Value, int]:
    end = at + struct.calcsize(layout)
    if end > len(data):
        raise Amqp10Error(f"a {kind} ends too early")
    return Value(kind, struct.unpack_from(layout, data, at)[0]), end


def _span(data: bytes, at: int, *, wide: bool) -> tuple[int, int]:
    """From where to where the content lies whose length stands here."""
    size, start = _fixed("length", "!I" if wide else "B", data, at)
    end = start + size.of
    if end > len(data):
        raise Amqp10Error(f"{size.of} bytes are told and {len(data) - start} are there")
    return start, end


def _compound(kind: str, data: bytes, at: int, depth: int, *, wide: bool) -> tuple[Value, int]:
    if not depth:
        raise TooDeep(f"nested deeper than {MAX_DEPTH}")
    start, end = _span(data, at, wide=wide)
    inside = data[start:end]
    count, at = _fixed("count", "!I" if wide else "B", inside, 0)
    values = _array(inside, at, count.of, depth - 1) if kind == "array" else _list(inside, at, count.of, depth - 1)
    if kind == "map":
        if len(values) % 2:
            raise Amqp10Error("a map has a key without a value")
        values = tuple(zip(values[::2], values[1::2], strict=True))
    return Value(kind, values), end


def _list(data: bytes, at: int, count: int, depth: int) -> tuple[Any, ...]:
    if count > len(data) - at:  # each takes one byte at least
        raise Amqp10Error(f"{count} elements are told in {len(data) - at} bytes")
    values = []
    for _ in range(count):
        value, at = decode(data, at, depth)
        values.append(value)
    if at != len(data):
        raise Amqp10Error("bytes are left behind the last element")
    return tuple(values)


def _array(data: bytes, at: int, count: int, depth: int) -> tuple[Any, ...]:
    """Elements of one constructor, which stands once."""
    if at == len(data) and not count:
        return ()
    code, at = _code(data, at)
    descriptor = None
    if not code:
        descriptor, at = decode(data, at, depth)
        code, at = _code(data, at)
    most = MAX_EMPTY if code in _EMPTY else len(data) - at
    if not code or count > most:
        raise Amqp10Error(f"an array of {count} elements in {len(data) - at} bytes")
    values = []
    for _ in range(count):
        value, at = _plain(code, data, at, depth)
        values.append(value if descriptor is None else Value("described", (descriptor, value)))
    if at != len(data):
        raise Amqp10Error("bytes are left behind the last element")
    return tuple(values)


def encode(value: Value) -> bytes:
    """Its bytes. `decode` gives the value back; an array must hold values of one type."""
    if value.type == "described":
        descriptor, inner = value.of
        return b"\x00" + encode(descriptor) + encode(inner)
    if value.type == "ulong" and 0 <= value.of < 256:  # noqa: PLR2004 - as descriptors are written by everybody
        return bytes((0x53, value.of))
    return bytes((_WIDE[value.type],)) + _content(value)


def _content(value: Value) -> bytes:
    """What follows the constructor of the widest encoding."""
    kind, of = value
    if kind == "null":
        return b""
    if kind == "boolean":
        return b"\x01" if of else b"\x00"
    if kind in {"binary", "string", "symbol"}:
        return struct.pack("!I", len(of)) + bytes(of)
    if kind in {"list", "map"}:
        parts = [encode(element) for element in (of if kind == "list" else [half for pair in of for half in pair])]
        return _counted(len(parts), b"".join(parts))
    if kind == "array":
        return _counted(len(of), _elements(of))
    return struct.pack(_FIXED[_WIDE[kind]][1], of)


def _counted(count: int, inside: bytes) -> bytes:
    return struct.pack("!II", len(inside) + 4, count) + inside


def _elements(of: tuple[Value, ...]) -> bytes:
    if not of:
        return b"\x40"
    start, plain = b"", of
    if of[0].type == "described":
        start, plain = b"\x00" + encode(of[0].of[0]), tuple(element.of[1] for element in of)
    return start + bytes((_WIDE[plain[0].type],)) + b"".join(map(_content, plain))


def symbol(text: str) -> Value:
    """A symbol."""
    return Value("symbol", text.encode("ascii"))


def string(text: str) -> Value:
    """A string."""
    return Value("string", text.encode())


def uint(number: int) -> Value:
    """A uint."""
    return Value("uint", number)


def composite(code: int, *fields: Value) -> Value:
    """A described list: a performative, a section, a terminus."""
    return Value("described", (Value("ulong", code), Value("list", fields)))


def fields(value: Value, of: Callable[[str], bool] = lambda kind: kind == "list") -> tuple[int, tuple[Any, ...]]:
    """The code and the content of a described value; Amqp10Error where it is none."""
    if value.type == "described":
        descriptor, inner = value.of
        if descriptor.type == "ulong" and of(inner.type):
            return descriptor.of, inner.of
    raise Amqp10Error(f"a described value was expected, not a {value.type}")


def field(values: tuple[Any, ...], at: int) -> Any:
    """A field's content; None where it is null or was left out at the end."""
    return values[at].of if at < len(values) else None


# -- messages

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
            yield f"application property {name.of[:64].decode(errors='replace')!r} {why}"
    for name, value in _pairs(values.get(ANNOTATIONS)):
        if name.type == "symbol" and (why := _annotation(name.of, value, version, is_data=DATA in values)):
            yield f"message annotation {name.of[:64].decode(errors='replace')!r} {why}"
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
    layout = {"float": "!f", "double": "!d"}.get(value.type)
    is_number = value.type not in _DECIMAL and (layout is None or math.isfinite(struct.unpack(layout, value.of)[0]))
    if version < ALL_SINCE and not is_number:
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


def kept(message: bytes, annotations: dict[str, str]) -> bytes:
    """The message as it is to be kept: durable, without an end of its time, and with these annotations.

    What the annotations, properties and body were is copied byte for byte. Raises Amqp10Error.
    """
    header: tuple[Any, ...] = ()
    added = tuple((symbol(key), Value("string", text.encode(errors="replace"))) for key, text in annotations.items())
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
    priority = header[1] if field(header, 1) is not None else NULL
    mine = {key for key, _ in added}
    both = Value("map", (*added, *(pair for pair in came if pair[0] not in mine)))
    head = encode(composite(HEADER, TRUE, priority))
    return head + encode(Value("described", (Value("ulong", ANNOTATIONS), both))) + message[rest:]
