"""What would have come of other waits: two readings of the same deliveries, and how sure each is.

- *Time heals*: a letter's cause lasts for some time, and each delivery after that succeeds. What is known of a letter
  is the stretch between its last failure and its success (or nothing after the last failure: censored). The estimate
  is the nonparametric one of B. W. Turnbull (JRSS B 38, 1976), what lies between two deliveries put at the later.
- *Tries help*: the n-th delivery succeeds as often as the n-th did, whatever it waited.

With waits that never varied both explain everything equally well, so both are asked, and the worse answer counts. Where
waits varied one of them may be refuted, and falls: the second if success went with the wait of an attempt, the first if
it went with the attempt at one moment. Neither expects anything beyond what was tried: after the latest delivery that
was seen nothing recovers.
"""

from bisect import bisect_right
from collections.abc import Sequence
from math import erfc, sqrt
from typing import Final, NamedTuple, Protocol

import numpy as np

from dlx_router.spark.advice.cost import Array
from dlx_router.spark.advice.evidence import EDGES_MS, Tries, bucket, by_attempt

DRAWS: Final = 600
PRIOR: Final = 0.5  # Jeffreys': what half a letter would say, so that "never so far" is not "never"
_ROUNDS: Final = 200
_STILL: Final = 1e-4
REFUTED: Final = 0.001
SURELY: Final = 1e-9  # of the reading that keeps waits long: who believes it too little tries in vain
RARE: Final = 0.02
ROOM: Final = 0.5


class Reading(Protocol):
    """The share of letters that needs each retry of a schedule, in draws of what is not sure; draw 0: the estimate."""

    def alive(self, waits_ms: Array, first: int) -> Array:
        """(draws, turns, tries + 1): before each retry, and after the last."""
        ...


class TimeHeals(NamedTuple):
    """`left[d, b]`: the share of letters whose cause lasts beyond bucket b."""

    left: Array

    def alive(self, waits_ms: Array, first: int) -> Array:
        """By the time since the first death; which attempt it is does not matter."""
        del first
        offsets = np.cumsum(waits_ms, axis=1)
        at = np.searchsorted(np.asarray(EDGES_MS), offsets, side="right")
        begun = np.ones((self.left.shape[0], waits_ms.shape[0], 1))
        return np.concatenate([begun, self.left[:, at]], axis=2)


class TriesHelp(NamedTuple):
    """`fails[d, n]`: how often the delivery after n failed ones fails; `least_ms[n]`: hardly any waited for less."""

    fails: Array
    least_ms: Array

    def alive(self, waits_ms: Array, first: int) -> Array:
        """By the number of the attempt; how long it waited does not matter, if so short a wait was ever tried."""
        turns, tries = waits_ms.shape
        known, least = np.ones((self.fails.shape[0], first + tries)), np.full(first + tries, np.inf)
        seen = min(self.fails.shape[1], first + tries)
        known[:, :seen], least[:seen] = self.fails[:, :seen], self.least_ms[:seen]
        tried = waits_ms >= least[None, first:]
        left = np.cumprod(np.where(tried[None], known[:, None, first:], 1.0), axis=2)
        return np.concatenate([np.ones((left.shape[0], turns, 1)), left], axis=2)


def time_heals(rows: Sequence[Tries], chance: np.random.Generator, draws: int = DRAWS) -> TimeHeals:
    """The first reading. Draw 0 is the estimate itself, the others what it might have been (Bayesian bootstrap)."""
    good: dict[tuple[int, int], float] = {}
    tried: dict[tuple[int, int], float] = {}
    ended: dict[int, float] = {}
    for row in rows:
        place = (min(row.since, row.at - 1), row.at)  # a wait so short that it stayed in its bucket
        good[place] = good.get(place, 0) + row.recovered
        tried[place] = tried.get(place, 0) + row.tried
        ended[row.at] = ended.get(row.at, 0) + row.ended
    support = sorted({at for _, at in good})
    places, ends = sorted(good), sorted(ended)
    total, left = sum(tried.values()), sum(ended.values())
    seen = [good[place] + PRIOR * tried[place] / total for place in places]
    seen += [ended[end] + PRIOR * (ended[end] / left if left else 1 / len(ends)) for end in ends]
    weights = np.concatenate([np.array([seen]), chance.gamma(np.array(seen), size=(draws - 1, len(seen)))])
    where = [(bisect_right(support, low), bisect_right(support, high)) for low, high in places]
    where += [(bisect_right(support, end), len(support) + 1) for end in ends]
    same = sorted({*where})  # observations that say the same of a letter count together
    joined = np.stack([weights[:, [span == pair for pair in where]].sum(axis=1) for span in same], axis=1)
    shares = _most_likely(joined / joined.sum(axis=1, keepdims=True), same)
    remaining = np.ones((draws, len(EDGES_MS) + 1))
    for column, at in enumerate(support):
        remaining[:, at:] -= shares[:, column : column + 1]
    return TimeHeals(np.clip(remaining, 0.0, 1.0))


