"""Large reads: while much pours in, the socket is read when some of it is there, and not for each packet.

A read costs the same whatever it brings. The kernel is asked (SO_RCVLOWAT) to call the socket readable when there are
`MANY_BYTES`. A timer looks every `LOOK_S`: where nothing was read since its last look each byte is asked for again, so
none waits for longer than two looks, and where little comes none waits at all.
"""

import asyncio
import socket
import sys
from typing import Any, Final

MANY_BYTES: Final = 32_768
LOOK_S: Final = 0.003
LASTS_S: Final = 0.05  # what pours for shorter than this may have stopped for the wait, as a full prefetch does
REST_S: Final = 0.02, 1.0  # after a wait, doubling as long as it pours for a moment only


class LargeReads:
    """Of one connected socket (None: it stays as it is). `came` is told of each read."""

    def __init__(self, sock: Any, loop: asyncio.AbstractEventLoop) -> None:
        self._sock, self._loop = sock, loop
        self._since_s = self._rests_until_s = self._on_since_s = 0.0
        self._rest_s = REST_S[0]
        self._bytes = 0
        self._was_read = False
        self.is_on = False
        self._is_possible = sys.platform == "linux" and sock is not None

    def came(self, count: int, now_s: float) -> None:
        """A read brought so many bytes."""
        self._was_read = True
        if self.is_on or not self._is_possible:
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
        if self._was_read:
            self._was_read = False
            self._loop.call_later(LOOK_S, self._look)
            return
        now_s = self._loop.time()
        lasted = now_s - self._on_since_s > LASTS_S
        self._rest_s = REST_S[0] if lasted else min(2 * self._rest_s, REST_S[1])
        self.is_on, self._bytes, self._rests_until_s = False, 0, now_s + self._rest_s
        self._ask_for(1)

    def _ask_for(self, count: int) -> bool:
        if not self._is_possible:
            return False
        try:
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVLOWAT, count)
        except (OSError, AttributeError, TypeError):  # it is closed, or not a socket that has this
            self._is_possible = False
        return self._is_possible
