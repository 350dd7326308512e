"""AMQP 1.0 to RabbitMQ 4.x: find messages that no AMQP 0-9-1 client can be given, and move them out of the way.

One AMQP session for each queue: what the broker refuses of one ends the session, and the others go on. Nothing runs in
the background: what waits reads, until it has come or its time is over. A culprit is accepted only after the other
queue has confirmed its copy, and all else goes back to its place: a message is at worst there twice. Source: AMQP 1.0
parts 2, 5.
"""

import asyncio
import struct
import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple
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
    kept,
    objection,
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
QUIET_S: Final = 1.0  # another router that just lost the culprit gives it back within this
FOUND_QUIET_S: Final = 0.2
LONGEST_S: Final = 20.0
IN_VAIN_S: Final = 5.0  # nothing is consumed meanwhile, and where messages keep coming it is never quiet
MOST_BYTES: Final = 64 << 20  # of what is looked at and put back
CHUNK: Final = 64
ADVICE: Final = "read it with an AMQP 1.0 client"
_OPEN, _BEGIN, _ATTACH, _FLOW, _TRANSFER, _DISPOSITION, _DETACH, _END, _CLOSE = range(0x10, 0x19)
_ACCEPTED, _RELEASED = 0x24, 0x26
_SOURCE, _TARGET = 0x28, 0x29
_MECHANISMS, _INIT, _OUTCOME = 0x40, 0x41, 0x44
_AMQP, _SASL = 0, 1
_HEADER: Final = 8  # bytes of a frame's
_HELLO, _HELLO_SASL = b"AMQP\x00\x01\x00\x00", b"AMQP\x03\x01\x00\x00"
_ABOUT, _STATE = 9, 4  # places of the broker's properties in its open, of the state in a disposition


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
        """Another message is to be sent; return its number."""
        self.outcome, self.awaited = None, self.next_out
        self.credit -= 1
        self.delivery_count += 1
        return self.awaited

    def settled(self, first: int, last: int, state: Value) -> None:
        """Note the outcome of these deliveries of ours; a late one says nothing of the delivery that is awaited."""
        if first <= self.awaited <= last:
            self.outcome = fields(state) if state.type == "described" else (0, ())


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
        return await self._attached(Channel(number, queue, on_message), _address(_SOURCE, queue), composite(_TARGET))

    async def sender(self, number: int, queue: str) -> Channel:
        """Be ready to send to the queue. Look at `refused`. LinkError."""
        return await self._attached(Channel(number, queue), composite(_SOURCE), _address(_TARGET, queue))

    async def _attached(self, channel: Channel, source: Value, target: Value) -> Channel:
        number = channel.number
        self._channels[number] = channel
        self._perform(number, _BEGIN, NULL, uint(0), uint(WINDOW), uint(WINDOW), uint(0))
        role, first = (FALSE, uint(0)) if channel.on_message is None else (TRUE, NULL)
        name = string(f"dlx-router-{number}")
        self._perform(number, _ATTACH, name, uint(0), role, NULL, NULL, source, target, NULL, NULL, first)
        if not await self.until(lambda: channel.attached or bool(channel.refused), within=10.0):
            raise LinkError(f"{self._where}: no answer about queue {channel.queue!r} in time")
        return channel

    def allow(self, channel: Channel, messages: int) -> None:
        """Let so many more come."""
        channel.credit += messages
        window = uint(channel.next_in % (1 << 32)), uint(WINDOW), uint(channel.next_out), uint(WINDOW)
        count = uint(channel.delivery_count % (1 << 32))
        self._perform(channel.number, _FLOW, *window, uint(0), count, uint(channel.credit))

    def accept(self, channel: Channel, delivery: int) -> None:
        """Let the broker forget it."""
        self._dispose(channel, delivery, delivery, _ACCEPTED)

    def release(self, channel: Channel, first: int, last: int) -> None:
        """Requeue them; no failed delivery from RabbitMQ 4.3 on."""
        self._dispose(channel, first, last, _RELEASED)

    def _dispose(self, channel: Channel, first: int, last: int, state: int) -> None:
        self._perform(channel.number, _DISPOSITION, TRUE, uint(first), uint(last), TRUE, composite(state))

    async def send(self, channel: Channel, message: bytes, within: float = 15.0) -> str:
        """Send it and wait; return why the broker did not take it, "" if it has. LinkError."""
        end = time.monotonic() + within
        await self.until(lambda: channel.credit > 0 or bool(channel.refused), within=within)
        if channel.credit <= 0:
            return channel.refused or "it gives no credit"
        delivery, size = channel.begin(), self._frame_max - FRAME_ROOM
        tag = Value("binary", struct.pack("!I", delivery))
        for at in range(0, len(message), size):
            await self.until(lambda: channel.window > 0 or bool(channel.refused), within=end - time.monotonic())
            if channel.window <= 0:
                return channel.refused or "it reads nothing more"
            piece, more = message[at : at + size], TRUE if at + size < len(message) else FALSE
            self._perform(channel.number, _TRANSFER, uint(0), uint(delivery), tag, uint(0), FALSE, more, payload=piece)
            channel.window -= 1
            channel.next_out += 1
        await self.until(lambda: bool(channel.outcome or channel.refused), within=end - time.monotonic())
        if channel.outcome is None:
            return channel.refused or "it did not answer in time"
        code, values = channel.outcome
        return "" if code == _ACCEPTED else f"outcome 0x{code:02x} {_text(values)}".rstrip()

    # -- the socket ---------------------------------------------------------------------------------------------

    async def until(self, is_done: Callable[[], bool], *, within: float) -> bool:
        """Read until it is so, or the time is over; return whether it is. LinkError if the connection ends."""
        end = time.monotonic() + within
        while not is_done():
            if self._frames:
                self._handle(*self._frames.popleft())
            elif (left := end - time.monotonic()) <= 0:
                return False
            else:
                await self._read(min(left, self._beat_s))
        return True

    async def _read(self, within: float) -> None:
        """Read more bytes, for so long at most; the broker ends who is silent for longer than it said."""
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
        await self._greeted(_HELLO_SASL)
        values = await self._next(_MECHANISMS)
        if not values or b"PLAIN" not in encode(values[0]):
            raise LinkError(f"{self._where}: the broker does not offer PLAIN")
        response = Value("binary", f"\0{login.user}\0{login.password}".encode())
        self._perform(0, _INIT, symbol("PLAIN"), response, kind=_SASL)
        if field(await self._next(_OUTCOME), 0) != 0:
            raise LinkError(f"{self._where}: the broker refused the login over AMQP 1.0")
        await self._greeted(_HELLO)
        name, host = string("dlx-router amqp10"), string(f"vhost:{login.vhost}")
        self._perform(0, _OPEN, name, host, uint(FRAME_MAX), Value("ushort", CHANNELS))
        values = await self._next(_OPEN)
        self._frame_max = min(FRAME_MAX, field(values, 2) or FRAME_MAX)
        self.version = _version(values[_ABOUT]) if len(values) > _ABOUT else ()
        if self.version < NATIVE_SINCE:
            raise NotNative(f"{self._where}: a plugin speaks AMQP 1.0 here")
        if idle_ms := field(values, 4):
            self._beat_s = min(BEAT_S, idle_ms / 2000)

    async def _greeted(self, hello: bytes) -> None:
        self._send(hello)
        try:
            answer = await self._reader.readexactly(8)
        except (asyncio.IncompleteReadError, OSError) as error:
            raise LinkError(f"{self._where}: the broker does not speak AMQP 1.0 ({error})") from error
        if answer != hello:
            raise NotNative(f"{self._where}: the broker does not speak AMQP 1.0, it answers {answer!r}")

    async def _next(self, code: int) -> tuple[Any, ...]:
        """Return the values of the next performative, which must be this one."""
        while not self._frames:
            await self._read(self._beat_s)
        received, values = fields(self._frames.popleft()[1])
        if received != code:
            raise LinkError(f"{self._where}: {_text(values) or f'performative 0x{received:02x}'}")
        return values

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
            code, values = fields(performative)
            if code == _CLOSE:
                self._is_closed = True
                if values:
                    raise LinkError(f"{self._where}: the broker closed the connection: {_text(values)}")
            elif code == _BEGIN and field(values, 0) in self._channels:
                begun = self._theirs[number] = self._channels[field(values, 0)]
                begun.next_in, begun.window = field(values, 1) or 0, field(values, 2) or 0
            elif (channel := self._theirs.get(number)) is not None:
                self._heard(channel, code, values, payload)
        except (Amqp10Error, TypeError) as error:  # a field of another type than the protocol says
            raise LinkError(f"{self._where}: the broker's bytes are not AMQP 1.0: {error}") from error

    def _heard(self, channel: Channel, code: int, values: tuple[Any, ...], payload: bytes) -> None:
        if code == _ATTACH:
            channel.attached = True
            channel.delivery_count = field(values, 9) or 0
        elif code == _FLOW:
            channel.window = (field(values, 0) or 0) + (field(values, 1) or 0) - channel.next_out
            if field(values, 4) is not None and channel.on_message is None:
                channel.credit = (field(values, 5) or 0) + (field(values, 6) or 0) - channel.delivery_count
        elif code == _TRANSFER:
            self._transferred(channel, values, payload)
        elif code == _DISPOSITION and field(values, 0):  # of what we sent
            first, last = field(values, 1), field(values, 2)
            state = values[_STATE] if len(values) > _STATE else NULL
            channel.settled(first, first if last is None else last, state)
        elif code in {_DETACH, _END}:
            at = 2 if code == _DETACH else 0
            channel.refused = _text(values[at : at + 1]) or "the broker ended it"

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


