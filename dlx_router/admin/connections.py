"""The connections of the HTTP port: a new one is always let in, and where there are too many, the slowest makes room.

A limit that refuses newcomers is held by whoever came first and does nothing; the next probe is then refused, and the
router is killed while it works. Here whoever has waited longest *on its client* is closed: a probe asks at once, reads
at once, and is never that one. docs/decisions/0057-whoever-comes-is-let-in.md says what was measured.
"""

import asyncio
import resource
import socket
import time
from typing import Any, Final

from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from dlx_router.telemetry.logs import log

DEADLINE_S: Final = 10.0
_LEAST, MOST = 16, 512
PATIENT: Final = "dlx_router.until_s"
BACKLOG: Final = 1024
PIECE_BYTES: Final = 1 << 16
_FILES_SHARE: Final = 4  # the broker's connections, the index and the policies need files too
_BUFFER_BYTES: Final = 1 << 17  # what the kernel keeps of one connection; else 4 MiB, counted as the pod's memory
_WARN_EVERY_S: Final = 60.0


def most_connections(files: int) -> int:
    """So many, where this process may open so many files (RLIMIT_NOFILE)."""
    return max(_LEAST, MOST if files == resource.RLIM_INFINITY else min(MOST, files // _FILES_SHARE))


class Connections:
    """Those that are open, oldest first; never more than `most`."""

    def __init__(self, most: int | None = None) -> None:
        self._most = most or most_connections(resource.getrlimit(resource.RLIMIT_NOFILE)[0])
        self._open: dict[OneRequest, None] = {}
        self._quiet_until = 0.0

    def __len__(self) -> int:
        return len(self._open)

    def enter(self, connection: "OneRequest") -> None:
        """Let it in; where that is one too many, another one ends."""
        if len(self._open) >= self._most:
            slowest = next((other for other in self._open if other.waits), next(iter(self._open)))
            self.leave(slowest)
            slowest.transport.abort()
            self._warn()
        self._open[connection] = None

    def leave(self, connection: "OneRequest") -> None:
        """It ended; safe to repeat."""
        self._open.pop(connection, None)

    def _warn(self) -> None:
        now = time.monotonic()
        if now >= self._quiet_until:
            self._quiet_until = now + _WARN_EVERY_S
            log.warning("http.crowded", most=self._most, fate="who has waited longest is closed; probes are answered")


class OneRequest(H11Protocol):
    """A connection with an end: it serves one request and is cut after DEADLINE_S whatever it did.

    A request that is whole and whose work is to wait says in its scope until when (PATIENT, by the loop's clock).
    """

    def __init__(self, *given: Any, connections: Connections, **named: Any) -> None:  # noqa: ANN401 - as uvicorn has it
        super().__init__(*given, **named)
        self._among = connections

    @property
    def waits(self) -> bool:
        """For its client: to send the rest, or to read the answer. Else the request is whole and the router at work."""
        cycle: RequestResponseCycle | None = self.cycle  # None until the head is whole
        return cycle is None or cycle.more_body or cycle.response_complete or self.flow.write_paused

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]  # as uvicorn has it
        super().connection_made(transport)
        self._deadline = self.loop.call_later(DEADLINE_S, self._late)
        self._among.enter(self)

    def _late(self) -> None:
        scope: Any = {} if self.waits else self.cycle.scope
        until_s: float = scope.get(PATIENT, 0.0)
        if until_s > self.loop.time():
            self._deadline = self.loop.call_at(until_s, self._late)
        else:
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        """What came is no HTTP. Said only where an answer may still begin and have a body.

        uvicorn says it in the middle of another answer too, or lets the app begin one more: a traceback in the log each
        time, and whoever reaches the port can do it.
        """
        cycle: RequestResponseCycle | None = self.cycle
        if cycle is not None:
            cycle.disconnected = True
            cycle.message_event.set()
        if cycle is not None and (cycle.response_started or cycle.scope["method"] == "HEAD"):
            self.transport.close()
        else:
            super().send_400_response(msg)

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._among.leave(self)
        super().connection_lost(exc)


def listener(host: str, port: int) -> socket.socket:
    """Listens when this returns; OSError where the address cannot be had."""
    family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    bound = socket.create_server((host, port), family=family, backlog=BACKLOG)
    for buffer in (socket.SO_SNDBUF, socket.SO_RCVBUF):
        bound.setsockopt(socket.SOL_SOCKET, buffer, _BUFFER_BYTES)  # whoever is let in has it too
    return bound
