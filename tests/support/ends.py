"""Links whose other end is held by a test: real consumers, workers, publishers and a journal, and no socket.

What is written is kept as frames; what the broker would say is handed in as bytes.
"""

import asyncio
import struct
from collections.abc import Iterator
from typing import Any, Final, NamedTuple, cast

from pamqp import commands

from dlx_router.broker.address import Host, Login
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.link import Link
from dlx_router.journal.mode import Mode
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.dispatch.worker import Worker
from dlx_router.wire import frames
from tests.support import worker as support

INBOX: Final = support.NAMES.inbox
PREFETCH: Final = 1000
_PUBLISH: Final = 0x003C_0028


class StillLoop(asyncio.SelectorEventLoop):
    """A loop whose time stands until it is moved: which timer comes first does not depend on the machine.

    But that each look at the clock is a little later than the one before, or timers of one moment had no order.
    """

    now = 1000.0

    def time(self) -> float:
        self.now += 1e-8
        return self.now


class Kept(asyncio.Transport):
    """Keeps what is written."""

    def __init__(self) -> None:
        super().__init__()
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.written += map(bytes, list_of_data)

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        """There is no limit."""

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        """Who hands in bytes knows."""

    def resume_reading(self) -> None:
        """Who hands in bytes knows."""

    def abort(self) -> None:
        """Nothing to end."""


class HeldLink(Link):
    """A link whose questions are answered at once, with nothing in the answer."""

    def __init__(self) -> None:
        super().__init__(Login("guest", "guest", "/"), Host("held", 5672), 0, "held")
        self.kept = Kept()
        self.connection_made(self.kept)
        self.kept.written.clear()

    async def rpc(self, channel: int, command: Any, within: float = 0.0) -> Any:
        """At once."""
        del channel, command, within

    def taken(self) -> bytes:
        """All that was written since the last time."""
        self.flush()
        written, self.kept.written = b"".join(self.kept.written), []
        return written


class Published(NamedTuple):
    """A message that was published: its channel, its number there, its frames, and its header and body."""

    channel: int
    number: int
    frames: bytes
    header: bytes
    body: bytes


class Ends:
    """One worker, its consumer and its journal between two links; `in_runs` False: each letter by itself."""

    def __init__(self, definition: dict[str, Any], *, mode: Mode = Mode.BEST_EFFORT, in_runs: bool = True) -> None:
        session = self.session = support.Session(definition, mode=mode)
        self.consume, self.publish = HeldLink(), HeldLink()
        session.publish_link = self.publish
        self.worker = Worker(session, SerialPublisher(self.publish, session.encoder, 30.0))
        self.consumer = Consumer(
            self.consume,
            INBOX,
            PREFETCH,
            sink=self.worker.take,
            run_sink=self.worker.take_run if in_runs else None,
            on_lost=lambda *_: None,
        )
        self.publish.on_batch = self.flush
        self._numbers: dict[int, int] = {}
        self._tag = 0

    async def begin(self) -> None:
        """Open both ends."""
        await self.worker.open()
        self.worker.attend(self.consumer, support.place(INBOX))
        await self.consumer.start()
        self.session.spawn(self.session.journal.attend(self.publish, _nothing, self.flush))
        await self.turn()

    async def turn(self, count: int = 10) -> None:
        """Whatever can happen without a timer happens."""
        for _ in range(count):
            await asyncio.sleep(0)

    @property
    def channel(self) -> int:
        """On which letters come."""
        return self.consumer._channel

    def flush(self) -> None:
        """What a session does after each read of the publishing link."""
        self.consumer.flush()
        self.consume.flush()

    def read(self, letters: list[tuple[bytes, bytes, bytes, bytes]]) -> None:
        """One read brings these: exchange, routing key, content header and body of each."""
        data = []
        for exchange, key, header, body in letters:
            self._tag += 1
            data.append(delivered(self.consumer._channel, self._tag, (exchange, key), header, body))
        self.consume.data_received(b"".join(data))

    def published(self) -> Iterator[Published]:
        """What was published since the last time, in order."""
        data, at = self.publish.taken(), 0
        while at < len(data):
            start, (kind, channel, size) = at, struct.unpack_from(">BHI", data, at)
            method = struct.unpack_from(">I", data, at + 7)[0] if kind == 1 else 0
            at += 8 + size
            if method != _PUBLISH:
                continue
            size = struct.unpack_from(">I", data, at + 3)[0]
            header, at = data[at + 7 : at + 7 + size], at + 8 + size
            missing, body = struct.unpack_from(">Q", header, 4)[0], b""
            while len(body) < missing:
                size = struct.unpack_from(">I", data, at + 3)[0]
                body += data[at + 7 : at + 7 + size]
                at += 8 + size
            number = self._numbers[channel] = self._numbers.get(channel, 0) + 1
            yield Published(channel, number, data[start:at], header, body)

    def answer(self, channel: int, number: int, *, multiple: bool = False, ok: bool = True) -> None:
        """The broker confirms a publish, or refuses it."""
        method, bits = (0x003C_0050, multiple) if ok else (0x003C_0078, multiple)
        self.publish.data_received(struct.pack(">BHIIQBB", 1, channel, 13, method, number, bits, 0xCE))

    def give_back(self, published: Published) -> None:
        """The broker returns a publish: no queue takes it."""
        method = frames.method(published.channel, commands.Basic.Return(312, "NO_ROUTE", "", ""))
        self.publish.data_received(method + _content(published.channel, published.header, published.body))

    def close_channel(self, channel: int) -> None:
        """The broker closes a publishing channel."""
        self._numbers.pop(channel, None)
        self.publish.data_received(frames.method(channel, commands.Channel.Close(406, "PRECONDITION_FAILED", 60, 40)))

    def lose(self) -> None:
        """Both connections are gone."""
        self.consume.connection_lost(None)
        self.publish.connection_lost(None)

    def acked(self) -> bytes:
        """What was sent to the broker on the consuming link since the last time."""
        return self.consume.taken()


def delivered(channel: int, tag: int, source: tuple[bytes, bytes], header: bytes, body: bytes) -> bytes:
    """The frames of a delivery; `source`: exchange and routing key. Each third was delivered before."""
    exchange, key = source
    arguments = b"\x0adlx-router" + struct.pack(">QBB", tag, tag % 3 == 0, len(exchange)) + exchange
    arguments += bytes([len(key)]) + key
    method = struct.pack(">BHII", 1, channel, 4 + len(arguments), 0x003C_003C) + arguments + b"\xce"
    return method + _content(channel, header, body)


def _content(channel: int, header: bytes, body: bytes) -> bytes:
    parts = [struct.pack(">BHI", 2, channel, len(header)), header, b"\xce"]
    for at in range(0, len(body), 131_064):
        piece = body[at : at + 131_064]
        parts += (struct.pack(">BHI", 3, channel, len(piece)), piece, b"\xce")
    return b"".join(parts)


async def _nothing() -> None:
    return


def resources_are_there(ends: Ends) -> None:
    """What copies need was looked for already, and is there by its own name."""
    known = cast("dict[tuple[str, ...], str]", ends.session.provision.known)
    known["exchange", "dlx"] = "dlx"