def _version(properties: Value) -> tuple[int, ...]:
    """Major and minor, of what the broker says about itself; () if it does not say."""
    entries = {key.of: value.of for key, value in properties.of} if properties.type == "map" else {}
    numbers = bytes(entries.get(b"version", b"")).split(b".")[:2]
    return tuple(int(number) for number in numbers) if all(number.isdigit() for number in numbers) else ()


def _address(terminus: int, queue: str) -> Value:
    """As RabbitMQ 4 names a queue: no other one is meant, whatever its name holds."""
    return composite(terminus, string(f"/queues/{quote(queue, safe='', errors='surrogateescape')}"))


def _text(values: tuple[Any, ...]) -> str:
    """The broker's own words out of an error; "" if there are none."""
    for value in values:
        if isinstance(value, Value) and value.type == "described":
            inside = value.of[1]
            if inside.type == "list" and inside.of:
                words = [part.of for part in inside.of[:2] if isinstance(part.of, bytes)]
                return ": ".join(word.decode(errors="replace") for word in words)[:500]
    return ""


async def connected(host: Host, login: Login, *, tls: Tls | None, within: float = 10.0) -> Connection:
    """Return a connection that is open; LinkError says what failed."""
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


class Found(NamedTuple):
    """A message that no AMQP 0-9-1 client can be given. `left`: why it is still where it was; "": it is moved."""

    queue: str
    number: int  # from the head, beginning at 1
    cause: str
    message: bytes
    left: str = ""


