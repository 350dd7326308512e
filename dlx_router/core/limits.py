"""Values of the keys that have parts of their own: outage, alert, retention. Times in ms, sizes in bytes."""

from dataclasses import dataclass
from typing import Final, NamedTuple


@dataclass(frozen=True, slots=True)
class Outage:
    """Key `outage`: the breaker of a queue opens after `deaths` within `within_ms`; then a probe each `probe_ms`."""

    deaths: int
    within_ms: int
    probe_ms: int


@dataclass(frozen=True, slots=True)
class Alert:
    """Key `alert`: letters (`depth`), age of the oldest in ms, dead letters a second; None is no threshold."""

    depth: int | None = None
    oldest_ms: int | None = None
    rate: float | None = None

    def thresholds(self) -> dict[str, float]:
        """Those that are set, by kind; `oldest` in seconds, as the metric that it is compared with."""
        oldest = None if self.oldest_ms is None else self.oldest_ms / 1000
        limits = {"depth": self.depth, "oldest": oldest, "rate": self.rate}
        return {kind: float(value) for kind, value in limits.items() if value is not None}


class Retention(NamedTuple):
    """How much an auto-created dead-letter queue keeps; what is over it goes to the retired queue. None: no limit."""

    ttl_ms: int | None = None
    max_length: int | None = None
    max_bytes: int | None = None

    @property
    def is_set(self) -> bool:
        """Whether there is any limit."""
        return self != KEEP


KEEP: Final = Retention()
