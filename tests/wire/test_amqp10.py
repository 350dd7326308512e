"""AMQP 1.0 values and messages: what is written is read again, and no bytes do harm."""

import contextlib
import struct
import time
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.wire.amqp10 import (
    ALL_SINCE,
    DATA,
    HEADER,
    MAX_DEPTH,
    NULL,
    TRUE,
    Amqp10Error,
    TooDeep,
    Value,
    composite,
    decode,
    encode,
    kept,
    objection,
    sections,
    string,
    symbol,
)

U: Final = Value("uuid", bytes(range(16)))
LONG: Final = Value("string", b"x" * 256)
NEW, OLD = ALL_SINCE, (4, 0)


def _integers(kind: str, bits: int, *, signed: bool) -> st.SearchStrategy[Value]:
    least = -(1 << (bits - 1)) if signed else 0
    return st.integers(least, least + (1 << bits) - 1).map(lambda number: Value(kind, number))


def _bytes(kind: str, size: int | None = None) -> st.SearchStrategy[Value]:
    return st.binary(min_size=size or 0, max_size=size or 300).map(lambda data: Value(kind, data))


SCALARS: Final = [
    *(
        _integers(kind, bits, signed=False)
        for kind, bits in [("ubyte", 8), ("ushort", 16), ("uint", 32), ("ulong", 64)]
    ),
    *(_integers(kind, bits, signed=True) for kind, bits in [("byte", 8), ("short", 16), ("int", 32), ("long", 64)]),
    _integers("char", 32, signed=False),
    _integers("timestamp", 64, signed=True),
    *(_bytes(kind, size) for kind, size in [("float", 4), ("double", 8), ("uuid", 16), ("decimal32", 4)]),
    *(_bytes(kind, size) for kind, size in [("decimal64", 8), ("decimal128", 16)]),
    *map(_bytes, ["binary", "string", "symbol"]),
    st.booleans().map(lambda truth: Value("boolean", truth)),
]
ARRAYS: Final = st.one_of(
    *(st.lists(scalar, max_size=4).map(lambda items: Value("array", tuple(items))) for scalar in SCALARS)
)
VALUES: Final = st.recursive(
    st.one_of(st.just(NULL), ARRAYS, *SCALARS),
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda items: Value("list", tuple(items))),
        st.lists(st.tuples(inner, inner), max_size=4).map(lambda items: Value("map", tuple(items))),
        st.tuples(inner, inner).map(lambda pair: Value("described", pair)),
    ),
    max_leaves=20,
)


@given(VALUES, st.binary(max_size=4))
def test_what_is_written_is_read_again(value: Value, behind: bytes) -> None:
    data = encode(value)
    assert decode(data + behind) == (value, len(data))


@given(st.binary(max_size=200))
def test_any_bytes_are_a_value_or_none(data: bytes) -> None:
    try:
        _value, end = decode(data)
    except Amqp10Error:
        return
    assert 0 < end <= len(data)


@given(VALUES, st.data())
def test_a_value_that_is_cut_is_none(value: Value, data: st.DataObject) -> None:
    whole = encode(value)
    with pytest.raises(Amqp10Error):
        decode(whole[: data.draw(st.integers(0, len(whole) - 1))])


@pytest.mark.parametrize(
    "data",
    [
        b"\xf0" + struct.pack("!IIB", 5, 0xFFFFFFFF, 0x40),  # four milliards of nulls in ten bytes
        b"\xf0" + struct.pack("!IIB", 5, 0xFFFFFFFF, 0x45),
        b"\xd0" + struct.pack("!II", 4, 0xFFFFFFFF),
        b"\xf0" + struct.pack("!IIBB", 6, 0xFFFFFFFF, 0xF0, 0),
    ],
    ids=["nulls", "lists", "list", "arrays"],
)
def test_a_count_costs_nothing(data: bytes) -> None:
    began = time.perf_counter()
    with pytest.raises(Amqp10Error):
        decode(data)
    assert time.perf_counter() - began < 1


@pytest.mark.parametrize(
    "start", [b"\x00", b"\xd0" + struct.pack("!II", 1 << 20, 1), b"\xc0\xff\x01", b"\xe0\x05\x01\x00"]
)
def test_depth_is_bounded(start: bytes) -> None:
    with pytest.raises(Amqp10Error):
        decode(start * 100_000)


def test_a_list_too_deep_says_so() -> None:
    value = NULL
    for _ in range(MAX_DEPTH + 1):
        value = Value("list", (value,))
    with pytest.raises(TooDeep):
        decode(encode(value))


# -- messages ---------------------------------------------------------------------------------------------------------


def message(
    *, application: Any = (), annotations: Any = (), properties: tuple[Value, ...] = (), body: bytes = b"body"
) -> bytes:
    return b"".join(
        encode(Value("described", (Value("ulong", code), value)))
        for code, value in [
            (HEADER, Value("list", (TRUE, NULL, Value("uint", 60_000)))),
            (0x72, Value("map", tuple(annotations))),
            (0x73, Value("list", properties)),
            (0x74, Value("map", tuple(application))),
            (DATA, Value("binary", body)),
        ]
    )


