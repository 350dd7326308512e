"""Questions to the index. Reads only, from any thread; an answer is of one moment and takes 3 s at most.

The newest letters come first. A page ends with a cursor, which is the number of its last letter; letters that come
meanwhile do not move it.
"""

import json
import queue
import sqlite3
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from dlx_router.operate.index import schema
from dlx_router.operate.index.rows import LYING

READERS: Final = 4
LIMIT_S: Final = 3.0
FEW: Final = 20_000  # so many are sorted faster than they are looked for from the newest on
MAX_TERMS: Final = 16
Sees = Callable[[str, str], bool]  # whether a vhost and its failed queue may be seen
_LETTER: Final = (
    'letters.number, letters.id, queues.vhost, queues.name AS failed_queue, groups.id AS "group", letters.state,'
    " letters.reason, letters.cause, letters.policy, letters.attempts, letters.redrives, letters.first_ms,"
    " letters.last_ms, letters.due_ms, letters.size, letters.message_id, places.exchange, places.routing_key"
)
_JOINS: Final = (
    " JOIN queues ON queues.number = letters.queue JOIN groups ON groups.number = letters.grp"
    " LEFT JOIN places ON places.number = letters.place"
)
_STATE: Final = (
    "CASE WHEN state = 'resolved' AND last_ms > state_ms THEN 'open'"
    " WHEN state = 'ignored' AND until_ms IS NOT NULL AND until_ms <= :now THEN 'open' ELSE state END"
)


class IndexAway(Exception):
    """There is no index to ask just now; says why."""


class TooLong(Exception):
    """The question would take too long; says what to do."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters. None: any. Times in ms, of the letter's newest event."""

    vhost: str | None = None
    failed_queue: str | None = None
    group: str | None = None
    states: Sequence[str] = ()
    reason: str | None = None
    policy: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    text: str | None = None


