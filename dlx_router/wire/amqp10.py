"""AMQP 1.0 values: bytes ↔ tagged values, without I/O. Source: AMQP 1.0 part 1, "Types".

Only what reads around a message that AMQP 0-9-1 cannot carry needs this. Any bytes give a value or Amqp10Error, in
time and memory that grow with their number only.
"""

import struct
from collections.abc import Callable
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
    first = of[0]
    if first.type == "described":
        kind = first.of[1].type
        return (
            b"\x00" + encode(first.of[0]) + bytes((_WIDE[kind],)) + b"".join(_content(element.of[1]) for element in of)
        )
    return bytes((_WIDE[first.type],)) + b"".join(map(_content, of))


# -- what those who speak it write ------------------------------------------------------------------------------------


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
