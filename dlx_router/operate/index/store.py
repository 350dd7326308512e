"""The writer of the index: events in, rows out, an offset with them in one transaction.

Guarantees: an event counts once, however often it comes; what is in the file is exactly what the journal said up to
the offset that stands in it. One process, one thread.
"""

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from dlx_router.core import fingerprint
from dlx_router.operate.index import rows
from dlx_router.operate.index.rows import GONE, LYING, STATE_OF, EventError

GROUP_STATES: Final = ("open", "ignored", "resolved")
SET_GROUP: Final = "group.set"
IMPORT: Final = "letters.import"
MAX_STEPS: Final = 500  # of one letter; the oldest go, the first stays
MAX_CACHED: Final = 50_000
_FINISHED: Final = ("discarded", "retired", "redriven", "released", "edited", GONE)


class Message(NamedTuple):
    """A message of the stream."""

    offset: int
    body: bytes


class _Letter(NamedTuple):
    """What has to be known of a letter that comes again."""

    number: int
    group: int
    place: int
    state: str
    text: str


class Store:
    """Over a connection that `open_writer` gave. Every method may raise sqlite3.Error, and then changed nothing."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._do = connection.execute
        self._connection = connection
        self._queues: dict[tuple[str, str], int] = {}
        self._places: dict[tuple[str, str, str], int] = {}
        self._groups: dict[str, int] = {}
        self._counts: Counter[tuple[int, int, str]] = Counter()
        self._seen: dict[int, tuple[int, int, int]] = {}  # group → deaths more, first and last of them

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def position(self, vhost: str) -> tuple[int, bytes] | None:
        """Offset and digest of the last message that is in here; None: nothing is."""
        found = self._do("SELECT offset, digest FROM streams WHERE vhost = ?", (rows.plain(vhost),)).fetchone()
        return None if found is None else (found[0], found[1])

    def last_ms(self, vhost: str) -> int | None:
        """Time of the newest event of the last message."""
        found = self._do("SELECT last_ms FROM streams WHERE vhost = ?", (rows.plain(vhost),)).fetchone()
        return None if found is None else int(found[0])

    def count(self) -> int:
        """How many letters are in here."""
        return int(self._do("SELECT coalesce(sum(n), 0) FROM counts").fetchone()[0])

    def apply(self, vhost: str, messages: Iterable[Message]) -> int:
        """Put all of it in, or nothing; → how many events."""
        name, taken, unread, last, last_ms = rows.plain(vhost), 0, 0, None, 0
        with self._transaction():
            for message in messages:
                last = message
                for line in message.body.splitlines():
                    try:
                        event = rows.event_of(line)
                        self._event(name, event, line)
                    except (EventError, KeyError, TypeError, ValueError, AttributeError, OverflowError):
                        unread += 1
                        continue
                    taken += 1
                    last_ms = int(event.get("ts_ms") or last_ms)
            if last is not None:
                self._do(
                    "INSERT INTO streams VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (vhost) DO UPDATE SET"
                    " offset = excluded.offset, digest = excluded.digest, events = events + excluded.events,"
                    " unread = unread + excluded.unread, last_ms = max(last_ms, excluded.last_ms)",
                    (name, last.offset, digest(last.body), taken, unread, last_ms),
                )
        return taken

    def forget(self, vhost: str) -> None:
        """Nothing of this vhost is in here any more: its stream is another one."""
        name = rows.plain(vhost)
        with self._transaction():
            numbers = "SELECT number FROM queues WHERE vhost = ?"
            self._delete(f"queue IN ({numbers})", (name,))
            self._do(f"DELETE FROM groups WHERE queue IN ({numbers})", (name,))
            for table in ("queues", "places", "streams", "gaps", "audits"):
                self._do(f"DELETE FROM {table} WHERE vhost = ?", (name,))
        for cache in (self._queues, self._places, self._groups):
            cache.clear()

    def emptied(self, vhost: str, place: tuple[str, str], until_ms: int) -> int:
        """The queue behind a place was found empty: what came there by then lies there no more. → how many letters."""
        where = (rows.plain(vhost), *map(rows.plain, place))
        with self._transaction():
            found = self._do(
                "SELECT number FROM places WHERE vhost = ? AND exchange = ? AND routing_key = ?", where
            ).fetchone()
            if found is None:
                return 0
            lying = ", ".join(f"'{one}'" for one in LYING)
            chosen = f"place = ? AND last_ms <= ? AND state IN ({lying})"
            for group, state, n in self._do(
                f"SELECT grp, state, count(*) FROM letters WHERE {chosen} GROUP BY grp, state", (*found, until_ms)
            ).fetchall():
                self._counts[group, found[0], state] -= n
                self._counts[group, 0, GONE] += n
            changed = self._do(f"UPDATE letters SET state = '{GONE}', place = 0 WHERE {chosen}", (*found, until_ms))
            return changed.rowcount

    def prune(self, *, before_ms: int, at_most: int) -> int:
        """Letters that are finished and older go, the oldest first; → how many did."""
        finished = ", ".join(f"'{one}'" for one in _FINISHED)
        with self._transaction():
            return self._delete(
                f"number IN (SELECT number FROM letters WHERE last_ms < ? AND state IN ({finished}) LIMIT ?)",
                (before_ms, at_most),
            )

    def shrink(self, at_most: int) -> int:
        """The oldest letters go, finished or not: the file has its size. → how many did."""
        with self._transaction():
            return self._delete("number IN (SELECT number FROM letters ORDER BY number LIMIT ?)", (at_most,))

    def used_bytes(self) -> int:
        """What is in use of the file."""
        size, count, free = (
            self._do(f"PRAGMA {one}").fetchone()[0] for one in ("page_size", "page_count", "freelist_count")
        )
        return int(size * (count - free))

    def is_sound(self) -> bool:
        """Whether SQLite finds nothing wrong with the file; takes seconds for a large one."""
        try:
            return bool(self._do("PRAGMA quick_check(1)").fetchone()[0] == "ok")
        except sqlite3.DatabaseError:
            return False

    # -- one event ----------------------------------------------------------------------------------------------

    def _event(self, vhost: str, event: Mapping[str, Any], line: bytes) -> None:
        kind = event["kind"]
        if event.get("observed"):
            return  # nothing of it was done
        if kind in STATE_OF:
            self._letter(vhost, event, line)
        elif kind == "gap":
            told = (event["event_id"], vhost, *(event.get(one) for one in ("router_id", "events", "from_ms", "to_ms")))
            self._do("INSERT OR IGNORE INTO gaps VALUES (?, ?, ?, ?, ?, ?)", told)
        elif kind == "audit":
            self._audit(vhost, event)

    def _audit(self, vhost: str, event: Mapping[str, Any]) -> None:
        details, ts_ms = event.get("details") or {}, int(event["ts_ms"])
        actor, action = rows.plain(event.get("actor")), rows.plain(event.get("action"))
        if action == IMPORT:
            self._letter(vhost, {**details["letter"], "event_id": event["event_id"]}, b"")
            return
        told = (event["event_id"], vhost, ts_ms, actor, action, json.dumps(details))
        if not self._do("INSERT OR IGNORE INTO audits VALUES (?, ?, ?, ?, ?, ?)", told).rowcount:
            return
        if action == SET_GROUP and details.get("state") in {*GROUP_STATES, None}:
            self._set_group(details, actor, ts_ms)

    def _set_group(self, details: Mapping[str, Any], actor: str, ts_ms: int) -> None:
        """A state that is not named stays; so does a note."""
        group = rows.plain(details["group"])
        if details.get("state") is not None:
            self._do(
                "UPDATE groups SET state = ?, state_ms = ?, until_ms = ?, actor = ? WHERE id = ?",
                (details["state"], ts_ms, details.get("until_ms"), actor, group),
            )
        if "note" in details:
            note = rows.plain(details["note"]) or None
            self._do("UPDATE groups SET note = ?, actor = ? WHERE id = ?", (note, actor, group))

    def _letter(self, vhost: str, event: Mapping[str, Any], line: bytes) -> None:
        letter_id, queue = rows.plain(event["id"]), self._queue(vhost, rows.plain(event["failed_queue"]))
        step = event["event_id"].rpartition("-")[2]
        found = self._do(
            "SELECT number, grp, place, state, text FROM letters WHERE id = ? AND queue = ?", (letter_id, queue)
        ).fetchone()
        known = None if found is None else _Letter(*found)
        if known is not None and line and not self._step(known.number, step, event):
            return  # told twice
        if known is not None and not line:
            return  # imported, and known better
        died = event.get("arrival") == "inbox"
        group = known.group if known is not None and not died else self._group(vhost, queue, event, died=died)
        at = rows.place_of(event)
        place = 0 if at is None else self._place(vhost, *at)
        body = rows.body_of(event)
        state = STATE_OF[event["kind"]] if known is None or event["kind"] != "edited" else known.state
        own = self._values(event, group, place, state)
        if known is None:
            number = self._insert(letter_id, queue, own, rows.text_of(event, body))
            self._step(number, step, event)
        else:
            number = known.number
            self._update(known, own, rows.text_of(event, body))
            self._counts[known.group, known.place, known.state] -= 1
        self._counts[group, place, state] += 1
        if line:
            self._do("INSERT OR REPLACE INTO events VALUES (?, ?)", (number, rows.without_body(line, event)))
        if body is not None and (body.content is not None or known is None):
            self._do("INSERT OR REPLACE INTO bodies VALUES (?, ?, ?, ?, ?)", (number, *body))

    def _values(self, event: Mapping[str, Any], group: int, place: int, state: str) -> tuple[Any, ...]:
        text = rows.plain
        return (
            group,
            place,
            state,
            text(event.get("reason")),
            text(event.get("cause")) or None,
            text(event.get("policy")) or None,
            int(event.get("attempts") or 0),
            int(event.get("redrives") or 0),
            int(event.get("first_death_ms") or 0),
            int(event["ts_ms"]),
            event.get("due_ms"),
            int((event.get("digest") or {}).get("size") or 0),
            text((event.get("props") or {}).get("message_id")) or None,
        )

    def _insert(self, letter_id: str, queue: int, own: tuple[Any, ...], text: str) -> int:
        made = self._do(
            "INSERT INTO letters VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (letter_id, queue, *own, text),
        )
        number = int(made.lastrowid or 0)
        self._do("INSERT INTO found (rowid, text) VALUES (?, ?)", (number, text))
        return number

    def _update(self, known: _Letter, own: tuple[Any, ...], text: str) -> None:
        if text != known.text and len(text) >= len(known.text):  # a later event without the body says less, not other
            self._do("INSERT INTO found (found, rowid, text) VALUES ('delete', ?, ?)", (known.number, known.text))
            self._do("INSERT INTO found (rowid, text) VALUES (?, ?)", (known.number, text))
        else:
            text = known.text
        self._do(
            "UPDATE letters SET grp = ?, place = ?, state = ?, reason = ?, cause = ?, policy = ?, attempts = ?,"
            " redrives = ?, first_ms = ?, last_ms = ?, due_ms = ?, size = ?, message_id = ?, text = ?"
            " WHERE number = ?",
            (*own, text, known.number),
        )

    def _step(self, number: int, step: str, event: Mapping[str, Any]) -> bool:
        """A line of the letter's journey; False where it stands there already."""
        text, target = rows.plain, event.get("target") or {}
        made = self._do(
            "INSERT OR IGNORE INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (
                number,
                step,
                int(event["ts_ms"]),
                event["kind"],
                text(event.get("source")),
                text(event.get("reason")),
                text(event.get("cause")) or None,
                event.get("attempts"),
                event.get("redrives"),
                event.get("tries"),
                event.get("due_ms"),
                text(event.get("policy")) or None,
                text(target.get("exchange")) if target else None,
                text(target.get("routing_key")) if target else None,
                text(event.get("refused")) or None,
                text(event.get("redrive_id")) or None,
            ),
        )
        if made.rowcount and (event.get("attempts") or 0) + (event.get("tries") or 0) > MAX_STEPS // 4:
            self._shorten(number)
        return bool(made.rowcount)

    def _shorten(self, number: int) -> None:
        """A letter that is tried for ever has no journey for ever: the first step stays, and the newest."""
        self._do(
            "DELETE FROM steps WHERE letter = ? AND step IN (SELECT step FROM steps WHERE letter = ?"
            " ORDER BY ts_ms DESC LIMIT -1 OFFSET ?) AND ts_ms > (SELECT min(ts_ms) FROM steps WHERE letter = ?)",
            (number, number, MAX_STEPS, number),
        )

    # -- names --------------------------------------------------------------------------------------------------

    def _queue(self, vhost: str, name: str) -> int:
        return self._number(self._queues, "queues (vhost, name)", (vhost, name))

    def _place(self, vhost: str, exchange: str, key: str) -> int:
        return self._number(self._places, "places (vhost, exchange, routing_key)", (vhost, exchange, key))

    def _number(self, cache: dict[Any, int], table: str, values: tuple[str, ...]) -> int:
        number = cache.get(values)
        if number is None:
            name, _, columns = table.partition(" ")
            fits = " AND ".join(f"{one} = ?" for one in columns.strip("()").split(", "))
            self._do(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(values))})", values)
            number = int(self._do(f"SELECT number FROM {name} WHERE {fits}", values).fetchone()[0])
            _keep(cache, values, number)
        return number

    def _group(self, vhost: str, queue: int, event: Mapping[str, Any], *, died: bool) -> int:
        one = fingerprint.of_event({**event, "vhost": vhost})
        number = self._groups.get(one.id)
        if number is None:
            text = rows.plain
            self._do(
                "INSERT OR IGNORE INTO groups"
                " (id, queue, reason, error_type, frame, message, first_ms, last_ms, deaths)"
                " VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
                (one.id, queue, *map(text, one[3:]), event["ts_ms"], event["ts_ms"]),
            )
            number = int(self._do("SELECT number FROM groups WHERE id = ?", (one.id,)).fetchone()[0])
            _keep(self._groups, one.id, number)
        if died:
            ts_ms = int(event["ts_ms"])
            more, first, last = self._seen.get(number, (0, ts_ms, ts_ms))
            self._seen[number] = (more + 1, min(first, ts_ms), max(last, ts_ms))
        return number

    # -- many ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._do("BEGIN IMMEDIATE")
        try:
            yield
            self._settle()
            self._do("COMMIT")
        except BaseException:
            for cache in (self._queues, self._places, self._groups, self._counts, self._seen):
                cache.clear()
            if self._connection.in_transaction:
                self._do("ROLLBACK")
            raise

    def _settle(self) -> None:
        """What was counted in memory."""
        self._connection.executemany(
            "INSERT INTO counts VALUES (?, ?, ?, ?) ON CONFLICT (grp, place, state) DO UPDATE SET n = n + excluded.n",
            [(*key, n) for key, n in self._counts.items() if n],
        )
        self._connection.executemany(
            "UPDATE groups SET deaths = deaths + ?, first_ms = min(first_ms, ?), last_ms = max(last_ms, ?)"
            " WHERE number = ?",
            [(*seen, number) for number, seen in self._seen.items()],
        )
        self._counts.clear()
        self._seen.clear()

    def _delete(self, where: str, values: tuple[Any, ...]) -> int:
        """The letters that fit, and all that hangs on them."""
        chosen = self._do(f"SELECT number, text, grp, place, state FROM letters WHERE {where}", values).fetchall()
        numbers = [(one[0],) for one in chosen]
        many = self._connection.executemany
        many("INSERT INTO found (found, rowid, text) VALUES ('delete', ?, ?)", [one[:2] for one in chosen])
        for table, column in (("letters", "number"), ("steps", "letter"), ("events", "letter"), ("bodies", "letter")):
            many(f"DELETE FROM {table} WHERE {column} = ?", numbers)
        for _number, _text, group, place, state in chosen:
            self._counts[group, place, state] -= 1
        return len(chosen)


def digest(body: bytes) -> bytes:
    """Tells one message of a stream from another at the same offset."""
    return hashlib.blake2b(body, digest_size=16).digest()


def _keep(cache: dict[Any, int], key: Any, number: int) -> None:  # noqa: ANN401
    if len(cache) >= MAX_CACHED:
        cache.clear()
    cache[key] = number
