"""Bytes in flight: how many deliveries' bytes are here, of one session, and so whether its consuming socket is read."""

from collections.abc import Callable

from dlx_router.broker.link import Link
from dlx_router.telemetry.readiness import Readiness


class BytesInFlight:
    """At most as many as one read is over the limit. What is held for long takes its bytes from the others, no more.

    `held()`: the bytes of letters that stay for as long as some queue takes none; all others make room soon. `rests()`:
    whether nothing is to be read now, however much room there is.
    """

    def __init__(
        self, vhost: str, most: int, readiness: Readiness, *, held: Callable[[], int], rests: Callable[[], bool]
    ) -> None:
        self._vhost, self._most, self._readiness = vhost, most, readiness
        self._held, self._rests = held, rests
        self._here = 0
        self._is_paused = False
        self.links: list[Link] = []  # those that consume, the shared one first

    def limit(self, most: int) -> None:
        """From now on so many may be here; whether the socket is read is looked at with the next letter, or second."""
        self._most = most

    def weigh(self, size: int) -> None:
        """So many more, or less, are here; over the limit the consuming socket rests."""
        self._here += size
        if size > 0:
            if self._here > self._most:
                self._pause(paused=True)
        elif self._is_paused and self._here <= self._most:
            self._go_on(self._held())

    def _go_on(self, held: int) -> None:
        """Read again once half of the room is free that what is held leaves to the others."""
        if self._here <= held + (self._most - held) // 2:
            self.read_or_rest()

    def read_or_rest(self) -> None:
        """Read what the broker delivers, unless nothing could be done with it now."""
        self._pause(paused=self._here > self._most or self._rests())

    def _pause(self, *, paused: bool) -> None:
        self._is_paused = paused
        for link in self.links:
            link.pause(paused=paused)

    def check(self) -> None:
        """Called each second: what is held becomes more and less though nothing is settled."""
        key, held = f"full {self._vhost}", self._held()
        if self._is_paused:
            self._go_on(held)
        if held < self._most or not self._is_paused:
            self._readiness.clear(key)
            return
        self._readiness.set(
            key,
            f"vhost {self._vhost!r}: nothing is read, also of the router's own queues: letters of {held:,} bytes are "
            f"held for queues that do not take them, and a vhost may have {self._most:,} bytes in flight; make room in "
            "those queues, or raise DLX_ROUTER_IN_FLIGHT_BYTES, which all vhosts share",
        )
