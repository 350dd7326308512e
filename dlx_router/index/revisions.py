"""Revisions of the policies: when each came into force, what it was, and how many letters it decided about, and how.

What it was stands in the journal as an audit of whoever led; decisions are counted as events come, and stay counted
when their letters go.
"""

import base64
from collections.abc import Callable, Mapping
from sqlite3 import Connection, Cursor
from typing import Any, Final

from dlx_router.index.queries import Sees
from dlx_router.index.rows import named, whole_or_none
from dlx_router.journal.revision_text import unpacked

IN_FORCE: Final = "policies.in_force"
KINDS: Final = ("retried", "held", "dead_lettered", "parked", "quarantined", "discarded")
"""Decisions of a policy; what a task does to a letter is none."""
MOST: Final = 100  # of one vhost are known; the oldest go
_COUNT: Final = (
    "INSERT INTO decided VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (queue, revision, kind) DO UPDATE SET"
    " n = n + excluded.n, first_ms = min(first_ms, excluded.first_ms), last_ms = max(last_ms, excluded.last_ms)"
)
_SET: Final = (  # a new row each time: what the journal said last has the greatest rowid, whatever any clock said
    "INSERT OR REPLACE INTO revisions VALUES (?1, ?2, ?3, ?4,"
    " coalesce(?5, (SELECT packed FROM revisions WHERE vhost = ?1 AND revision = ?2)))"
)
_OLDEST: Final = (
    "DELETE FROM revisions WHERE vhost = ? AND revision NOT IN"
    " (SELECT revision FROM revisions WHERE vhost = ? ORDER BY rowid DESC LIMIT ?)"
)
_DECIDED: Final = (
    "SELECT queues.name, revision, kind, n, first_ms, last_ms FROM decided JOIN queues ON queues.number = decided.queue"
    " WHERE queues.vhost = ?"
)


class Decided:
    """Decisions of a transaction, counted until its end."""

    def __init__(self, connection: Connection) -> None:
        self._many = connection.executemany

    def write(self, counts: Mapping[tuple[int, str, str], tuple[int, int]]) -> None:
        """By queue, revision and kind: how many, and when."""
        self._many(_COUNT, [(*key, n, ts_ms, ts_ms) for key, (n, ts_ms) in counts.items()])


def kept(details: Mapping[str, Any]) -> dict[str, Any]:
    """The details of such an audit without what the table has: nobody reads that in a list."""
    return {name: value for name, value in details.items() if name != "packed"}


def came_into_force(do: Callable[..., Cursor], vhost: str, ts_ms: int, details: Mapping[str, Any]) -> None:
    """Raises one of rows.ODD."""
    text, revision = details.get("packed"), named(details["revision"])
    packed = base64.b64decode(text, validate=True) if isinstance(text, str) else None
    do(_SET, (vhost, revision, ts_ms, whole_or_none(details.get("policies")), packed))
    do(_OLDEST, (vhost, vhost, MOST))


def newest(ask: Callable[..., Cursor], vhost: str) -> str | None:
    """The revision that was said last to have come into force, in the order of the journal.

    By time a router whose clock was ahead would stay the last one, and its successor would say so again and again.
    """
    sql = "SELECT revision FROM revisions WHERE vhost = ? ORDER BY rowid DESC LIMIT 1"
    row = ask(sql, (vhost,)).fetchone()
    return None if row is None else str(row[0])


def revisions(ask: Callable[..., Cursor], vhost: str, sees: Sees) -> list[dict[str, Any]]:
    """All that are known, by their time of coming into force or else by their first decision; the newest first."""
    entries: dict[str, dict[str, Any]] = {}
    sql = "SELECT revision, in_force_ms, policies, packed IS NOT NULL AS known FROM revisions WHERE vhost = ?"
    for row in ask(sql, (vhost,)):
        entry = entries[row["revision"]] = _blank(row["revision"])
        entry |= {"in_force_ms": row["in_force_ms"], "policies": row["policies"], "is_known": bool(row["known"])}
    for row in ask(_DECIDED, (vhost,)):
        if sees(vhost, row["name"]):
            entry = entries.setdefault(row["revision"], _blank(row["revision"]))
            _add(entry, row)
    return sorted(entries.values(), key=lambda entry: entry["in_force_ms"] or entry["first_ms"] or 0, reverse=True)


def revision(ask: Callable[..., Cursor], vhost: str, name: str, sees: Sees) -> dict[str, Any] | None:
    """One of them, with what it was (None: not known any more) and its decisions by queue."""
    entry = next((entry for entry in revisions(ask, vhost, sees) if entry["revision"] == name), None)
    if entry is None:
        return None
    queues: dict[str, dict[str, int]] = {}
    for row in ask(f"{_DECIDED} AND revision = ?", (vhost, name)):
        if sees(vhost, row["name"]):
            queues.setdefault(row["name"], {})[row["kind"]] = row["n"]
    packed = ask("SELECT packed FROM revisions WHERE vhost = ? AND revision = ?", (vhost, name)).fetchone()
    return {**entry, "queues": queues, "document": None if packed is None else unpacked(packed[0])}


def _blank(name: str) -> dict[str, Any]:
    blank: dict[str, Any] = {"in_force_ms": None, "policies": None, "is_known": False, "decided": {}}
    return {"revision": name, **blank, "first_ms": None, "last_ms": None}


def _add(entry: dict[str, Any], row: Mapping[str, Any]) -> None:
    entry["decided"][row["kind"]] = entry["decided"].get(row["kind"], 0) + row["n"]
    entry["first_ms"] = min(entry["first_ms"] or row["first_ms"], row["first_ms"])
    entry["last_ms"] = max(entry["last_ms"] or 0, row["last_ms"])
