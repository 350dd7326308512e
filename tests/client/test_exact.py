"""What a message carries its copy carries: byte for byte where nobody changed it, value for value where one did."""

import struct
from collections.abc import Callable
from copy import copy
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import pika
import pytest
from aio_pika import IncomingMessage
from aiormq import spec
from aiormq.abc import DeliveredMessage
from hypothesis import given
from hypothesis import strategies as st
from pamqp import frame
from pika.compat import long
from pika.frame import decode_frame

from dlx_router.client import InexactHeader, NotDeclared, asynchronous, exact, sync
from dlx_router.client.declaration import is_kept, kept
from dlx_router.wire import properties, table
from tests.support.raw import fields

FLAGS: Final = exact.PROPERTIES
DECLARED: Final = table.longstr(b"dlx-death", "said")


def entry(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + value


def counted(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


def packed(form: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return values.map(lambda value: struct.pack(form, value))


def whole(tag: str, form: str, low: int, high: int) -> st.SearchStrategy[bytes]:
    return packed(form, st.integers(low, high)).map(lambda data: tag.encode() + data)


names = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).map(str.encode)
scalars = st.one_of(
    st.sampled_from([b"t\x00", b"t\x01", b"V"]),
    whole("b", ">b", -128, 127),
    whole("B", ">B", 0, 255),
    whole("s", ">h", -(1 << 15), (1 << 15) - 1),
    whole("u", ">H", 0, (1 << 16) - 1),
    whole("I", ">i", -(1 << 31), (1 << 31) - 1),
    whole("i", ">I", 0, (1 << 32) - 1),
    whole("l", ">q", -(1 << 63), (1 << 63) - 1),
    whole("T", ">Q", 0, 200_000_000_000),
    packed(">f", st.floats(allow_nan=False, allow_infinity=False, width=32)).map(lambda data: b"f" + data),
    packed(">d", st.floats(allow_nan=False, allow_infinity=False)).map(lambda data: b"d" + data),
    st.tuples(st.integers(0, 255), st.integers(-(1 << 31), (1 << 31) - 1)).map(
        lambda pair: b"D" + struct.pack(">Bi", *pair)
    ),
    st.binary(max_size=30).map(lambda data: b"S" + counted(data)),
    st.binary(max_size=30).map(lambda data: b"x" + counted(data)),
)
values = st.recursive(
    scalars,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda many: b"A" + counted(b"".join(many))),
        st.lists(st.tuples(names, inner), max_size=4).map(
            lambda many: b"F" + counted(b"".join(entry(*pair) for pair in many))
        ),
    ),
    max_leaves=8,
)
tables = st.lists(st.tuples(names, values), max_size=6).map(lambda many: b"".join(entry(*pair) for pair in many))
short = st.text(st.characters(codec="utf-8"), min_size=1, max_size=20).map(
    lambda text: bytes([len(text.encode())]) + text.encode()
)
sections = st.fixed_dictionaries(
    {},
    optional={
        **dict.fromkeys(
            ["content_type", "content_encoding", "correlation_id", "reply_to", "message_id", "type", "user_id",
             "app_id", "cluster_id"], short),
        "headers": tables.map(counted),
        "delivery_mode": st.sampled_from([b"\x01", b"\x02"]),
        "priority": st.integers(0, 255).map(lambda number: bytes([number])),
        "expiration": st.integers(0, 1 << 32).map(lambda number: bytes([len(str(number))]) + str(number).encode()),
        "timestamp": packed(">Q", st.integers(0, 200_000_000_000)),
    },
)  # fmt: skip


def section(parts: dict[str, bytes]) -> bytes:
    flags = sum(FLAGS[name] for name in parts)
    return struct.pack(">H", flags) + b"".join(parts[name] for name in FLAGS if name in parts)


def framed(parts: dict[str, bytes]) -> bytes:
    payload = struct.pack(">HHQ", 60, 0, 0) + section(parts)
    return struct.pack(">BHI", 2, 1, len(payload)) + payload + b"\xce"


def by_pika(parts: dict[str, bytes], change: Callable[[Any], None] = lambda _: None) -> bytes:
    _, header = decode_frame(framed(parts))
    change(header.properties)
    return sync._section(header.properties, kept(header.properties.headers or {}, "said"))


