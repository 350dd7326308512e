"""What a broker sends on one connection, but without the deliveries of channels that are told to stay silent.

Answers, confirms and heartbeats still pass: to its client such a consumer stands still for no reason. The broker knows
nothing of it. A channel that is opened later is well. Answers of a kind can be swallowed too, with all that follows on
their channel: so does a channel of a broker whose metadata has no leader.
"""

from struct import Struct
from typing import Final

Method = tuple[int, int]

_METHOD: Final = 1
_CONTENT: Final = frozenset({2, 3})
_DELIVER: Final = (60, 60)
_OPEN_OK: Final = (20, 11)
_frame: Final = Struct(">BHI").unpack_from
_method: Final = Struct(">HH").unpack_from


class Undelivered:
    """Frames of one connection, in the order in which the broker sends them."""

    def __init__(self, unanswered: set[Method]) -> None:
        """`unanswered`: the class and method of each answer that is swallowed from now on; it may grow."""
        self._unanswered = unanswered
        self._mute: set[int] = set()
        self.is_deaf_for_good = False  # channels that are opened later are silent, too
        self._rest = b""
        self._open: set[int] = set()
        self._silent: set[int] = set()
        self._dropping: set[int] = set()  # in the middle of a delivery that is swallowed

    def silence(self) -> None:
        """Every channel that is open now delivers nothing more."""
        self._silent |= self._open

    def passed(self, data: bytes) -> bytes:
        """Those of these bytes that reach the client; the beginning of a frame waits for its end."""
        data, at, out = self._rest + data, 0, bytearray()
        while len(data) - at >= 8:
            kind, channel, size = _frame(data, at)
            stop = at + 8 + size
            if stop > len(data):
                break
            if self._passes(kind, channel, data[at + 7 : stop]):
                out += data[at:stop]
            at = stop
        self._rest = data[at:]
        return bytes(out)

    def _passes(self, kind: int, channel: int, payload: bytes) -> bool:
        if kind in _CONTENT:
            return channel not in self._dropping
        self._dropping.discard(channel)
        if kind != _METHOD:
            return True
        method = _method(payload, 0)
        if method == _OPEN_OK:
            self._open.add(channel)
            self._mute.discard(channel)
            if not self.is_deaf_for_good:
                self._silent.discard(channel)
        if method in self._unanswered:
            self._mute.add(channel)
        if channel in self._mute:
            return False
        if method == _DELIVER and (channel in self._silent or (self.is_deaf_for_good and self._silent)):
            self._dropping.add(channel)
            return False
        return True
