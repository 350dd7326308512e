"""The property section of a content header: read once, changed where we must, otherwise the bytes that came.

Layout (AMQP 0-9-1 §4.2.6.1): 16 flags, highest bit first, then the values whose flag is set, in flag order. No change
touches a neighbour: short strings and integers have only one encoding, and the header table is never decoded here.
"""
# ruff: noqa: SLF001, PLR2004 - parse and build fill in what Properties keeps; 255 is AMQP's longest short string

from enum import Enum
from struct import Struct
from struct import error as StructError  # noqa: N812 - a class with a small name
from typing import Final, Literal

from dlx_router.wire.errors import WireError


class _Keep(Enum):
    KEEP = "keep"


KEEP: Final = _Keep.KEEP
_Kept = Literal[_Keep.KEEP]
PROPERTIES_AT: Final = 12  # in a header frame's payload, behind class, weight and body size

_HEADERS, _DELIVERY_MODE, _PRIORITY = 0x2000, 0x1000, 0x0800
_EXPIRATION, _TIMESTAMP, _USER_ID = 0x0100, 0x0040, 0x0010
_LATE: Final = 0x07FC  # what follows priority
_RESERVED: Final = 0x0003  # a continuation of the flags, and a bit without a meaning: RabbitMQ refuses both
_LATE_NAMES: Final = (
    (0x0400, "correlation_id"),
    (0x0200, "reply_to"),
    (0x0100, "expiration"),
    (0x0080, "message_id"),
    (0x0040, "timestamp"),
    (0x0020, "type"),
    (0x0010, "user_id"),
    (0x0008, "app_id"),
    (0x0004, "cluster_id"),
)
_LAYOUT: Final = (
    (0x8000, "content_type"),
    (0x4000, "content_encoding"),
    (_HEADERS, "headers"),
    (_DELIVERY_MODE, "delivery_mode"),
    (_PRIORITY, "priority"),
    *_LATE_NAMES,
)
_FIXED: Final = {_DELIVERY_MODE: 1, _PRIORITY: 1, _TIMESTAMP: 8}
_OCTETS: Final = tuple(bytes((number,)) for number in range(256))

_flags_at: Final = Struct(">H").unpack_from
_pack_flags: Final = Struct(">H").pack
_long_at: Final = Struct(">I").unpack_from
_pack_long: Final = Struct(">I").pack
_time_at: Final = Struct(">Q").unpack_from
_pack_time: Final = Struct(">Q").pack