def received(parts: dict[str, bytes]) -> IncomingMessage:
    _, _, header = frame.unmarshal(framed(parts))
    nowhere: Any = None
    return asynchronous.Received(DeliveredMessage(spec.Basic.Deliver(delivery_tag=1), header, b"", nowhere))  # type: ignore[arg-type]  # a content header


def by_aio_pika(parts: dict[str, bytes], change: Callable[[Any], None] = lambda _: None) -> bytes:
    message = received(parts)
    change(message)
    return asynchronous._copy(message, kept(message.headers, "said")).marshal()


ways = pytest.mark.parametrize("way", [by_pika, by_aio_pika])


def wanted(parts: dict[str, bytes]) -> bytes:
    """By the router's own codec, which shares nothing with the clients'."""
    props = properties.parse(section(parts), 0)
    headers = props.headers + DECLARED
    return props.replaced(headers=headers, user_id=None, expiration=None)


@ways
@given(found=sections)
def test_a_copy_is_made_of_the_bytes_that_came(way: Callable[..., bytes], found: dict[str, bytes]) -> None:
    assert way(found) == wanted(found)


@given(found=sections)
def test_a_copy_that_nobody_could_change_is_made_without_reading_it(found: dict[str, bytes]) -> None:
    """As the hook for Celery makes it."""
    assert exact.declared(section(found), is_kept, {"dlx-death": "said"}) == wanted(found)
    stale = {"headers": counted(entry(b"x-death", b"t\x01") + entry(b"\xff", b"V") + entry(b"dlx-death", b"V"))}
    assert exact.declared(section(stale), is_kept, {}) == section({"headers": counted(entry(b"\xff", b"V"))})


def test_the_law_knows_what_is_wrong() -> None:
    """A library's own way is what it would be without us: it has to differ."""
    parts = {"headers": counted(entry(b"x-pi", b"d" + struct.pack(">d", 3.14159)))}
    _, header = decode_frame(framed(parts))
    assert b"".join(header.properties.encode()) != section(parts)
    message = received(parts)
    assert message.properties.marshal() != section(parts)


@given(found=sections)
def test_keeping_the_bytes_changes_nothing_that_a_library_shows(found: dict[str, bytes]) -> None:
    _, header = decode_frame(framed(found))
    plain = pika.BasicProperties().decode(section(found))
    assert (header.properties == plain, repr(header.properties) == repr(plain)) == (True, True)
    assert isinstance(received(found), IncomingMessage)
    assert copy(header.properties).wire == header.properties.wire == section(found)


CAME: Final = {
    "priority": b"\x03",
    "headers": counted(
        entry(b"x-pi", b"d" + struct.pack(">d", 3.14159))
        + entry(b"x-kept", b"f" + struct.pack(">f", 0.5))
        + entry(b"x-gone", b"t\x01")
    ),
}


@ways
def test_what_the_consumer_changed_is_changed_and_nothing_else(way: Callable[..., bytes]) -> None:
    def change(message: Any) -> None:
        message.headers["x-pi"] = 2.5
        message.headers["x-new"] = {
            "at": datetime(2026, 1, 1, tzinfo=UTC),
            "many": [1, 1 << 40, None, bytearray(b"\xff")],
        }
        del message.headers["x-gone"]
        message.priority, message.app_id = 7, "app"

    props = properties.parse(way(CAME, change), 0)
    assert (props.priority, props.app_id, props.timestamp) == (7, b"app", None)
    assert table.decode(props.headers) == [
        ("x-kept", "f", 0.5),
        ("x-pi", "d", 2.5),
        ("x-new", "F", [
            ("at", "T", 1_767_225_600), ("many", "A", [("I", 1), ("l", 1 << 40), ("V", None), ("x", b"\xff")]),
        ]),
        ("dlx-death", "S", b"said"),
    ]  # fmt: skip


