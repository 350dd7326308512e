"""One blocking AMQP connection for the benchmark: fills, counts and empties queues at little cost of its own.

It shares no code with the router, so that a fault of the router's own codec cannot hide here.
"""

import socket
import struct
from collections.abc import Callable
from typing import Any, Final, Self
from urllib.parse import unquote, urlsplit

from pamqp import commands, frame

__all__ = ["BenchError", "Wire"]

_CHANNEL: Final = 1
_METHOD, _HEADER, _BODY = 1, 2, 3
_HEAD: Final = struct.Struct(">BHI")
_ACK: Final = struct.Struct(">IQB")
_BASIC_ACK: Final = 60 << 16 | 80
_BASIC_NACK: Final = 60 << 16 | 120
_CHUNK_BYTES: Final = 256 * 1024
_WINDOW: Final = 20_000


class BenchError(Exception):
    """A measurement that cannot be trusted or not be made; the text says why."""


class Wire:
    """A connection with one channel. Every error of the broker is a BenchError with its text."""

    def __init__(self, url: str) -> None:
        """Connected, logged in, channel open; no heartbeats."""
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname or "127.0.0.1", parts.port or 5672), timeout=120)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._rest = b""
        self._confirming = False
        self._stamp = 0
        user, password = unquote(parts.username or "guest"), unquote(parts.password or "guest")
        self._socket.sendall(b"AMQP\0\0\x09\x01")
        self._expect(commands.Connection.Start)
        start = commands.Connection.StartOk(
            client_properties={"product": "dlx-router benchmark"}, mechanism="PLAIN", response=f"\0{user}\0{password}"
        )
        tune = self._ask(start, commands.Connection.Tune, channel=0)
        self._frame_max = int(tune.frame_max)
        self._send(commands.Connection.TuneOk(tune.channel_max, self._frame_max, 0), channel=0)
        self._ask(commands.Connection.Open(unquote(parts.path[1:]) or "/"), commands.Connection.OpenOk, channel=0)
        self._ask(commands.Channel.Open(), commands.Channel.OpenOk)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._socket.close()

    # -- topology ---------------------------------------------------------------------------------------------------

    def exchange(self, name: str, kind: str) -> None:
        """A durable exchange of this kind is there."""
        declare = commands.Exchange.Declare(exchange=name, exchange_type=kind, durable=True)
        self._ask(declare, commands.Exchange.DeclareOk)

    def queue(self, name: str, arguments: dict[str, Any]) -> None:
        """A new, empty, durable queue of this name is there; an earlier one is gone."""
        self.delete(name)
        self._ask(commands.Queue.Declare(queue=name, durable=True, arguments=arguments), commands.Queue.DeclareOk)

    def delete(self, queue: str) -> None:
        """No queue has this name."""
        self._ask(commands.Queue.Delete(queue=queue), commands.Queue.DeleteOk)

    def bind(self, queue: str, exchange: str, key: str) -> None:
        """The binding is there."""
        self._ask(commands.Queue.Bind(queue=queue, exchange=exchange, routing_key=key), commands.Queue.BindOk)

    def depth(self, queue: str) -> tuple[int, int]:
        """Ready messages and consumers of a queue, by a passive declare."""
        answer = self._ask(commands.Queue.Declare(queue=queue, passive=True), commands.Queue.DeclareOk)
        return int(answer.message_count), int(answer.consumer_count)

    def purge(self, queue: str) -> None:
        """Nothing is ready in the queue."""
        self._ask(commands.Queue.Purge(queue=queue), commands.Queue.PurgeOk)

    # -- filling ----------------------------------------------------------------------------------------------------

    def fill(self, exchange: str, key: str, count: int, letter: Callable[[int], tuple[bytes, bytes]]) -> None:
        """`count` messages are published and confirmed; `letter(index)` gives content header and body."""
        if not self._confirming:
            self._ask(commands.Confirm.Select(), commands.Confirm.SelectOk)
            self._confirming = True
        publish = frame.marshal(commands.Basic.Publish(exchange=exchange, routing_key=key), _CHANNEL)
        confirms = _Confirms(self._stamp, count)
        chunk, size = [], 0
        for index in range(count):
            header, body = letter(index)
            chunk += [publish, _frame(_HEADER, header), *self._body(body)]
            size += len(header) + len(body)
            if size >= _CHUNK_BYTES:
                self._socket.sendall(b"".join(chunk))
                chunk, size = [], 0
                while index + 1 - confirms.seen > _WINDOW:
                    confirms.take(self._read())
        self._socket.sendall(b"".join(chunk))
        self._stamp += count
        while confirms.seen < count:
            confirms.take(self._read())

    def _body(self, body: bytes) -> list[bytes]:
        step = self._frame_max - 8
        return [_frame(_BODY, body[at : at + step]) for at in range(0, len(body), step)]

    # -- emptying ---------------------------------------------------------------------------------------------------

    def drain(self, queue: str, count: int, take: Callable[[bytes, bytes], None]) -> None:
        """The next `count` messages leave the queue, each handed over as (content header, body)."""
        self._ask(commands.Basic.Qos(prefetch_count=0), commands.Basic.QosOk)
        self._send(commands.Basic.Consume(queue=queue, no_ack=True, consumer_tag="drain"))
        taken, header, missing = 0, b"", 0
        body: list[bytes] = []
        while taken < count:
            for kind, payload in self._read():
                if kind == _HEADER:
                    header, body, missing = payload, [], int.from_bytes(payload[4:12])
                elif kind == _BODY:
                    missing -= len(payload)
                    body.append(payload)
                else:
                    _refuse_close(payload)
                    continue
                if not missing:
                    take(header, b"".join(body))
                    taken += 1
        self._ask(commands.Basic.Cancel(consumer_tag="drain"), commands.Basic.CancelOk)

    # -- frames -----------------------------------------------------------------------------------------------------

    def _send(self, method: Any, *, channel: int = _CHANNEL) -> None:  # noqa: ANN401 - pamqp's commands share no base
        self._socket.sendall(frame.marshal(method, channel))

    def _ask(self, method: Any, answer: type, *, channel: int = _CHANNEL) -> Any:  # noqa: ANN401 - as _send
        self._send(method, channel=channel)
        return self._expect(answer)

    def _expect(self, answer: type) -> Any:  # noqa: ANN401 - as _send
        while True:
            for kind, payload in self._read():
                if kind == _METHOD and isinstance(method := _decoded(payload), answer):
                    return method
                if kind == _METHOD:
                    _refuse_close(payload)

    def _read(self) -> list[tuple[int, bytes]]:
        """All complete frames of one read, as (type, payload)."""
        try:
            data = self._socket.recv(1 << 20)
        except OSError as error:
            raise BenchError(f"the broker does not answer: {error}") from error
        if not data:
            raise BenchError("the broker closed the connection")
        buffer, at, frames = self._rest + data, 0, []
        end = len(buffer)
        while at + 8 <= end:
            kind, _, size = _HEAD.unpack_from(buffer, at)
            after = at + 8 + size
            if after > end:
                break
            frames.append((kind, buffer[at + 7 : after - 1]))
            at = after
        self._rest = buffer[at:]
        return frames


