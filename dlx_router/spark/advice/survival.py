"""What would have come of other waits: two readings of the same deliveries.

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
from dlx_router.spark.advice.evidence import EDGES_MS, Z_CHOSEN, Tries, bucket, by_attempt
from dlx_router.spark.intervals import wilson

_PRIOR: Final = 0.5  # what half a letter would say, so that "never so far" is not "never"
_ROUNDS: Final = 200
_STILL: Final = 1e-4
_REFUTED: Final = 0.001
_SURELY: Final = 1e-9  # of the reading that keeps waits long: who believes it too little tries in vain
_RARE: Final = 0.02
_ROOM: Final = 0.5
_APART: Final = 3  # buckets: of deliveries that are closer nobody can say what lies between
_FEW: Final = 5  # expected in each cell of the test, at least: below that its distribution is not that of chi-square


class Reading(Protocol):
    """The share of letters that needs each retry of a schedule."""

    def alive(self, waits_ms: Array, first: int) -> Array:
        """(turns, tries + 1): before each retry, and after the last."""
        ...


class TimeHeals(NamedTuple):
    """`left[b]`: the share of letters whose cause lasts beyond bucket b."""

    left: Array

    def alive(self, waits_ms: Array, first: int) -> Array:
        """By the time since the first death; which attempt it is does not matter."""
        del first
        at = np.searchsorted(np.asarray(EDGES_MS), np.cumsum(waits_ms, axis=1), side="right")
        return np.concatenate([np.ones((waits_ms.shape[0], 1)), self.left[at]], axis=1)


class TriesHelp(NamedTuple):
    """`fails[n]`: how often the delivery after n failed ones fails; `least_ms[n]`: hardly any waited for less."""

    fails: Array
    least_ms: Array

    def alive(self, waits_ms: Array, first: int) -> Array:
        """By the number of the attempt; how long it waited does not matter, if so short a wait was ever tried."""
        turns, tries = waits_ms.shape
        known, least = np.ones(first + tries), np.full(first + tries, np.inf)
        seen = min(len(self.fails), first + tries)
        known[:seen], least[:seen] = self.fails[:seen], self.least_ms[:seen]
        left = np.cumprod(np.where(waits_ms >= least[None, first:], known[None, first:], 1.0), axis=1)
        return np.concatenate([np.ones((turns, 1)), left], axis=1)


def successes(rows: Sequence[Tries], end: int | None = None) -> list[float]:
    """Recovered deliveries of each row; `end`: as few (0) or as many (1) as the counts of its attempt allow."""
    if end is None:
        return [float(row.recovered) for row in rows]
    factors = {
        attempts: (wilson(good, tried, Z_CHOSEN)[end], good / tried if tried else 0.0)
        for attempts, (good, tried, _) in by_attempt(rows).items()
    }
    return [
        min(row.recovered * bound / share, row.tried) if share else bound * row.tried
        for row in rows
        for bound, share in [factors[row.attempts]]
    ]


def time_heals(rows: Sequence[Tries], good: Sequence[float]) -> TimeHeals:
    """The first reading, of `successes`."""
    saved: dict[tuple[int, int], float] = {}
    tried: dict[tuple[int, int], float] = {}
    ended: dict[int, float] = {}
    for row, recovered in zip(rows, good, strict=True):
        place = (min(row.since, row.at - 1), row.at)  # a wait so short that it stayed in its bucket
        saved[place] = saved.get(place, 0) + recovered
        tried[place] = tried.get(place, 0) + row.tried
        ended[row.at] = ended.get(row.at, 0) + row.ended
    support = sorted({at for _, at in saved})
    total, left = sum(tried.values()), sum(ended.values())
    lost = max(left + sum(row.recovered for row in rows) - sum(good), 0.0)  # of as many letters
    weights: dict[tuple[int, int], float] = {}  # observations that say the same of a letter count together
    for (low, high), count in saved.items():
        span = (bisect_right(support, low), bisect_right(support, high))
        weights[span] = weights.get(span, 0) + count + _PRIOR * tried[low, high] / total
    for end, count in ended.items():
        span = (bisect_right(support, end), len(support) + 1)
        weights[span] = weights.get(span, 0) + (lost + _PRIOR) * (count / left if left else 1 / len(ended))
    spans = sorted(weights)
    shares = _most_likely(np.array([weights[span] for span in spans]), spans)
    remaining = np.ones(len(EDGES_MS) + 1)
    for column, at in enumerate(support):
        remaining[at:] -= shares[column]
    return TimeHeals(np.clip(remaining, 0.0, 1.0))


def _most_likely(weights: Array, spans: Sequence[tuple[int, int]]) -> Array:
    """Turnbull's self-consistent shares: each observation is spread over where it may have been, until all is still.

    `spans`: from which column to before which. The last column: never, as far as anybody saw.
    """
    columns = max(end for _, end in spans)
    may = np.array([[begin <= column < end for column in range(columns)] for begin, end in spans], dtype=float)
    shares, weights = np.full(columns, 1 / columns), weights / weights.sum()
    for _ in range(_ROUNDS):
        moved = shares * ((weights / np.maximum(may @ shares, 1e-300)) @ may)
        still = np.abs(moved - shares).max() < _STILL
        shares = moved
        if still:
            break
    return shares


def tries_help(rows: Sequence[Tries], good: Sequence[float]) -> TriesHelp:
    """The second reading, of `successes`."""
    counted: dict[int, list[float]] = {}
    for row, recovered in zip(rows, good, strict=True):
        entry = counted.setdefault(row.attempts, [0.0, 0.0])
        entry[0] += recovered
        entry[1] += row.tried
    total = sum(tried for _, tried in counted.values())
    fails, least = np.ones(max(counted) + 1), np.full(max(counted) + 1, np.inf)
    for attempts, (saved, tried) in counted.items():
        if tried:
            a, b = saved + _PRIOR * tried / total, tried - saved + _PRIOR
            fails[attempts] = b / (a + b)
            least[attempts] = _least_ms([row for row in rows if row.attempts == attempts and row.tried])
    return TriesHelp(fails, least)


def _least_ms(rows: Sequence[Tries]) -> float:
    """The wait than which one in fifty was shorter, with some room: waits are known by bucket."""
    enough = _RARE * sum(row.tried for row in rows)
    for wait, tried in sorted((row.wait_ms / row.tried, row.tried) for row in rows):
        enough -= tried
        if enough <= 0:
            return _ROOM * wait
    return 0.0


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
    left = time_heals(rows, successes(rows)).left
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
    return _beyond(sum((got - want) ** 2 / spread for got, want, spread in full), freedom) < _SURELY


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
    return freedom > 0 and _beyond(statistic, freedom) < _REFUTED


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