@ways
@pytest.mark.parametrize(
    ("value", "why"),
    [
        (datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC), "whole seconds"),
        (datetime(1969, 1, 1, tzinfo=UTC), "since 1970"),
        (1 << 63, "more than 64 bits"),
        (-(1 << 63) - 1, "more than 64 bits"),
        (Decimal("1e-300"), "a scale of 255"),
        (Decimal(1 << 31), "hold 32 bits"),
        (Decimal("-0"), "hold 32 bits"),
        (Decimal("NaN"), "hold 32 bits"),
        (b"\xff", "may have come as text"),
        ("\ud800", "surrogates"),
        (timedelta(1), "no type for a timedelta"),
        ((1, 2), "no type for a tuple"),
        ({1: 2}, "has to be text"),
        ([{"deep": 1 << 70}], "64 bits"),
    ],
)
def test_what_has_no_exact_form_is_refused(way: Callable[..., bytes], value: object, why: str) -> None:
    def change(message: Any) -> None:
        message.headers["x-odd"] = value

    with pytest.raises(InexactHeader, match=why) as refused:
        way(CAME, change)
    assert isinstance(refused.value, NotDeclared)
    assert ("'x-odd" in str(refused.value) or "header 1" in str(refused.value), "reject" in str(refused.value)) == (
        True,
        True,
    )


@ways
def test_a_long_name_is_refused_and_not_cut(way: Callable[..., bytes]) -> None:
    def change(message: Any) -> None:
        message.headers["x" * 256] = 1

    with pytest.raises(InexactHeader, match="at most 255 bytes"):
        way(CAME, change)
    long_name = {"headers": counted(entry(b"n" * 255, b"t\x01"))}
    assert way(long_name) == wanted(long_name), "pamqp cuts it at 128"


@ways
@pytest.mark.parametrize(("name", "value"), [("app_id", "x" * 256), ("priority", 256)])
def test_a_property_that_does_not_fit_is_refused(way: Callable[..., bytes], name: str, value: object) -> None:
    with pytest.raises(InexactHeader, match=f"property '{name}'"):
        way(CAME, lambda message: setattr(message, name, value))


def test_what_came_before_the_client_was_imported_is_refused_where_nobody_knows_what_it_was() -> None:
    """Nobody kept the bytes; what the library reads in one way only passes all the same."""
    late = pika.BasicProperties(headers={"x-text": "t", "x-int": 7, "x-none": None}, priority=3)
    props = properties.parse(sync._section(late, kept(late.headers, "said")), 0)
    assert table.decode(props.headers)[:3] == [("x-text", "S", b"t"), ("x-int", "I", 7), ("x-none", "V", None)]
    with pytest.raises(InexactHeader, match=r"'x-pi'.*cuts fractions off, and 3 may.*before messages come"):
        sync._section(pika.BasicProperties(), {"x-pi": long(3)})
    with pytest.raises(InexactHeader, match=r"'a\.x-pi'"):
        sync._section(pika.BasicProperties(), {"a": [{"x-pi": long(3)}]})
    _, _, header = frame.unmarshal(framed({"timestamp": struct.pack(">Q", 1_700_000_000_000)}))
    delattr(header, "_dlx_router_wire")
    nowhere: Any = None
    message = asynchronous.Received(DeliveredMessage(spec.Basic.Deliver(delivery_tag=1), header, b"", nowhere))  # type: ignore[arg-type]  # a content header
    with pytest.raises(InexactHeader, match=r"'timestamp'.*before messages come"):
        asynchronous._copy(message, {})


@given(st.integers(0, 1 << 32))
def test_the_expiration_is_told_as_it_came(milliseconds: int) -> None:
    """aio-pika makes 1000 of 1001."""
    text = str(milliseconds).encode()
    assert asynchronous._expiration(received({"expiration": bytes([len(text)]) + text})) == text.decode()


@pytest.mark.parametrize("number", [float("nan"), float("inf"), -0.0])
def test_numbers_that_only_aio_pika_can_read_are_kept(number: float) -> None:
    """pika gives the connection up at them, where it reads."""
    odd = {"headers": counted(entry(b"x", b"d" + struct.pack(">d", number)) + entry(b"y", b"T" + b"\0\0\1\x9a" * 2))}
    assert by_aio_pika(odd) == wanted(odd)


def test_a_name_that_comes_twice_comes_twice() -> None:
    twice = {"headers": counted(entry(b"x", b"t\x01") + entry(b"x", b"t\x00"))}
    assert fields(by_pika(twice)[6:])["x"] == b"t\x00"
    assert by_pika(twice) == wanted(twice)