class _Confirms:
    """Counts each confirmed publish once, single and multiple acks in any order."""

    def __init__(self, before: int, count: int) -> None:
        self._before = before
        self._done = bytearray(count)
        self._low = 0
        self.seen = 0

    def take(self, frames: list[tuple[int, bytes]]) -> None:
        for kind, payload in frames:
            if kind != _METHOD:
                continue
            method, tag, multiple = _ACK.unpack_from(payload.ljust(_ACK.size))
            if method == _BASIC_ACK:
                self._mark(tag - self._before - 1, multiple=bool(multiple))
            elif method == _BASIC_NACK:
                raise BenchError("the broker refused a message while the source was filled")
            else:
                _refuse_close(payload)

    def _mark(self, index: int, *, multiple: bool) -> None:
        first = self._low if multiple else index
        self.seen += index + 1 - first - sum(self._done[first : index + 1])
        self._done[first : index + 1] = b"\1" * (index + 1 - first)
        self._low = index + 1 if multiple else self._low


def _frame(kind: int, payload: bytes) -> bytes:
    return b"%b%b\xce" % (_HEAD.pack(kind, _CHANNEL, len(payload)), payload)


def _decoded(payload: bytes) -> Any:  # noqa: ANN401 - pamqp's commands share no base
    return frame.unmarshal(_frame(_METHOD, payload))[2]


def _refuse_close(payload: bytes) -> None:
    method = _decoded(payload)
    if isinstance(method, commands.Channel.Close | commands.Connection.Close):
        raise BenchError(f"the broker closed the channel or the connection: {method.reply_code} {method.reply_text}")
    if isinstance(method, commands.Basic.Cancel):
        raise BenchError("the broker cancelled the benchmark's consumer")
