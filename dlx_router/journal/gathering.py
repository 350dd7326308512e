"""How long a batch of events waits for more: hardly where few come, some milliseconds while letters pour in.

A message of the stream costs the broker as much as 25 letters, whatever it holds.
"""

from typing import Final

LEAST_S: Final = 0.002
MOST_S: Final = 0.02
POURING: Final = 2_500  # events a second: below, a person or a test of latency would notice more than the broker
_SPAN_S: Final = 0.02  # that a rate is taken over: reads come in lumps


class Gathering:
    """`prefetch` letters may be unsettled at once: no batch waits until more than a quarter of them lie in it."""

    def __init__(self, prefetch: int) -> None:
        self._plenty = prefetch / 4
        self._began_s = self._last_s = 0.0
        self._events = 0
        self._longest_s = LEAST_S

    def gone(self, events: int, now_s: float) -> None:
        """A batch of so many has left."""
        self._last_s = now_s
        self._events += events
        span_s = now_s - self._began_s
        if span_s >= _SPAN_S:
            rate = self._events / span_s
            self._longest_s = min(max(self._plenty / rate, LEAST_S), MOST_S) if rate > POURING else LEAST_S
            self._began_s, self._events = now_s, 0

    def wait_s(self, now_s: float) -> float:
        """Of a batch that begins now; not more than 0: it may leave at the end of this turn."""
        return self._last_s + self._longest_s - now_s
