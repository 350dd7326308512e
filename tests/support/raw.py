"""One blocking AMQP connection that shows the bytes: a header table as it is on the wire, untouched by any library."""

import socket
import struct
from dataclasses import dataclass
from types import TracebackType
from typing import Final, Self, TypeVar
from urllib.parse import unquote, urlsplit

from pamqp import commands, frame
from pamqp.base import Frame

_CHANNEL: Final = 1
_BASIC: Final = 60
_HEADER: Final = 2
_END: Final = b"\xce"

M = TypeVar("M", bound=Frame)


@dataclass(frozen=True)
class RawMessage:
    """`content_header` is the payload of the header frame: class, weight, body size, flags, properties."""

    method: commands.Basic.GetOk
    content_header: bytes
    body: bytes

    @property
    def properties(self) -> bytes:
        """Flags and property list, as `RawClient.publish` takes them."""
        return self.content_header[12:]

    @property
    def headers(self) -> bytes:
        """The headers table without its length; empty where there is none."""
        flags, rest = struct.unpack(">H", self.properties[:2])[0], self.properties[2:]
        for bit in (15, 14):  # content-type and content-encoding come first, both short strings
            if flags & 1 << bit:
                rest = rest[1 + rest[0] :]
        size = struct.unpack(">I", rest[:4])[0] if flags & 1 << 13 else 0
        return rest[4 : 4 + size]


_SIZES: Final = {**dict.fromkeys("tbB", 1), "s": 2, "u": 2, **dict.fromkeys("Iif", 4), "D": 5, "V": 0}


def fields(table: bytes) -> dict[str, bytes]:
    """Name → type and value as on the wire, of a table without its length."""
    members, at = {}, 0
    while at < len(table):
        value = at + 1 + table[at]
        tag = chr(table[value])
        counted = 4 + struct.unpack_from(">I", table, value + 1)[0] if tag in "SxAF" else _SIZES.get(tag, 8)
        members[table[at + 1 : value].decode()] = table[value : value + 1 + counted]
        at = value + 1 + counted
    return members


class RawClient:
    """One channel in confirm mode; every wait is at most 10 s."""

    def __init__(self, url: str) -> None:
        """`url`: amqp, with the vhost as its path."""
        parts = urlsplit(url)
        vhost = unquote(parts.path[1:]) or "/"
        self._socket = socket.create_connection((parts.hostname or "localhost", parts.port or 5672), timeout=10)
        self._buffer = b""
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        self._expect(commands.Connection.Start)
        response = f"\0{parts.username or 'guest'}\0{parts.password or 'guest'}"
        self._send(commands.Connection.StartOk({}, "PLAIN", response, "en_US"), channel=0)
        tune = self._expect(commands.Connection.Tune)
        self._send(commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0), channel=0)
        self._send(commands.Connection.Open(vhost), channel=0)
        self._expect(commands.Connection.OpenOk)
        self._send(commands.Channel.Open())
        self._expect(commands.Channel.OpenOk)
        self._send(commands.Confirm.Select())
        self._expect(commands.Confirm.SelectOk)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """No farewell: the broker gives back what was not acknowledged."""
        self._socket.close()

    def publish(self, body: bytes, properties: bytes, *, key: str, exchange: str = "") -> None:
        """Confirmed. `properties`: flags and property list, byte for byte."""
        self._send(commands.Basic.Publish(exchange=exchange, routing_key=key))
        head = struct.pack(">HHQ", _BASIC, 0, len(body)) + properties
        parts = [_framed(_HEADER, head)] + ([_framed(3, body)] if body else [])
        self._socket.sendall(b"".join(parts))
        self._expect(commands.Basic.Ack)

    def fail(self, queue: str) -> RawMessage | None:
        """The next message, rejected; None if the queue is empty now."""
        message = self.get(queue, no_ack=False)
        if message is not None:
            self._send(commands.Basic.Reject(message.method.delivery_tag, requeue=False))
        return message

    def get(self, queue: str, *, no_ack: bool = True) -> RawMessage | None:
        """The next message, acknowledged; None if the queue is empty now."""
        self._send(commands.Basic.Get(queue=queue, no_ack=no_ack))
        _, _, payload = self._read()
        method = _method(payload)
        if not isinstance(method, commands.Basic.GetOk):
            return None
        _, _, head = self._read()
        (size,), body = struct.unpack(">Q", head[4:12]), b""
        while len(body) < size:
            body += self._read()[2]
        return RawMessage(method, head, body)

    def _send(self, method: Frame, channel: int = _CHANNEL) -> None:
        self._socket.sendall(frame.marshal(method, channel))

    def _expect(self, kind: type[M]) -> M:
        _, _, payload = self._read()
        method = _method(payload)
        assert isinstance(method, kind), f"wanted {kind.__name__}, got {method!r}"
        return method

    def _read(self) -> tuple[int, int, bytes]:
        kind, channel, size = struct.unpack(">BHI", self._take(7))
        payload = self._take(size)
        assert self._take(1) == _END
        return kind, channel, payload

    def _take(self, size: int) -> bytes:
        while len(self._buffer) < size:
            more = self._socket.recv(65536)
            assert more, "the broker closed the connection"
            self._buffer += more
        taken, self._buffer = self._buffer[:size], self._buffer[size:]
        return taken


def _method(payload: bytes) -> object:
    _, _, method = frame.unmarshal(_framed(1, payload))
    return method


def _framed(kind: int, payload: bytes) -> bytes:
    return struct.pack(">BHI", kind, _CHANNEL, len(payload)) + payload + _END
