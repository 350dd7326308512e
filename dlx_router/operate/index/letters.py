"""Letters in the index: an event about one → its row, a step of its journey, its text and its body."""

import sqlite3
from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dlx_router.operate.index import rows
from dlx_router.operate.index.numbers import Numbers
from dlx_router.operate.index.rows import STATE_OF

MAX_STEPS: Final = 500  # of one letter; the oldest go, the first stays


class _Letter(NamedTuple):
    """What has to be known of a letter that comes again."""

    number: int
    group: int
    place: int
    state: str
    text: str


class Letters:
    """Writes inside a transaction that somebody else began."""

    def __init__(self, connection: sqlite3.Connection, numbers: Numbers) -> None:
        self._do = connection.execute
        self._connection = connection
        self._numbers = numbers

    def take(self, vhost: str, event: Mapping[str, Any], line: bytes) -> None:
        """An event about a letter, as the line that told it; no line: it was imported."""
        letter_id, queue = rows.plain(event["id"]), self._numbers.queue(vhost, rows.plain(event["failed_queue"]))
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
        group = known.group if known is not None and not died else self._numbers.group(vhost, queue, event, died=died)
        at = rows.place_of(event)
        place = 0 if at is None else self._numbers.place(vhost, *at)
        body = rows.body_of(event)
        state = STATE_OF[event["kind"]] if known is None or event["kind"] != "edited" else known.state
        own = self._values(event, group, place, state)
        if known is None:
            number = self._insert(letter_id, queue, own, rows.text_of(event, body))
            self._step(number, step, event)
        else:
            number = known.number
            self._update(known, own, rows.text_of(event, body))
            self._numbers.counts[known.group, known.place, known.state] -= 1
        self._numbers.counts[group, place, state] += 1
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

    def delete(self, where: str, values: tuple[Any, ...]) -> int:
        """Take away the letters that fit, and all that hangs on them; → how many."""
        chosen = self._do(f"SELECT number, text, grp, place, state FROM letters WHERE {where}", values).fetchall()
        numbers = [(one[0],) for one in chosen]
        many = self._connection.executemany
        many("INSERT INTO found (found, rowid, text) VALUES ('delete', ?, ?)", [one[:2] for one in chosen])
        for table, column in (("letters", "number"), ("steps", "letter"), ("events", "letter"), ("bodies", "letter")):
            many(f"DELETE FROM {table} WHERE {column} = ?", numbers)
        for _number, _text, group, place, state in chosen:
            self._numbers.counts[group, place, state] -= 1
        return len(chosen)
