"""Field tables as bytes: find entries, cut ours out, put ours behind; every byte we do not own survives, in order.

Decoding keeps the AMQP type beside the value, because Python's types are too few: a count that came as `l` and leaves
as `I` breaks Java consumers. A table is here always its payload, without the four bytes of its length.
Source: AMQP 0-9-1 §4.2.5.5 with RabbitMQ's errata (https://www.rabbitmq.com/amqp-0-9-1-errata, section 3).
"""
# ruff: noqa: PLR2004 - 255 is AMQP's longest name; a value is of any type, its tag says which

from collections.abc import Callable, Collection, Iterable, Sequence
from decimal import Decimal
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a small name
from typing import Any, Final

Span = tuple[int, int, int]  # where an entry begins (its name's length byte), where its type byte is, where it ends
Field = tuple[str, str, Any]  # name, AMQP type, value
MAX_DEPTH: Final = 32  # tables in tables; deeper is hostile, and would end in a RecursionError

PUB: Final = b"dlx-router-pub"
PUB_PREFIX: Final = b"\x0edlx-router-publ"  # an entry but for its value, a signed 64-bit publish number
LONG_TAG: Final = ord("l")

_FORMATS: Final = {  # of the types with a fixed size; D is scale and unscaled value, V is nothing
    "t": ">B",
    "b": ">b",
    "B": ">B",
    "s": ">h",
    "u": ">H",
    "I": ">i",
    "i": ">I",
    "l": ">q",
    "L": ">q",
    "f": ">f",
    "d": ">d",
    "D": ">BI",
    "T": ">Q",
    "V": ">",
}
_STRUCTS: Final = {ord(tag): Struct(form) for tag, form in _FORMATS.items()}
_COUNTED: Final = b"SAFx"  # the types that begin with their length
_STRINGS: Final = frozenset(b"Sx")
_ARRAY: Final = ord("A")
_SPECIAL: Final[dict[int, Callable[[tuple[Any, ...]], Any]]] = {
    ord("t"): lambda numbers: numbers[0] != 0,
    ord("V"): lambda _nothing: None,
    ord("D"): lambda numbers: Decimal((0, tuple(map(int, str(numbers[1]))), -numbers[0])),
}
_BEYOND: Final = 1 << 62  # a step over the end of any table
# By type byte: bytes from there to the next entry; 0 where a length follows. A type that AMQP lacks ends the walk.
_STEPS: Final = tuple(
    1 + _STRUCTS[tag].size if tag in _STRUCTS else 0 if tag in _COUNTED else _BEYOND for tag in range(256)
)

_long_at: Final = Struct(">I").unpack_from
_pack_long: Final = Struct(">I").pack
_pack_longlong: Final = Struct(">q").pack
_pack_time: Final = Struct(">Q").pack


class TableError(ValueError):
    """The bytes are not a field table."""


class Entries(dict[bytes, Span]):
    """Entries of a table that names something twice: the first is found by name, `twins` are the others."""

    __slots__ = ("twins",)
    twins: list[tuple[bytes, Span]]


def entries(table: bytes) -> dict[bytes, Span]:
    """Every entry by name; together the spans are the table. Of a name that comes twice the first counts.

    Arrays and tables are stepped over by their length. Raises TableError on unknown types and where lengths do not
    fit. One loop without calls to Python, because it runs for every header of every letter.
    """
    spans: dict[bytes, Span] = {}
    at, end, count = 0, len(table), 0
    try:
        while at < end:
            value = at + 1 + table[at]
            step = _STEPS[table[value]]
            stop = value + step if step else value + 5 + _long_at(table, value + 1)[0]
            spans[table[at + 1 : value]] = (at, value, stop)
            count += 1
            at = stop
    except (IndexError, StructError):
        at = _BEYOND
    if at != end:
        raise TableError("field table: an entry of unknown type, or one that goes beyond the end")
    return spans if len(spans) == count else _with_twins(table)


def _with_twins(table: bytes) -> Entries:
    spans, at = Entries(), 0
    spans.twins = []
    while at < len(table):
        value = at + 1 + table[at]
        stop = _bounded(table, value, len(table))
        name, span = table[at + 1 : value], (at, value, stop)
        if spans.setdefault(name, span) is not span:
            spans.twins.append((name, span))
        at = stop
    return spans


def splice(table: bytes, known: dict[bytes, Span], remove: Collection[bytes], append: bytes) -> bytes:
    """The table without the entries named in `remove`, twins included, and with the entries `append` behind.

    `known` comes from `entries(table)`; names that are not there are ignored. The rest keeps its bytes and its order.
    """
    spans = []
    for name in remove:  # a loop, not a comprehension: those are calls in Python 3.11
        if name in known:
            spans.append(known[name])  # noqa: PERF401 - as it says above
    if known.__class__ is Entries:
        spans += [span for name, span in known.twins if name in remove]
    if not spans:
        return table + append
    spans.sort()
    parts, at = [], 0
    for start, _, stop in spans:
        if start > at:
            parts.append(table[at:start])
        at = stop
    parts.append(table[at:])
    parts.append(append)
    return b"".join(parts)


# -- decoding ---------------------------------------------------------------------------------------------------------


def decode(table: bytes) -> list[Field]:
    """Every entry as (name, AMQP type, value), in order, twins included. Raises TableError on anything malformed.

    Values: bool, int, float, Decimal, bytes for S and x, seconds for T, None for V; an array is a list of
    (type, value), a table a list of entries like this one. Names that are not UTF-8 keep their bytes as surrogates.
    """
    return _table(table, 0, len(table), MAX_DEPTH)


