"""Letters whose retries cost more than they could save, and that a condition of a policy can tell from the others."""

from collections.abc import Sequence
from typing import Final, NamedTuple

from dlx_router.spark.advice.cost import Prices
from dlx_router.spark.advice.evidence import LETTERS, Z_CHOSEN, Tries, letters_of, recovered_of
from dlx_router.spark.intervals import wilson

MOST_CONDITIONS: Final = 5


class Hopeless(NamedTuple):
    """`condition`: in CEL, as the policy takes it: the trait that these letters have. The rest: as it was recorded."""

    condition: str
    letters: int
    recovered: int
    retries: int
    high: float


def conditions_for(rows: Sequence[Tries], known: Sequence[str], prices: Prices) -> tuple[Hopeless, ...]:
    """Conditions that keep hopeless letters from being tried; none where all letters are, or the policy has it.

    Greedy: the one that covers the most letters first, until none is left, or a handful is found.
    """
    chosen: list[Hopeless] = []
    left = list(rows)
    while len(chosen) < MOST_CONDITIONS:
        traits = {trait for row in left for trait in row.traits}
        judged = [candidate for trait in sorted(traits) if (candidate := _judged(trait, left, prices)) is not None]
        new = [candidate for candidate in judged if candidate.condition not in known]
        if not new:
            break
        best = max(new, key=lambda candidate: (candidate.letters, candidate.condition))
        left = [row for row in left if best.condition not in row.traits]
        chosen.append(best)
    return tuple(chosen)


def _judged(trait: str, rows: Sequence[Tries], prices: Prices) -> Hopeless | None:
    """The trait as a condition, where its letters are hopeless and the others are not."""
    own = [row for row in rows if trait in row.traits]
    others = [row for row in rows if trait not in row.traits]
    letters = letters_of(own)
    if letters < LETTERS or letters_of(others) < LETTERS or not is_hopeless(own, prices):
        return None
    if is_hopeless(others, prices):
        return None
    good = recovered_of(own)
    return Hopeless(trait, letters, good, sum(row.tried for row in own), wilson(good, letters, Z_CHOSEN)[1])


def is_hopeless(rows: Sequence[Tries], prices: Prices) -> bool:
    """Whether retries cost more than they save, even if as many recover as the interval's upper end says."""
    letters = letters_of(rows)
    if not letters:
        return False
    spent = sum(row.tried for row in rows) + prices.second * sum(row.wait_ms for row in rows) / 1000
    return wilson(recovered_of(rows), letters, Z_CHOSEN)[1] * prices.redrive < spent / letters
