"""Questions of who tells people what happened: groups that changed, letters in parking, and what was told before."""

import json
import sqlite3
from collections.abc import Callable
from typing import Any, Final, NamedTuple

from dlx_router.core.signature import Signature

MOST_GROUPS: Final = 5_000  # in one answer
MOST_AUDITS: Final = 20_000
Ask = Callable[..., sqlite3.Cursor]
Parked = dict[tuple[str, str], int]  # failed queue, group → letters


class GroupLook(NamedTuple):
    """A group as it is now. `resolved_ms`: when somebody said that its cause was gone, 0 where that does not hold.

    `number`: in this index; a group that is new to it has a higher one than all before.
    """

    id: str
    failed_queue: str
    reason: str
    error_type: str
    frame: str
    message: str
    first_ms: int
    last_ms: int
    deaths: int
    resolved_ms: int
    ignored: bool
    number: int = 0


def groups_since(ask: Ask, vhost: str, since_ms: int, now_ms: int, known: int | None = None) -> list[GroupLook]:
    """Those that had a death from then on, those of the oldest deaths first; where there are as many as that, more.

    `known`: those too that are new to the index since the one with this number, however old their deaths are.
    """
    sql = (
        "SELECT id, queues.name AS failed_queue, reason, error_type, frame, message, first_ms, last_ms, deaths,"
        " CASE WHEN state = 'resolved' THEN state_ms ELSE 0 END AS resolved_ms,"
        " state = 'ignored' AND (until_ms IS NULL OR until_ms > :now) AS ignored, groups.number"
        " FROM groups JOIN queues ON queues.number = groups.queue WHERE queues.vhost = :vhost"
        " AND (last_ms >= :since OR groups.number > :known)"
        " ORDER BY last_ms, groups.number LIMIT :most"
    )
    values = {"vhost": vhost, "since": since_ms, "now": now_ms, "known": known, "most": MOST_GROUPS}
    rows = ask(sql, values).fetchall()
    return [GroupLook(*(row[name] for name in GroupLook._fields)) for row in rows]


def parked(ask: Ask, vhost: str) -> Parked:
    """How many letters are in parking."""
    sql = (
        "SELECT queues.name AS queue, groups.id AS grp, sum(counts.n) AS n FROM counts"
        " JOIN groups ON groups.number = counts.grp JOIN queues ON queues.number = groups.queue"
        " WHERE queues.vhost = ? AND counts.state = 'parked' GROUP BY groups.number"
    )
    return {(row["queue"], row["grp"]): row["n"] for row in ask(sql, (vhost,)).fetchall()}


def audits_of(ask: Ask, vhost: str, actions: tuple[str, ...], since_ms: int) -> list[tuple[str, dict[str, Any]]]:
    """Actions and details of what a router with our key wrote down since then, the oldest first."""
    marks = ", ".join("?" * len(actions))
    sql = (
        f"SELECT action, details FROM audits WHERE vhost = ? AND ts_ms >= ? AND signature = ? AND action IN ({marks})"
        " ORDER BY ts_ms DESC LIMIT ?"
    )
    rows = ask(sql, (vhost, since_ms, str(Signature.OK), *actions, MOST_AUDITS)).fetchall()
    return [(row["action"], json.loads(row["details"])) for row in reversed(rows)]
