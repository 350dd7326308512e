"""A queue's deaths of one reason: what is known of them, what is in force, and whether that can be judged at all."""

from collections.abc import Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from dlx_router.core.policy import Effective
from dlx_router.spark.advice import texts
from dlx_router.spark.advice.cost import Ladder
from dlx_router.spark.advice.evidence import LETTERS, Evidence, Key, Tries, by_attempt, letters_of, merged

BURST: Final = 0.5  # a share of letters that failed first within one hour, from which on they are one incident
OTHERS: Final = 0.2  # a share of letters that are not as the rest, from which on nothing is said of the rest


class InForce(NamedTuple):
    """What the policies say now, as far as advice looks at it."""

    ladder: Ladder
    most_ms: int | None = None
    fifo: bool = False
    conditions: tuple[str, ...] = ()
    retries: bool = True  # letters that died for this reason are tried again

    @staticmethod
    def of(policy: Effective, reason: str) -> "InForce":
        """Of the keys in force for this reason."""
        return InForce(
            Ladder.of(policy), policy.max_elapsed_ms, policy.fifo,
            tuple(condition.text for condition in policy.never_retry),
            reason.partition(":")[0] in policy.retry_on,
        )  # fmt: skip

    @staticmethod
    def recorded(rows: Sequence[Tries]) -> "InForce":
        """As it was done, where nobody shows the policies: a ladder like the waits that were seen."""
        waits = [waited / tried for _, tried, waited in by_attempt(rows).values() if tried]
        last = max(row.attempts for row in rows)
        if not waits or not waits[0]:
            return InForce(Ladder(last + 1))
        steps = sorted(after / before for before, after in pairwise(waits) if before)
        multiplier = round(steps[len(steps) // 2], 1) if steps else 1.0
        return InForce(Ladder(last + 1, _round(waits[0]), max(multiplier, 0.1), _round(max(waits)), 0.0))


def _round(ms: float) -> int:
    return max(round(ms / 100) * 100, 1)


class Cell(NamedTuple):
    """What is known of a key. `every`: all its deliveries; `busiest`: letters that failed first in one hour."""

    key: Key
    every: tuple[Tries, ...]
    busiest: int
    now: InForce | None

    @staticmethod
    def of(key: Key, evidence: Evidence, now: InForce | None) -> "Cell":
        """The part of the evidence that is about this key, in order."""
        every = merged((row for row in evidence.tries if row.key == key), with_traits=True)
        return Cell(key, tuple(every), evidence.busiest.get(key, 0), now)

    @property
    def first(self) -> int:
        """How often a letter had failed when it came first, mostly; a quorum queue counts by itself."""
        counts: dict[int, int] = {}
        for row in self.every:
            if row.since == 0:
                counts[row.attempts] = counts.get(row.attempts, 0) + row.tried
        return max(sorted(counts), key=lambda attempts: counts[attempts], default=1)

    def too_little(self) -> str | None:
        """Why nothing can be said about it; None where something can."""
        now, letters = self.now, letters_of(self.every)
        if now is None or not now.retries:
            return texts.NO_RETRIES
        if letters < LETTERS:
            return texts.few(letters, LETTERS)
        if self.busiest > BURST * letters:
            return texts.one_incident(self.busiest, letters)
        if self._begun_otherwise() > OTHERS * letters:
            return texts.MIXED
        ended = sum(row.ended for row in self.every)
        early = sum(row.ended for row in self.every if row.attempts + 1 < now.ladder.attempts)
        if early > OTHERS * ended and early >= LETTERS and now.most_ms is None:
            return texts.other_policies(now.ladder.attempts, max(row.attempts for row in self.every) + 1)
        return None

    def _begun_otherwise(self) -> int:
        """Letters that came first with another count of failed deliveries than most."""
        first = self.first
        return sum(row.tried for row in self.every if row.since == 0 and row.attempts != first)
