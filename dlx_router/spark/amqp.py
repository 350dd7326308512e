"""A stream read over AMQP 0-9-1: one connection, blocking, made for bulk. No Spark in here.

Beside broker/ the only module that opens a socket to RabbitMQ: Spark's workers need no event loop and no router. A
connection is always closed as it is; giving deliveries back would end it anyhow (RabbitMQ 3.10 refuses basic.nack on
streams). Source: AMQP 0-9-1 §2.2; rabbitmq.com/docs/streams (consuming, x-stream-offset).
"""

import socket
import time
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import dataclass
from hashlib import blake2b
from types import TracebackType
from typing import Any, Final, NamedTuple, Self

from pamqp import commands

from dlx_router.broker.address import Tls
from dlx_router.wire import frames, properties, table
from dlx_router.wire.address import Address

PREFETCH: Final = 1000
AGAIN_S: Final = (0.05, 0.1, 0.2, 0.4, 0.8)
ALL_OF_A_CHUNK: Final = 65_535  # credit: more than a chunk of a stream holds
SAMPLE: Final = 64
_READ_BYTES: Final = 1 << 18
_LARGEST_FRAME: Final = 16 << 20
_OFFSET: Final = b"x-stream-offset"
_Declare: Final = frames.lenient(commands.Queue.Declare)
_Consume: Final = frames.lenient(commands.Basic.Consume)


class StreamError(Exception):
    """The stream cannot be read; says where, why and what the broker said. Never a secret."""


class StreamMissing(StreamError):
    """There is no such stream, or it has gone."""


class Message(NamedTuple):
    """One message of a stream; `header` as in `wire.events`."""

    offset: int
    header: bytes
    body: bytes

    @property
    def digest(self) -> str:
        """What tells this message from another that later has its offset: the stream may be a new one."""
        return blake2b(self.body, digest_size=8).hexdigest()  # headers change their form when a broker is upgraded


@dataclass(frozen=True, slots=True)
class Probe:
    """A stream as it is now. `end` is behind the last message; `first` and `newest` None: it is empty."""

    first: Message | None
    newest: Message | None

    @property
    def begin(self) -> int:
        return self.first.offset if self.first else 0

    @property
    def end(self) -> int:
        return self.newest.offset + 1 if self.newest else 0


