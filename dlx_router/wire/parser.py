"""Bytes in, events out: the receiving half of a connection.

Rules for whoever edits this:
1. Events do not depend on how the bytes were cut: whole, byte by byte or anyhow, they are equal, and so are errors.
2. The short way (a delivery that lies whole in the buffer) takes only what it has checked; everything else, wrong or
   merely incomplete, goes the long way, frame by frame, which knows all the errors. A delivery whose method frame is
   that of the one before, byte for byte but for its tag, needs no second look at it.
3. Each byte is copied a bounded number of times, however small or large the reads.
Source: AMQP 0-9-1 §4.2.3 (frames), §4.2.6 (content), §4.2.7 (heartbeats), §2.2.4 (version negotiation).
"""
# ruff: noqa: PLR2004, TRY301 - sizes of AMQP's fixed parts, named where they are read; pamqp's objects have no base

from collections.abc import Callable
from functools import lru_cache
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a small name
from typing import Any, Final

from pamqp import commands

from dlx_router.wire.errors import WireError
from dlx_router.wire.events import BEAT, Cancelled, Confirm, Delivery, Event, Got, Method, Returned
from dlx_router.wire.rare import END, KINDS, bad_end, close, command, not_a_frame, strings

DEFAULT_FRAME_MAX: Final = 131_072  # RabbitMQ's; a smaller one may be agreed on, a larger one is never asked for

_METHOD, _HEADER, _BODY, _HEARTBEAT = 1, 2, 3, 8
_BASIC: Final = 60
_DELIVER, _ACK, _NACK = 0x003C_003C, 0x003C_0050, 0x003C_0078
_RETURN, _GET_OK, _CANCEL = 0x003C_0032, 0x003C_0047, 0x003C_001E
_CONNECTION_CLOSE, _CHANNEL_CLOSE, _CHANNEL_CLOSE_OK = 0x000A_0032, 0x0014_0028, 0x0014_0029
_CLOSES: Final[dict[int, Callable[..., Any]]] = {
    _CONNECTION_CLOSE: commands.Connection.Close,
    _CHANNEL_CLOSE: commands.Channel.Close,
}
_ANY_SIZE: Final = 1 << 32

_frame_at: Final = Struct(">BHI").unpack_from  # type, channel, size
_method_at: Final = Struct(">BHII").unpack_from  # type, channel, size | method
_header_at: Final = Struct(">BHIHHQ").unpack_from  # type, channel, size | class, weight, body size
_body_at: Final = Struct(">BBHI").unpack_from  # end of the frame before | type, channel, size
_header_of: Final = Struct(">HHQ").unpack_from  # class, weight, body size
_long_at: Final = Struct(">I").unpack_from
_short_at: Final = Struct(">H").unpack_from
_confirm_at: Final = Struct(">QB").unpack_from  # tag, bits
_delivery_at: Final = Struct(">QBB").unpack_from  # tag, redelivered, length of the exchange
_new: Final = tuple.__new__  # faster than calling the class, which is a Python function


class _Content:
    """A method that announced content, and as much of the content as is here."""

    __slots__ = ("fields", "header", "make", "missing", "parts")

    def __init__(self, make: Callable[..., Event], fields: tuple[Any, ...]) -> None:
        self.make = make
        self.fields = fields
        self.header: bytes | None = None
        self.missing = 0
        self.parts: list[bytes] = []

    def event(self) -> Event:
        return self.make(*self.fields, self.header, b"".join(self.parts))


@lru_cache(maxsize=256)
def _content_at(lead: int, back: int) -> Callable[..., tuple[Any, ...]]:
    """Reads so many bytes, a delivery's tag, so many more; size, class and weight of its header; size of its body."""
    return Struct(f">{lead}sQ{back}sIHHQ").unpack_from


