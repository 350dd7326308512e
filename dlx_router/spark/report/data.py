"""What the report shows: the rows of all analyses, small enough for one page. Made by `by_duckdb` or `by_spark`."""

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from dlx_router.core.recovered import AT_LEAST_MS
from dlx_router.spark.advice.judge import QueueAdvice

Rows = list[dict[str, Any]]
TABLES: Final = ("recovery", "efficacy", "trends", "groups", "slo", "poison", "redrives")
MOST_ROWS: Final = 200  # of one table; a page is no archive
MOST_BUCKETS: Final = 100_000  # of all queues together
NOTHING: Final = "no event about a letter in this time: nothing to report; choose another --since"
_BUCKETS: Final = 170  # across the page
_STEPS_MS: Final = tuple(60_000 * minutes for minutes in (1, 5, 15, 60, 120, 180, 360, 720, 1440, 10_080))


def most_rows(table: str) -> int:
    """So many rows of it are shown at most, those that matter most."""
    return MOST_BUCKETS if table == "trends" else MOST_ROWS


def bucket_ms(first_ms: int, last_ms: int) -> int:
    """The stretch of time that one point of a chart is about."""
    return next((step for step in _STEPS_MS if (last_ms - first_ms) / step <= _BUCKETS), _STEPS_MS[-1])


@dataclass(frozen=True, slots=True)
class Objective:
    """The share of letters that should recover within a time from their first death."""

    share: float = 0.95
    within_ms: int = AT_LEAST_MS // 4


@dataclass(frozen=True, slots=True)
class ReportData:
    """Rows of the analyses, as their schemas say; `kinds`: events of each kind; `bucket_ms`: of `trends`.

    `totals`: of all letters and retries, also where not all rows are here. letters, recovered, by_redrive, lost, open;
    born: letters that failed for the first time in this time; tried: retries that have an end, helped: that cured.
    """

    title: str
    made_at: datetime
    first_ms: int
    last_ms: int
    bucket_ms: int
    objective: Objective
    kinds: dict[str, int]
    recovery: Rows
    advice: list[QueueAdvice]
    efficacy: Rows
    trends: Rows
    groups: Rows
    slo: Rows
    poison: Rows
    redrives: Rows
    totals: dict[str, int]
    whole: dict[str, int] = field(default_factory=dict)  # rows of each table of which not all are here
    gaps: int = 0
    signatures: dict[str, int] = field(default_factory=dict)  # events of each
    complete_ms: int | None = None  # until then the journal is surely told to its end

    def total(self, name: str) -> int:
        """One of `totals`."""
        return self.totals[name]

    def count(self, table: str) -> int:
        """How many rows there are of a table, shown or not."""
        return self.whole.get(table, len(getattr(self, table)))