def _most_likely(weights: Array, where: Sequence[tuple[int, int]]) -> Array:
    """Turnbull's self-consistent shares: each observation is spread over where it may have been, until all is still.

    `where`: from which column to before which. The last column: never, as far as anybody saw.
    """
    columns = max(end for _, end in where)
    may = np.array([[begin <= column < end for column in range(columns)] for begin, end in where], dtype=float)
    shares = np.full((weights.shape[0], columns), 1 / columns)
    for _ in range(_ROUNDS):
        likelihoods = np.einsum("dc,oc->do", shares, may)  # threads of a matrix product would cost more than they save
        moved = shares * np.einsum("do,oc->dc", weights / np.maximum(likelihoods, 1e-300), may)
        still = np.abs(moved - shares).max() < _STILL
        shares = moved
        if still:
            break
    return shares


def tries_help(rows: Sequence[Tries], chance: np.random.Generator, draws: int = DRAWS) -> TriesHelp:
    """The second reading; draw 0 is the estimate itself."""
    counted = by_attempt(rows)
    total = sum(tried for _, tried, _ in counted.values())
    fails, least = np.ones((draws, max(counted) + 1)), np.full(max(counted) + 1, np.inf)
    for attempts, (good, tried, _) in counted.items():
        if tried:
            a, b = good + PRIOR * tried / total, tried - good + PRIOR
            fails[0, attempts] = 1 - a / (a + b)
            fails[1:, attempts] = 1 - chance.beta(a, b, draws - 1)
            least[attempts] = _least_ms([row for row in rows if row.attempts == attempts and row.tried])
    return TriesHelp(fails, least)


def _least_ms(rows: Sequence[Tries]) -> float:
    """The wait than which one in fifty was shorter, with some room: waits are known by bucket."""
    enough = RARE * sum(row.tried for row in rows)
    for wait, tried in sorted((row.wait_ms / row.tried, row.tried) for row in rows):
        enough -= tried
        if enough <= 0:
            return ROOM * wait
    return 0.0


_APART: Final = 3  # buckets: of deliveries that are closer nobody can say what lies between
_FEW: Final = 5  # expected in each cell of the test, at least: below that its distribution is not that of chi-square


class Held(NamedTuple):
    """What of the readings stands. Where both fall, nobody knows, and both are asked as if they stood."""

    time: bool
    tries: bool


def held(rows: Sequence[Tries]) -> Held:
    """Which readings the deliveries do not refute."""
    standing = Held(not _attempts_matter(rows), not _waits_matter(rows))
    return standing if any(standing) else Held(time=True, tries=True)


def _attempts_matter(rows: Sequence[Tries]) -> bool:
    """Whether *time heals* is refuted: by it, deliveries of one moment do not differ by which attempt they are."""
    left = time_heals(rows, np.random.default_rng(0), draws=1).left[0]
    cells: dict[tuple[int, int], list[float]] = {}
    for row in (row for row in rows if row.at - row.since >= _APART or row.since == 0):
        before = min(row.since, row.at - 1)
        share = 1 - left[row.at] / max(left[before], 1e-9) if before >= 0 else 1 - left[row.at]
        entry = cells.setdefault((row.attempts, row.at), [0.0, 0.0, 0.0])
        for at, value in enumerate((row.recovered, row.tried * share, row.tried * share * (1 - share))):
            entry[at] += value
    full = [cell for cell in cells.values() if cell[2] >= _FEW]
    moments = len({at for (_, at), cell in cells.items() if cell[2] >= _FEW})
    freedom = len(full) - moments  # each moment has a share of its own
    if freedom <= 0:
        return False
    return _beyond(sum((got - want) ** 2 / spread for got, want, spread in full), freedom) < SURELY


def _waits_matter(rows: Sequence[Tries]) -> bool:
    """Whether *tries help* is refuted: within one attempt, more or fewer succeed by how long it waited."""
    statistic, freedom = 0.0, 0
    for attempts, (good, tried, _) in by_attempt(rows).items():
        share = good / tried if tried else 0.0
        if not 0 < share < 1:
            continue
        cells = _cells([row for row in rows if row.attempts == attempts], _FEW / min(share, 1 - share))
        freedom += max(len(cells) - 1, 0)
        for got, of in cells:
            statistic += (got - of * share) ** 2 / (of * share * (1 - share))
    return freedom > 0 and _beyond(statistic, freedom) < REFUTED


def _cells(rows: Sequence[Tries], least: float) -> list[tuple[int, int]]:
    """(recovered, tried) by the bucket of the wait, neighbours joined until each has `least` tries."""
    counts: dict[int, list[int]] = {}
    for row in rows:
        entry = counts.setdefault(bucket(row.wait_ms // max(row.tried, 1)), [0, 0])
        entry[0] += row.recovered
        entry[1] += row.tried
    cells: list[tuple[int, int]] = []
    good = tried = 0
    for _, (got, of) in sorted(counts.items()):
        good, tried = good + got, tried + of
        if tried >= least:
            cells.append((good, tried))
            good = tried = 0
    if cells and tried:
        cells[-1] = (cells[-1][0] + good, cells[-1][1] + tried)
    return cells


def _beyond(statistic: float, freedom: int) -> float:
    """The chance of a larger chi-square. Source: E. B. Wilson, M. M. Hilferty, PNAS 17 (1931)."""
    spread = 2 / (9 * freedom)
    return 0.5 * erfc(((statistic / freedom) ** (1 / 3) - (1 - spread)) / sqrt(2 * spread))
