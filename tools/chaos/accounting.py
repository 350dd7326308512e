"""What was published, what was found, and what that says: the books of a chaos run. No clock, no broker.

Each letter is a number; its way is `WAYS[number % len(WAYS)]`, its body `way-number`. A letter counts as published once
the broker confirmed it. Copies of one letter share an id, so one that is delivered again to the auditor (the flag
`redelivered`) and was seen already is taken for the same copy: what the auditor did not get to ack, nobody duplicated.
"""

from array import array
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from hashlib import blake2b
from typing import Final

PARKING: Final = "dlx-router.parking"
QUARANTINE: Final = "dlx-router.quarantine"
CONSUMER: Final = "the consumer"
SWIFT: Final = "swift"
_MANY: Final = 255
_STEP: Final = 1 << 16
_EXAMPLES: Final = 5


@dataclass(frozen=True)
class Way:
    """What happens to some of the letters, and all the places where each of them must be found in the end."""

    name: str
    places: tuple[str, ...]
    share: int

    @property
    def source(self) -> str:
        """The work queue that they are published to."""
        return f"chaos.{self.name}"


SWIFT_WAY: Final = Way(SWIFT, ("chaos.swift.dead",), 3)
"""Expired, dead at once; no fault touches its target, so it tells when letters flow again."""
SINGLE: Final = Way("single", ("chaos.single.dead",), 2)
"""Expired, dead at once; its target is sometimes full, its exchange sometimes forbidden."""
FAN: Final = Way("fan", ("chaos.fan.a", "chaos.fan.b"), 2)
"""Expired, dead at once into two queues; their exchange is sometimes gone, or bound to nothing."""
FLAKY: Final = Way("flaky", (CONSUMER,), 2)
"""Rejected once, then consumed."""
BROKEN: Final = Way("broken", ("DLQ.chaos.broken",), 1)
"""Rejected at each of three deliveries, with back-off; then dead."""
ATTACHED: Final = Way("attached", ("chaos.attached.dead",), 1)
"""Published to a quorum queue that the router itself attends and that has no dead-letter exchange of its own."""
ALL: Final = (SWIFT_WAY, SINGLE, FAN, FLAKY, BROKEN, ATTACHED)
WAYS: Final = tuple(way for at in range(3) for way in ALL if way.share > at)
TRANSIENT: Final = "DLQ.transient"
NARROW: Final = "chaos.narrow"
"""A classic queue that faults make full; work queue, exchange and target of their own messages."""
HOSTILE: Final = "hostile"
"""What faults publish themselves: any of the last places is a good one for it, a second copy too; no other place is."""
LAST: Final = (
    *(place for way in ALL for place in way.places),
    TRANSIENT,
    f"{NARROW}.dead",
    f"DLQ.{NARROW}.dead",
    PARKING,
    QUARANTINE,
)


def way_of(number: int) -> Way:
    """Where this letter goes."""
    return WAYS[number % len(WAYS)]


def body_of(number: int) -> bytes:
    """What this letter says."""
    return f"{way_of(number).name}-{number}".encode()


@dataclass
class Verdict:
    """What the books say. `violations` is empty where every law holds."""

    letters: int = 0
    in_doubt: int = 0
    lost: int = 0
    duplicates: int = 0
    broker_twins: int = 0
    again: int = 0
    parked: int = 0
    hostile: int = 0  # published by faults
    rows: list[tuple[str, str, int, int, int]] = field(default_factory=list)  # way, place, letters, found, copies
    stranded: dict[str, int] = field(default_factory=dict)
    violations: list[str] = field(default_factory=list)