def listed(*values: Value) -> Value:
    return Value("list", values)


def mapped(key: Value, value: Value) -> Value:
    return Value("map", ((key, value),))


def of(kind: str, number: int = 1) -> Value:
    return Value(kind, number)


@pytest.mark.parametrize(
    ("value", "why"),
    [
        (U, "uuid"),
        (of("char"), "char"),
        (listed(U), "uuid"),
        (listed(of("ulong")), "ulong"),
        (listed(listed(of("ulong"))), "ulong"),
        (listed(Value("array", (of("int"),))), "array"),
        (Value("array", (of("ulong"),)), "ulong"),
        (mapped(string("k"), U), "uuid"),
        (mapped(of("int"), of("int")), "key of type int"),
        (mapped(LONG, of("int")), "key of 256 bytes"),
        (Value("described", (symbol("a:b"), of("int"))), "described"),
        (of("ulong"), ""),
        (listed(of("ubyte"), string("x")), ""),
        (mapped(U, of("ulong")), ""),
        (LONG, ""),
        (NULL, ""),
    ],
)
def test_what_no_header_can_hold(value: Value, why: str) -> None:
    for data in (message(application=[(string("k"), value)]), message(annotations=[(symbol("x-k"), value)])):
        assert (why in (reason := objection(data, NEW)), bool(reason)) == (True, bool(why))


@pytest.mark.parametrize(
    ("value", "version", "why"),
    [
        (Value("decimal32", b"\0\0\0\1"), OLD, "number"),
        (Value("decimal32", b"\0\0\0\1"), NEW, ""),
        (Value("double", struct.pack("!d", float("nan"))), OLD, "number"),
        (Value("float", struct.pack("!f", float("inf"))), OLD, "number"),
        (Value("float", struct.pack("!f", float("inf"))), NEW, ""),
        (Value("float", struct.pack("!f", 1.5)), OLD, ""),
    ],
)
def test_what_only_older_brokers_cannot_convert(value: Value, version: tuple[int, ...], why: str) -> None:
    reason = objection(message(application=[(string("k"), value)]), version)
    assert (why in reason, bool(reason)) == (True, bool(why))


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ({"properties": (*[NULL] * 6, Value("symbol", b"x" * 256))}, "content-type has 256 bytes"),
        ({"properties": (*[NULL] * 7, Value("symbol", b"x" * 300))}, "content-encoding has 300 bytes"),
        ({"properties": (*[NULL] * 6, Value("symbol", b"x" * 255))}, ""),
        ({"properties": (*[NULL] * 6, of("int"))}, "content-type is a int"),
        ({"properties": (U, NULL, NULL, NULL, NULL, of("ulong"))}, ""),
        ({"properties": (of("int"),)}, "message-id is a int"),
        ({"annotations": [(symbol("x-basic-type"), LONG)]}, "'x-basic-type' has 256 bytes"),
        ({"annotations": [(symbol("x-routing-key"), LONG)]}, "'x-routing-key' has 256 bytes"),
        ({"annotations": [(symbol("x-routing-key"), string("k" * 255))]}, ""),
        ({"annotations": [(symbol("x-exchange"), U)]}, ""),
        ({"annotations": [(symbol("x-basic-priority"), string("a"))]}, "'x-basic-priority' is a string"),
        ({"annotations": [(symbol("x-basic-other"), U)]}, ""),
        ({"annotations": [(symbol("x-death"), U)]}, ""),
        ({"annotations": [(symbol("other"), U)]}, ""),
        ({"application": [(LONG, U)]}, ""),
        ({"annotations": [(symbol("x-opt-deaths"), Value("array", (mapped(symbol("a"), of("int")),)))]}, "history"),
    ],
)
def test_what_no_property_can_hold(said: dict[str, Any], why: str) -> None:
    reason = objection(message(**said), NEW)
    assert (why in reason, bool(reason)) == (True, bool(why))


def test_what_is_nested_too_deep_is_told() -> None:
    value = NULL
    for _ in range(MAX_DEPTH):
        value = listed(value)
    assert "nested deeper" in objection(message(annotations=[(symbol("x-k"), value)]), NEW)


def test_what_is_kept_lasts_and_says_why() -> None:
    came = message(application=[(string("k"), U)], annotations=[(symbol("x-a"), U), (symbol("x-why"), string("old"))])
    copy = kept(came, {"x-why": "new"})
    values = {section.code: section.value for section in sections(copy)}
    assert values[HEADER].of == (TRUE, NULL)  # no end of its time
    assert values[0x72].of == ((symbol("x-why"), string("new")), (symbol("x-a"), U))
    at = came.index(encode(Value("ulong", 0x73)))
    assert copy.endswith(came[at - 1 :])
    assert kept(encode(composite(HEADER)), {"x-why": "a name that is no text: \udcff"})


@given(st.binary(max_size=300))
def test_no_bytes_harm_who_looks(data: bytes) -> None:
    assert isinstance(objection(data, OLD), str)
    assert isinstance(objection(message(body=data), NEW), str)
    with contextlib.suppress(Amqp10Error):
        kept(data, {"x-why": "because"})
