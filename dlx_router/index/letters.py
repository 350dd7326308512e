"""Letters in the index: the events of a transaction → what changes of each letter, written at once at its end.

A letter that comes several times in one transaction is written once. Which letters are known already is asked in one
question for all of them.
"""

import json
import sqlite3
from collections.abc import Iterable
from typing import Any, Final

from dlx_router.index import rows
from dlx_router.index.ids import Numbers
from dlx_router.index.rows import STATE_OF, Body, Event

MAX_STEPS: Final = 500  # of one letter; the oldest go, the first stays
_INSERT: Final = "INSERT INTO letters VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_UPDATE: Final = (
    "UPDATE letters SET grp = ?, place = ?, state = ?, reason = ?, cause = ?, policy = ?, attempts = ?, redrives = ?,"
    " first_ms = ?, last_ms = ?, due_ms = ?, size = ?, message_id = ? WHERE number = ?"
)
_STEP: Final = "INSERT INTO steps VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
_FIND: Final = "INSERT INTO found (rowid, text) VALUES (?, ?)"
_UNFIND: Final = "INSERT INTO found (found, rowid, text) VALUES ('delete', ?, ?)"
_KNOWN: Final = (
    "SELECT id, queue, number, grp, place, state, text FROM letters JOIN events ON letter = number"
    " WHERE key IN (SELECT value FROM json_each(?))"
)


class _Letter:
    """One that the transaction is about. `before`: its group, place and state in the file, where it stands there."""

    __slots__ = ("before", "body", "found", "line", "number", "own", "steps", "text", "where")

    def __init__(self, number: int, before: tuple[int, int, str] | None = None, text: str | None = None) -> None:
        self.number, self.before, self.found = number, before, text
        self.where: tuple[int, int, str] | None = before
        self.text = text or ""
        self.own: tuple[Any, ...] = ()
        self.line: bytes | None = None
        self.body: Body | None = None
        self.steps: dict[str, tuple[Any, ...]] = {}