# What the copy is told about itself, by name of the annotation.
Annotated = Callable[[Found], dict[str, str]]


class _Head:
    """The head of one queue: what was looked at, and what of it was taken."""

    def __init__(self, channel: Channel, window: int) -> None:
        self.channel, self.window = channel, window
        self.seen = 0
        self.taken: set[int] = set()
        self.first = self.last = -1  # the broker numbers deliveries without gaps

    def back(self) -> list[tuple[int, int]]:
        """Return the ranges of deliveries that go back."""
        ranges, start = [], self.first
        for delivery in [*sorted(self.taken), self.last + 1]:
            if start < delivery:
                ranges.append((start, delivery - 1))
            start = delivery + 1
        return ranges if self.seen else []


class Search:
    """One search. `found` and `refused` (queue → why it could not be read) grow while it runs.

    `is_complete`: every message that was asked for was looked at, or the queue has no more.
    """

    def __init__(self, connection: Connection) -> None:
        self.found: list[Found] = []
        self.refused: dict[str, str] = {}
        self._connection = connection
        self._heads: dict[int, _Head] = {}
        self._pending: list[tuple[_Head, int, Found]] = []
        self._bytes = 0
        self._seen = 0
        self.is_complete = False

    async def through(
        self, wanted: Sequence[tuple[str, int]], target: str = "", annotated: Annotated | None = None
    ) -> None:
        """Look at the first messages of these queues, so many of each; what is found goes to `target` if one is named.

        LinkError if the connection ends: then the broker has put everything back.
        """
        for number, (queue, window) in enumerate(wanted[: CHANNELS - 1], start=1):
            channel = await self._connection.receiver(number, queue, self._came)
            if channel.refused:
                self.refused[queue] = channel.refused
            else:
                self._heads[number] = _Head(channel, window)
        await self._looked(target, annotated)
        for head in self._heads.values():
            if head.channel.refused:
                self.refused[head.channel.queue] = head.channel.refused
            for first, last in head.back():
                self._connection.release(head.channel, first, last)

    async def _looked(self, target: str, annotated: Annotated | None) -> None:
        begun, sender = time.monotonic(), None
        while time.monotonic() < begun + (LONGEST_S if self.found else IN_VAIN_S):
            for head in self._heads.values():  # a little more of each queue that has not ended yet
                room = head.window + len(head.taken) - head.seen
                if not head.channel.refused and not head.channel.credit and room > 0 and self._bytes < MOST_BYTES:
                    self._connection.allow(head.channel, min(room, CHUNK, max(1, head.seen)))
            before = self._seen
            quiet = FOUND_QUIET_S if self.found or not target else QUIET_S
            if not await self._connection.until(lambda: self._seen > before, within=quiet):  # noqa: B023 - awaited here
                self.is_complete = self._bytes < MOST_BYTES and not self.refused
                return
            for head, delivery, letter in self._pending:
                left = ""
                if target:
                    sender = sender or await self._connection.sender(0, target)
                    left = await self._moved(sender, letter, annotated)
                    if not left:
                        self._connection.accept(head.channel, delivery)
                        head.taken.add(delivery)
                self.found.append(letter._replace(left=left))
            self._pending.clear()

    async def _moved(self, sender: Channel, letter: Found, annotated: Annotated | None) -> str:
        """Return why it is not in the other queue; "" if it is, confirmed."""
        try:
            copy = kept(letter.message, annotated(letter) if annotated is not None else {})
        except Amqp10Error as error:
            return f"it cannot be copied: {error}"
        if sender.refused:
            return f"{sender.queue!r}: {sender.refused}"
        why = await self._connection.send(sender, copy)
        return f"{sender.queue!r} did not take it: {why}" if why else ""

    def _came(self, channel: Channel, delivery: int, message: bytes) -> None:
        head = self._heads[channel.number]
        head.seen += 1
        head.first, head.last = delivery if head.first < 0 else head.first, delivery
        self._seen += 1
        self._bytes += len(message)
        if cause := objection(message, self._connection.version):
            self._pending.append((head, delivery, Found(channel.queue, head.seen, cause, message)))


async def first_found(place: tuple[Host, Login, Tls | None], wanted: Sequence[tuple[str, int]]) -> list[Found]:
    """Return what is among the first messages of these queues, all of which stay; [] if that is unknown."""
    host, login, tls = place
    try:
        connection = await connected(host, login, tls=tls)
    except LinkError:
        return []
    search = Search(connection)
    try:
        await search.through(wanted)
    except LinkError:
        pass
    finally:
        await connection.close()
    return search.found


def described(letter: Found) -> str:
    """Describe one message that cannot be read, for people."""
    return f"message {letter.number} of queue {letter.queue!r} cannot be read by AMQP 0-9-1: {letter.cause}; {ADVICE}"
