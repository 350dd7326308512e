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
from hashlib import blake2b
from pathlib import Path
from typing import Any, Final, NamedTuple

from dlx_router.core.signature import Signature
from dlx_router.index import schema
from dlx_router.index.queries import JOINS, LETTER, Sees, Wanted, letters_of, listed, visible
from dlx_router.index.rows import LYING
from dlx_router.index.shown import group_told, letter_told, resting_since, whole_letter
from dlx_router.telemetry.wall_clock import wall_ms

LIMIT_S: Final = 3.0
MOST_PLACES: Final = 20_000  # by failed queue
MOST_LOOKS: Final = 5_000  # groups in one answer of `groups_since`
MOST_AUDITS: Final = 20_000
MOST_EQUAL: Final = 100  # entries of one id are shown
OLDEST: Final = 100  # of a place, to find the oldest among
SORTS: Final = {
    "last": "last_ms",
    "first": "first_ms",
    "deaths": "deaths",
    "lying": f"(SELECT sum(n) FROM counts WHERE grp = groups.number AND counts.state IN {LYING!r})",
}
_STATE: Final = (
    "CASE WHEN state = 'resolved' AND last_ms > state_ms THEN 'open'"
    " WHEN state = 'ignored' AND until_ms IS NOT NULL AND until_ms <= :now THEN 'open' ELSE state END"
)


DEAD: Final = ("dead_lettered", "parked", "quarantined")  # as a canary's letters come back
_COPIES: Final = (  # of a letter, in whichever failed queues
    "SELECT copy.number FROM letters AS one JOIN letters AS copy ON copy.id = one.id AND copy.serial IS one.serial"
    " WHERE one.number = sent.letter"
)


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


def cursor_of(letter: dict[str, Any]) -> str:
    """Where a page ends: its last letter's number in this file, and what names the letter in other files."""
    return f"{letter['cursor']}.{_tag(letter['vhost'], letter['failed_queue'], letter['serial'])}.{letter['id']}"


def _tag(vhost: str, failed_queue: str, serial: int | None) -> str:
    return blake2b(f"{vhost}\0{failed_queue}\0{serial}".encode(), digest_size=6).hexdigest()


class IndexAway(Exception):
    """There is no index to ask just now; says why."""


class TooLong(Exception):
    """The question would take too long; says what to do."""


