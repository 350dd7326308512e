"""What is known of a queue's retries, as counts: the only thing that advice is made of.

Times are counted in buckets, two to a doubling: what a wait of 10 s did, a wait of 12 s does.
"""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

_DOUBLINGS: Final = 23  # from a quarter of a second to 24 days
EDGES_MS: Final = (1, *(round(250 * 2 ** (step / 2)) for step in range(2 * _DOUBLINGS + 1)))
"""Where each bucket begins but the first, which is 0 ms."""
Z_CHOSEN: Final = 3.0  # of one by which something was chosen among many
LETTERS: Final = 30  # fewer prove nothing


class Key(NamedTuple):
    """What a policy can treat in a way of its own: a queue's deaths of one reason."""

    vhost: str
    queue: str
    reason: str


class Tries(NamedTuple):
    """Deliveries after a wait, of letters that have not been redriven; each either recovered or failed.

    `attempts`: failed deliveries before. `since`, `at`: buckets of the time from the letter's first death to the
    failure before, and to this delivery. `ended`: of those that failed, the last that were made of their letter.
    `traits`: what a condition can see of these letters, in CEL.
    """

    key: Key
    attempts: int
    since: int
    at: int
    recovered: int
    failed: int
    ended: int
    wait_ms: int = 0  # of all together
    traits: tuple[str, ...] = ()

    @property
    def tried(self) -> int:
        """All of them."""
        return self.recovered + self.failed


@dataclass(frozen=True, slots=True)
class Evidence:
    """Everything that was counted. Order means nothing. `busiest`: letters that failed first in one hour, at most."""

    tries: tuple[Tries, ...] = ()
    busiest: Mapping[Key, int] = field(default_factory=dict)

    def keys(self) -> list[Key]:
        """Of which anything was tried, sorted."""
        return sorted({row.key for row in self.tries})


def bucket(ms: int) -> int:
    """The bucket of a time."""
    return bisect_right(EDGES_MS, ms)


def merged(rows: Iterable[Tries], *, with_traits: bool = False) -> list[Tries]:
    """The same counts, one row for each attempt and time, in order. `with_traits`: these stay apart."""
    counts: dict[tuple[Key, int, int, int, tuple[str, ...]], list[int]] = {}
    for row in rows:
        place = (row.key, row.attempts, row.since, row.at, row.traits if with_traits else ())
        entry = counts.setdefault(place, [0, 0, 0, 0])
        for at, count in enumerate((row.recovered, row.failed, row.ended, row.wait_ms)):
            entry[at] += count
    return [
        Tries(key, attempts, since, at, recovered, failed, ended, wait_ms, traits)
        for (key, attempts, since, at, traits), (recovered, failed, ended, wait_ms) in sorted(counts.items())
    ]


def letters_of(rows: Iterable[Tries]) -> int:
    """Letters that were tried at all: the wait before a letter's first retry begins at its first death."""
    return sum(row.tried for row in rows if row.since == 0)


def recovered_of(rows: Iterable[Tries]) -> int:
    """Letters that recovered; each does so once."""
    return sum(row.recovered for row in rows)


def by_attempt(rows: Sequence[Tries]) -> dict[int, tuple[int, int, int]]:
    """Attempts → (recovered, tried, ms waited by all)."""
    counts: dict[int, tuple[int, int, int]] = {}
    for row in rows:
        good, tried, waited = counts.get(row.attempts, (0, 0, 0))
        counts[row.attempts] = (good + row.recovered, tried + row.tried, waited + row.wait_ms)
    return dict(sorted(counts.items()))
