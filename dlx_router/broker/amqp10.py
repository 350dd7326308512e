"""One AMQP 1.0 connection to RabbitMQ 4.x: as much of it as takes a message from one queue and puts it into another.

One AMQP session for each queue: what the broker refuses of one ends the session, and the others go on. Nothing runs in
the background: whoever waits reads, until what it waits for has come or its time is over. Source: AMQP 1.0 parts 2, 5.
"""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.answers import LinkError
from dlx_router.wire.amqp10 import (
    FALSE,
    NULL,
    TRUE,
    Amqp10Error,
    Value,
    composite,
    decode,
    encode,
    field,
    fields,
    string,
    symbol,
    uint,
)

NATIVE_SINCE: Final = (4, 0)
FRAME_MAX: Final = 131_072
MAX_MESSAGE: Final = 512 << 20  # RabbitMQ takes no larger one
WINDOW: Final = 1 << 30  # frames; credit is what bounds deliveries
CHANNELS: Final = 32  # RabbitMQ allows 64 sessions of a connection
BEAT_S: Final = 5.0
FRAME_ROOM: Final = 512  # of a frame: what a transfer says besides its piece of the message
_OPEN, _BEGIN, _ATTACH, _FLOW, _TRANSFER, _DISPOSITION, _DETACH, _END, _CLOSE = range(0x10, 0x19)
_ACCEPTED, _RELEASED = 0x24, 0x26
_SOURCE, _TARGET = 0x28, 0x29
_MECHANISMS, _INIT, _OUTCOME = 0x40, 0x41, 0x44
_AMQP, _SASL = 0, 1
_HEADER: Final = 8  # bytes of a frame's
_HELLO, _HELLO_SASL = b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"


class NotNative(LinkError):
    """The broker has AMQP 1.0 by a plugin at most, and nothing that it keeps is of AMQP 1.0."""


class Channel:
    """One session with one link, to or from one queue. `refused`: why the broker ended it."""

    def __init__(self, number: int, queue: str, on_message: "OnMessage | None" = None) -> None:
        """`on_message`: of one that receives."""
        self.number, self.queue, self.on_message = number, queue, on_message
        self.attached = False
        self.refused = ""
        self.next_in = 0  # transfers of the broker
        self.next_out = 0  # transfers of ours
        self.window = 0  # transfers that the broker takes
        self.credit = 0
        self.delivery_count = 0
        self.awaited = -1  # the delivery of ours whose outcome is waited for
        self.outcome: tuple[int, Any] | None = None  # of that one
        self.message = bytearray()  # that is coming
        self.delivery = 0

    def begin(self) -> int:
        """Another message is to be sent; → its number."""
        self.outcome, self.awaited = None, self.next_out
        self.credit -= 1
        self.delivery_count += 1
        return self.awaited

    def settled(self, first: int, last: int, state: Value) -> None:
        """The outcome of these deliveries of ours; a late one says nothing of the delivery that is waited for."""
        if first <= self.awaited <= last:
            self.outcome = fields(state) if state.type == "described" else (0, ())

    def why(self, otherwise: str) -> str:
        """Why nothing more is done here."""
        return self.refused or otherwise


OnMessage = Callable[[Channel, int, bytes], None]


