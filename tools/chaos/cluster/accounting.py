"""What was published on three nodes, when it was confirmed, and where it was found. No clock, no broker.

A letter counts once the broker confirmed it without returning it. Its body is `way:number`, its message id the same.
"""

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Final

from tools.chaos.cluster.schedule import NODES

INBOX: Final = "dead"  # expires in its source, the broker dead-letters it
ATTACHED: Final = "attached"  # its source is attended by the router itself
RETRY: Final = "retry"  # rejected once by its consumer, then consumed
ENDS: Final = "ends"
CONSUMER: Final = "the consumer"
_MANY: Final = 255
_STEP: Final = 1 << 14


@dataclass(frozen=True)
class Way:
    """What happens to some letters; `node` leads their source where that is a classic queue."""

    route: str
    node: int | None

    @property
    def source(self) -> str:
        """The queue that they are published to."""
        return f"{self.route}.quorum" if self.node is None else f"{self.route}.classic.{self.node}"

    @property
    def classic(self) -> bool:
        """The source lives on one node."""
        return self.node is not None


QUORUM: Final = tuple(Way(route, None) for route in (INBOX, ATTACHED, RETRY))
CLASSIC: Final = (*(Way(route, node) for route in (INBOX, ATTACHED) for node in range(NODES)), Way(RETRY, 1))
WAYS: Final = (*QUORUM, *CLASSIC)
NAMED: Final = {way.source: way for way in WAYS}
_AT: Final = {way: at for at, way in enumerate(WAYS)}


@dataclass(frozen=True)
class Lost:
    """A letter that is nowhere, and when its publish was confirmed (seconds since 1970)."""

    number: int
    way: Way
    confirmed_s: float


class Books:
    """Every letter of one vhost. Called by one thread; numbers may be read by others."""

    def __init__(self) -> None:
        self.numbers = 0  # given out
        self.refused = 0  # returned, or nacked: the publisher knows that the broker does not have it
        self.finds = 0
        self.places: Counter[tuple[str, str]] = Counter()  # (way, place) → copies found
        self.newest = dict.fromkeys(WAYS, -1)
        self.waits: dict[Way, float | None] = dict.fromkeys(WAYS)
        """Since when a confirmed letter of this way has been waiting while none of that way was found."""
        self.foreign: list[str] = []
        self._way = array("B")
        self._confirmed_s = array("d")
        self._copies = bytearray()
        self._returned: set[int] = set()

    def next(self, way: Way) -> int:
        """A number that was not used."""
        number = self.numbers
        self.numbers += 1
        if number >= len(self._way):
            self._way.frombytes(bytes(_STEP))
            self._confirmed_s.frombytes(bytes(8 * _STEP))
            self._copies.extend(bytes(_STEP))
        self._way[number] = _AT[way]
        return number

    def way(self, number: int) -> Way:
        """Which way it goes."""
        return WAYS[self._way[number]]

    def returned(self, number: int) -> None:
        """The broker had no queue for it: its confirm, which comes next, is worth nothing."""
        self._returned.add(number)

    def refuse(self, number: int) -> None:
        """Nacked."""
        self.refused += 1
        self._returned.discard(number)

    def confirm(self, number: int, now_s: float) -> None:
        """The broker has it, unless it was returned."""
        if number in self._returned:
            self.refuse(number)
            return
        self._confirmed_s[number] = now_s
        way = self.way(number)
        if not self._copies[number] and self.waits[way] is None:
            self.waits[way] = now_s

    def find(self, place: str, body: bytes) -> None:
        """A copy was taken out of a place."""
        self.finds += 1
        name, _, digits = body.decode(errors="replace").partition(":")
        number = int(digits) if digits.isdigit() else -1
        way = NAMED.get(name)
        if way is None or not 0 <= number < self.numbers or self.way(number) is not way:
            self.foreign.append(repr(body[:40]))
            return
        self.places[name, place] += 1
        self._copies[number] = min(self._copies[number] + 1, _MANY)
        self.newest[way] = max(self.newest[way], number)
        self.waits[way] = None

    def confirmed(self, way: Way) -> int:
        """How many letters of this way there are."""
        return sum(1 for _ in self._letters(way))

    def lost(self) -> list[Lost]:
        """Letters that were found nowhere."""
        return [
            Lost(number, way, self._confirmed_s[number])
            for way in WAYS
            for number in self._letters(way)
            if not self._copies[number]
        ]

    def duplicates(self) -> int:
        """Copies beyond the first, of all letters."""
        return sum(max(0, copies - 1) for copies in self._copies[: self.numbers])

    def in_doubt(self) -> int:
        """Published, never answered."""
        return self.numbers - self.refused - sum(map(self.confirmed, WAYS))

    def _letters(self, way: Way) -> Iterator[int]:
        at = _AT[way]
        return (number for number in range(self.numbers) if self._way[number] == at and self._confirmed_s[number])


def body_of(way: Way, number: int) -> bytes:
    """What this letter says."""
    return f"{way.source}:{number}".encode()
