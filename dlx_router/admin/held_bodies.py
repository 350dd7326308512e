"""Bodies of requests, taken whole before anything else is done for them.

Who sends slowly holds what they have sent, and no place among those that are answered: else a few that anybody may
send, a login say, would keep everybody out.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, MutableMapping
from contextlib import asynccontextmanager
from typing import Any, Final

FREE_BYTES: Final = 16_384  # of each body: more than a login, a search or a change needs
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]


class BodyRefused(Exception):
    """There is no body to go on with; says why. `status` 0: whoever sent it is gone, and half of it means nothing."""

    def __init__(self, status: int, reason: str) -> None:
        super().__init__(reason)
        self.status = status


class HeldBodies:
    """`most` bytes of one, `together` of all that are held beyond the first FREE_BYTES of each.

    So whoever sends large bodies slowly keeps out others that do so, and never a small one; the port has a limit of
    connections, so what is free has a bound too.
    """

    def __init__(self, most: int, together: int) -> None:
        self._most, self._together, self._held = most, together, 0

    @asynccontextmanager
    async def whole(self, receive: Receive) -> AsyncIterator[bytes]:
        """The body, held until the end of the block. BodyRefused."""
        body, counted = bytearray(), 0
        try:
            while True:
                message = await receive()
                if message["type"] != "http.request":
                    raise BodyRefused(0, "whoever asked hung up")
                body += message.get("body", b"")
                more = max(len(body) - FREE_BYTES, 0) - counted
                counted += more
                self._held += more
                if len(body) > self._most:
                    raise BodyRefused(413, f"at most {self._most} bytes")
                if self._held > self._together:
                    raise BodyRefused(503, "many large requests are being read; ask again")
                if not message.get("more_body"):
                    break
            yield bytes(body)
        finally:
            self._held -= counted
