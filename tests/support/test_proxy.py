"""The proxy does what its verbs say, to a server that answers with what it gets."""

import socket
import socketserver
import threading
import time
from collections.abc import Iterator

import pytest

from tests.support.eventually import consistently, eventually
from tests.support.proxy import Proxy


class _Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while data := self.request.recv(1 << 16):
            self.request.sendall(data)


class _Server(socketserver.ThreadingTCPServer):
    daemon_threads = True
    block_on_close = False

    def handle_error(self, request: object, client_address: object) -> None:
        """A reset is what these tests are about."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    with _Server(("127.0.0.1", 0), _Echo) as server:
        threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True).start()
        with Proxy(server.server_address[1]) as proxy:
            yield proxy
        server.shutdown()


def _connect(proxy: Proxy) -> socket.socket:
    return socket.create_connection(("127.0.0.1", proxy.port), timeout=5)


def _says(link: socket.socket, text: bytes) -> bytes:
    link.sendall(text)
    return link.recv(1 << 16)


def _silent(link: socket.socket) -> bool:
    """Neither bytes nor an end come."""
    link.settimeout(0.02)
    try:
        link.recv(1)
    except TimeoutError:
        return True
    finally:
        link.settimeout(5)
    return False


def test_a_healthy_proxy_passes_bytes_and_the_end(proxy: Proxy) -> None:
    with _connect(proxy) as link:
        assert _says(link, b"hello") == b"hello"
        assert proxy.connections == 1
        link.shutdown(socket.SHUT_WR)
        assert link.recv(1) == b""
    eventually(lambda: proxy.connections == 0)


def test_a_cut_resets_what_there_is_and_lets_in_what_comes(proxy: Proxy) -> None:
    with _connect(proxy) as link:
        _says(link, b"hello")
        assert proxy.cut() == 1
        with pytest.raises(ConnectionError):
            link.recv(1)
    with _connect(proxy) as link:
        assert _says(link, b"again") == b"again"


@pytest.mark.parametrize("direction", ["up", "down"])
def test_a_half_open_connection_is_silent_and_stays_so(proxy: Proxy, direction: str) -> None:
    with _connect(proxy) as link:
        _says(link, b"hello")
        proxy.half_open(direction)  # type: ignore[arg-type]  # parametrised
        link.sendall(b"lost")
        consistently(lambda: _silent(link), 0.2)
        proxy.heal()
        link.sendall(b"lost too")
        consistently(lambda: _silent(link), 0.2)
        with _connect(proxy) as later:
            assert _says(later, b"again") == b"again"


def test_a_stalled_connection_delivers_all_of_it_later(proxy: Proxy) -> None:
    with _connect(proxy) as link:
        proxy.stall()
        link.sendall(b"waits")
        consistently(lambda: _silent(link), 0.2)
        proxy.heal()
        assert link.recv(100) == b"waits"


def test_a_slow_line_moves_so_many_bytes_a_second(proxy: Proxy) -> None:
    proxy.slow(20_000)
    with _connect(proxy) as link:
        started = time.monotonic()
        link.sendall(b"x" * 4000)
        left = 4000
        while left:
            left -= len(link.recv(left))
        assert time.monotonic() - started > 0.15


def test_nobody_listens_while_it_refuses(proxy: Proxy) -> None:
    proxy.refuse()
    with pytest.raises(ConnectionError):
        _connect(proxy)
    proxy.heal()
    with _connect(proxy) as link:
        assert _says(link, b"again") == b"again"
