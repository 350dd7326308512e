"""The shop's own books: what became of each message by the shop's own counting. They share nothing with the router."""

import threading
import time
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from tools.demo.outage import QUEUE, Outage

STORIES: Final = 200


@dataclass(frozen=True, slots=True)
class Plan:
    """How long the demo lasts and how patient its policies are."""

    publish_s: float
    delay_ms: int
    outage: Outage | None = None
    attempts: int = 3

    @classmethod
    def of(cls, seconds: float) -> "Plan":
        """All is over about `seconds` after the start."""
        delay_ms = int(min(max(seconds * 50, 250), 2000))
        return cls(max(seconds - 3.3 * delay_ms / 1000 - 1.5, 1.0), delay_ms, Outage.of(seconds))

    def wait_s(self, failures: int) -> float:
        """The wait after so many failures, but for the jitter."""
        return float(self.delay_ms * 2 ** (failures - 1) / 1000)

    @property
    def longest_s(self) -> float:
        """No letter waits longer than this, all its waits together."""
        held_s = self.outage.longest_s if self.outage is not None else 0.0
        return held_s + 1.2 * sum(map(self.wait_s, range(1, self.attempts)))


@dataclass(slots=True)
class Entry:
    """One message. `failed_at`: when its last delivery failed; None while it is not between two deliveries."""

    queue: str
    body: bytes
    failures: int = 0
    acks: int = 0
    failed_at: float | None = None


@dataclass(slots=True)
class Tally:
    """The numbers of one queue. `away`: failed, and neither back nor seen as dead by the shop."""

    published: int = 0
    ok: int = 0
    failures: int = 0
    away: int = 0


@dataclass(frozen=True, slots=True)
class Verdict:
    """Where every message is at the end. `fine`: each in exactly one place, with the bytes that were published.

    `spoiled`: dead or parked, though only an outage kept them from being handled.
    """

    published: int
    handled: int
    dead: int
    parked: int
    missing: list[str]
    twice: list[str]
    changed: list[str]
    unknown: list[str]
    spoiled: list[str]

    @property
    def fine(self) -> bool:
        return not (self.missing or self.twice or self.changed or self.unknown or self.spoiled)

    def __str__(self) -> str:
        known = self.published - len(self.missing)
        trouble = (
            ("twice", self.twice),
            ("missing", self.missing),
            ("changed", self.changed),
            ("unknown", self.unknown),
            ("dead by the outage", self.spoiled),
        )
        counts = ", ".join(f"{what} {len(names)}" for what, names in trouble)
        return (
            f"accounted for: {known} of {self.published} messages "
            f"(succeeded {self.handled}, dead {self.dead}, parked {self.parked}, {counts})"
        )


@dataclass
class Books:
    """Every message from publish to its end. Each method may be called by any thread."""

    plan: Plan
    tallies: dict[str, Tally]
    changed: set[str] = field(default_factory=set)
    stories: deque[str] = field(default_factory=lambda: deque(maxlen=STORIES))
    told: int = 0
    _entries: dict[str, Entry] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def published(self, name: str, queue: str, body: bytes) -> None:
        """Say this before the publish: a consumer may be faster than the confirm."""
        with self._lock:
            self._entries[name] = Entry(queue, body)
            self.tallies[queue].published += 1

    def failures(self, name: str) -> int:
        """How often this message has failed."""
        with self._lock:
            return self._entries[name].failures

    def failed(self, name: str, body: bytes, why: str = "") -> None:
        """A consumer could not handle it and is about to reject it. `why`: it is not the message's fault."""
        with self._lock:
            entry, back = self._taken(name, body)
            entry.failures += 1
            entry.failed_at = time.monotonic()
            tally = self.tallies[entry.queue]
            tally.failures += 1
            tally.away += 1
            detail = why or f"{entry.failures} of {self.plan.attempts}, {self._next(entry)}"
            self._record(f"{name}: {back}failed{':' if why else ''} {detail}")

    def handled(self, name: str, body: bytes) -> None:
        """A consumer has done its work and is about to ack it."""
        with self._lock:
            entry, back = self._taken(name, body)
            entry.acks += 1
            self.tallies[entry.queue].ok += 1
            if back:
                self._record(f"{name}: {back}succeeded")

    def open(self) -> int:
        """Messages that no consumer has acked: each should end in a dead-letter queue."""
        with self._lock:
            return sum(not entry.acks for entry in self._entries.values())

    def audit(self, dead: Iterable[tuple[str, bytes]], parked: Iterable[tuple[str, bytes]]) -> Verdict:
        """The verdict, given name and body of all that lies in dead-letter queues and in parking."""
        with self._lock:
            dead, parked = list(dead), list(parked)
            lying = [*dead, *parked]
            places = Counter({name: entry.acks for name, entry in self._entries.items()})
            places.update(name for name, _ in lying)
            changed = self.changed | {name for name, body in lying if self._differs(name, body)}
            return Verdict(
                published=len(self._entries),
                handled=sum(bool(entry.acks) for entry in self._entries.values()),
                dead=len(dead),
                parked=len(parked),
                missing=[name for name in self._entries if not places[name]],
                twice=[name for name, times in places.items() if times > 1],
                changed=sorted(changed),
                unknown=sorted(set(places) - set(self._entries)),
                spoiled=sorted({name for name, _ in lying if self._is_of_the_outage(name)}),
            )

    def tell(self, story: str) -> None:
        """Something that happened to the shop, not to one message."""
        with self._lock:
            self._record(story)

    def snapshot(self) -> Mapping[str, Tally]:
        """The numbers of each queue, all of one instant."""
        with self._lock:
            return {name: Tally(of.published, of.ok, of.failures, of.away) for name, of in self.tallies.items()}

    def _taken(self, name: str, body: bytes) -> tuple[Entry, str]:
        """The entry, and a few words where the message was away; its return is booked."""
        entry = self._entries[name]
        if entry.body != body:
            self.changed.add(name)
        if entry.failed_at is None:
            return entry, ""
        away = time.monotonic() - entry.failed_at
        entry.failed_at = None
        self.tallies[entry.queue].away -= 1
        return entry, f"back after {away:.1f} s, "

    def _next(self, entry: Entry) -> str:
        if entry.failures < self.plan.attempts:
            return f"waits about {self.plan.wait_s(entry.failures):g} s"
        return f"out of tries: to DLQ.{entry.queue}"

    def _differs(self, name: str, body: bytes) -> bool:
        return name in self._entries and self._entries[name].body != body

    def _is_of_the_outage(self, name: str) -> bool:
        return name in self._entries and self._entries[name].queue == QUEUE

    def _record(self, story: str) -> None:
        self.stories.append(story)
        self.told += 1
