"""The receiving half: each event once, then the law that events and errors do not depend on how the bytes were cut."""
# ruff: noqa: FBT003 - AMQP has flags

import struct
from collections.abc import Iterable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pamqp import commands, frame

from dlx_router.wire import frames
from dlx_router.wire.frames import Cancelled, Confirm, Delivery, Heartbeat, Method, Parser, Returned, WireError
from tests.wire.wire_samples import cut, law, raw_frame, streams

# Damage can turn a method into basic.recover-async, of which pamqp warns.
pytestmark = pytest.mark.filterwarnings("ignore:This command is deprecated:DeprecationWarning")

DELIVER = raw_frame(1, 1, b"\x00\x3c\x00\x3c\x04ctag" + struct.pack(">Q", 7) + b"\x01\x02ex\x03key")
HEAD = b"\x00\x3c\x00\x00" + struct.pack(">Q", 4) + b"\x10\x00\x02"
HEADER, BODY = raw_frame(2, 1, HEAD), raw_frame(3, 1, b"body")
EMPTY = raw_frame(2, 1, HEAD[:4] + bytes(10))
CLOSE = frame.marshal(commands.Channel.Close(404, "NOT_FOUND", 60, 40), 1)
BEAT = frames.HEARTBEAT


def outcome(pieces: Iterable[bytes]) -> tuple[list[tuple[str, Any]], str | None]:
    """The events with their kind, and the error's text if there was one."""
    parser, events = Parser(), []
    try:
        for piece in pieces:
            events += parser.feed(piece)
    except WireError as error:
        return [_plain(event) for event in [*events, *error.events]], str(error)
    return [_plain(event) for event in events], None


def _plain(event: Any) -> tuple[str, Any]:
    if isinstance(event, Method):
        return event.command.name, (event.channel, dict(event.command))
    return type(event).__name__, tuple(event)


def one_by_one(stream: bytes) -> list[bytes]:
    return [stream[at : at + 1] for at in range(len(stream))]


def test_a_delivery_whole_in_the_buffer_is_one_event() -> None:
    assert Parser().feed(DELIVER + HEADER + BODY) == [Delivery(1, b"ctag", 7, True, b"ex", b"key", HEAD, b"body")]


@pytest.mark.parametrize("octet", [0, 1, 2, 3, 4, 61, 0xCE, 0xFF])
def test_a_delivery_damaged_at_any_byte_is_judged_the_same_whole_and_byte_by_byte(octet: int) -> None:
    whole = DELIVER + HEADER + BODY + BEAT
    for at in range(len(whole)):
        stream = whole[:at] + bytes((octet,)) + whole[at + 1 :]
        assert outcome([stream]) == outcome(one_by_one(stream))


def _alike(count: int, key: bytes = b"key") -> list[bytes]:
    """Deliveries that differ in their tags only; from the third on a parser compares, and does not parse."""
    method = DELIVER.replace(b"\x03key", b"\x03" + key)
    return [method.replace(struct.pack(">Q", 7), struct.pack(">Q", tag)) + HEADER + BODY for tag in range(count)]


def test_a_delivery_in_parts_lends_its_names_to_nobody() -> None:
    """It lies between deliveries that are alike, and goes another way than they."""
    other = DELIVER.replace(b"ctag", b"gatc").replace(b"\x03key", b"\x03yek")
    parts = other + HEADER + raw_frame(3, 1, b"bo") + raw_frame(3, 1, b"dy")
    events = Parser().feed(b"".join((*_alike(3), parts, *_alike(2))))
    assert [tuple(event)[5] for event in events] == [b"key"] * 3 + [b"yek"] + [b"key"] * 2
    assert [tuple(event)[1] for event in events] == [b"ctag"] * 3 + [b"gatc"] + [b"ctag"] * 2


@pytest.mark.parametrize("before", [b"", BEAT])
def test_an_empty_body_completes_at_the_header(before: bytes) -> None:
    head = b"\x00\x3c\x00\x00" + bytes(8) + b"\x00\x00"
    events = Parser().feed(DELIVER + before + raw_frame(2, 1, head))
    assert events[-1] == Delivery(1, b"ctag", 7, True, b"ex", b"key", head, b"")


def test_a_delivery_goes_on_while_other_channels_speak() -> None:
    ack = frames.ack(2, 9, True)
    assert Parser().feed(DELIVER + ack + HEADER + BEAT + BODY) == [
        Confirm(2, 9, True, True),
        Heartbeat(),
        Delivery(1, b"ctag", 7, True, b"ex", b"key", HEAD, b"body"),
    ]


def test_a_return_brings_its_content() -> None:
    method = frame.marshal(commands.Basic.Return(312, "NO_ROUTE", "ex", "key"), 1)
    assert Parser().feed(method + HEADER + BODY) == [Returned(1, 312, b"NO_ROUTE", b"ex", b"key", HEAD, b"body")]


