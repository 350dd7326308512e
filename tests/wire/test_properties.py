"""The property section: golden bytes, then the law that what was not changed is the bytes that came."""

import struct
from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, header

from dlx_router.wire import properties, table
from dlx_router.wire.errors import WireError
from dlx_router.wire.stamp import find_pub
from tests.wire.wire_samples import law, pamqp_tables

HEADERS = table.longstr(b"k", b"v")
ALL = (
    b"\xff\xfc"
    b"\x0atext/plain"
    b"\x04gzip"
    b"\x00\x00\x00\x08\x01kS\x00\x00\x00\x01v"
    b"\x02"
    b"\x09"
    b"\x03cor"
    b"\x05reply"
    b"\x0560000"
    b"\x03mid"
    b"\x00\x00\x00\x00\x65\x53\xf1\x00"
    b"\x04type"
    b"\x05guest"
    b"\x03app"
    b"\x00"
)
VALUES: dict[str, Any] = {
    "content_type": b"text/plain",
    "content_encoding": b"gzip",
    "headers": HEADERS,
    "delivery_mode": 2,
    "priority": 9,
    "correlation_id": b"cor",
    "reply_to": b"reply",
    "expiration": b"60000",
    "message_id": b"mid",
    "timestamp": 1_700_000_000,
    "type": b"type",
    "user_id": b"guest",
    "app_id": b"app",
    "cluster_id": b"",
}

short = st.binary(max_size=12) | st.just(b"s" * 255)
octet = st.integers(0, 255)
sections = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(VALUES, short),
        "headers": pamqp_tables.filter(bool),
        "delivery_mode": octet,
        "priority": octet,
        "timestamp": st.integers(0, 2**64 - 1),
    },
)


def test_all_fourteen_properties_are_read() -> None:
    read = properties.parse(b"in front" + ALL, 8)
    assert {name: getattr(read, name) for name in VALUES} == VALUES
    assert read.flags == 0xFFFC


def test_an_empty_header_table_stays_until_it_is_taken_off() -> None:
    read = properties.parse(b"\x20\x00\x00\x00\x00\x00", 0)
    assert read.headers == b""
    assert read.replaced() == b"\x20\x00\x00\x00\x00\x00"
    assert read.replaced(headers=b"") == b"\x00\x00"


def test_properties_of_pamqp_are_read() -> None:
    made = commands.Basic.Properties(
        content_type="a/b", headers={"k": "v"}, delivery_mode=2, message_id="mid", user_id="guest"
    )
    payload = header.ContentHeader(0, 5, made).marshal()
    read = properties.parse(payload, properties.PROPERTIES_AT)
    assert (read.content_type, read.headers, read.delivery_mode, read.message_id, read.user_id) == (
        b"a/b",
        HEADERS,
        2,
        b"mid",
        b"guest",
    )


@pytest.mark.parametrize("section", [ALL[:length] for length in range(len(ALL))])
def test_a_section_that_is_cut_anywhere_is_refused(section: bytes) -> None:
    with pytest.raises(WireError):
        properties.parse(section, 0)


@pytest.mark.parametrize("section", [b"\x00\x01", b"\x00\x02", ALL + b"\x00", b"\x00\x00\x00"])
def test_reserved_flags_and_bytes_left_over_are_refused(section: bytes) -> None:
    with pytest.raises(WireError):
        properties.parse(section, 0)


def test_a_string_over_255_bytes_cannot_be_built() -> None:
    with pytest.raises(ValueError, match="AMQP allows 255"):
        properties.build(message_id=b"m" * 256)


@law
@given(sections)
def test_a_section_read_and_written_is_the_same_bytes(values: dict[str, Any]) -> None:
    section = properties.build(**values)
    read = properties.parse(section, 0)
    assert read.replaced() == section
    assert read.bare() == read.replaced(headers=b"")
    assert {name: getattr(read, name) for name in VALUES} == {**dict.fromkeys(VALUES), "headers": b"", **values}


@law
@given(
    sections,
    st.fixed_dictionaries(
        {},
        optional={
            "headers": pamqp_tables,
            "delivery_mode": st.none() | octet,
            "priority": st.none() | octet,
            "expiration": st.none() | short,
            "user_id": st.none() | short,
        },
    ),
)
def test_a_change_touches_only_what_it_names(values: dict[str, Any], changes: dict[str, Any]) -> None:
    read = properties.parse(properties.build(**values), 0)
    assert read.replaced(**changes) == properties.build(**{**values, **changes})


@law
@given(st.binary(max_size=80))
def test_garbage_is_refused_with_a_wire_error_or_kept_byte_for_byte(section: bytes) -> None:
    with suppress(WireError):
        assert properties.parse(section, 0).replaced() == section


def _header(section: bytes) -> bytes:
    return struct.pack(">HHQ", 60, 0, 0) + section


def test_the_publish_number_is_found_wherever_the_broker_sorted_it() -> None:
    stamp = table.PUB_PREFIX + struct.pack(">q", 41)
    for headers in (stamp, HEADERS + stamp, stamp + HEADERS):
        assert find_pub(_header(properties.build(headers=headers))) == 41


@given(
    st.fixed_dictionaries(
        {"headers": st.binary(max_size=9)},
        optional={
            **dict.fromkeys(("delivery_mode", "priority"), st.integers(0, 255)),
            "timestamp": st.integers(0, 2**64 - 1),
            **dict.fromkeys(
                (
                    "content_type", "content_encoding", "correlation_id", "reply_to", "expiration", "message_id",
                    "type", "user_id", "app_id", "cluster_id",
                ),
                st.binary(max_size=9),
            ),
        },
    )
)  # fmt: skip
def test_where_each_property_lies_is_told_without_a_gap(values: dict[str, Any]) -> None:
    section = properties.build(**values)
    where = properties.spans(section, 0)
    assert list(where) == [name for name in where if name in values and (name != "headers" or values[name])]
    assert [start for start, _ in where.values()] == [2, *(stop for _, stop in where.values())][: len(where)]
    assert max([2, *(stop for _, stop in where.values())]) == len(section)
    for name, (start, stop) in where.items():
        value = section[start:stop]
        length = {"headers": 4, "timestamp": 0, "delivery_mode": 0, "priority": 0}.get(name, 1)
        known = values[name] if isinstance(values[name], bytes) else values[name].to_bytes(stop - start)
        assert value[length:] == known