class Connection:
    """A connection with channels that read streams. StreamError on any trouble; then it is of no more use."""

    def __init__(self, address: Address, tls: Tls | None = None, *, timeout_s: float = 30.0) -> None:
        """Nodes are tried in their order; `tls` matters where the address says amqps."""
        self._address, self._timeout_s = address, timeout_s
        self._parser = frames.Parser(_LARGEST_FRAME)
        self._events: list[Any] = []
        self._channel = 0
        self._where = ""
        self.cluster = ""  # the name that all nodes of a cluster say
        self._socket = self._connect((tls or Tls()) if address.tls else None)
        try:
            self._negotiate()
        except BaseException:
            self._socket.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Say good-bye, without waiting for long; safe at any time."""
        with suppress(OSError):
            self._socket.sendall(frames.method(0, commands.Connection.Close(200, "bye", 0, 0)))
        self._socket.close()

    # -- what streams have ----------------------------------------------------------------------------------------

    def probe(self, stream: str) -> Probe:
        """First and newest message. StreamMissing where there is none of this name.

        A stream is empty only where it was for some time: taken for one by mistake, it would seem to be made anew, or
        to have nothing to read. A queue of another kind is told by its first message, which goes back unharmed but for
        one delivery.
        """
        first = self.look(stream, "first", 1)
        newest = self.look(stream, "last", ALL_OF_A_CHUNK) if first else []
        return Probe(first[0] if first else None, newest[-1] if newest else None)

    def look(self, stream: str, spec: str | int, credit: int) -> list[Message]:
        """As `peek`, and again for a while where nothing comes: a chunk that was just written may not be shown yet."""
        for pause_s in AGAIN_S:
            if messages := self.peek(stream, spec, credit):
                return messages
            time.sleep(pause_s)
        return self.peek(stream, spec, credit)

    def peek(self, stream: str, spec: str | int, credit: int) -> list[Message]:
        """The messages that are there at once from `spec` on, at most `credit`.

        The broker hands out what it has of a stream while it takes the consumer on, so an answer on the same channel
        that was asked for afterwards comes behind them (rabbit_stream_queue:consume/3).
        """
        channel = self.consume(stream, spec, credit)
        self._send(channel, _passive(stream))
        messages = [_message(event) for event in self._until(commands.Queue.DeclareOk, channel)]
        self._send(channel, commands.Channel.Close(200, "seen", 0, 0))
        for _ in self._until(commands.Channel.CloseOk, channel):
            pass
        return messages

    def read(self, stream: str, start: int, end: int, *, prefetch: int = PREFETCH) -> Iterator[list[Message]]:
        """Every message with start ≤ offset < end, in order, as they come; ends behind the last of them.

        There has to be a message at or behind end − 1. StreamError if nothing comes for the time-out: never less than
        was asked for. The caller checks the first offset: below its retention a stream begins later, and says nothing.
        """
        channel = self.consume(stream, start, prefetch)
        unacked, seen = 0, start - 1
        while seen < end - 1:
            deliveries = [event for event in self._next() if self._delivered(event, channel)]
            if not deliveries:
                continue
            messages = [_message(event) for event in deliveries]
            seen, unacked = messages[-1].offset, unacked + len(messages)
            if unacked * 2 >= prefetch:
                self._socket.sendall(frames.ack(channel, deliveries[-1].tag, multiple=True))
                unacked = 0
            yield [message for message in messages if start <= message.offset < end]

    def consume(self, stream: str, spec: str | int, credit: int) -> int:
        """A consumer on a channel of its own → the channel."""
        self._channel += 1
        channel = self._channel
        self._rpc(channel, commands.Channel.Open(), commands.Channel.OpenOk)
        self._rpc(channel, commands.Basic.Qos(prefetch_count=credit), commands.Basic.QosOk)
        self._rpc(channel, _passive(stream), commands.Queue.DeclareOk)
        start = _Consume(queue=stream, consumer_tag="s", arguments={"x-stream-offset": spec})
        self._rpc(channel, start, commands.Basic.ConsumeOk)
        return channel

    # -- the protocol -----------------------------------------------------------------------------------------------

    def _connect(self, tls: Tls | None) -> socket.socket:
        why = []
        for host, port in self._address.hosts:
            self._where = f"{host}:{port}"
            try:
                plain = socket.create_connection((host, port), self._timeout_s)
                plain.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                plain.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
                return plain if tls is None else _wrapped(plain, tls, host)
            except OSError as error:
                why.append(f"{self._where}: {error}")
        raise StreamError(f"no connection to the broker: {'; '.join(why)}")

    def _negotiate(self) -> None:
        """AMQP 0-9-1 §2.2.4, without heartbeats: a reader that Spark holds up is no dead one, and reads have limits."""
        self._socket.sendall(b"AMQP\x00\x00\x09\x01")
        start = self._await(commands.Connection.Start)
        self.cluster = str((start.server_properties or {}).get("cluster_name", ""))
        client_properties: Any = {
            "product": "dlx-router",
            "connection_name": "dlx-router pipeline",
            "capabilities": {"authentication_failure_close": True, "consumer_cancel_notify": True},
        }
        response = f"\0{self._address.user}\0{self._address.password}"
        self._send(0, commands.Connection.StartOk(client_properties, "PLAIN", response, "en_US"))
        tune = self._await(commands.Connection.Tune)
        self._send(0, commands.Connection.TuneOk(tune.channel_max, tune.frame_max, 0))
        self._rpc(0, commands.Connection.Open(self._address.vhost), commands.Connection.OpenOk)

    def _send(self, channel: int, command: Any) -> None:
        try:
            self._socket.sendall(frames.method(channel, command))
        except OSError as error:
            raise StreamError(f"{self._where}: connection lost: {error}") from error

    def _rpc(self, channel: int, command: Any, answer: type[Any]) -> Any:
        self._send(channel, command)
        return self._await(answer)

    def _await(self, answer: type[Any]) -> Any:
        """The answer; what comes before it stays for later."""
        kept: list[Any] = []
        while True:
            for at, event in enumerate(events := self._next()):
                if event.__class__ is frames.Method and isinstance(event.command, answer):
                    self._events = kept + events[at + 1 :]
                    return event.command
                kept.append(self._checked(event))

    def _until(self, answer: type[Any], channel: int) -> Iterator[Any]:
        """The deliveries of a channel up to the answer."""
        while True:
            for at, event in enumerate(events := self._next()):
                if event.__class__ is frames.Method and isinstance(event.command, answer) and event.channel == channel:
                    self._events = events[at + 1 :]
                    return
                if self._delivered(event, channel):
                    yield event

    def _delivered(self, event: Any, channel: int) -> bool:
        return self._checked(event).__class__ is frames.Delivery and event.channel == channel

    def _checked(self, event: Any) -> Any:
        """The event, unless the broker says by it that it is over."""
        match event:
            case (
                frames.Method(command=commands.Channel.Close(reply_code=404, reply_text=text))
                | frames.Method(command=commands.Connection.Close(reply_code=404, reply_text=text))
            ):
                raise StreamMissing(f"{self._where}: {text}")
            case frames.Method(command=(commands.Channel.Close() | commands.Connection.Close()) as closed):
                raise StreamError(f"{self._where}: the broker closed: {closed.reply_code} {closed.reply_text}")
            case frames.Cancelled():
                raise StreamMissing(f"{self._where}: the stream is gone, or moved to another node, while it was read")
        return event

    def _next(self) -> list[Any]:
        """At least one event, within the time-out."""
        if self._events:
            events, self._events = self._events, []
            return events
        deadline = time.monotonic() + self._timeout_s
        while True:
            self._socket.settimeout(max(deadline - time.monotonic(), 0.001))
            try:
                data = self._socket.recv(_READ_BYTES)
            except TimeoutError:
                raise StreamError(f"{self._where}: nothing came for {self._timeout_s:g} s") from None
            except OSError as error:
                raise StreamError(f"{self._where}: connection lost: {error}") from error
            if not data:
                raise StreamError(f"{self._where}: the broker ended the connection")
            try:
                events = self._parser.feed(data)
            except frames.WireError as error:
                raise StreamError(f"{self._where}: what came is not AMQP: {error}") from error
            if events:
                return events


def _wrapped(plain: socket.socket, tls: Tls, host: str) -> socket.socket:
    try:
        return tls.context().wrap_socket(plain, server_hostname=tls.server_name or host)
    except OSError:
        plain.close()
        raise


def _passive(stream: str) -> Any:
    return _Declare(queue=stream, passive=True, durable=True)


def _message(delivery: frames.Delivery) -> Message:
    headers = properties.parse(delivery.header, properties.PROPERTIES_AT).headers
    place = table.entries(headers).get(_OFFSET)
    if place is None:
        raise StreamError("a delivery without an offset: this queue is not a stream")
    return Message(int(table.decode_value(headers, place[1])), delivery.header, delivery.body)
