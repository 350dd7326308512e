"""A receiver of webhooks: a real HTTP server in threads, which answers as it is told and keeps what came."""

import http.server
import ssl
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Self

from tests.support.certificates import Pair


@dataclass(frozen=True)
class Post:
    """A request: its path, headers in lower case, and body."""

    path: str
    headers: Mapping[str, str]
    body: bytes


@dataclass
class Receiver:
    """`status`: what it answers, with `headers` and `text`. `hangs`: it answers nothing until it is closed.

    `stalls`: the text is never whole: some of it comes, and no end.
    """

    status: int = 204
    headers: dict[str, str] = field(default_factory=dict)
    text: bytes = b""
    hangs: bool = False
    stalls: bool = False
    pair: Pair | None = None  # it speaks TLS
    posts: list[Post] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._closing = threading.Event()
        self._server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), self._handler())
        self._server.daemon_threads = True
        if self.pair is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(self.pair.certificate, self.pair.key)
            self._server.socket = context.wrap_socket(self._server.socket, server_side=True)
        self._thread = threading.Thread(target=self._server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        self._thread.start()

    @property
    def port(self) -> int:
        """Where it listens, on 127.0.0.1."""
        return int(self._server.server_address[1])

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        """Of a path there."""
        return f"{'http' if self.pair is None else 'https'}://{host}:{self.port}{path}"

    def close(self) -> None:
        """Nobody listens any more; safe to repeat."""
        self._closing.set()
        self._server.shutdown()
        self._server.server_close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()

    def _handler(self) -> type[http.server.BaseHTTPRequestHandler]:
        receiver = self

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["content-length"] or 0))
                receiver.posts.append(Post(self.path, {k.lower(): v for k, v in self.headers.items()}, body))
                if receiver.hangs:
                    receiver._closing.wait(60)
                    return
                self.send_response(receiver.status)
                length = len(receiver.text) + receiver.stalls
                for name, value in {**receiver.headers, "content-length": str(length)}.items():
                    self.send_header(name, value)
                self.end_headers()
                self.wfile.write(receiver.text)
                self.wfile.flush()
                if receiver.stalls:
                    receiver._closing.wait(60)

            def do_GET(self) -> None:
                self.do_POST()

            def log_message(self, *_given: Any) -> None:
                """Nothing."""

        return Handler