@pytest.mark.parametrize(
    ("sent", "event"),
    [
        (commands.Basic.Ack(5, False), Confirm(1, 5, False, True)),
        (commands.Basic.Ack(5, True), Confirm(1, 5, True, True)),
        (commands.Basic.Nack(5, True), Confirm(1, 5, True, False)),
        (commands.Basic.Nack(5, False, True), Confirm(1, 5, False, False)),
        (commands.Basic.Cancel("ctag", True), Cancelled(1, b"ctag")),
    ],
)
def test_confirms_and_cancels_are_events(sent: Any, event: Any) -> None:
    (read,) = Parser().feed(frame.marshal(sent, 1))
    assert read == event
    assert type(read) is type(event)


@pytest.mark.parametrize(
    "command",
    [
        commands.Connection.Tune(2047, 131_072, 60),
        commands.Connection.Blocked("low"),
        commands.Channel.OpenOk(),
        commands.Queue.DeclareOk("q", 1, 2),
        commands.Basic.ConsumeOk("ctag"),
        commands.Basic.CancelOk("ctag"),
        commands.Connection.Start(
            0, 9, {"product": "RabbitMQ", "capabilities": {"basic.nack": True}}, "PLAIN", "en_US"
        ),
        commands.Connection.Close(320, "CONNECTION_FORCED", 0, 0),
        commands.Channel.Close(404, "é", 60, 40),
    ],
)
def test_every_other_method_comes_as_pamqps_object(command: Any) -> None:
    (event,) = Parser().feed(frame.marshal(command, 0))
    assert isinstance(event, Method)
    assert type(event.command) is type(command)
    assert dict(event.command) == dict(command)


@pytest.mark.parametrize(
    ("method", "kind"),
    [
        (b"\x00\x0a\x00\x32", commands.Connection.Close),
        (b"\x00\x14\x00\x28", commands.Channel.Close),
    ],
)
def test_a_close_whose_text_the_broker_cut_in_the_middle_of_a_character_is_still_read(method: bytes, kind: Any) -> None:
    (event,) = Parser().feed(raw_frame(1, 1, method + b"\x01\x94\x03no\xc3\x00\x3c\x00\x28"))
    assert isinstance(event, Method)
    assert type(event.command) is kind
    assert dict(event.command) == {"reply_code": 404, "reply_text": "no\ufffd", "class_id": 60, "method_id": 40}


@pytest.mark.parametrize("half", [DELIVER, DELIVER + HEADER, DELIVER + HEADER + raw_frame(3, 1, b"bo")])
@pytest.mark.parametrize("end", [CLOSE, frame.marshal(commands.Channel.CloseOk(), 1)])
def test_the_end_of_a_channel_discards_the_half_of_a_content(half: bytes, end: bytes) -> None:
    events = Parser().feed(half + end + DELIVER + HEADER + BODY)
    assert [type(event) for event in events] == [Method, Delivery]


PROTOCOL_ERRORS = {
    "a frame that ends in 0x00 instead of 0xce": raw_frame(1, 0, b"\x00\x0a\x00\x3d", b"\x00"),
    "unexpected frame type 4": raw_frame(4, 0, b""),
    "unexpected frame type 72; it looks like HTTP": b"HTTP/1.1 400 Bad Request",
    "unexpected frame type 21; it looks like TLS": b"\x15\x03\x03\x00\x02\x02\x46",
    "unexpected frame type 9": raw_frame(9, 0, b"", b"\x00"),
    "protocol header 0-0-9-1": b"AMQP\x00\x00\x09\x01",
    "protocol header 3-1-0-0": b"AMQP\x03\x01\x00\x00 and more",
    "a frame of 131073 bytes; 131072 were agreed on": struct.pack(">BHI", 3, 1, 131_065),
    "channel 1: a content header without a method": HEADER,
    "channel 2: a content header without a method": DELIVER + raw_frame(2, 2, HEAD),
    "channel 1: a content header without a method that": DELIVER + HEADER + HEADER,
    "channel 1: a content header of 13 bytes": DELIVER + raw_frame(2, 1, HEAD[:13]),
    "channel 1: a content header of class 61": DELIVER + raw_frame(2, 1, b"\x00\x3d" + HEAD[2:]),
    "1: a body frame without a content header": BODY,
    "channel 1: a body frame without a content": DELIVER + BODY,
    "channel 1: a body frame without a content header": DELIVER + EMPTY + raw_frame(3, 1, b""),
    "channel 1: a body 1 bytes longer than its header announced": DELIVER + HEADER + raw_frame(3, 1, b"body!"),
    "channel 1: a body 2 bytes longer than": DELIVER + HEADER + raw_frame(3, 1, b"bod") + raw_frame(3, 1, b"y!!"),
    "channel 1: method 60.60 in the middle of a content": DELIVER + DELIVER,
    "channel 1: method 60.80 in the middle of a content": DELIVER + HEADER + frames.ack(1, 1, False),
    "channel 1: the arguments of a method do not fill its frame": raw_frame(1, 1, DELIVER[7:-1] + b"x"),
    "channel 2: the arguments of a method do not fill its frame": raw_frame(1, 2, DELIVER[7:-2]),
    "channel 3: the arguments of a method do not": raw_frame(1, 3, b"\x00\x3c\x00\x1e\x02c\x00"),
    "channel 4: the arguments of a method do not": raw_frame(1, 4, b"\x00\x3c\x00\x32\x01\x38\x00"),
    "channel 5: the arguments of a method do not": raw_frame(1, 5, b"\x00\x3c\x00\x50" + bytes(8)),
    "channel 6: the arguments of a method do not": raw_frame(1, 6, b"\x00\x3c\x00\x50" + bytes(10)),
    "channel 1: method 99.1 cannot be read": raw_frame(1, 1, b"\x00\x63\x00\x01"),
    "channel 2: Connection.Start cannot be read": raw_frame(1, 2, b"\x00\x0a\x00\x0a"),
    "channel 1: a method frame of 3 bytes; 4 is the least": raw_frame(1, 1, b"\x00\x3c\x00"),
    "a heartbeat of 1 bytes on channel 0": raw_frame(8, 0, b"x"),
    "a heartbeat of 0 bytes on channel 1": raw_frame(8, 1, b""),
}