class Reader:
    """Of one file, which may be made anew at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: queue.SimpleQueue[tuple[int, sqlite3.Connection]] = queue.SimpleQueue()

    def letters(self, wanted: Wanted, sees: Sees, *, limit: int, before: int | None) -> list[dict[str, Any]]:
        """At most `limit`, the newest first, older than the cursor. Raises IndexAway, TooLong."""
        with self._asking() as ask:
            numbers = _visible(ask, wanted, sees)
            if not numbers:
                return []
            sql, values = _letters(ask, wanted, numbers, before)
            return [_letter(row) for row in ask(f"{sql} LIMIT ?", (*values, limit))]

    def letter(self, letter_id: str, sees: Sees, failed_queue: str | None = None) -> list[dict[str, Any]]:
        """All that is known of the letter: one entry for each failed queue that it died in (copies)."""
        with self._asking() as ask:
            rows = ask(f"SELECT {_LETTER} FROM letters{_JOINS} WHERE letters.id = ?", (letter_id,)).fetchall()
            seen = [row for row in rows if sees(row["vhost"], row["failed_queue"])]
            return [_whole(ask, row) for row in seen if failed_queue in {None, row["failed_queue"]}]

    def groups(
        self, sees: Sees, *, vhost: str | None, failed_queue: str | None, state: str | None, limit: int, offset: int
    ) -> list[dict[str, Any]]:
        """At most `limit` groups, those that had a death last come first."""
        with self._asking() as ask:
            numbers = _visible(ask, Wanted(vhost=vhost, failed_queue=failed_queue), sees)
            sql = (
                f"SELECT groups.*, queues.vhost, queues.name, {_STATE} AS now_state FROM groups"
                f" JOIN queues ON queues.number = groups.queue WHERE queue IN ({_listed(numbers)})"
                f" AND (:state IS NULL OR {_STATE} = :state) ORDER BY last_ms DESC, groups.number DESC"
                " LIMIT :limit OFFSET :offset"
            )
            values = {"now": _now_ms(), "state": state, "limit": limit, "offset": offset}
            return [_group(ask, row) for row in ask(sql, values).fetchall()]

    def group(self, group_id: str, sees: Sees) -> dict[str, Any] | None:
        """One group; None where there is none that may be seen."""
        with self._asking() as ask:
            sql = (
                f"SELECT groups.*, queues.vhost, queues.name, {_STATE} AS now_state FROM groups"
                " JOIN queues ON queues.number = groups.queue WHERE groups.id = :id"
            )
            row = ask(sql, {"now": _now_ms(), "id": group_id}).fetchone()
            return _group(ask, row) if row is not None and sees(row["vhost"], row["name"]) else None

    def failed_queues(self, sees: Sees) -> list[dict[str, Any]]:
        """Each failed queue, and how many of its letters are in which state."""
        sql = (
            "SELECT queues.vhost, queues.name, counts.state, sum(counts.n) AS n, max(groups.last_ms) AS last_ms,"
            " count(DISTINCT groups.number) AS known FROM counts JOIN groups ON groups.number = counts.grp"
            " JOIN queues ON queues.number = groups.queue WHERE counts.n > 0"
            " GROUP BY queues.number, counts.state ORDER BY queues.vhost, queues.name"
        )
        found: dict[tuple[str, str], dict[str, Any]] = {}
        with self._asking() as ask:
            for row in ask(sql).fetchall():
                if sees(row["vhost"], row["name"]):
                    blank = {"vhost": row["vhost"], "failed_queue": row["name"], "states": {}, "last_ms": 0}
                    one = found.setdefault((row["vhost"], row["name"]), blank)
                    one["states"][row["state"]] = row["n"]
                    one["last_ms"] = max(one["last_ms"], row["last_ms"])
        return list(found.values())

    def places(self, sees: Sees | None = None) -> list[dict[str, Any]]:
        """Each place where letters lie, and how many. `sees`: only those that came from such failed queues."""
        sql = (
            "SELECT places.vhost, places.exchange, places.routing_key, queues.name, sum(counts.n) AS n"
            " FROM counts JOIN places ON places.number = counts.place JOIN groups ON groups.number = counts.grp"
            f" JOIN queues ON queues.number = groups.queue WHERE counts.state IN {LYING!r} AND counts.n > 0"
            " GROUP BY places.number, queues.number"
        )
        found: dict[tuple[str, str, str], dict[str, Any]] = {}
        with self._asking() as ask:
            for row in ask(sql).fetchall():
                if sees is None or sees(row["vhost"], row["name"]):
                    key = (row["vhost"], row["exchange"], row["routing_key"])
                    one = found.setdefault(key, dict(zip(("vhost", "exchange", "routing_key"), key, strict=True)))
                    one["n"] = one.get("n", 0) + row["n"]
        return list(found.values())

    def streams(self) -> dict[str, dict[str, Any]]:
        """Of each vhost: where the index stands in its journal, and what it missed."""
        with self._asking() as ask:
            rows = ask(
                "SELECT streams.vhost, offset, streams.events, unread, last_ms, (SELECT coalesce(sum(events), 0)"
                " FROM gaps WHERE gaps.vhost = streams.vhost) AS missing FROM streams"
            ).fetchall()
            return {row["vhost"]: {key: row[key] for key in row.keys() if key != "vhost"} for row in rows}  # noqa: SIM118

    def audits(self, visible: Sequence[str], *, limit: int) -> list[dict[str, Any]]:
        """What people did in these vhosts, the newest first."""
        with self._asking() as ask:
            held = ", ".join("?" * len(visible))
            sql = f"SELECT * FROM audits WHERE vhost IN ({held}) ORDER BY ts_ms DESC LIMIT ?"
            rows = ask(sql, (*visible, limit)).fetchall()
        return [{**dict(row), "details": json.loads(row["details"])} for row in rows]

    # -- asking -------------------------------------------------------------------------------------------------

    @contextmanager
    def _asking(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """A connection to the file that is there now."""
        try:
            inode = self._path.stat().st_ino
            connection = self._connected(inode)
        except (OSError, sqlite3.Error) as error:
            raise IndexAway(f"the index is being made: {error}") from None
        deadline = time.monotonic() + LIMIT_S
        connection.set_progress_handler(lambda: time.monotonic() > deadline, 10_000)
        try:
            yield connection.execute
        except sqlite3.OperationalError as error:
            connection.close()
            if getattr(error, "sqlite_errorname", "") == "SQLITE_INTERRUPT":
                raise TooLong(f"this takes over {LIMIT_S:g} s; name a queue, a group or a state too") from None
            raise IndexAway(f"the index cannot be read now: {error}") from None
        except sqlite3.DatabaseError as error:
            connection.close()
            raise IndexAway(f"the index is damaged and will be made anew: {error}") from None
        except BaseException:
            connection.close()
            raise
        self._idle.put((inode, connection))

    def _connected(self, inode: int) -> sqlite3.Connection:
        with suppress(queue.Empty):
            while True:
                known, connection = self._idle.get_nowait()
                if known == inode:
                    return connection
                connection.close()
        return schema.open_reader(self._path)

    def close(self) -> None:
        """Close what is idle."""
        with suppress(queue.Empty):
            while True:
                self._idle.get_nowait()[1].close()


def _visible(ask: Callable[..., sqlite3.Cursor], wanted: Wanted, sees: Sees) -> list[int]:
    """The failed queues that are wanted and may be seen."""
    rows = ask("SELECT number, vhost, name FROM queues").fetchall()
    return [
        row["number"]
        for row in rows
        if wanted.vhost in {None, row["vhost"]}
        and wanted.failed_queue in {None, row["name"]}
        and sees(row["vhost"], row["name"])
    ]


def _letters(
    ask: Callable[..., sqlite3.Cursor], wanted: Wanted, numbers: Sequence[int], before: int | None
) -> tuple[str, tuple[Any, ...]]:
    total = ask("SELECT count(*) FROM queues").fetchone()[0]
    tests: list[str] = []
    values: list[Any] = []
    source = f"letters{_JOINS}"
    by_index = wanted.text is None and _few(ask, wanted, numbers)
    plus = "" if by_index else "+"
    if wanted.text is not None:
        source = f"found CROSS JOIN letters ON letters.number = found.rowid{_JOINS}"
        tests.append("found MATCH ?")
        values.append(query(wanted.text))
    if len(numbers) < total or wanted.failed_queue is not None:
        tests.append(f"{plus}letters.queue IN ({_listed(numbers)})")
    if wanted.group is not None:
        tests.append(f"{plus}letters.grp = (SELECT number FROM groups WHERE id = ?)")
        values.append(wanted.group)
    if wanted.states:
        tests.append(f"{plus}letters.state IN ({', '.join('?' * len(wanted.states))})")
        values.extend(wanted.states)
    for test, value in (
        ("letters.reason = ?", wanted.reason),
        ("letters.policy = ?", wanted.policy),
        ("letters.last_ms >= ?", wanted.since_ms),
        ("letters.last_ms < ?", wanted.until_ms),
        ("found.rowid < ?" if wanted.text is not None else "letters.number < ?", before),
    ):
        if value is not None:
            tests.append(test)
            values.append(value)
    order = "found.rowid" if wanted.text is not None else "letters.number"
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    return f"SELECT {_LETTER} FROM {source}{where} ORDER BY {order} DESC", tuple(values)


def _few(ask: Callable[..., sqlite3.Cursor], wanted: Wanted, numbers: Sequence[int]) -> bool:
    """Whether an index finds so few that sorting them is nothing."""
    tests, values = [f"groups.queue IN ({_listed(numbers)})"], []
    if wanted.group is not None:
        tests.append("groups.id = ?")
        values.append(wanted.group)
    if wanted.states:
        tests.append(f"counts.state IN ({', '.join('?' * len(wanted.states))})")
        values.extend(wanted.states)
    sql = f"SELECT sum(n) FROM counts JOIN groups ON groups.number = counts.grp WHERE {' AND '.join(tests)}"
    return (ask(sql, values).fetchone()[0] or 0) <= FEW


def query(text: str) -> str:
    """Words → FTS5: all of them, in any order; "a phrase" as it is; a * behind a word: what begins so."""
    terms: list[str] = []
    for number, part in enumerate(text.split('"')):
        words = [part] if number % 2 else part.split()
        for word in words:
            starred = word.endswith("*") and number % 2 == 0
            bare = "".join(one if one.isalnum() else " " for one in word).strip()
            if bare:
                terms.append(f'"{bare}"{"*" if starred else ""}')
    return " ".join(terms[:MAX_TERMS]) or '""'


def _listed(numbers: Sequence[int]) -> str:
    return ",".join(map(str, numbers))


def _letter(row: sqlite3.Row) -> dict[str, Any]:
    told = {key: row[key] for key in row.keys() if key not in {"number", "exchange", "routing_key"}}  # noqa: SIM118
    told["cursor"] = row["number"]
    told["target"] = None if row["exchange"] is None else {one: row[one] for one in ("exchange", "routing_key")}
    return told


def _whole(ask: Callable[..., sqlite3.Cursor], row: sqlite3.Row) -> dict[str, Any]:
    number = (row["number"],)
    steps = ask("SELECT * FROM steps WHERE letter = ? ORDER BY ts_ms, kind != 'released'", number).fetchall()
    line = ask("SELECT line FROM events WHERE letter = ?", number).fetchone()
    body = ask("SELECT mode, sha256, content_type, body FROM bodies WHERE letter = ?", number).fetchone()
    return {
        **_letter(row),
        "journey": [{key: step[key] for key in step.keys() if key not in {"letter", "step"}} for step in steps],  # noqa: SIM118
        "event": None if line is None else json.loads(line["line"]),
        "stored": None if body is None else tuple(body),
    }


def _group(ask: Callable[..., sqlite3.Cursor], row: sqlite3.Row) -> dict[str, Any]:
    counts = ask("SELECT state, sum(n) FROM counts WHERE grp = ? GROUP BY state", (row["number"],)).fetchall()
    states = {state: n for state, n in counts if n > 0}
    names = (
        "id",
        "vhost",
        "reason",
        "error_type",
        "frame",
        "message",
        "first_ms",
        "last_ms",
        "deaths",
        "note",
        "actor",
    )
    return {
        **{name: row[name] for name in names},
        "failed_queue": row["name"],
        "state": row["now_state"],
        "until_ms": row["until_ms"] if row["now_state"] == "ignored" else None,
        "returned": row["state"] == "resolved" and row["now_state"] == "open",
        "lying": sum(n for state, n in states.items() if state in LYING),
        "states": states,
    }


def _now_ms() -> int:
    return int(time.time() * 1000)