class Reader:
    """Of one file, which may be made anew at any time."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._idle: queue.SimpleQueue[tuple[int, sqlite3.Connection]] = queue.SimpleQueue()

    def letters(
        self, wanted: Wanted, sees: Sees, *, limit: int, before: int | None, oldest: bool = False
    ) -> list[dict[str, Any]]:
        """At most `limit` behind the cursor, the newest first or the oldest. Raises IndexAway, TooLong."""
        with self._asking() as ask:
            numbers = visible(ask, wanted, sees)
            if not numbers:
                return []
            return [letter_told(row) for row in ask(*letters_of(ask, wanted, numbers, before, limit, oldest=oldest))]

    def number_of(self, cursor: str) -> int | None:
        """The number here of the letter that a page ended with, at whichever replica (see cursor_of); None: unknown."""
        number, _, rest = cursor.partition(".")
        tag, _, letter_id = rest.partition(".")
        if not rest:
            return int(number)
        with self._asking() as ask:
            rows = ask(
                "SELECT letters.number, vhost, name, serial FROM letters JOIN queues ON queues.number = queue"
                " WHERE letters.id = ?",
                (letter_id,),
            ).fetchall()
        numbers = [row["number"] for row in rows if _tag(row["vhost"], row["name"], row["serial"]) == tag]
        return int(number) if int(number) in numbers else max(numbers, default=None)

    def letter(self, letter_id: str, sees: Sees, failed_queue: str | None = None) -> list[dict[str, Any]]:
        """All that is known of the letter: an entry for each failed queue that it died in, and each equal message.

        The first MOST_EQUAL of them.
        """
        with self._asking() as ask:
            rows = ask(
                f"SELECT {LETTER} FROM letters{JOINS} WHERE letters.id = ? ORDER BY letters.number",
                (letter_id,),
            ).fetchall()
            seen = [row for row in rows if sees(row["vhost"], row["failed_queue"])]
            wanted = [row for row in seen if failed_queue in {None, row["failed_queue"]}]
            return [whole_letter(ask, row) for row in wanted[:MOST_EQUAL]]

    def groups(  # noqa: PLR0913 - each is a filter
        self,
        sees: Sees,
        *,
        vhost: str | None,
        failed_queue: str | None,
        state: str | None,
        limit: int,
        offset: int,
        sort: str = "last",
    ) -> list[dict[str, Any]]:
        """At most `limit` groups, those first that have the most of what `sort` names (see SORTS)."""
        with self._asking() as ask:
            numbers = visible(ask, Wanted(vhost=vhost, failed_queue=failed_queue), sees)
            sql = (
                f"SELECT groups.*, queues.vhost, queues.name, {_STATE} AS now_state FROM groups"
                f" JOIN queues ON queues.number = groups.queue WHERE queue IN ({listed(numbers)})"
                f" AND (:state IS NULL OR {_STATE} = :state) ORDER BY {SORTS[sort]} DESC, groups.number DESC"
                " LIMIT :limit OFFSET :offset"
            )
            values = {"now": wall_ms(), "state": state, "limit": limit, "offset": offset}
            return [group_told(ask, row) for row in ask(sql, values).fetchall()]

    def group(self, group_id: str, sees: Sees) -> dict[str, Any] | None:
        """One group; None where there is none that may be seen."""
        with self._asking() as ask:
            sql = (
                f"SELECT groups.*, queues.vhost, queues.name, {_STATE} AS now_state FROM groups"
                " JOIN queues ON queues.number = groups.queue WHERE groups.id = :id"
            )
            row = ask(sql, {"now": wall_ms(), "id": group_id}).fetchone()
            return group_told(ask, row) if row is not None and sees(row["vhost"], row["name"]) else None

    def failed_queues(self, sees: Sees) -> list[dict[str, Any]]:
        """Each failed queue: how many of its letters are in which state, and since when the oldest rests."""
        sql = (
            "SELECT queues.vhost, queues.name, counts.state, sum(counts.n) AS n, max(groups.last_ms) AS last_ms,"
            " count(DISTINCT groups.number) AS known FROM counts JOIN groups ON groups.number = counts.grp"
            " JOIN queues ON queues.number = groups.queue WHERE counts.n > 0"
            " GROUP BY queues.number, counts.state ORDER BY queues.vhost, queues.name"
        )
        entries: dict[tuple[str, str], dict[str, Any]] = {}
        with self._asking() as ask:
            for row in ask(sql).fetchall():
                if sees(row["vhost"], row["name"]):
                    key = (row["vhost"], row["name"])
                    blank = {"states": {}, "last_ms": 0, "oldest_ms": None}
                    entry = entries.setdefault(key, dict(zip(("vhost", "failed_queue"), key, strict=True)) | blank)
                    entry["states"][row["state"]] = row["n"]
                    entry["last_ms"] = max(entry["last_ms"], row["last_ms"])
            for key, ms in resting_since(ask).items():
                if key in entries:
                    entries[key]["oldest_ms"] = ms
        return list(entries.values())

    def places(self, sees: Sees | None = None) -> list[dict[str, Any]]:
        """Each place where letters lie, and how many; of more than MOST_PLACES those with the most.

        `sees`: only those that came from such failed queues.
        """
        sql = (
            "SELECT places.vhost, places.exchange, places.routing_key, queues.name, sum(counts.n) AS n"
            " FROM counts JOIN places ON places.number = counts.place JOIN groups ON groups.number = counts.grp"
            f" JOIN queues ON queues.number = groups.queue WHERE counts.state IN {LYING!r} AND counts.n > 0"
            f" GROUP BY places.number, queues.number ORDER BY n DESC, places.number LIMIT {MOST_PLACES}"
        )
        entries: dict[tuple[str, str, str], dict[str, Any]] = {}
        with self._asking() as ask:
            for row in ask(sql).fetchall():
                if sees is None or sees(row["vhost"], row["name"]):
                    key = (row["vhost"], row["exchange"], row["routing_key"])
                    entry = entries.setdefault(key, dict(zip(("vhost", "exchange", "routing_key"), key, strict=True)))
                    entry["n"] = entry.get("n", 0) + row["n"]
        return list(entries.values())

    def oldest(self) -> dict[tuple[str, str], int]:
        """By (vhost, policy): when the dead letter came to its place that lies there longest, ms.

        Of each place those are asked that were known first: a letter that waited for long may hide behind them.
        """
        sql = (
            "SELECT places.vhost, first.policy, min(first.last_ms) AS ms FROM places JOIN letters AS first ON"
            " first.number IN (SELECT number FROM letters WHERE place = places.number AND place > 0 ORDER BY number"
            f" LIMIT {OLDEST}) WHERE first.state = 'dead' GROUP BY 1, 2"
        )
        with self._asking() as ask:
            return {(row["vhost"], row["policy"]): row["ms"] for row in ask(sql).fetchall() if row["policy"]}

    def streams(self) -> dict[str, dict[str, Any]]:
        """Of each vhost: where the index stands in its journal, and what it missed."""
        with self._asking() as ask:
            rows = ask(
                "SELECT streams.vhost, offset, streams.events, unread, last_ms, (SELECT coalesce(sum(events), 0)"
                " FROM gaps WHERE gaps.vhost = streams.vhost) AS missing FROM streams"
            ).fetchall()
            return {row["vhost"]: {key: row[key] for key in row.keys() if key != "vhost"} for row in rows}  # noqa: SIM118 - a Row iterates over its values

    def signatures(self, visible: Sequence[str] | None = None) -> dict[str, dict[str, int]]:
        """Of each vhost: how many events of its journal have which signature. `visible`: these vhosts only."""
        counts: dict[str, dict[str, int]] = {}
        with self._asking() as ask:
            for row in ask("SELECT vhost, signature, events FROM signatures ORDER BY vhost, signature").fetchall():
                if visible is None or row["vhost"] in visible:
                    counts.setdefault(row["vhost"], {})[row["signature"]] = row["events"]
        return counts

    def audits(
        self, visible: Sequence[str], *, limit: int, before: tuple[int, str] | None = None
    ) -> list[dict[str, Any]]:
        """What people did in these vhosts, the newest first; `before`: moment and id of the last one that was seen."""
        with self._asking() as ask:
            held = ", ".join("?" * len(visible))
            older = " AND (ts_ms, event_id) < (?, ?)" if before is not None else ""
            sql = f"SELECT * FROM audits WHERE vhost IN ({held}){older} ORDER BY ts_ms DESC, event_id DESC LIMIT ?"
            rows = ask(sql, (*visible, *(before or ()), limit)).fetchall()
        return [{**dict(row), "details": json.loads(row["details"])} for row in rows]

    def groups_since(self, vhost: str, since_ms: int, known: int | None = None) -> list[GroupLook]:
        """Groups that had a death from then on, those of the oldest deaths first; where there are MOST_LOOKS, more.

        `known`: those too that are new to the index since the one with this number, however old their deaths are.
        """
        sql = (
            "SELECT id, queues.name AS failed_queue, reason, error_type, frame, message, first_ms, last_ms, deaths,"
            " CASE WHEN state = 'resolved' THEN state_ms ELSE 0 END AS resolved_ms,"
            " state = 'ignored' AND (until_ms IS NULL OR until_ms > :now) AS ignored, groups.number"
            " FROM groups JOIN queues ON queues.number = groups.queue WHERE queues.vhost = :vhost"
            " AND (last_ms >= :since OR groups.number > :known) ORDER BY last_ms, groups.number LIMIT :most"
        )
        values = {"vhost": vhost, "since": since_ms, "now": wall_ms(), "known": known, "most": MOST_LOOKS}
        with self._asking() as ask:
            return [GroupLook(*row) for row in ask(sql, values).fetchall()]

    def parked(self, vhost: str) -> dict[tuple[str, str], int]:
        """Count the letters in parking, by failed queue and group."""
        sql = (
            "SELECT queues.name AS queue, groups.id AS grp, sum(counts.n) AS n FROM counts"
            " JOIN groups ON groups.number = counts.grp JOIN queues ON queues.number = groups.queue"
            " WHERE queues.vhost = ? AND counts.state = 'parked' GROUP BY groups.number"
        )
        with self._asking() as ask:
            return {(row["queue"], row["grp"]): row["n"] for row in ask(sql, (vhost,)).fetchall()}

    def audits_of(self, vhost: str, actions: tuple[str, ...], since_ms: int) -> list[tuple[str, dict[str, Any]]]:
        """Actions and details of what a router with our key wrote down since then, the oldest first."""
        sql = (
            "SELECT action, details FROM audits WHERE vhost = ? AND ts_ms >= ? AND signature = ?"
            f" AND action IN ({', '.join('?' * len(actions))}) ORDER BY ts_ms DESC LIMIT ?"
        )
        with self._asking() as ask:
            rows = ask(sql, (vhost, since_ms, str(Signature.OK), *actions, MOST_AUDITS)).fetchall()
        return [(row["action"], json.loads(row["details"])) for row in reversed(rows)]

    def came_back(self, tasks: Sequence[str], *, elsewhere: bool) -> dict[str, int]:
        """Count the letters that died again by the redrive task that had sent them; tasks without any are left out.

        `elsewhere`: they were sent to another place than their failed queue, and die wherever that leads to.
        """
        same = f"died.letter IN ({_COPIES})" if elsewhere else "died.letter = sent.letter"
        again = (
            f"SELECT 1 FROM steps AS died WHERE {same} AND died.ts_ms >= sent.ts_ms AND died.kind IN {DEAD!r}"
            " AND died.redrive_id IS NULL"
        )
        sql = (
            "SELECT sent.redrive_id AS task, count(*) AS n FROM steps AS sent WHERE sent.kind = 'redriven'"
            f" AND sent.redrive_id IN ({', '.join('?' * len(tasks))}) AND EXISTS ({again}) GROUP BY 1"
        )
        with self._asking() as ask:
            return {row["task"]: row["n"] for row in ask(sql, tuple(tasks)).fetchall()}

    # -- asking -------------------------------------------------------------------------------------------------

    @contextmanager
    def _asking(self) -> Iterator[Callable[..., sqlite3.Cursor]]:
        """A connection to the file that is there now."""
        try:
            inode = self._path.stat().st_ino
            connection = self._connected(inode)
        except FileNotFoundError:
            raise IndexAway(f"the index is not available yet: {self._path} does not exist") from None
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
