"""A copy of a declared message has the values that came, or the message is refused with the name of the header."""

import json
import struct
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from importlib import import_module
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any, Final

import pika
import pytest
from aio_pika import IncomingMessage
from aiormq import spec
from aiormq.abc import DeliveredMessage
from hypothesis import given
from hypothesis import strategies as st
from pamqp import frame
from pika.frame import decode_frame

from dlx_router.client import Dead, InexactHeader, NotDeclared, asynchronous, sync
from dlx_router.wire import properties, table

NAMES: Final = st.text(st.characters(codec="utf-8"), min_size=1, max_size=40).map(str.encode)


def entry(name: bytes, value: bytes) -> bytes:
    return bytes([len(name)]) + name + value


def counted(value: bytes) -> bytes:
    return struct.pack(">I", len(value)) + value


def packed(tag: bytes, form: str, values: st.SearchStrategy[Any]) -> st.SearchStrategy[bytes]:
    return values.map(lambda value: tag + struct.pack(form, value))


SCALARS: Final = st.one_of(
    st.sampled_from([b"t\x00", b"t\x01", b"V"]),
    packed(b"b", ">b", st.integers(-128, 127)),
    packed(b"s", ">h", st.integers(-(1 << 15), (1 << 15) - 1)),
    packed(b"I", ">i", st.integers(-(1 << 31), (1 << 31) - 1)),
    packed(b"l", ">q", st.integers(-(1 << 63), (1 << 63) - 1)),
    packed(b"T", ">Q", st.integers(0, (1 << 32) - 1)),
    packed(b"f", ">f", st.floats(allow_nan=False, allow_infinity=False, width=32)),
    packed(b"d", ">d", st.floats(allow_nan=False, allow_infinity=False)),
    st.builds(lambda *two: b"D" + struct.pack(">Bi", *two), st.integers(0, 12), st.integers(-(1 << 31), (1 << 31) - 1)),
    st.binary(max_size=30).map(lambda data: b"S" + counted(data)),
    st.binary(max_size=30).map(lambda data: b"x" + counted(data)),
)  # fmt: skip
VALUES: Final = st.recursive(
    SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4).map(lambda many: b"A" + counted(b"".join(many))),
        st.dictionaries(NAMES, inner, max_size=4).map(
            lambda many: b"F" + counted(b"".join(entry(*pair) for pair in many.items()))
        ),
    ),
    max_leaves=6,
)
HEADERS: Final = st.dictionaries(NAMES.filter(lambda name: not name.startswith((b"x-", b"dlx"))), VALUES, max_size=4)


def framed(headers: dict[bytes, bytes]) -> bytes:
    section = struct.pack(">H", 0x2000) + counted(b"".join(entry(*pair) for pair in headers.items()))
    payload = struct.pack(">HHQ", 60, 0, 0) + section
    return struct.pack(">BHI", 2, 1, len(payload)) + payload + b"\xce"


def on_pika(data: bytes, change: Callable[[Any], None] = lambda _: None) -> bytes:
    _, header = decode_frame(data)
    change(header.properties)
    method: Any = SimpleNamespace(exchange="", routing_key="q")
    message = sync.Message(None, method, header.properties, b"")
    return b"".join(sync.copy_of(Dead("said", message=message)).encode())


def received(data: bytes) -> Any:
    _, _, header = frame.unmarshal(data)
    channel: Any = SimpleNamespace(is_closed=True)
    delivered = DeliveredMessage(spec.Basic.Deliver(delivery_tag=1), header, b"", channel)  # type: ignore[arg-type]  # a content header
    return IncomingMessage(delivered)


def on_aio_pika(data: bytes, change: Callable[[Any], None] = lambda _: None) -> bytes:
    message = received(data)
    change(message)
    return asynchronous.copy_of(Dead("said", message=message, queue="q")).marshal()


WAYS: Final = pytest.mark.parametrize("way", [on_pika, on_aio_pika])


def shape(value: Any) -> object:
    """A value as the router reads it, without the width of a number."""
    tag, inner = value
    if tag == "A":
        return [shape(item) for item in inner]
    if tag == "F":
        return {name: shape((kind, item)) for name, kind, item in inner}
    kinds = {**dict.fromkeys("bBsuUIilL", "whole"), **dict.fromkeys("fd", "fraction")}
    return kinds.get(tag, tag), repr(inner)


