"""Large reads: while much pours in, few and large; nothing waits for longer than a moment, and little never."""

import asyncio
import socket
import sys
from typing import Any, cast

import pytest

from dlx_router.broker.large_reads import LOOK_S, MANY_BYTES, LargeReads


class Socket:
    """Remembers what was asked of it."""

    def __init__(self, *, is_closed: bool = False) -> None:
        self.asked: list[int] = []
        self._is_closed = is_closed

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if self._is_closed:
            raise OSError
        assert (level, option) == (socket.SOL_SOCKET, socket.SO_RCVLOWAT)
        self.asked.append(value)


class Filled(Socket):
    """Has so many bytes that nobody has read."""

    def __init__(self, count: int) -> None:
        super().__init__()
        self._here, self._there = socket.socketpair()
        for side in (self._here, self._there):
            side.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 8 * MANY_BYTES)
        self._there.sendall(b"x" * count)

    def fileno(self) -> int:
        return self._here.fileno()

    def close(self) -> None:
        self._here.close()
        self._there.close()


class Timers:
    """A loop of timers only, whose time is moved by hand."""

    def __init__(self) -> None:
        self.now = 100.0
        self._due: list[tuple[float, Any]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, delay_s: float, call: Any) -> None:
        self._due.append((self.now + delay_s, call))

    def goes_on(self, seconds: float) -> None:
        end = self.now + seconds
        while due := [entry for entry in self._due if entry[0] <= end]:
            first = min(due, key=lambda entry: entry[0])
            self._due.remove(first)
            self.now = max(self.now, first[0])
            first[1]()
        self.now = end


def _reads(sock: Socket) -> tuple[LargeReads, Timers]:
    timers = Timers()
    return LargeReads(sock, cast("asyncio.AbstractEventLoop", timers)), timers


def test_much_in_a_moment_is_read_in_large_pieces_until_nothing_came_for_that_long() -> None:
    sock = Socket()
    reads, timers = _reads(sock)
    for _ in range(10):
        reads.came(MANY_BYTES // 4, timers.now)
        timers.goes_on(LOOK_S / 10)
    assert sock.asked == [MANY_BYTES]
    for _ in range(100):
        reads.came(MANY_BYTES, timers.now)
        timers.goes_on(LOOK_S * 0.9)
    assert sock.asked == [MANY_BYTES], "the timer looked, and let it be"
    timers.goes_on(LOOK_S * 2.1)
    assert sock.asked == [MANY_BYTES, 1]


def test_little_is_never_waited_for() -> None:
    sock = Socket()
    reads, timers = _reads(sock)
    for _ in range(1000):
        reads.came(1500, timers.now)
        timers.goes_on(0.001)
    assert sock.asked == []


def test_who_is_stopped_by_the_wait_is_left_alone_for_a_while() -> None:
    """A prefetch that is smaller than a large read: the broker sends nothing more until it is read."""
    sock = Socket()
    reads, timers = _reads(sock)
    began = timers.now
    while timers.now - began < 1.0:
        for _ in range(30):
            reads.came(1500, timers.now)
        timers.goes_on(3 * LOOK_S if reads.is_on else LOOK_S / 2)
    assert 2 <= sock.asked.count(MANY_BYTES) <= 8


@pytest.mark.skipif(sys.platform != "linux", reason="nothing is asked there")
@pytest.mark.parametrize(("here", "asked_again"), [(0, True), (1500, False), (MANY_BYTES + 1, True)])
def test_only_what_waited_in_vain_is_left_alone(here: int, *, asked_again: bool) -> None:
    """Nothing there: the broker was silent. As much as was asked for: this process was late, and reads it now."""
    sock = Filled(here)
    reads, timers = _reads(sock)
    reads.came(MANY_BYTES, timers.now)
    timers.goes_on(5 * LOOK_S)
    assert sock.asked == [MANY_BYTES, 1], "no wait is longer than a moment, whatever lies there"
    reads.came(MANY_BYTES, timers.now)
    assert reads.is_on == asked_again
    sock.close()


def test_a_socket_that_is_closed_or_has_no_such_option_is_not_asked_again() -> None:
    reads, timers = _reads(Socket(is_closed=True))
    reads.came(MANY_BYTES, timers.now)
    assert not reads.is_on
    reads.came(MANY_BYTES, timers.now)
    assert not LargeReads(None, cast("asyncio.AbstractEventLoop", timers)).is_on


def test_a_socket_that_ended_is_left_alone() -> None:
    """Its number may be another's."""
    sock = Socket()
    reads, timers = _reads(sock)
    reads.came(MANY_BYTES, timers.now)
    reads.end()
    timers.goes_on(1)
    assert sock.asked == [MANY_BYTES]


@pytest.mark.skipif(sys.platform != "linux", reason="the option means something else there")
async def test_what_comes_last_is_read_within_a_moment() -> None:
    """By real sockets: the kernel tells at once what is there when each byte is asked for again."""
    loop, much, all_is_here = asyncio.get_running_loop(), 20 * MANY_BYTES, asyncio.Event()
    seen: list[tuple[int, bool]] = []

    class Reader(asyncio.Protocol):
        def connection_made(self, transport: asyncio.BaseTransport) -> None:
            self.reads = LargeReads(transport.get_extra_info("socket"), loop)

        def data_received(self, data: bytes) -> None:
            seen.append((len(data), self.reads.is_on))
            self.reads.came(len(data), loop.time())
            if sum(size for size, _ in seen) == much + 8:
                all_is_here.set()

    listening = await loop.create_server(Reader, "127.0.0.1", 0)
    _, writer = await asyncio.open_connection(*listening.sockets[0].getsockname())
    for _ in range(10):
        writer.write(b"x" * (much // 10))
        await writer.drain()
    writer.write(b"the last")
    async with asyncio.timeout(60):
        await all_is_here.wait()
    assert any(is_on for _, is_on in seen)
    writer.close()
    listening.close()