class Properties:
    """The fourteen properties; None where the flag is not set, but `headers` is then b"".

    Strings are the bytes without their length, `headers` the table without its length, `timestamp` whole seconds.
    """

    __slots__ = (
        "_head",
        "_late",
        "app_id",
        "cluster_id",
        "content_encoding",
        "content_type",
        "correlation_id",
        "delivery_mode",
        "expiration",
        "flags",
        "headers",
        "message_id",
        "priority",
        "reply_to",
        "timestamp",
        "type",
        "user_id",
    )
    flags: int
    content_type: bytes | None
    content_encoding: bytes | None
    headers: bytes
    delivery_mode: int | None
    priority: int | None
    correlation_id: bytes | None
    reply_to: bytes | None
    expiration: bytes | None
    message_id: bytes | None
    timestamp: int | None
    type: bytes | None
    user_id: bytes | None
    app_id: bytes | None
    cluster_id: bytes | None
    _head: bytes  # content-type and content-encoding as they came
    _late: bytes  # everything behind priority as it came

    def replaced(
        self,
        *,
        headers: bytes | _Kept = KEEP,
        delivery_mode: int | _Kept | None = KEEP,
        priority: int | _Kept | None = KEEP,
        expiration: bytes | _Kept | None = KEEP,
        user_id: bytes | _Kept | None = KEEP,
    ) -> bytes:
        """The section, flags first, with these properties changed; None, and b"" for `headers`, take one off."""
        flags, late, octets = self.flags, self._late, b""
        if headers is KEEP:
            headers = self.headers
        else:
            flags = flags | _HEADERS if headers else flags & ~_HEADERS
        mode = self.delivery_mode if delivery_mode is KEEP else delivery_mode
        if mode is None:
            flags &= ~_DELIVERY_MODE
        else:
            flags |= _DELIVERY_MODE
            octets = _OCTETS[mode]
        urgency = self.priority if priority is KEEP else priority
        if urgency is None:
            flags &= ~_PRIORITY
        else:
            flags |= _PRIORITY
            octets += _OCTETS[urgency]
        if (expiration is not KEEP and expiration != self.expiration) or (
            user_id is not KEEP and user_id != self.user_id
        ):
            flags, late = self._late_with(flags, expiration, user_id)
        if flags & _HEADERS:
            return b"".join((_pack_flags(flags), self._head, _pack_long(len(headers)), headers, octets, late))
        return b"".join((_pack_flags(flags), self._head, octets, late))

    def without(self, name: str, *, headers: bytes | None = None) -> bytes:
        """The section as it came, but for this property behind priority ("": none), and with these headers."""
        values = {key: None if key == name else getattr(self, key) for _, key in _LATE_NAMES}
        plain = Properties()
        plain.flags, plain._late = _encoded_late(self.flags & ~_LATE, values)
        plain._head = self._head
        kept = self.headers if headers is None else headers
        return plain.replaced(headers=kept, delivery_mode=self.delivery_mode, priority=self.priority)

    def bare(self) -> bytes:
        """The section as it came, but for the headers: flags and all other values, for a digest."""
        mode = b"" if self.delivery_mode is None else _OCTETS[self.delivery_mode]
        urgency = b"" if self.priority is None else _OCTETS[self.priority]
        return b"".join((_pack_flags(self.flags & ~_HEADERS), self._head, mode, urgency, self._late))

    def _late_with(
        self, flags: int, expiration: bytes | _Kept | None, user_id: bytes | _Kept | None
    ) -> tuple[int, bytes]:
        values = {name: getattr(self, name) for _, name in _LATE_NAMES}
        if expiration is not KEEP:
            values["expiration"] = expiration
        if user_id is not KEEP:
            values["user_id"] = user_id
        return _encoded_late(flags & ~_LATE, values)


def parse(payload: bytes, at: int) -> Properties:  # noqa: C901, PLR0912, PLR0915 - measured, as it says
    """The properties from `at` (their flags) to the end of a header frame's payload.

    Everything is bounded here, so no access fails later. Raises WireError on reserved flags, on values that are cut
    and on bytes left over. One straight function, because it runs for every letter, and a loop over the properties
    is slower.
    """
    properties = Properties()
    kind = encoding = correlation = reply = expiration = message = role = user = app = cluster = None
    mode = priority = seconds = None
    headers = b""
    try:
        flags = properties.flags = _flags_at(payload, at)[0]
        head = at = at + 2
        if flags & 0x8000:
            stop = at + 1 + payload[at]
            kind = payload[at + 1 : stop]
            at = stop
        if flags & 0x4000:
            stop = at + 1 + payload[at]
            encoding = payload[at + 1 : stop]
            at = stop
        properties._head = payload[head:at]
        if flags & _HEADERS:
            stop = at + 4 + _long_at(payload, at)[0]
            headers = payload[at + 4 : stop]
            at = stop
        if flags & _DELIVERY_MODE:
            mode = payload[at]
            at += 1
        if flags & _PRIORITY:
            priority = payload[at]
            at += 1
        properties._late = payload[at:]
        if flags & 0x0700:
            if flags & 0x0400:
                stop = at + 1 + payload[at]
                correlation = payload[at + 1 : stop]
                at = stop
            if flags & 0x0200:
                stop = at + 1 + payload[at]
                reply = payload[at + 1 : stop]
                at = stop
            if flags & _EXPIRATION:
                stop = at + 1 + payload[at]
                expiration = payload[at + 1 : stop]
                at = stop
        if flags & 0x0080:
            stop = at + 1 + payload[at]
            message = payload[at + 1 : stop]
            at = stop
        if flags & _TIMESTAMP:
            seconds = _time_at(payload, at)[0]
            at += 8
        if flags & 0x003F:
            if flags & 0x0020:
                stop = at + 1 + payload[at]
                role = payload[at + 1 : stop]
                at = stop
            if flags & _USER_ID:
                stop = at + 1 + payload[at]
                user = payload[at + 1 : stop]
                at = stop
            if flags & 0x0008:
                stop = at + 1 + payload[at]
                app = payload[at + 1 : stop]
                at = stop
            if flags & 0x0004:
                stop = at + 1 + payload[at]
                cluster = payload[at + 1 : stop]
                at = stop
            if flags & _RESERVED:
                raise WireError(f"content header: property flags 0x{flags:04x} set a bit that AMQP reserves")
    except (IndexError, StructError):
        raise WireError("content header: a property goes beyond the end of the frame") from None
    if at != len(payload):
        raise WireError("content header: the properties do not fill the frame")
    properties.content_type, properties.content_encoding, properties.headers = kind, encoding, headers
    properties.delivery_mode, properties.priority, properties.correlation_id = mode, priority, correlation
    properties.reply_to, properties.expiration, properties.message_id = reply, expiration, message
    properties.timestamp, properties.type, properties.user_id = seconds, role, user
    properties.app_id, properties.cluster_id = app, cluster
    return properties