class Letters:
    """Writes inside a transaction that somebody else began, and only in `write`."""

    def __init__(self, connection: sqlite3.Connection, numbers: Numbers) -> None:
        self._do = connection.execute
        self._many = connection.executemany
        self._numbers = numbers
        self._asked: set[str] = set()
        self._letters: dict[tuple[str, int], _Letter] = {}
        self._touched: dict[tuple[str, int], _Letter] = {}
        self._long: list[int] = []
        self._next = 0

    def recall(self, letter_ids: Iterable[str]) -> None:
        """What the file says of letters that `take` will be given."""
        asked = {*letter_ids} - self._asked
        self._asked |= asked
        keys = json.dumps([rows.key_of(one) for one in asked])
        for letter_id, queue, number, group, place, state, text in self._do(_KNOWN, (keys,)):
            if letter_id in asked:  # another one may have the same key
                self._letters[letter_id, queue] = _Letter(number, (group, place, state), text)

    def take(self, vhost: str, event: Event, line: bytes, signature: str) -> None:
        """An event about a letter, as the line that told it; no line: it was imported.

        Raises one of rows.ODD, and then nothing of it counts.
        """
        shared, own, step = event.shared, event.own, rows.marked(event.step, signature)
        assert shared is not None
        queue = self._numbers.queue(vhost, rows.plain(shared.members["failed_queue"]))
        if event.id not in self._asked:
            self.recall([event.id])
        known = self._letters.get((event.id, queue))
        if known is not None and (not line or self._is_told(known, step)):
            return  # imported, and known better; or told twice
        if shared.kind in rows.STEPS:
            if known is not None:  # else nothing is known of where it is
                times = rows.times_leased(event)
                known.steps[step] = (rows.whole(own["ts_ms"]), *rows.lease_step(event), str(signature))
                self._touched[event.id, queue] = known
                if times > MAX_STEPS // 4:
                    self._long.append(known.number)
            return
        body = rows.body_of(own)
        kept, text, told = rows.without_body(line, own) if line else None, rows.text_of(event, body), rows.own_of(event)
        ts_ms, due_ms = told[6], told[7]
        where = self._where(vhost, queue, event, known, ts_ms)
        letter = known or self._new(event.id, queue)
        if body is not None and (body.content is not None or known is None):
            letter.body = body
        if len(text) >= len(letter.text):
            letter.text = text  # a later event without the body says less, not other
        letter.where, letter.own, letter.line = where, told, kept
        letter.steps[step] = (ts_ms, *shared.step[0], due_ms, *shared.step[1], str(signature))
        self._touched[event.id, queue] = letter
        if (shared.step[0][4] or 0) + (shared.step[0][6] or 0) > MAX_STEPS // 4:
            self._long.append(letter.number)

    def _where(self, vhost: str, queue: int, event: Event, known: _Letter | None, ts_ms: int) -> tuple[int, int, str]:
        """Group, place and state."""
        shared = event.shared
        assert shared is not None
        before = None if known is None else known.where
        died = shared.members.get("arrival") == "inbox" and not shared.members.get("redrive_id")  # else a task has it
        group = self._numbers.group(vhost, queue, event, ts_ms, died=died) if before is None or died else before[0]
        place = 0 if shared.place is None else self._numbers.place(vhost, *shared.place)
        return group, place, before[2] if before is not None and shared.kind == "edited" else STATE_OF[shared.kind]

    def _is_told(self, known: _Letter, step: str) -> bool:
        if step in known.steps:
            return True
        there = "SELECT 1 FROM steps WHERE letter = ? AND step = ?"
        return known.before is not None and self._do(there, (known.number, step)).fetchone() is not None

    def _new(self, letter_id: str, queue: int) -> _Letter:
        if not self._next:
            self._next = self._do("SELECT coalesce(max(number), 0) + 1 FROM letters").fetchone()[0]
        letter = self._letters[letter_id, queue] = _Letter(self._next)
        self._next += 1
        return letter

    def write(self) -> None:
        """All that was taken."""
        new = [one for one in self._touched.items() if one[1].before is None]
        old = [one for one in self._touched.values() if one.before is not None and one.own]
        self._many(
            _INSERT, ((a.number, rows.key_of(name), name, queue, *(a.where or ()), *a.own) for (name, queue), a in new)
        )
        self._many(_UPDATE, ((*(one.where or ()), *one.own, one.number) for one in old))
        self._write_texts([one for _, one in new], old)
        touched = self._touched.values()
        self._many(_STEP, ((one.number, step, *told) for one in touched for step, told in one.steps.items()))
        bodies = ((one.number, *one.body) for one in touched if one.body is not None)
        self._many("INSERT OR REPLACE INTO bodies VALUES (?, ?, ?, ?, ?)", bodies)
        for one in touched:
            self._count(one)
        for number in self._long:
            self._shorten(number)
        self.forget()

    def _write_texts(self, new: list[_Letter], old: list[_Letter]) -> None:
        other = [one for one in old if one.text != one.found]
        self._many(_UNFIND, ((one.number, one.found) for one in other))
        self._many(_FIND, ((one.number, one.text) for one in (*other, *new)))
        self._many("UPDATE events SET line = ?, text = ? WHERE letter = ?", ((a.line, a.text, a.number) for a in old))
        self._many("INSERT INTO events VALUES (?, ?, ?)", ((one.number, one.line, one.text) for one in new))

    def _count(self, letter: _Letter) -> None:
        counts = self._numbers.counts
        if letter.before is not None:
            counts[letter.before] -= 1
        if letter.where is not None:
            counts[letter.where] += 1

    def _shorten(self, number: int) -> None:
        """A letter that is tried for ever has no journey for ever: the first step stays, and the newest."""
        self._do(
            "DELETE FROM steps WHERE letter = ? AND step IN (SELECT step FROM steps WHERE letter = ?"
            " ORDER BY ts_ms DESC LIMIT -1 OFFSET ?) AND ts_ms > (SELECT min(ts_ms) FROM steps WHERE letter = ?)",
            (number, number, MAX_STEPS, number),
        )

    def forget(self) -> None:
        """What was taken is written, or never will be."""
        for one in (self._asked, self._letters, self._touched, self._long):
            one.clear()

    def delete(self, where: str, values: tuple[Any, ...]) -> int:
        """Take away the letters that fit, and all that hangs on them; → how many."""
        chosen = self._do(
            f"SELECT number, text, grp, place, state FROM letters JOIN events ON letter = number WHERE {where}", values
        ).fetchall()
        numbers = [(one[0],) for one in chosen]
        self._many(_UNFIND, [one[:2] for one in chosen])
        for table, column in (("letters", "number"), ("steps", "letter"), ("events", "letter"), ("bodies", "letter")):
            self._many(f"DELETE FROM {table} WHERE {column} = ?", numbers)
        for _number, _text, *where_it_was in chosen:
            self._numbers.counts[tuple(where_it_was)] -= 1
        return len(chosen)
