"""Outages: stretches in which everything failed until all worked again. Their end tells what no letter's tries tell.

An episode was an outage when hardly any delivery of its letters succeeded while letters still failed for the first
time, and most did after that. A burst of bad messages is none: its letters fail after it, too. So of letters that
were given up during an outage it is known when they would have recovered, though nobody tried.
"""

from collections.abc import Iterable, Sequence
from math import log2
from typing import Final, NamedTuple

import numpy as np

from dlx_router.core.limits import Outage
from dlx_router.spark.advice.cost import Array
from dlx_router.spark.advice.evidence import Calm, Episode
from dlx_router.spark.advice.survival import PRIOR
from dlx_router.spark.intervals import wilson

MOST_BEFORE: Final = 0.2
LEAST_AFTER: Final = 0.25
SHARPER: Final = 3  # times as many succeed after it, at least
LETTERS: Final = 30  # fewer of an episode, a trait or a group are not told apart
FEWEST_DEATHS: Final = 10
WITHIN_MS: Final = 60_000
PROBE_MS: Final = 5_000
FINE: Final = 8  # letters are put together whose outage was over after times that differ by a twelfth
LATE_MS: Final = 300_000  # held letters look again after so long at the latest: core.breaker.LONGEST_WAIT_MS


def is_outage(episode: Episode) -> bool:
    """Whether the episode's end was the end of its cause, by the ends of 95 % intervals."""
    before, after = wilson(*episode.before)[1], wilson(*episode.after)[0]
    is_sharp = before <= MOST_BEFORE and after >= max(LEAST_AFTER, SHARPER * before)
    return episode.letters >= LETTERS and episode.last_ms > episode.first_ms and is_sharp


class Ends(NamedTuple):
    """A reading of the letters that fell into outages. `remaining_ms`, `letters`: when it was over for how many.

    `fails[d]`: how often a delivery fails when it is over.
    """

    remaining_ms: Array
    letters: Array
    fails: Array

    def alive(self, waits_ms: Array, first: int) -> Array:
        """As `survival.Reading`."""
        del first
        over = np.cumsum(waits_ms, axis=1)[:, :, None] >= self.remaining_ms[None, None, :]  # turns, tries, letters
        after = np.cumsum(over, axis=1)
        share = self.letters / self.letters.sum()
        often = np.stack([((after == times) * share).sum(axis=2) for times in range(waits_ms.shape[1] + 1)], axis=2)
        left = np.tensordot(self.fails[:, None] ** np.arange(waits_ms.shape[1] + 1), often, axes=(1, 2))
        return np.concatenate([np.ones((*left.shape[:2], 1)), left], axis=2)

    def held(self) -> Array:
        """Ms until a letter that a breaker holds gets its next delivery: the end, and late. As long as `letters`."""
        return self.remaining_ms + np.minimum(self.remaining_ms + PROBE_MS, LATE_MS)


def ends_of(episodes: Iterable[Episode], chance: np.random.Generator, draws: int) -> Ends | None:
    """The reading of these outages; draw 0 is the estimate itself. None for none."""
    counted: dict[int, list[int]] = {}
    good = tried = 0
    for episode in sorted(episodes):
        for remaining, letters in episode.remaining:
            entry = counted.setdefault(int(FINE * log2(remaining + 1)), [0, 0])
            entry[0] += remaining * letters
            entry[1] += letters
        good, tried = good + episode.after[0], tried + episode.after[1]
    if not counted:
        return None
    a, b = good + PRIOR, tried - good + PRIOR
    fails = np.concatenate([[b / (a + b)], 1 - chance.beta(a, b, draws - 1)])
    means = np.array([[total / letters, letters] for _, (total, letters) in sorted(counted.items())])
    return Ends(means[:, 0], means[:, 1], fails)


def breaker_for(episodes: Sequence[Episode], peaks: Iterable[Calm]) -> Outage | None:
    """Settings that open in each of these outages, and never at what the queue had besides. None: there are none.

    Opens at twice the worst calm minute (of all reasons together), which must be at most half of what an outage has.
    """
    own = {(episode.key, episode.first_ms) for episode in episodes}
    calm: dict[object, int] = {}
    for minute in peaks:
        if (minute.key, minute.episode_ms) not in own:
            calm[minute.key] = max(calm.get(minute.key, 0), minute.peak)
    deaths = max(FEWEST_DEATHS, 2 * sum(calm.values()))
    if not episodes or any(2 * deaths > episode.typical for episode in episodes):
        return None
    return Outage(deaths, WITHIN_MS, PROBE_MS)
