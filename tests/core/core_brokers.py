"""Tiny models of how brokers write x-death, and of a letter's way between them and the router.

Source: rabbit_dead_letter.erl v3.10.8 (`group_by_queue_and_reason` reverses the tail); mc.erl v4.0.9 (`record_death`).
"""

from dataclasses import dataclass, field, replace
from typing import Literal

from dlx_router.core.letter import Arrival, Death, History, Letter
from dlx_router.core.outcome import DeadLetter, Decision, Hold, Park, Retry
from dlx_router.core.publication import record_of, to_return
from dlx_router.core.record import AT_REST_BYTES, Record, encode
from dlx_router.core.remembered import decode
from tests.core.core_samples import CONTENT, KEY, arrived

Version = Literal["3.10", "4"]
INBOX, RETURN, RUNG, RELEASE = "dlx-router.inbox", "dlx-router.return", "dlx-router.delay.1000", "dlx-router.release"


def put_in_front(deaths: History, new: Death) -> History:
    """What every broker means to do: count by (queue, reason), the first time, exchange and keys stay, newest first."""
    same = [death for death in deaths if death.key == new.key]
    head = same[0]._replace(times=same[0].times + 1) if same else new
    return (head, *(death for death in deaths if death.key != new.key))


@dataclass
class Message:
    """A message in a queue: the x-death that a client sent, and what the broker itself recorded."""

    exchange: str
    keys: tuple[str, ...]
    sent: History = ()
    recorded: History = ()

    @property
    def x_death(self) -> History:
        """What the next consumer is shown."""
        return self.recorded or self.sent

    def dies(self, version: Version, queue: str, reason: str, time_s: int, dlx: str) -> None:
        new = Death(queue, reason, 1, time_s, self.exchange, self.keys)
        if version == "4":
            self.recorded = put_in_front(self.recorded, new)
        else:  # interprets what a client sent; folding the old entries reverses them
            self.recorded = put_in_front(self.x_death[::-1], new)
        self.exchange = dlx


@dataclass
class Truth:
    """What really happened, as a broker without any flaw would tell it."""

    history: History = ()
    total: dict[str, int] = field(default_factory=dict)

    def died(self, queue: str, reason: str, time_s: int, exchange: str, keys: tuple[str, ...]) -> None:
        clean = exchange
        if exchange == RETURN:  # the way back is no exchange of the letter's: it came by that of its last death here
            clean = next(death.exchange for death in self.history if death.queue == queue)
        self.history = put_in_front(self.history, Death(queue, reason, 1, time_s, clean, keys))
        self.total[queue] = self.total.get(queue, 0) + 1


class World:
    """One letter among brokers and one router. `read` is what the router makes of the letter's latest delivery."""

    def __init__(self, keys: tuple[str, ...] = ("order.created", "cc.one")) -> None:
        self.message = Message("shop", keys)
        self.truth = Truth()
        self.record: Record | None = None
        self.clock_s = 1_700_000_000

    def native_death(self, version: Version, queue: str, reason: str, dlx: str = INBOX) -> None:
        self.truth.died(queue, reason, self.clock_s, self.message.exchange, self.message.keys)
        self.message.dies(version, queue, reason, self.clock_s, dlx)

    def read(self, arrival: Arrival = Arrival.INBOX) -> Letter:
        shown = self.message.x_death
        own = any(death.exchange.startswith("dlx-router.") for death in shown)
        return arrived(
            shown,
            self.record,
            belongs=self.record is not None,
            arrival=arrival,
            exchange=self.message.exchange,
            routing_key=self.message.keys[0],
            native=self.message.exchange == INBOX or own,
            now_ms=self.clock_s * 1000,
        )

    def publish(self, letter: Letter, decision: Decision, exchange: str = RETURN) -> None:
        """A republish: what the broker had recorded is forgotten, x-death is what we say."""
        assert isinstance(decision, Retry | Hold | Park | DeadLetter)
        self._send(letter, record_of(letter, decision, CONTENT, policy="all", revision="0" * 12), exchange)

    def _send(self, letter: Letter, record: Record, exchange: str) -> None:
        self.record = decode(encode(record, KEY, AT_REST_BYTES), KEY)
        self.message = Message(exchange, self.message.keys, sent=letter.history)

    def waits(self, version: Version) -> Letter:
        """In a rung, whose queue expires it into release; the router hands it on."""
        self.message = replace(self.message, exchange=RUNG)
        self.message.dies(version, RUNG, "expired", self.clock_s, RELEASE)
        letter = self.read(Arrival.RELEASE)
        assert self.record is not None
        back = to_return(self.record, RETURN, f"to:{self.record.failed_queue}")
        self._send(letter, back.record, back.exchange)  # what a cut loses is tried elsewhere
        return letter
