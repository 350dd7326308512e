"""Field tables: golden bytes for every type, then laws: what is not ours survives, and garbage is only ever refused."""
# ruff: noqa: FBT003 - AMQP has flags

import struct
from contextlib import suppress
from decimal import Decimal
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import decode as pamqp_decode

from dlx_router.wire import table
from dlx_router.wire.table import TableError
from tests.wire.wire_samples import BROKER_X_DEATH, fields, law, pamqp_tables

EVERY_TYPE: list[tuple[str, bytes, Any]] = [
    ("t", b"\x01kt\x01", True),
    ("t", b"\x01kt\x00", False),
    ("b", b"\x01kb\xff", -1),
    ("B", b"\x01kB\xff", 255),
    ("s", b"\x01ks\xff\xfe", -2),
    ("u", b"\x01ku\xff\xfe", 65534),
    ("I", b"\x01kI\xff\xff\xff\xfd", -3),
    ("i", b"\x01ki\xff\xff\xff\xfd", 4294967293),
    ("l", b"\x01kl\xff\xff\xff\xff\xff\xff\xff\xfc", -4),
    ("L", b"\x01kL\x00\x00\x00\x00\x00\x00\x00\x04", 4),
    ("f", b"\x01kf\x3f\xc0\x00\x00", 1.5),
    ("d", b"\x01kd\x3f\xf8\x00\x00\x00\x00\x00\x00", 1.5),
    ("D", b"\x01kD\x02\x00\x00\x01\x3a", Decimal("3.14")),
    ("S", b"\x01kS\x00\x00\x00\x02\xc3\xa9", "é".encode()),
    ("T", b"\x01kT\x00\x00\x00\x00\x65\x53\xf1\x00", 1_700_000_000),
    ("V", b"\x01kV", None),
    ("x", b"\x01kx\x00\x00\x00\x01\xff", b"\xff"),
    ("A", b"\x01kA\x00\x00\x00\x04t\x01b\x05", [("t", True), ("b", 5)]),
    ("F", b"\x01kF\x00\x00\x00\x04\x01nt\x01", [("n", "t", True)]),
]


@pytest.mark.parametrize(("tag", "golden", "value"), EVERY_TYPE)
def test_every_type_of_rabbitmq_is_decoded_with_its_tag_and_encoded_to_the_same_bytes(
    tag: str, golden: bytes, value: Any
) -> None:
    assert table.decode(golden) == [("k", tag, value)]
    assert table.encode([("k", tag, value)]) == golden
    assert table.entries(golden) == {b"k": (0, 2, len(golden))}
    assert table.decode_value(golden, 2) == value


@pytest.mark.parametrize(
    ("entry", "golden"),
    [
        (table.longstr(b"q", "é"), b"\x01qS\x00\x00\x00\x02\xc3\xa9"),
        (table.longstr(b"q", b"\xff"), b"\x01qS\x00\x00\x00\x01\xff"),
        (table.long_(b"count", -1), b"\x05countl" + b"\xff" * 8),
        (table.timestamp(b"time", 1_700_000_000), b"\x04timeT\x00\x00\x00\x00\x65\x53\xf1\x00"),
        (table.boolean(b"on", True), b"\x02ont\x01"),
        (table.boolean(b"on", False), b"\x02ont\x00"),
        (table.array_of_longstr(b"CC", ["a", b"bc"]), b"\x02CCA\x00\x00\x00\x0dS\x00\x00\x00\x01aS\x00\x00\x00\x02bc"),
        (table.array_of_longstr(b"CC", []), b"\x02CCA\x00\x00\x00\x00"),
        (table.field_array(b"a", [b"", b"\x01kV"]), b"\x01aA\x00\x00\x00\x0dF\x00\x00\x00\x00F\x00\x00\x00\x03\x01kV"),
        (table.field_table(b"f", b"\x01kV"), b"\x01fF\x00\x00\x00\x03\x01kV"),
        (table.PUB_PREFIX + struct.pack(">q", 7), table.long_(table.PUB, 7)),
    ],
)
def test_encoders_write_whole_entries(entry: bytes, golden: bytes) -> None:
    assert entry == golden


def test_our_x_death_is_byte_for_byte_what_rabbitmq_4_writes() -> None:
    entry = b"".join(
        [
            table.long_(b"count", 1),
            table.longstr(b"reason", "rejected"),
            table.longstr(b"queue", "orders"),
            table.timestamp(b"time", 1_700_000_000),
            table.longstr(b"exchange", "shop"),
            table.array_of_longstr(b"routing-keys", ["order.created"]),
        ]
    )
    assert table.field_array(b"x-death", [entry]) == b"\x07x-death" + BROKER_X_DEATH


