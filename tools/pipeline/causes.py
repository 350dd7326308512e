"""Why the letters of the made-up week fail: each cause has a time, a shape, and an end that is known beforehand.

A cause says when its letters fail first, what they say, and whether a given delivery of a given letter fails too.
Nothing here knows the router: what follows from a failure is decided by the real `decide()` (tools/pipeline/week.py).
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from random import Random
from typing import Any, Final

HOUR_S: Final = 3600
DAY_S: Final = 24 * HOUR_S
WEEK_S: Final = 7 * DAY_S

# (letter's own chance in 0..1, seconds since the week began, number of this delivery from 1, redrives) → it fails
Fails = Callable[[Random, float, int, int], bool]


@dataclass(frozen=True)
class Cause:
    """One thing that is wrong in the shop. `share` of all letters; `start_s`, `end_s`: when letters fail first."""

    name: str
    queue: str
    reason: str
    share: float
    fails: Fails
    error_type: str = ""
    message: str = ""
    frame: str = ""
    start_s: float = 0
    end_s: float = WEEK_S
    pictures: int = 0  # so many bodies in all, again and again; 0: each letter has its own
    exchange: str = "shop"
    producer: str = "web"

    def error(self, chance: Random) -> dict[str, Any] | None:
        """What the consumer declared; numbers and ids differ from letter to letter."""
        if not self.error_type:
            return None
        message = self.message.format(
            number=chance.randrange(100_000, 999_999),
            hex=f"{chance.getrandbits(64):016x}",
            ms=chance.randint(900, 9999),
        )
        return {"type": self.error_type, "message": message, "frame": self.frame}

    def body(self, chance: Random) -> bytes:
        """The message; poison is the same few messages over and over."""
        if self.pictures:
            return b'{"picture":"picture-%d.heic","width":1600}' % chance.randrange(self.pictures)
        return b'{"order":%d,"total":%d}' % (chance.randrange(10**8), chance.randrange(100, 99_999))


def outage(until_s: float) -> Fails:
    """Nothing works until then, nine of ten deliveries after."""
    return lambda chance, at_s, _delivery, _redrives: at_s < until_s or chance.random() >= 0.9  # noqa: PLR2004 - nine of ten, as it says


def _flaky(succeeds: float) -> Fails:
    """Each further delivery works with this chance, whatever happened before; the first has failed already."""
    return lambda chance, _at_s, delivery, redrives: (delivery == 1 and not redrives) or chance.random() >= succeeds


def _always(_chance: Random, _at_s: float, _delivery: int, _redrives: int) -> bool:
    return True


def _rarely_after(delivery: int, succeeds: float) -> Fails:
    """A lock that is held for a while: hopeless at first, good from a delivery on."""
    return lambda chance, _at_s, n, redrives: (n < delivery and not redrives) or chance.random() >= succeeds


def heals(lasts_ms: Callable[[float], float], succeeds: float) -> Fails:
    """Nothing works for a time of the letter's own, by its quantile; after that each delivery with this chance."""
    until_s: dict[int, float] = {}

    def fails(chance: Random, at_s: float, delivery: int, redrives: int) -> bool:
        if delivery == 1 and not redrives:
            until_s[id(chance)] = at_s + lasts_ms(chance.random()) / 1000
            return True
        return at_s < until_s[id(chance)] or chance.random() >= succeeds

    return fails


OUTAGE_START_S: Final = 2 * DAY_S + 9 * HOUR_S  # Wednesday, 09:00
OUTAGE_END_S: Final = OUTAGE_START_S + 40 * 60
DEPLOY_S: Final = 3 * DAY_S + 14 * HOUR_S  # Thursday, 14:00

CAUSES: Final = (
    Cause(
        "gateway-timeouts", "payments.charge", "application:timeout", 0.25, _flaky(0.6),
        "GatewayTimeout", "gateway gw-3 timed out after {ms} ms (request {hex})", "charge.py:88 in charge",
    ),
    Cause(
        "search-lock", "search.index", "application:conflict", 0.15, _rarely_after(3, 0.9),
        "LockHeld", "document {number} is locked by writer {hex}", "index.py:41 in update", producer="catalogue",
    ),
    Cause(
        "stock-outage", "stock.reserve", "rejected", 0.2, outage(OUTAGE_END_S),
        start_s=OUTAGE_START_S, end_s=OUTAGE_END_S, producer="orders",
    ),
    Cause(
        "missing-vat", "orders.new", "application:invalid", 0.2, _always,
        "ValidationError", "order {number}: field 'vat' is missing", "orders.py:120 in parse", start_s=DEPLOY_S,
    ),
    Cause("heic-pictures", "media.resize", "delivery_limit", 0.05, _always, pictures=7, producer="uploads"),
    Cause("mail-too-late", "mail.send", "expired", 0.1, _always, producer="crm"),
    Cause("clicks-overflow", "clicks.count", "maxlen", 0.05, _always, producer="web"),
)  # fmt: skip
REDRIVEN: Final = "stock-outage"  # the group that somebody sends back on Wednesday afternoon
REDRIVE_S: Final = 2 * DAY_S + 15 * HOUR_S
REDRIVE_ID: Final = "r-stock-wednesday"


@dataclass(frozen=True)
class Start:
    """A letter's first failure: `at_s` since the week began."""

    at_s: float
    cause: Cause
    number: int
    chance: Random = field(repr=False)


def starts(seed: int, letters: int, causes: Sequence[Cause] = CAUSES) -> list[Start]:
    """The first failures in order of time; the same for the same seed, on every machine."""
    chance = Random(seed)
    failures: list[Start] = []
    for cause in causes:
        for number in range(round(letters * cause.share)):
            own = Random(chance.getrandbits(64))
            failures.append(Start(_moment(own, cause), cause, number, own))
    return sorted(failures, key=lambda start: (start.at_s, start.cause.name, start.number))


def _moment(chance: Random, cause: Cause) -> float:
    """Within the cause's time; more by day than by night."""
    while True:
        at_s = chance.uniform(cause.start_s, cause.end_s - 1)
        busy = 0.55 - 0.45 * math.cos(2 * math.pi * (at_s % DAY_S) / DAY_S)
        if chance.random() < busy:
            return round(at_s, 3)