def decode_array(array: bytes) -> list[tuple[str, Any]]:
    """The elements of an array (its payload, without type and length) as (AMQP type, value); errors as `decode`."""
    return _array(array, 0, len(array), MAX_DEPTH)


def decode_value(table: bytes, at: int) -> Any:
    """The value whose type byte is at `at`; shapes and errors as `decode`."""
    return _value(table, at, _bounded(table, at, len(table)), MAX_DEPTH)


def deaths(value: bytes) -> list[dict[str, tuple[str, Any]]]:
    """The entries of an x-death value (type byte first) as name → (AMQP type, value); of twins the first counts.

    Raises TableError when it is not an array of tables.
    """
    if value[:1] != b"A" or _bounded(value, 0, len(value)) != len(value):
        raise TableError("x-death: not an array")
    elements = []
    for tag, fields in decode_array(value[5:]):
        if tag != "F":
            raise TableError(f"x-death: an element of type {tag!r}, not a table")
        elements.append({name: (kind, content) for name, kind, content in reversed(fields)})
    return elements


def _table(data: bytes, at: int, end: int, depth: int) -> list[Field]:
    fields = []
    while at < end:
        value = at + 1 + data[at]
        stop = _bounded(data, value, end)
        name = str(data[at + 1 : value], "utf-8", "surrogateescape")
        fields.append((name, chr(data[value]), _value(data, value, stop, depth)))
        at = stop
    return fields


def _array(data: bytes, at: int, end: int, depth: int) -> list[tuple[str, Any]]:
    elements = []
    while at < end:
        stop = _bounded(data, at, end)
        elements.append((chr(data[at]), _value(data, at, stop, depth)))
        at = stop
    return elements


def _bounded(data: bytes, at: int, end: int) -> int:
    """Where the value at `at` ends, within its table or array. x-death takes this road for each of its fields."""
    try:
        stop = at + (_STEPS[data[at]] or 5 + _long_at(data, at + 1)[0])
    except (IndexError, StructError):
        raise TableError("field table: a value is cut short") from None
    if stop > end:
        what = "a value goes beyond the end" if stop < _BEYOND else f"unknown type {data[at : at + 1]!r}"
        raise TableError(f"field table: {what}")
    return int(stop)


def _value(data: bytes, at: int, stop: int, depth: int) -> Any:
    tag = data[at]
    if tag in _STRINGS:
        return data[at + 5 : stop]
    if tag in _STRUCTS:
        numbers = _STRUCTS[tag].unpack_from(data, at + 1)
        special = _SPECIAL.get(tag)
        return special(numbers) if special else numbers[0]
    if not depth:
        raise TableError(f"field table: nested deeper than {MAX_DEPTH}")
    return (_array if tag == _ARRAY else _table)(data, at + 5, stop, depth - 1)


# -- encoding: each returns whole entries, name + type + value ---------------------------------------------------------


def longstr(name: bytes, text: bytes | str) -> bytes:
    """An entry of type S."""
    value = text.encode() if isinstance(text, str) else text
    return _entry(name, b"S", _counted(value))


def long_(name: bytes, number: int) -> bytes:
    """An entry of type l: signed 64 bits, as RabbitMQ writes counts."""
    return _entry(name, b"l", _pack_longlong(number))


def timestamp(name: bytes, seconds: int) -> bytes:
    """An entry of type T: whole seconds since 1970."""
    return _entry(name, b"T", _pack_time(seconds))


def boolean(name: bytes, flag: bool) -> bytes:  # noqa: FBT001 - it is the value
    """An entry of type t."""
    return _entry(name, b"t", b"\x01" if flag else b"\x00")


def array_of_longstr(name: bytes, texts: Iterable[bytes | str]) -> bytes:
    """An entry of type A whose elements are S, like CC and routing-keys."""
    values = [text.encode() if isinstance(text, str) else text for text in texts]
    return _entry(name, b"A", _counted(b"".join([b"S" + _counted(value) for value in values])))


def field_array(name: bytes, tables: Iterable[bytes]) -> bytes:
    """An entry of type A whose elements are F, like x-death; each table is its joined entries."""
    return _entry(name, b"A", _counted(b"".join([b"F" + _counted(table) for table in tables])))


def field_table(name: bytes, table: bytes) -> bytes:
    """An entry of type F; the table is its joined entries."""
    return _entry(name, b"F", _counted(table))


def encode(fields: Sequence[Field]) -> bytes:
    """The table that `decode` gave these fields for; struct.error or ValueError where a value does not fit its type."""
    return b"".join(
        [
            _entry(name.encode(errors="surrogateescape"), tag.encode(), _encoded(tag, value))
            for name, tag, value in fields
        ]
    )


def _entry(name: bytes, tag: bytes, value: bytes) -> bytes:
    if len(name) > 255:
        raise ValueError(f"field name of {len(name)} bytes; AMQP allows 255")
    return b"%c%b%b%b" % (len(name), name, tag, value)


def _counted(payload: bytes) -> bytes:
    return _pack_long(len(payload)) + payload


def _encoded(tag: str, value: Any) -> bytes:
    encoder = _ENCODERS.get(tag)
    return encoder(value) if encoder else _STRUCTS[ord(tag)].pack(value)


def _decimal(number: Decimal) -> bytes:
    _, digits, exponent = number.as_tuple()
    return _STRUCTS[ord("D")].pack(-int(exponent), int("".join(map(str, digits))))


_ENCODERS: Final[dict[str, Callable[[Any], bytes]]] = {
    "S": _counted,
    "x": _counted,
    "V": lambda _nothing: b"",
    "D": _decimal,
    "F": lambda fields: _counted(encode(fields)),
    "A": lambda elements: _counted(b"".join([tag.encode() + _encoded(tag, value) for tag, value in elements])),
}
