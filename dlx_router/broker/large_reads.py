"""Large reads: while much pours in, the socket is read when some of it is there, and not for each packet.

A read costs the same whatever it brings. The kernel is asked (SO_RCVLOWAT) to call the socket readable when there are
`MANY_BYTES`. A timer looks every `LOOK_S`: where nothing was read since its last look each byte is asked for again, so
none waits for longer than two looks, and where little comes none waits at all. Where nothing lies in the socket by
then, or as much as was asked for, nothing waited for us to ask for less: the broker, or this process, did not run.
"""

import asyncio
import contextlib
import socket
import struct
import sys
from typing import Any, Final

MANY_BYTES: Final = 32_768
LOOK_S: Final = 0.003
LASTS_S: Final = 0.05  # what pours for shorter than this may have stopped for the wait, as a full prefetch does;
LASTS_BYTES: Final = 1 << 20  # but not where this came meanwhile: no prefetch that stops for 32 KiB is so large
_int: Final = struct.Struct("i").unpack
REST_S: Final = 0.02, 1.0  # after a wait, doubling as long as it pours for a moment only
# It is closed, which under TLS is known here later than to the loop, or it is not a socket that has this.
GONE: Final = OSError, ValueError, AttributeError, TypeError


class LargeReads:
    """Of one connected socket (None: it stays as it is). `came` is told of each read."""

    def __init__(self, sock: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._sock, self._loop = sock, loop
        self._since_s = self._rests_until_s = self._on_since_s = 0.0
        self._rest_s = REST_S[0]
        self._bytes = self._brought = 0  # since it began to pour; and since the last rest, by large reads
        self._was_read = self._is_late = False
        self.is_on = False
        self._is_possible = sys.platform == "linux" and sock is not None

    def came(self, count: int, now_s: float) -> None:
        """A read brought so many bytes."""
        self._was_read = True
        if self.is_on or not self._is_possible:
            self._brought += count
            return
        if now_s - self._since_s > LOOK_S:
            self._since_s, self._bytes = now_s, 0
        self._bytes += count
        if self._bytes >= MANY_BYTES and now_s >= self._rests_until_s and self._ask_for(MANY_BYTES):
            self.is_on, self._was_read, self._on_since_s = True, False, now_s
            self._loop.call_later(LOOK_S, self._look)

    def end(self) -> None:
        """The socket is closed, or about to be: its number may be another's soon."""
        self._is_possible = False

    def _look(self) -> None:
        waiting = 0 if self._was_read else self._waiting()
        if self._was_read or (waiting >= MANY_BYTES and not self._is_late):
            self._was_read, self._is_late = False, not self._was_read  # late: it is read in this turn of the loop
            self._loop.call_later(LOOK_S, self._look)
            return
        self.is_on = self._is_late = False
        self._bytes = 0
        if 0 < waiting < MANY_BYTES:
            self._rest(self._loop.time())
        self._ask_for(1)

    def _rest(self, now_s: float) -> None:
        """The wait kept something here: leave it alone for a while."""
        lasted = now_s - self._on_since_s > LASTS_S or self._brought >= LASTS_BYTES
        self._brought = 0
        self._rest_s = REST_S[0] if lasted else min(2 * self._rest_s, REST_S[1])
        self._rests_until_s = now_s + self._rest_s

    def _waiting(self) -> int:
        """How many bytes lie in the socket; some, where nobody can say."""
        if not self._is_possible:
            return 0
        with contextlib.suppress(*GONE, ImportError):
            import fcntl  # noqa: PLC0415 - Linux only, as all of this
            import termios  # noqa: PLC0415 - as above

            return int(_int(fcntl.ioctl(self._sock.fileno(), termios.FIONREAD, bytes(4)))[0])
        return 1

    def _ask_for(self, count: int) -> bool:
        if not self._is_possible:
            return False
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
        except GONE:
            self._is_possible = False
        return self._is_possible