class Connection:
    """An open connection. `connected` makes it; LinkError says what ended it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, where: str) -> None:
        self._reader, self._writer, self._where = reader, writer, where
        self._bytes = bytearray()
        self._frame_max = 512  # until the broker has said more
        self._channels: dict[int, Channel] = {}  # by our number
        self._theirs: dict[int, Channel] = {}  # by the broker's
        self._frames: deque[tuple[int, Value, bytes]] = deque()
        self._spoke_s = time.monotonic()
        self._beat_s = BEAT_S
        self._is_closed = False
        self.version: tuple[int, ...] = ()  # of the broker

    # -- queues -------------------------------------------------------------------------------------------------

    async def receiver(self, number: int, queue: str, on_message: OnMessage) -> Channel:
        """Be ready to take from the queue; nothing comes before `allow`. Look at `refused`. LinkError."""
        address = composite(_SOURCE, string(_address(queue)))
        channel = Channel(number, queue, on_message)
        return await self._attached(channel, source=address, target=composite(_TARGET))

    async def sender(self, number: int, queue: str) -> Channel:
        """Be ready to send to the queue. Look at `refused`. LinkError."""
        address = composite(_TARGET, string(_address(queue)))
        return await self._attached(Channel(number, queue), source=composite(_SOURCE), target=address)

    async def _attached(self, channel: Channel, *, source: Value, target: Value) -> Channel:
        number, queue = channel.number, channel.queue
        self._channels[number] = channel
        self._perform(number, _BEGIN, NULL, uint(0), uint(WINDOW), uint(WINDOW), uint(0))
        role, first = (FALSE, uint(0)) if channel.on_message is None else (TRUE, NULL)
        name = string(f"dlx-router-{number}")
        self._perform(number, _ATTACH, name, uint(0), role, NULL, NULL, source, target, NULL, NULL, first)
        await self.until(lambda: channel.attached or bool(channel.refused), within=10.0)
        if not (channel.attached or channel.refused):
            raise LinkError(f"{self._where}: no answer about queue {queue!r} in time")
        return channel

    def allow(self, channel: Channel, messages: int) -> None:
        """Let so many more come."""
        channel.credit += messages
        self._flow(channel, credit=channel.credit)

    def accept(self, channel: Channel, delivery: int) -> None:
        """The broker may forget it."""
        self._dispose(channel, delivery, delivery, _ACCEPTED)

    def release(self, channel: Channel, first: int, last: int) -> None:
        """Back to their places; no failed delivery from RabbitMQ 4.3 on."""
        self._dispose(channel, first, last, _RELEASED)

    async def send(self, channel: Channel, message: bytes, within: float = 15.0) -> str:
        """Send it and wait; → why the broker did not take it, "" where it has. LinkError."""
        end = time.monotonic() + within
        await self.until(lambda: channel.credit > 0 or bool(channel.refused), within=within)
        if channel.credit <= 0:
            return channel.why("it gives no credit")
        delivery, size = channel.begin(), self._frame_max - FRAME_ROOM
        for at in range(0, len(message), size):
            await self.until(lambda: channel.window > 0 or bool(channel.refused), within=end - time.monotonic())
            if channel.window <= 0:
                return channel.why("it reads nothing more")
            more = TRUE if at + size < len(message) else FALSE
            self._transfer(channel, delivery, message[at : at + size], more)
        await self.until(lambda: bool(channel.outcome or channel.refused), within=end - time.monotonic())
        if channel.outcome is None:
            return channel.why("it did not answer in time")
        code, values = channel.outcome
        return "" if code == _ACCEPTED else f"outcome 0x{code:02x} {_text(values)}".rstrip()

    def _transfer(self, channel: Channel, delivery: int, piece: bytes, more: Value) -> None:
        tag = Value("binary", struct.pack("!I", delivery))
        self._perform(channel.number, _TRANSFER, uint(0), uint(delivery), tag, uint(0), FALSE, more, payload=piece)
        channel.window -= 1
        channel.next_out += 1

    # -- the socket ---------------------------------------------------------------------------------------------

    async def until(self, is_done: Callable[[], bool], *, within: float) -> bool:
        """Read until it is so, or the time is over; → whether it is. LinkError where the connection ends."""
        end = time.monotonic() + within
        while not is_done():
            while self._frames and not is_done():
                self._handle(*self._frames.popleft())
            if is_done():
                break
            left = end - time.monotonic()
            if left <= 0:
                return False
            await self._read(min(left, self._beat_s))
        return True

    async def _read(self, within: float) -> None:
        """More bytes, for so long at most; the broker ends who is silent for longer than it said."""
        if time.monotonic() - self._spoke_s >= self._beat_s:
            self._send(struct.pack("!IBBH", 8, 2, _AMQP, 0))
        try:
            async with asyncio.timeout(within):
                await self._writer.drain()
                data = await self._reader.read(65_536)
        except TimeoutError:
            return
        except OSError as error:
            raise LinkError(f"{self._where}: connection lost ({error})") from error
        if not data:
            raise LinkError(f"{self._where}: the broker closed the connection")
        self._bytes += data
        try:
            self._parse()
        except Amqp10Error as error:
            raise LinkError(f"{self._where}: the broker's bytes are not AMQP 1.0: {error}") from error

    def _parse(self) -> None:
        while len(self._bytes) >= _HEADER:
            size, start, _kind, channel = struct.unpack_from("!IBBH", self._bytes)
            if not _HEADER <= start * 4 <= size <= FRAME_MAX:
                raise Amqp10Error(f"a frame of {size} bytes")
            if len(self._bytes) < size:
                return
            frame = bytes(self._bytes[start * 4 : size])
            del self._bytes[:size]
            if frame:
                performative, end = decode(frame)
                self._frames.append((channel, performative, frame[end:]))

    def _send(self, data: bytes) -> None:
        self._spoke_s = time.monotonic()
        self._writer.write(data)

    def _perform(self, channel: int, code: int, *given: Value, kind: int = _AMQP, payload: bytes = b"") -> None:
        body = encode(composite(code, *given)) + payload
        self._send(struct.pack("!IBBH", 8 + len(body), 2, kind, channel) + body)

    # -- handshake ----------------------------------------------------------------------------------------------

    async def negotiate(self, login: Login) -> None:
        """SASL PLAIN, then open in the vhost. LinkError."""
        self._send(_HELLO_SASL)
        await self._greeted(_HELLO_SASL)
        _code, values = await self._next(_MECHANISMS)
        if not values or b"PLAIN" not in encode(values[0]):
            raise LinkError(f"{self._where}: the broker does not offer PLAIN")
        response = Value("binary", f"\0{login.user}\0{login.password}".encode())
        self._perform(0, _INIT, symbol("PLAIN"), response, kind=_SASL)
        _code, values = await self._next(_OUTCOME)
        if field(values, 0) != 0:
            raise LinkError(f"{self._where}: the broker refused the login over AMQP 1.0")
        self._send(_HELLO)
        await self._greeted(_HELLO)
        name, host = string("dlx-router amqp10"), string(f"vhost:{login.vhost}")
        self._perform(0, _OPEN, name, host, uint(FRAME_MAX), Value("ushort", CHANNELS))
        _code, values = await self._next(_OPEN)
        self._frame_max = min(FRAME_MAX, field(values, 2) or FRAME_MAX)
        self.version = _version(values[9]) if len(values) > 9 else ()  # noqa: PLR2004 - the place of its properties
        if self.version < NATIVE_SINCE:
            raise NotNative(f"{self._where}: a plugin speaks AMQP 1.0 here")
        if idle_ms := field(values, 4):
            self._beat_s = min(BEAT_S, idle_ms / 2000)

    async def _greeted(self, hello: bytes) -> None:
        try:
            answer = await self._reader.readexactly(8)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise LinkError(f"{self._where}: the broker does not speak AMQP 1.0 ({error})") from error
        if answer != hello:
            raise NotNative(f"{self._where}: the broker does not speak AMQP 1.0, it answers {answer!r}")

    async def _next(self, code: int) -> tuple[int, tuple[Any, ...]]:
        """The next performative, which must be this one."""
        while not self._frames:
            await self._read(self._beat_s)
        _channel, performative, _payload = self._frames.popleft()
        received, values = fields(performative)
        if received != code:
            raise LinkError(f"{self._where}: {_text(values) or f'performative 0x{received:02x}'}")
        return received, values

    async def close(self, within: float = 3.0) -> None:
        """Say that it is over, so that what was settled before has been read, and hang up."""
        try:
            if not self._is_closed:
                self._perform(0, _CLOSE)
                await self.until(lambda: self._is_closed, within=within)
        except (LinkError, OSError):
            pass
        self._writer.close()

    # -- what the broker says -----------------------------------------------------------------------------------

    def _handle(self, number: int, performative: Value, payload: bytes) -> None:
        try:
            self._obey(number, *fields(performative), payload)
        except (Amqp10Error, TypeError) as error:  # a field of another type than the protocol says
            raise LinkError(f"{self._where}: the broker's bytes are not AMQP 1.0: {error}") from error

    def _obey(self, number: int, code: int, values: tuple[Any, ...], payload: bytes) -> None:
        if code == _CLOSE:
            self._is_closed = True
            if values:
                raise LinkError(f"{self._where}: the broker closed the connection: {_text(values)}")
            return
        if code == _BEGIN and field(values, 0) in self._channels:
            begun = self._theirs[number] = self._channels[field(values, 0)]
            begun.next_in, begun.window = field(values, 1) or 0, field(values, 2) or 0
            return
        channel = self._theirs.get(number)
        if channel is not None:
            self._heard(channel, code, values, payload)

    def _heard(self, channel: Channel, code: int, values: tuple[Any, ...], payload: bytes) -> None:
        match code:
            case 0x12:
                channel.attached = True
                channel.delivery_count = field(values, 9) or 0
            case 0x13:
                self._flowed(channel, values)
            case 0x14:
                self._transferred(channel, values, payload)
            case 0x15 if field(values, 0):  # of what we sent
                first, last = field(values, 1), field(values, 2)
                state = values[4] if len(values) > 4 else NULL  # noqa: PLR2004 - its place
                channel.settled(first, first if last is None else last, state)
            case 0x16 | 0x17:
                at = 2 if code == _DETACH else 0
                channel.refused = _text(values[at : at + 1]) or "the broker ended it"

    @staticmethod
    def _flowed(channel: Channel, values: tuple[Any, ...]) -> None:
        channel.window = (field(values, 0) or 0) + (field(values, 1) or 0) - channel.next_out
        if field(values, 4) is not None and channel.on_message is None:
            channel.credit = (field(values, 5) or 0) + (field(values, 6) or 0) - channel.delivery_count

    def _transferred(self, channel: Channel, values: tuple[Any, ...], payload: bytes) -> None:
        channel.next_in += 1
        if field(values, 1) is not None:
            channel.delivery = field(values, 1)
        channel.message += payload
        if len(channel.message) > MAX_MESSAGE:
            raise LinkError(f"{self._where}: a message of queue {channel.queue!r} is over {MAX_MESSAGE} bytes")
        if field(values, 5) is True:
            return
        message, channel.message = bytes(channel.message), bytearray()
        channel.delivery_count += 1
        channel.credit -= 1
        if channel.on_message is not None:
            channel.on_message(channel, channel.delivery, message)

    def _flow(self, channel: Channel, *, credit: int) -> None:
        window = uint(channel.next_in % (1 << 32)), uint(WINDOW), uint(channel.next_out), uint(WINDOW)
        count = uint(channel.delivery_count % (1 << 32))
        self._perform(channel.number, _FLOW, *window, uint(0), count, uint(credit))

    def _dispose(self, channel: Channel, first: int, last: int, state: int) -> None:
        self._perform(channel.number, _DISPOSITION, TRUE, uint(first), uint(last), TRUE, composite(state))


def _version(properties: Value) -> tuple[int, ...]:
    """Major and minor, of what the broker says about itself; () where it does not say."""
    entries = {key.of: value.of for key, value in properties.of} if properties.type == "map" else {}
    numbers = bytes(entries.get(b"version", b"")).split(b".")[:2]
    return tuple(int(number) for number in numbers) if all(number.isdigit() for number in numbers) else ()


def _address(queue: str) -> str:
    """As RabbitMQ 4 names a queue: no other one is meant, whatever its name holds."""
    return f"/queues/{quote(queue, safe='', errors='surrogateescape')}"


def _text(values: tuple[Any, ...]) -> str:
    """The broker's own words out of an error; "" where there are none."""
    for value in values:
        if isinstance(value, Value) and value.type == "described":
            _code, inside = value.of[0], value.of[1]
            if inside.type == "list" and inside.of:
                words = [part.of for part in inside.of[:2] if isinstance(part.of, bytes)]
                return ": ".join(word.decode(errors="replace") for word in words)[:500]
    return ""


async def connected(host: Host, login: Login, *, tls: Tls | None, within: float = 10.0) -> Connection:
    """A connection that is open, or LinkError that says what failed."""
    where = f"AMQP 1.0 at {host.name}:{host.port}"
    try:
        async with asyncio.timeout(within):
            context = tls.context() if tls else None
            server_name = (tls.server_name or host.name) if tls else None
            streams = await asyncio.open_connection(host.name, host.port, ssl=context, server_hostname=server_name)
            connection = Connection(*streams, where)
            try:
                await connection.negotiate(login)
            except BaseException:
                streams[1].close()
                raise
            return connection
    except TimeoutError:
        raise LinkError(f"{where}: no answer within {within:g} s") from None
    except OSError as error:
        raise LinkError(f"{where}: cannot connect: {error}") from error
    except Amqp10Error as error:
        raise LinkError(f"{where}: the broker's bytes are not AMQP 1.0: {error}") from error