class Books:
    """Grows with the letters: some 20 bytes each."""

    def __init__(self) -> None:
        self.numbers = 0  # given out
        self.finds = 0
        self.again = 0  # delivered to the auditor a second time
        self.published = bytearray()
        self.confirmed = 0
        self.outstanding: set[int] = set()  # swift letters, confirmed and not yet in their place
        self.newest = -1  # of the swift letters that arrived
        self.stranded: Counter[str] = Counter()
        self._counts: dict[str, bytearray] = {place: bytearray() for place in LAST}
        self._ids = array("Q")
        self._twins: dict[int, set[int]] = {}  # letters with several ids
        self._foreign: list[str] = []
        self._hostile: list[tuple[int, int | None]] = []  # how often it must be found, and may be
        self._hostile_finds: Counter[int] = Counter()
        self._hostile_ids: set[tuple[int, int]] = set()
        self.junk: set[bytes] = set()  # bodies that a fault wrote into the state queue; in quarantine they are right

    def hostile(self, times: int = 1, most: int | None = None) -> bytes:
        """The body of a message that a fault publishes so often, and sees confirmed; `most`: how many may be found."""
        self._hostile.append((times, most))
        return f"{HOSTILE}-{len(self._hostile) - 1}".encode()

    def next(self) -> int:
        """A number that was not used."""
        number = self.numbers
        self.numbers += 1
        if number >= len(self.published):
            for row in (self.published, *self._counts.values()):
                row.extend(bytes(_STEP))
            self._ids.frombytes(bytes(8 * _STEP))
        return number

    def confirm(self, number: int) -> None:
        """The broker has it."""
        self.published[number] = 1
        self.confirmed += 1
        way = way_of(number)
        if way is SWIFT_WAY and not self._counts[way.places[0]][number]:
            self.outstanding.add(number)

    def find(self, place: str, body: bytes, letter_id: str, *, redelivered: bool) -> None:
        """A copy was taken out of a place."""
        self.finds += 1
        name, _, digits = body.decode(errors="replace").partition("-")
        number = int(digits) if digits.isdigit() else -1
        if name == HOSTILE and 0 <= number < len(self._hostile) and place in LAST:
            copy = number, _short(letter_id)
            if not redelivered or copy not in self._hostile_ids:
                self._hostile_finds[number] += 1
            self._hostile_ids.add(copy)
            return
        if place == QUARANTINE and body in self.junk:
            return
        if not 0 <= number < self.numbers or way_of(number).name != name:
            self._foreign.append(repr(body[:40]))
            return
        known = _short(letter_id)
        if place not in self._counts:
            self._counts[place] = bytearray(len(self.published))
            self.stranded[place] += 0
        row = self._counts[place]
        if redelivered and row[number] and known in self._ids_of(number):
            self.again += 1
            return
        row[number] = min(row[number] + 1, _MANY)
        self._note(number, known)
        if name == SWIFT:
            self.newest = max(self.newest, number)
            self.outstanding.discard(number)

    def _ids_of(self, number: int) -> set[int]:
        return self._twins.get(number, {self._ids[number]})

    def _note(self, number: int, known: int) -> None:
        if not self._ids[number]:
            self._ids[number] = known
        elif self._ids[number] != known:
            self._twins.setdefault(number, {self._ids[number]}).add(known)

    def missing(self) -> int:
        """Letters that were not found in all their places, nor parked."""
        return sum(1 for _ in self._all_lost()) + self._hostile_lost()

    def _hostile_lost(self) -> int:
        return sum(max(0, times - self._hostile_finds[at]) for at, (times, _) in enumerate(self._hostile))

    def nowhere(self) -> set[str]:
        """The bodies of those letters."""
        return {body_of(at).decode() for at in self._all_lost()}

    def judge(self, allowed: int) -> Verdict:
        """`allowed`: how many copies more than one may come of all that could be in flight at all faults."""
        verdict = Verdict(letters=self.confirmed, in_doubt=self.numbers - self.confirmed, again=self.again)
        for way in ALL:
            self._judge_way(way, verdict)
        verdict.hostile = len(self._hostile)
        many = [at for at, (_, most) in enumerate(self._hostile) if most and self._hostile_finds[at] > most]
        if many:
            copies = {self._hostile_finds[at] for at in many}
            verdict.violations.append(f"{len(many)} messages that faults published have {copies} copies, too many")
        if lost := self._hostile_lost():
            verdict.lost += lost
            verdict.violations.append(f"{lost} of {verdict.hostile} messages that faults published are nowhere")
        extra, twins = self._copies()
        verdict.duplicates, verdict.broker_twins = extra, twins
        verdict.parked = sum(map(bool, self._counts[PARKING]))
        verdict.stranded = {place: sum(map(bool, self._counts[place])) for place in self.stranded}
        verdict.violations += self._laws(verdict, allowed)
        return verdict

    def _judge_way(self, way: Way, verdict: Verdict) -> None:
        ours = self._ours(way)
        for place in way.places:
            row = self._counts[place]
            there = sum(map(bool, map(row.__getitem__, ours)))
            verdict.rows.append((way.name, place, len(ours), there, sum(map(row.__getitem__, ours))))
            lost = self._lost(ours, place)
            verdict.lost += len(lost)
            if lost:
                some = ", ".join(map(str, lost[:_EXAMPLES]))
                verdict.violations.append(f"{len(lost)} {way.name} letters are not in {place}: {some} …")

    def _all_lost(self) -> Iterator[int]:
        """Each as often as there are places where it is not."""
        for way in ALL:
            ours = self._ours(way)
            for place in way.places:
                yield from self._lost(ours, place)

    def _ours(self, way: Way) -> list[int]:
        return [at for at in range(self.numbers) if self.published[at] and way_of(at) is way]

    def _lost(self, ours: list[int], place: str) -> list[int]:
        row, parked = self._counts[place], self._counts[PARKING]
        return [at for at in ours if not row[at] and not parked[at]]

    def _copies(self) -> tuple[int, int]:
        """Copies too many that share an id, and those with an id of their own: the broker dead-lettered it twice."""
        extra = twins = 0
        for number in range(self.numbers):
            places = way_of(number).places
            most = max(self._counts[place][number] for place in places)
            elsewhere = sum(row[number] for place, row in self._counts.items() if place not in places)
            ids = len(self._ids_of(number))
            extra += max(0, most + elsewhere - ids)
            twins += ids - 1
        return extra, twins

    def _laws(self, verdict: Verdict, allowed: int) -> Iterator[str]:
        if verdict.duplicates > allowed:
            yield f"{verdict.duplicates} copies too many, and no more than {allowed} could be in flight at the faults"
        if several := [at for at, ids in self._twins.items() if 0 in ids]:
            yield f"{len(several)} letters were found without an id: {several[:_EXAMPLES]}"
        if quarantined := sum(map(bool, self._counts[QUARANTINE])):
            yield f"{quarantined} letters are in quarantine"
        if self._foreign:
            yield f"{len(self._foreign)} bodies that nobody published: {self._foreign[:_EXAMPLES]}"
        yield from (f"{many} letters are left in {place}" for place, many in verdict.stranded.items() if many)
        yield from self._shared_ids()
        yield from self._strayed()

    def _shared_ids(self) -> Iterator[str]:
        owners: dict[int, int] = {}
        for number in range(self.numbers):
            for letter_id in self._ids_of(number) if self._ids[number] else ():
                if (other := owners.setdefault(letter_id, number)) != number:
                    yield f"letters {other} and {number} have one id"
                    return

    def _strayed(self) -> Iterator[str]:
        for place, row in self._counts.items():
            if place in {PARKING, QUARANTINE} or place in self.stranded:
                continue
            strayed = [at for at in range(self.numbers) if row[at] and place not in way_of(at).places]
            if strayed:
                yield f"{len(strayed)} letters are in {place}, and should not be: {strayed[:_EXAMPLES]}"


def _short(letter_id: str) -> int:
    """64 bits of it; 0 where there is none."""
    return int.from_bytes(blake2b(letter_id.encode(), digest_size=8).digest()) | 1 if letter_id else 0
