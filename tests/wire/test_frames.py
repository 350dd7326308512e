"""The frames we send, read back by pamqp."""
# ruff: noqa: FBT001, FBT003 - AMQP has flags

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame

from dlx_router.wire import frames, properties, table
from tests.wire.wire_samples import law

_names = st.text("ab-.:# ", max_size=60)


def unmarshalled(sent: bytes) -> list[tuple[int, Any]]:
    """What pamqp reads, with the channel of each."""
    read = []
    while sent:
        consumed, channel, value = frame.unmarshal(sent)
        read.append((channel, value))
        sent = sent[consumed:]
    return read


def test_a_small_publication_is_three_frames_byte_for_byte() -> None:
    assert frames.publish(1, b"ex", b"key", b"\x10\x00\x02", b"body", 131_072) == (
        b"\x01\x00\x01\x00\x00\x00\x0e"
        b"\x00\x3c\x00\x28\x00\x00\x02ex\x03key\x01"
        b"\xce"
        b"\x02\x00\x01\x00\x00\x00\x0f"
        b"\x00\x3c\x00\x00"
        b"\x00\x00\x00\x00\x00\x00\x00\x04"
        b"\x10\x00\x02"
        b"\xce"
        b"\x03\x00\x01\x00\x00\x00\x04"
        b"body"
        b"\xce"
    )


@law
@given(
    st.sampled_from([0, 4096, 8192, 131_072]),
    st.integers(0, 30_000) | st.integers(120_000, 140_000),
    st.integers(1, 65535),
    st.booleans(),
    _names,
    _names,
)
def test_a_body_is_cut_into_frames_that_fit_and_joined_again(
    frame_max: int, size: int, channel: int, mandatory: bool, exchange: str, key: str
) -> None:
    body = b"0123456789abcdef" * (size // 16)
    section = properties.build(headers=table.longstr(b"k", b"v"))
    sent = frames.publish(channel, exchange.encode(), key.encode(), section, body, frame_max, mandatory)
    (_, method), (_, head), *rest = unmarshalled(sent)
    assert (method.exchange, method.routing_key, method.mandatory) == (exchange, key, mandatory)
    assert (head.body_size, head.properties.headers) == (len(body), {"k": "v"})
    assert b"".join(piece.value for _, piece in rest) == body
    assert all(len(piece.value) + 8 <= frame_max for _, piece in rest) or not frame_max
    assert len(rest) == (-(-len(body) // (frame_max - 8)) if frame_max else bool(body))


@pytest.mark.parametrize("size", [4088 - 1, 4088, 4088 + 1, 2 * 4088, 2 * 4088 + 1])
def test_a_body_around_the_edge_of_a_frame_is_cut_there(size: int) -> None:
    *_, last = rest = unmarshalled(frames.publish(1, b"", b"q", b"\x00\x00", b"x" * size, 4096))[2:]
    assert len(rest) == -(-size // 4088)
    assert len(last[1].value) == (size - 1) % 4088 + 1


def test_a_header_that_just_fits_is_sent_and_one_byte_more_is_refused() -> None:
    fits = properties.build(headers=table.longstr(b"k", b"v" * (4096 - 8 - 12 - 2 - 4 - 7)))
    assert len(fits) == 4096 - 8 - 12
    assert unmarshalled(frames.publish(1, b"", b"q", fits, b"body", 4096))[1][1].body_size == 4
    assert frames.publish(1, b"", b"q", fits + b"x", b"body", 0)
    with pytest.raises(frames.FrameTooLarge, match="header of 4089 bytes; a frame of this connection holds 4088"):
        frames.publish(1, b"", b"q", fits + b"x", b"body", 4096)


@pytest.mark.parametrize(("exchange", "key"), [(b"e" * 256, b"k"), (b"e", b"k" * 256)])
def test_a_name_over_255_bytes_is_refused(exchange: bytes, key: bytes) -> None:
    with pytest.raises(ValueError, match="over 255 bytes"):
        frames.publish(1, exchange, key, b"\x00\x00", b"", 0)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        (frames.ack(7, 2**63 - 1, True), commands.Basic.Ack(2**63 - 1, True)),
        (frames.ack(7, 1, False), commands.Basic.Ack(1, False)),
        (frames.nack(7, 5, False, False), commands.Basic.Nack(5, False, False)),
        (frames.nack(7, 5, True, False), commands.Basic.Nack(5, True, False)),
        (frames.nack(7, 5, False, True), commands.Basic.Nack(5, False, True)),
        (frames.nack(7, 5, True, True), commands.Basic.Nack(5, True, True)),
        (frames.reject(7, 5, True), commands.Basic.Reject(5, True)),
        (frames.reject(7, 5, False), commands.Basic.Reject(5, False)),
        (frames.method(7, commands.Channel.Open()), commands.Channel.Open()),
    ],
)
def test_settlements_are_the_bytes_that_pamqp_writes(ours: bytes, theirs: Any) -> None:
    assert ours == frame.marshal(theirs, 7)


@pytest.mark.parametrize("name", ["größe", "a'b<c>!", "e" * 255])
def test_a_name_that_pamqp_refuses_and_rabbitmq_allows_can_be_sent(name: str) -> None:
    with pytest.raises(ValueError, match="exchange"):
        commands.Exchange.Declare(exchange=name, passive=True)
    command = frames.lenient(commands.Exchange.Declare)(exchange=name, passive=True)
    ((channel, read),) = unmarshalled(frames.method(4, command))
    assert (channel, type(read), read.exchange, read.passive) == (4, commands.Exchange.Declare, name, True)
    assert frames.lenient(commands.Exchange.Declare) is type(command)
