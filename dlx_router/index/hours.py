"""How often letters of a group died, hour by hour, in the day before a moment."""

import sqlite3
from collections.abc import Callable
from typing import Final, NamedTuple

from dlx_router.core.recovered import DEATHS

HOURS: Final = 24
HOUR_MS: Final = 3_600_000
NEWEST: Final = 2_000  # letters are looked at, however many a group has: anybody with a link asks
_LETTERS: Final = (
    "SELECT letters.number FROM groups JOIN letters INDEXED BY letters_group ON letters.grp = groups.number"
    " WHERE groups.id = :group ORDER BY letters.number DESC LIMIT :most"
)
_DEATHS: Final = (
    f"SELECT (:until - ts_ms) / {HOUR_MS} AS ago, count(*) AS n FROM steps JOIN fates ON fates.number = fate"
    f" WHERE steps.letter IN ({_LETTERS}) AND ts_ms > :until - {HOURS * HOUR_MS} AND ts_ms <= :until"
    f" AND fates.kind IN {DEATHS!r} GROUP BY ago"
)


class Course(NamedTuple):
    """Deaths in each hour, the oldest hour first. `is_part`: the group has more letters than were looked at."""

    hours: list[int]
    is_part: bool


def deaths_by_hour(ask: Callable[..., sqlite3.Cursor], group: str, until_ms: int) -> Course:
    """Those of the newest letters of this group."""
    hours = [0] * HOURS
    for row in ask(_DEATHS, {"group": group, "until": until_ms, "most": NEWEST}).fetchall():
        hours[HOURS - 1 - row["ago"]] = row["n"]
    more = ask(f"SELECT count(*) FROM ({_LETTERS})", {"group": group, "most": NEWEST + 1}).fetchone()[0]
    return Course(hours, more > NEWEST)