def test_deaths_keep_the_type_of_every_field() -> None:
    assert table.deaths(BROKER_X_DEATH) == [
        {
            "count": ("l", 1),
            "reason": ("S", b"rejected"),
            "queue": ("S", b"orders"),
            "time": ("T", 1_700_000_000),
            "exchange": ("S", b"shop"),
            "routing-keys": ("A", [("S", b"order.created")]),
        }
    ]


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"S\x00\x00\x00\x01a",
        b"A\x00\x00\x00\x02t\x01",
        BROKER_X_DEATH[:-1],
        BROKER_X_DEATH + b"\x00",
        b"A\x00",
        b"A\x00\x00\x00\x06F\x00\x00\x00\x09\x00",
    ],
)
def test_an_x_death_that_is_no_array_of_tables_is_refused(value: bytes) -> None:
    with pytest.raises(TableError):
        table.deaths(value)


def test_a_death_that_names_a_field_twice_counts_the_first() -> None:
    twice = table.long_(b"count", 1) + table.long_(b"count", 2)
    assert table.deaths(table.field_array(b"", [twice])[1:]) == [{"count": ("l", 1)}]


def test_a_name_that_comes_twice_is_found_once_and_removed_wholly() -> None:
    first, between, second = table.long_(b"k", 1), table.boolean(b"b", True), table.long_(b"k", 2)
    positions = table.entries(first + between + second)
    assert positions[b"k"] == (0, 2, len(first))
    assert table.splice(first + between + second, positions, {b"k"}, b"") == between
    assert table.splice(first + between + second, positions, {b"b"}, b"") == first + second
    assert table.splice(first + between + second, positions, set(), b"") == first + between + second


@pytest.mark.parametrize(
    "bad",
    [
        b"\x01kz",
        b"\x01k\x00",
        b"\x05k",
        b"\x01kS\xff\xff\xff\xff",
        b"\x01kF\x00\x00\x00\x02\x09",
        b"\x01",
        b"\x01k",
    ],
)
def test_a_table_that_is_not_one_is_refused(bad: bytes) -> None:
    with pytest.raises(TableError):
        table.entries(bad)


@pytest.mark.parametrize(
    "bad",
    [
        b"\x01kF\x00\x00\x00\x03\x01kz",
        b"\x01kA\x00\x00\x00\x02S\x00\x01kV",
        b"\x01kF\x00\x00\x00\x02\x09k\x01kV",
    ],
)
def test_decoding_is_strict_inside_nested_values_that_entries_steps_over(bad: bytes) -> None:
    assert list(table.entries(bad)) == [b"k"]
    with pytest.raises(TableError):
        table.decode(bad)


def test_a_hostile_depth_of_nesting_is_stepped_over_but_not_decoded() -> None:
    nested = b""
    for _ in range(5000):
        nested = table.field_table(b"f", nested)
    assert list(table.entries(nested)) == [b"f"]
    with pytest.raises(TableError, match="nested deeper than 32"):
        table.decode(nested)


def test_a_name_over_255_bytes_cannot_be_encoded() -> None:
    with pytest.raises(ValueError, match="AMQP allows 255"):
        table.long_(b"n" * 256, 1)


def _pieces(raw: bytes) -> list[bytes]:
    positions = table.entries(raw)
    spans = list(positions.values())
    if isinstance(positions, table.Entries):
        spans += [span for _, span in positions.twins]
    return [raw[start:stop] for start, _, stop in sorted(spans)]


@law
@given(fields)
def test_entries_partition_the_bytes(listed: list[Any]) -> None:
    raw = table.encode(listed)
    assert _pieces(raw) == [table.encode([field]) for field in listed]


@law
@given(fields, st.data())
def test_what_is_not_removed_survives_in_order(listed: list[Any], data: st.DataObject) -> None:
    raw = table.encode(listed)
    known = [name.encode(errors="surrogateescape") for name, _, _ in listed]
    remove = data.draw(st.sets(st.sampled_from([*known, b"absent"])))
    kept = [field for field, name in zip(listed, known, strict=True) if name not in remove]
    assert table.splice(raw, table.entries(raw), remove, b"\x00V") == table.encode(kept) + b"\x00V"


@law
@given(pamqp_tables)
def test_pamqp_reads_what_we_write(raw: bytes) -> None:
    ours = table.encode(table.decode(raw))
    assert pamqp_decode.field_table(struct.pack(">I", len(ours)) + ours) == pamqp_decode.field_table(
        struct.pack(">I", len(raw)) + raw
    )


@law
@given(st.binary(max_size=200))
def test_garbage_is_refused_with_a_table_error_or_read_wholly(raw: bytes) -> None:
    for read in (table.entries, table.decode, table.decode_array, table.deaths):
        try:
            read(raw)
        except TableError:
            continue


@law
@given(fields, st.integers(0), st.integers(0, 255))
def test_a_damaged_table_is_refused_with_a_table_error_or_still_partitioned(
    listed: list[Any], position: int, octet: int
) -> None:
    raw = bytearray(table.encode(listed) or b"\x00V")
    raw[position % len(raw)] = octet
    with suppress(TableError):
        assert b"".join(_pieces(bytes(raw))) == raw
        table.decode(bytes(raw))


@law
@given(st.binary(max_size=60), st.integers(0, 70))
def test_a_value_anywhere_is_read_or_refused(raw: bytes, at: int) -> None:
    with suppress(TableError):
        table.decode_value(raw, at)
