"""What a router process uses: resident memory and descriptors from /proc, tasks of its event loop from its metrics."""

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from tests.support.router import Router

GROWTH: Final = 1.05
_MEASURES: Final = ("rss_mb", "descriptors", "tasks")
FEW: Final = 3
"""Descriptors and tasks are small whole numbers: a median may be this much higher by chance of the moment."""


@dataclass(frozen=True)
class Sample:
    """One look."""

    at_s: float
    rss_mb: float
    descriptors: float
    tasks: float


@dataclass(frozen=True)
class Trend:
    """A measure over the run; the first third is warming up."""

    measure: str
    thirds: tuple[float, float, float]  # medians
    peak: float

    @property
    def flat(self) -> bool:
        """The last third is at most 5 % over the middle one, or for small whole numbers FEW."""
        _, middle, last = self.thirds
        slack = 0 if self.measure == "rss_mb" else FEW
        return last <= max(middle * GROWTH, middle + slack)


class Watch:
    """Looks at a router; one that is starting or gone gives no sample."""

    def __init__(self, router: Router) -> None:
        self._router = router
        self._began_s = time.monotonic()
        self.samples: list[Sample] = []

    def look(self) -> None:
        """One sample more, if the router answers."""
        tasks = self._router.metric("asyncio_tasks")
        if not tasks:
            return
        root = Path(f"/proc/{self._router.pid}")
        descriptors = sum(1 for _ in (root / "fd").iterdir())
        at = time.monotonic() - self._began_s
        self.samples.append(Sample(at, _resident_kib(root) * 1024 / 1e6, descriptors, tasks))

    def trends(self) -> list[Trend]:
        """Of all measures."""
        return [_trend(name, [getattr(sample, name) for sample in self.samples]) for name in _MEASURES]


def _trend(name: str, values: Sequence[float]) -> Trend:
    third = max(1, len(values) // 3)
    parts = (values[:third], values[third : 2 * third] or values, values[2 * third :] or values)
    first, middle, last = map(median, parts)
    return Trend(name, (first, middle, last), max(values))


def _resident_kib(root: Path) -> int:
    status = (root / "status").read_text(encoding="utf-8")
    return next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS:"))


def every(interval_s: float, seconds: float, act: Callable[[], None]) -> None:
    """Act now and each `interval_s`, for so long; an act that takes longer is not made up for."""
    ends = time.monotonic() + seconds
    while (now := time.monotonic()) < ends:
        act()
        time.sleep(max(0.0, now + interval_s - time.monotonic()))
