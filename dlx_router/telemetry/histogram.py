"""A histogram for the path of a letter: a bisection and two additions, where prometheus_client takes locks."""

from bisect import bisect_left
from typing import Final

BUCKETS: Final = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0, 30.0)


class Histogram:
    """Seconds in fixed buckets; a value on a bound belongs to the bucket below it, as Prometheus has it."""

    __slots__ = ("_counts", "total")

    def __init__(self) -> None:
        self._counts = [0] * (len(BUCKETS) + 1)
        self.total = 0.0

    def observe(self, seconds: float, n: int = 1) -> None:
        """Count `n` that took so long each."""
        self._counts[bisect_left(BUCKETS, seconds)] += n
        self.total += seconds * n

    @property
    def count(self) -> int:
        """How many were observed."""
        return sum(self._counts)

    def buckets(self) -> list[tuple[str, float]]:
        """Upper bound → how many were not longer, as Prometheus wants them."""
        out, running = [], 0
        for bound, count in zip((*map(str, BUCKETS), "+Inf"), self._counts, strict=True):
            running += count
            out.append((bound, float(running)))
        return out