def spans(payload: bytes, at: int) -> dict[str, tuple[int, int]]:
    """Where each property lies that is set, its length included; for a payload that `parse` takes, and as it says."""
    flags, places = _flags_at(payload, at)[0], {}
    at += 2
    for bit, name in _LAYOUT:
        if not flags & bit:
            continue
        stop = at + 1 + payload[at]
        if bit == _HEADERS:
            stop = at + 4 + _long_at(payload, at)[0]
        elif bit in _FIXED:
            stop = at + _FIXED[bit]
        places[name] = at, stop
        at = stop
    return places


def build(  # noqa: PLR0913 - AMQP has fourteen properties
    *,
    headers: bytes = b"",
    content_type: bytes | None = None,
    content_encoding: bytes | None = None,
    delivery_mode: int | None = None,
    priority: int | None = None,
    correlation_id: bytes | None = None,
    reply_to: bytes | None = None,
    expiration: bytes | None = None,
    message_id: bytes | None = None,
    timestamp: int | None = None,
    type: bytes | None = None,  # noqa: A002 - AMQP's name
    user_id: bytes | None = None,
    app_id: bytes | None = None,
    cluster_id: bytes | None = None,
) -> bytes:
    """The section, flags first, of a message of our own. ValueError where a string is over 255 bytes."""
    flags, head = 0, b""
    for bit, value in ((0x8000, content_type), (0x4000, content_encoding)):
        if value is not None:
            flags |= bit
            head += _short_string(value)
    flags, late = _encoded_late(
        flags,
        {
            "correlation_id": correlation_id,
            "reply_to": reply_to,
            "expiration": expiration,
            "message_id": message_id,
            "timestamp": timestamp,
            "type": type,
            "user_id": user_id,
            "app_id": app_id,
            "cluster_id": cluster_id,
        },
    )
    plain = Properties()
    plain.flags, plain._head, plain._late = flags, head, late
    return plain.replaced(headers=headers, delivery_mode=delivery_mode, priority=priority)


def _encoded_late(flags: int, values: dict[str, bytes | int | None]) -> tuple[int, bytes]:
    parts = []
    for bit, name in _LATE_NAMES:
        value = values[name]
        if value is not None:
            flags |= bit
            parts.append(_pack_time(value) if isinstance(value, int) else _short_string(value))
    return flags, b"".join(parts)


def _short_string(value: bytes) -> bytes:
    if len(value) > 255:
        raise ValueError(f"a property of {len(value)} bytes; AMQP allows 255")
    return _OCTETS[len(value)] + value