class Parser:
    """Turns what the socket gave into events. `frame_max` is the size agreed on (0: no limit) and may be set later."""

    def __init__(self, frame_max: int = DEFAULT_FRAME_MAX) -> None:
        self.frame_max = frame_max
        self._chunks: list[bytes] = []  # the beginning of a frame
        self._have = 0  # bytes in chunks
        self._need = 0  # bytes before it is worth looking again
        self._contents: dict[int, _Content] = {}  # by channel
        # What stood in the method frames of the last two deliveries, where they were equal but for their tags: names;
        # then limit, bytes before the size of the body, what reads them, and what stood before and behind the tag.
        self._names: tuple[int, bytes, bool, bytes, bytes] = (0, b"", False, b"", b"")
        self._alike: tuple[int, int, Callable[..., tuple[Any, ...]], bytes, bytes] = (0, 0, _long_at, b"", b"")
        self._error: WireError | None = None

    @property
    def is_midway(self) -> bool:
        """Whether a frame or a content has begun that is not here whole."""
        return bool(self._chunks or self._contents)

    def feed(self, data: bytes | bytearray | memoryview) -> list[Event]:
        """The events that these bytes complete, in order.

        Raises WireError as soon as the bytes cannot be AMQP (its `events` are the good ones before), and ever after.
        """
        if self._error is not None:
            raise WireError(*self._error.args)
        data = data if data.__class__ is bytes else bytes(data)
        if self._chunks:
            self._chunks.append(data)
            self._have += len(data)
            if self._have < self._need:
                return []
            data = b"".join(self._chunks)
            self._chunks.clear()
        events: list[Event] = []
        try:
            self._rest(data, self._frames(data, events))
        except WireError as error:
            error.events, self._error = events, error
            raise
        return events

    def _rest(self, data: bytes, at: int) -> None:
        """Keep the beginning of a frame, unless it is wrong already."""
        if at == len(data):
            return
        self._have, self._need = len(data) - at, 7
        if self._have >= 7:
            self._need = self._size_of(data, at)
        self._chunks.append(data[at:])

    def _size_of(self, data: bytes, at: int) -> int:
        kind, _, size = _frame_at(data, at)
        if data[at : at + 4] == b"AMQP" and self._have < 8:
            return 8  # the peer's version is not all here
        if kind not in KINDS:
            not_a_frame(data[at : at + 8])
        if self.frame_max and size + 8 > self.frame_max:
            raise WireError(f"a frame of {size + 8} bytes; {self.frame_max} were agreed on")
        return 8 + int(size)

    def _frames(self, data: bytes, events: list[Event]) -> int:  # noqa: C901, PLR0912, PLR0915 - as it says
        """Where the first incomplete frame begins, once all before it are events.

        This is the hot loop, so it makes no calls to Python, and deliveries whose three frames lie one behind the other
        (most of what a broker sends) are looked at only once. The rest is left to the methods below.
        """
        at, end = 0, len(data)
        contents = self._contents
        limit = self.frame_max - 8 if self.frame_max else _ANY_SIZE
        known_limit, width, unpack, known_lead, known_back = self._alike
        if known_limit != limit:
            width = 0
        of, by, before, came_by, came_as = self._names
        while end - at > 7:
            if width and end - at > width and not contents:
                lead, tag, back, size, klass, _, total = unpack(data, at)
                if lead == known_lead and back == known_back:
                    start = at + width - 12
                    stop = start + size
                    last = stop + 8 + total
                    if last < end and klass == _BASIC and 14 <= size <= limit and 0 < total <= limit:
                        rim, kind, channel, size = _body_at(data, stop)
                        if rim == END == data[last] and kind == _BODY and channel == of and size == total:
                            header, content = data[start:stop], data[stop + 8 : last]
                            events.append(_new(Delivery, (of, by, tag, before, came_by, came_as, header, content)))
                            at = last + 1
                            continue
                else:
                    width = 0
            if end - at > 10:
                kind, channel, size, method = _method_at(data, at)
            else:
                (kind, channel, size), method = _frame_at(data, at), 0
            stop = at + 7 + size
            if stop >= end or size > limit:
                break
            if data[stop] != END:
                bad_end(data, at, stop)
            if kind != _METHOD or size < 4:
                if kind not in KINDS:
                    not_a_frame(data[at : at + 8])
                self._no_method(kind, channel, data[at + 7 : stop], events)
                at = stop + 1
                continue
            try:
                if contents and channel in contents:
                    self._interrupt(channel, method)
                if method == _DELIVER:
                    name = at + 12 + data[at + 11]
                    tag, redelivered, length = _delivery_at(data, name)
                    key = name + 11 + length
                    if key + data[key - 1] != stop:
                        raise IndexError
                    consumer, exchange, routing_key = data[at + 12 : name], data[name + 10 : key - 1], data[key:stop]
                    again = redelivered & 1 == 1
                elif method == _ACK or method == _NACK:  # noqa: PLR1714, SIM109 - faster than `in`
                    if size != 13:
                        raise IndexError
                    tag, bits = _confirm_at(data, at + 11)
                    events.append(_new(Confirm, (channel, tag, bits & 1 == 1, method == _ACK)))
                    at = stop + 1
                    continue
                else:
                    self._cold(method, channel, data[at : stop + 1], events)
                    at = stop + 1
                    continue
            except (IndexError, StructError):
                raise WireError(f"channel {channel}: the arguments of a method do not fill its frame") from None
            begin, at = at, stop + 1
            if end - at > 18:
                kind, number, size, klass, _, total = _header_at(data, at)
                stop = at + 7 + size
                body = stop + 8
                if body < end and kind == _HEADER and number == channel and klass == _BASIC and 14 <= size <= limit:
                    rim, kind, number, size = _body_at(data, stop)
                    last = body + size
                    if (
                        0 < size == total
                        and last < end
                        and rim == END
                        and data[last] == END
                        and kind == _BODY
                        and number == channel
                        and size <= limit
                    ):
                        events.append(
                            _new(
                                Delivery,
                                (
                                    channel,
                                    consumer,
                                    tag,
                                    again,
                                    exchange,
                                    routing_key,
                                    data[at + 7 : stop],
                                    data[body:last],
                                ),
                            )
                        )
                        if (
                            routing_key == came_as
                            and exchange == came_by
                            and consumer == by
                            and channel == of
                            and again == before
                        ):
                            known_lead, known_back = data[begin:name], data[name + 8 : at + 3]
                            width, unpack = at + 19 - begin, _content_at(len(known_lead), len(known_back))
                        else:
                            width, of, before = 0, channel, again
                            by, came_by, came_as = consumer, exchange, routing_key
                        at = last + 1
                        continue
            contents[channel] = _Content(Delivery, (channel, consumer, tag, again, exchange, routing_key))
        self._names = of, by, before, came_by, came_as
        self._alike = limit, width, unpack, known_lead, known_back
        return at

    def _no_method(self, kind: int, channel: int, payload: bytes, events: list[Event]) -> None:
        if kind == _BODY:
            self._body(channel, payload, events)
        elif kind == _HEADER:
            self._header(channel, payload, events)
        elif kind == _METHOD:
            raise WireError(f"channel {channel}: a method frame of {len(payload)} bytes; 4 is the least")
        elif channel or payload:
            raise WireError(f"a heartbeat of {len(payload)} bytes on channel {channel}; both must be 0")
        else:
            events.append(BEAT)

    def _header(self, channel: int, payload: bytes, events: list[Event]) -> None:
        content = self._contents.get(channel)
        if content is None or content.header is not None:
            raise WireError(f"channel {channel}: a content header without a method that announces it")
        if len(payload) < 14:
            raise WireError(f"channel {channel}: a content header of {len(payload)} bytes; 14 is the least")
        klass, _, content.missing = _header_of(payload)
        if klass != _BASIC:
            raise WireError(f"channel {channel}: a content header of class {klass}; only basic ({_BASIC}) has content")
        content.header = payload
        self._finish(channel, content, events)

    def _body(self, channel: int, payload: bytes, events: list[Event]) -> None:
        content = self._contents.get(channel)
        if content is None or content.header is None:
            raise WireError(f"channel {channel}: a body frame without a content header")
        content.missing -= len(payload)
        if content.missing < 0:
            raise WireError(f"channel {channel}: a body {-content.missing} bytes longer than its header announced")
        content.parts.append(payload)
        self._finish(channel, content, events)

    def _finish(self, channel: int, content: _Content, events: list[Event]) -> None:
        if not content.missing:
            del self._contents[channel]
            events.append(content.event())

    def _interrupt(self, channel: int, method: int) -> None:
        """Only the channel's end may come between a method and its content."""
        if method not in (_CHANNEL_CLOSE, _CHANNEL_CLOSE_OK):
            raise WireError(f"channel {channel}: method {method >> 16}.{method & 0xFFFF} in the middle of a content")
        del self._contents[channel]

    def _cold(self, method: int, channel: int, whole: bytes, events: list[Event]) -> None:
        """Methods that are rare, and those that announce rare content."""
        if method == _RETURN:
            code, (text, exchange, key) = _short_at(whole, 11)[0], strings(whole, 13, 3, 0)
            self._contents[channel] = _Content(Returned, (channel, code, text, exchange, key))
        elif method == _GET_OK:
            (tag, redelivered), (exchange, key) = _confirm_at(whole, 11), strings(whole, 20, 2, 4)
            count = _long_at(whole, len(whole) - 5)[0]
            self._contents[channel] = _Content(Got, (channel, tag, redelivered & 1 == 1, exchange, key, count))
        elif method == _CANCEL:
            events.append(Cancelled(channel, *strings(whole, 11, 1, 1)))
        elif method in _CLOSES:
            events.append(Method(channel, close(_CLOSES[method], whole)))
        else:
            events.append(Method(channel, command(method, channel, whole)))
