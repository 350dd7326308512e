"""Clients that take their time at an HTTP port, and probes beside them."""

import asyncio
import contextlib
import itertools
import os
import resource
import socket
import subprocess
import sys
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Final

HEAD: Final = b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX-Slow: "
_JSON: Final = b"Content-Type: application/json\r\nContent-Length: 90000\r\n\r\n{"
_BODY: Final = b"POST /api/v1/tasks HTTP/1.1\r\nHost: localhost\r\n" + _JSON
SORTS: Final = {
    "nothing sent": b"",
    "half a head": HEAD,
    "half a body": _BODY,
    "an answer that nobody reads": b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "answered, and kept open": b"GET /livez HTTP/1.1\r\nHost: localhost\r\n\r\n",
}
# Ten times what a kubelet waits for a probe, and Prometheus for /metrics: the machine may have other work.
LIMIT_S: Final = 10.0
_SCRAPE_LIMIT_S: Final = 50.0


def room_for_files(count: int = 8192) -> None:
    """Let this process open so many files, as far as the machine allows it."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = count if hard == resource.RLIM_INFINITY else min(count, hard)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, most), hard))


@asynccontextmanager
async def slow_clients(port: int, count: int, says: bytes) -> AsyncIterator[Callable[[], None]]:
    """So many connections that said so much and read nothing. Calling what is given sends a byte on each."""
    sockets: list[socket.socket] = []

    def one_byte_more() -> None:
        for client in sockets:
            with contextlib.suppress(OSError):
                client.send(b"x")

    try:
        for _ in range(count):
            sockets.append(_socket())
            await _begin(sockets[-1], port, says)
        yield one_byte_more
    finally:
        for client in sockets:
            client.close()


def _socket() -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    client.setblocking(False)  # noqa: FBT003 - as socket has it
    return client


async def _begin(client: socket.socket, port: int, says: bytes) -> None:
    loop = asyncio.get_running_loop()
    with contextlib.suppress(ConnectionError):  # the server may close any of them, at any moment
        await loop.sock_connect(client, ("127.0.0.1", port))
        await loop.sock_sendall(client, says)


def in_time(took_s: dict[str, float]) -> bool:
    """Of answers by their path: no limit was passed."""
    return all(took < (_SCRAPE_LIMIT_S if path == "/metrics" else LIMIT_S) for path, took in took_s.items())


async def probed(port: int, path: str) -> tuple[int, float]:
    """Status and seconds of one question, read to its end; status 0 where there was no answer in time."""
    began = time.monotonic()
    status = 0
    with contextlib.suppress(OSError, TimeoutError):
        async with asyncio.timeout(60):
            status = await _status(port, path)
    return status, time.monotonic() - began


async def _status(port: int, path: str) -> int:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        writer.write(f"GET {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
    finally:
        writer.close()
    return int(answer.split()[1]) if answer.startswith(b"HTTP/1.1 ") else 0


@contextlib.contextmanager
def flood(port: int, per_second: int, says: bytes = HEAD) -> Iterator[Callable[[], int]]:
    """Another process opens so many connections a second, each left as it is for a second. Gives: how many so far."""
    given = [sys.executable, __file__, str(port), str(per_second), says.hex()]
    with subprocess.Popen(given, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        os.set_blocking(process.stdout.fileno(), False)
        opened = 0

        def so_far() -> int:
            nonlocal opened
            opened += len(process.stdout.read() or b"")  # type: ignore[union-attr]  # a pipe, as asked for
            return opened

        try:
            yield so_far
        finally:
            process.kill()


def _flood(port: int, per_second: int, says: bytes) -> None:
    room_for_files()
    began, clients = time.monotonic(), [_socket() for _ in range(per_second)]
    for number in itertools.count():
        time.sleep(max(0.0, began + number / per_second - time.monotonic()))  # the rate of connections
        client = clients[number % per_second] = _socket()  # the one before is closed
        with contextlib.suppress(OSError):
            client.connect(("127.0.0.1", port))
        with contextlib.suppress(OSError):
            client.send(says)
        sys.stdout.buffer.write(b".")
        sys.stdout.buffer.flush()


if __name__ == "__main__":
    _flood(int(sys.argv[1]), int(sys.argv[2]), bytes.fromhex(sys.argv[3]))
