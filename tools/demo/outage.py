"""The outage of the demo: one consumer fails for everyone for some seconds, and what the breaker makes of it."""

import time
from dataclasses import dataclass, field
from typing import Any, Final

import pika

from tools.journal import events

QUEUE: Final = "shop.shipments"
LEAST_S: Final = 18  # a shorter demo has no time for an outage: the breaker alone takes ten seconds to close
RULE: Final = "{deaths: 4, within: 5s, probe-every: 1s}"
_RAMP_S: Final = 12.0
CLOSED, HALF_OPEN, OPEN = 0, 1, 2  # as the metric has them
_BREAKER: Final = {
    CLOSED: "the breaker is closed: letters are judged as usual",
    HALF_OPEN: "a probe survived: the breaker is half-open, held letters go back, more each second",
    OPEN: "the breaker opens: letters are held and use no attempt; one probe a second",
}
STATES: Final = {CLOSED: "closed", HALF_OPEN: "half-open", OPEN: "open"}


@dataclass(frozen=True, slots=True)
class Outage:
    """Nobody is served from `begins_s` to `ends_s` after the shop was opened."""

    begins_s: float
    ends_s: float

    @classmethod
    def of(cls, seconds: float) -> "Outage | None":
        """That of a demo of so many seconds; none where it is too short for one."""
        if seconds < LEAST_S:
            return None
        begins_s = min(seconds * 0.1, 6.0)
        return cls(begins_s, begins_s + min(max(seconds * 0.2, 4.0), 10.0))

    @property
    def longest_s(self) -> float:
        """No held letter waits longer than this once the outage is over: its wait has doubled up to then."""
        return self.ends_s - self.begins_s + _RAMP_S


@dataclass
class Chronicle:
    """What happened to the carrier and to the breaker, in order, as (seconds after the opening, words)."""

    outage: Outage | None
    opened: float = field(default_factory=time.monotonic)
    events: list[tuple[float, str]] = field(default_factory=list)
    _down: bool = False
    _breaker: int = CLOSED

    def notice(self, breaker: int | None, *, down: bool) -> list[str]:
        """What has changed since the last call; `breaker` None: the router did not say."""
        news = []
        if down != self._down:
            news.append("the carrier is down: every shipment fails" if down else "the carrier is back")
            self._down = down
        if breaker is not None and breaker != self._breaker:
            news.append(_BREAKER[breaker])
            self._breaker = breaker
        self.events += [(time.monotonic() - self.opened, headline) for headline in news]
        return news

    @property
    def is_over(self) -> bool:
        """The breaker is closed, as far as the router has said."""
        return not self._down and not self._breaker


@dataclass(frozen=True, slots=True)
class Effort:
    """What the journal tells of the queue's letters."""

    held: int
    probes: int
    most_attempts: int


def effort(amqp_url: str) -> Effort:
    """Of all events of the queue; the router has ended, so that nothing more comes."""
    rows = [row for row in _events(amqp_url) if row.get("failed_queue") == QUEUE]
    return Effort(
        held=sum(row["kind"] == "held" for row in rows),
        probes=sum(row.get("breaker") == "probe" for row in rows),
        most_attempts=max((int(row["attempts"]) for row in rows), default=0),
    )


def _events(amqp_url: str) -> list[dict[str, Any]]:
    """The whole journal, until nothing more comes for a second."""
    connection = pika.BlockingConnection(pika.URLParameters(amqp_url))
    try:
        return [*events(connection, idle_s=1.0)]
    finally:
        connection.close()