def read(section: bytes) -> dict[str, object]:
    return {name: shape((tag, value)) for name, tag, value in table.decode(properties.parse(section, 0).headers)}


@WAYS
@given(headers=HEADERS)
def test_a_copy_has_the_values_that_came_or_is_refused(way: Callable[..., bytes], headers: dict[bytes, bytes]) -> None:
    came = framed(headers)
    try:
        copied = way(came)
    except InexactHeader:
        return
    assert {name: value for name, value in read(copied).items() if name != "dlx-death"} == read(came[7 + 12 : -1])


@WAYS
@pytest.mark.parametrize(
    "value",
    [
        "text", "ä", 7, -1, True, None, [1, ["a"], {"b": None}], {"deep": {"er": 1}}, Decimal("1.5"),
        datetime(2026, 1, 1, tzinfo=UTC),
    ],
)  # fmt: skip
def test_what_every_library_writes_exactly_is_copied(way: Callable[..., bytes], value: object) -> None:
    copied = way(framed({}), lambda message: setattr(message, "headers", {"x": value}))
    assert read(copied).keys() == {"x", "dlx-death"}


@WAYS
@pytest.mark.parametrize(
    "value",
    [
        3.14159, datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC), 1 << 63, Decimal("1e-300"), Decimal(1 << 31),
        Decimal("NaN"), b"\xff", "\ud800", timedelta(1), (1, 2), {1: 2}, [{"deep": 1 << 70}],
    ],
)  # fmt: skip
def test_what_a_library_cannot_write_exactly_is_refused_by_name(way: Callable[..., bytes], value: object) -> None:
    with pytest.raises(NotDeclared, match=r"header 'x-odd'.*reject the message"):
        way(framed({}), lambda message: setattr(message, "headers", {"x-odd": value}))


def test_pika_refuses_whole_numbers_that_may_have_been_fractions() -> None:
    """It reads 3.14159 as 3; what the consumer writes itself passes."""
    came = framed({b"pi": b"d" + struct.pack(">d", 3.14159)})
    with pytest.raises(InexactHeader, match=r"'pi'.*cuts fractions off"):
        on_pika(came)
    assert read(on_pika(came, lambda now: now.headers.update(pi=3)))["pi"] == ("whole", "3")


def test_aio_pika_refuses_a_timestamp_with_a_fraction_and_a_long_name() -> None:
    with pytest.raises(InexactHeader, match="property 'timestamp'"):
        on_aio_pika(framed({}), lambda now: setattr(now, "timestamp", datetime(2026, 1, 1, 0, 0, 0, 5, tzinfo=UTC)))
    with pytest.raises(InexactHeader, match="header 'nnn"):
        on_aio_pika(framed({b"n" * 200: b"t\x01"}))


@given(st.integers(0, 1 << 32))
def test_the_expiration_is_told_as_it_came(milliseconds: int) -> None:
    """aio-pika makes 1000 of 1001."""
    message = received(framed({}))
    message.expiration = milliseconds / 1000
    headers = asynchronous.copy_of(Dead("said", message=message, queue="q")).headers or {}
    assert json.loads(str(headers["dlx-death"]))["original_expiration"] == str(milliseconds)


def test_no_class_of_another_library_is_patched() -> None:
    """Each of these was, by an import of the client."""
    there = {
        "aio_pika.queue": ["IncomingMessage", "Queue", "QueueIterator"],
        "pamqp.header": ["ContentHeader"],
        "pika.spec": ["BasicProperties"],
        "amqp.basic_message": ["Message"],
        "kombu.transport.pyamqp": ["Message", "Channel"],
    }
    import_module("dlx_router.client.aio_pika")
    libraries = [import_module(name) for name in there if find_spec(name.partition(".")[0])]
    kinds = [getattr(library, name) for library in libraries for name in there[library.__name__]]
    kinds += pika.spec.props.values()
    for kind in kinds:
        ours = [name for name, value in vars(kind).items() if getattr(value, "__module__", "").startswith("dlx_router")]
        assert not ours
        assert not kind.__module__.startswith("dlx_router")
