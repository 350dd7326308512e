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
    number = day.toordinal()
    days = range(max(number - LOOKBACK_DAYS, 1), min(number + LOOKBACK_DAYS, date.max.toordinal()) + 1)
    return [(day + timedelta(one - number)).isoformat() for one in days]