@pytest.mark.parametrize(("text", "stream"), [*PROTOCOL_ERRORS.items()])
def test_each_protocol_error_says_what_is_wrong_however_it_is_cut(text: str, stream: bytes) -> None:
    events, error = outcome([BEAT + stream])
    assert error is not None
    assert text in error
    assert events[0] == ("Heartbeat", (0,))
    assert outcome(one_by_one(BEAT + stream)) == (events, error)


def test_after_an_error_nothing_is_read_any_more() -> None:
    parser = Parser()
    for _ in range(2):
        with pytest.raises(WireError, match="a body frame without a content header"):
            parser.feed(BODY)
    with pytest.raises(WireError, match="a body frame without a content header"):
        parser.feed(BEAT)


def test_a_hostile_depth_of_tables_in_a_method_is_refused() -> None:
    nested = b""
    for _ in range(5000):
        nested = b"\x00F" + struct.pack(">I", len(nested)) + nested
    start = b"\x00\x0a\x00\x0a\x00\x09" + struct.pack(">I", len(nested)) + nested + bytes(8)
    with pytest.raises(WireError, match="cannot be read"):
        Parser().feed(raw_frame(1, 0, start))


def test_the_frame_size_can_be_agreed_on_later_and_zero_means_no_limit() -> None:
    parser, large = Parser(4096), raw_frame(3, 1, bytes(5000))
    opening = DELIVER + raw_frame(2, 1, HEAD[:4] + struct.pack(">Q", 5000) + HEAD[12:])
    parser.frame_max = 0
    assert len(parser.feed(opening + large)) == 1
    parser.frame_max = 4096
    with pytest.raises(WireError, match="a frame of 5008 bytes; 4096 were agreed on"):
        parser.feed(opening + large)


def test_bytearrays_and_memoryviews_are_read_and_not_kept() -> None:
    buffer = bytearray(DELIVER + HEADER + BODY)
    parser = Parser()
    (event,) = parser.feed(memoryview(buffer)) + parser.feed(buffer[:10])
    buffer[:] = bytes(len(buffer))
    assert event == Delivery(1, b"ctag", 7, True, b"ex", b"key", HEAD, b"body")
    assert parser.feed(DELIVER[10:] + HEADER + BODY) == [event]


@law
@given(streams(), st.lists(st.integers(0, 10_000), max_size=12))
def test_events_are_the_same_whole_byte_by_byte_and_in_random_chunks(
    made: tuple[bytes, list[Any]], edges: list[int]
) -> None:
    stream, expected = made
    events, error = outcome([stream])
    assert error is None
    assert events == [
        ("Basic.GetEmpty", (events[at][1][0], {"cluster_id": ""})) if event == "empty" else _plain(event)
        for at, event in enumerate(expected)
    ]
    assert outcome(one_by_one(stream)) == (events, None)
    assert outcome(cut(stream, edges)) == (events, None)


@law
@given(streams(), st.integers(0, 10_000), st.integers(0, 255))
def test_a_damaged_stream_gives_the_same_events_and_error_however_it_is_cut(
    made: tuple[bytes, list[Any]], at: int, octet: int
) -> None:
    stream = bytearray(made[0] or BEAT)
    stream[at % len(stream)] = octet
    assert outcome(one_by_one(bytes(stream))) == outcome([bytes(stream)])


@law
@given(
    st.binary(max_size=200)
    | st.lists(
        st.builds(
            raw_frame,
            st.sampled_from([1, 1, 2, 3, 8]),
            st.integers(0, 2),
            st.builds(
                bytes.__add__,
                st.sampled_from([b"", *(struct.pack(">I", index) for index in commands.INDEX_MAPPING)]),
                st.binary(max_size=30),
            ),
        ),
        max_size=4,
    ).map(b"".join)
)
def test_garbage_gives_only_wire_errors(stream: bytes) -> None:
    assert outcome([stream]) == outcome(one_by_one(stream))
