"""Where an event that comes again may stand already. No Spark in here, and no DuckDB: both ask this."""

from collections.abc import Sequence
from datetime import date, timedelta
from typing import Final

from dlx_router.spark.archive.layout import Part

LOOKBACK_DAYS: Final = 7  # an event that comes again later than that is another one


def near(fresh: Sequence[Part], every: Sequence[Part]) -> list[Part]:
    """Of `every`, the compacted days at most LOOKBACK_DAYS from a day of `fresh`, before or behind it.

    Not all since the first of them: one event of a time that somebody invented would have all days looked through.
    """
    around = {day for part in fresh if not part.is_compacted for day in _around(date.fromisoformat(part.date))}
    return [part for part in every if part.is_compacted and part.date in around]


def _around(day: date) -> list[str]:
    first, last = (date.fromisoformat(text) for text in days_around(day.isoformat(), LOOKBACK_DAYS))
    return [(first + timedelta(number)).isoformat() for number in range((last - first).days + 1)]


def days_around(day: str, days: int) -> tuple[str, str]:
    """The days so many before and so many behind that one, at most the first and the last of all dates."""
    number = date.fromisoformat(day).toordinal()
    first, last = max(number - days, 1), min(number + days, date.max.toordinal())
    return date.fromordinal(first).isoformat(), date.fromordinal(last).isoformat()
