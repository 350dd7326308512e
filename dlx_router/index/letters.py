"""Letters in the index: the events of a transaction → what changes of each letter, written at once at its end.

A letter that comes several times in one transaction is written once. Which letters are known already is asked in one
question for all of them.
"""

import json
import sqlite3
from collections.abc import Iterable
from typing import Any, Final

from dlx_router.core.letter import FIRST_SERIAL, SERIALS_OF_A_CHANNEL
from dlx_router.index import comments, rows
from dlx_router.index.comments import Comment
from dlx_router.index.ids import Numbers
from dlx_router.index.rows import FINISHED, LYING, STATE_OF, Body, Event, Shared
from dlx_router.journal.reading import Row
from dlx_router.telemetry.wall_clock import wall_ms

_EDITED: Final = "edited"
_LAST_MS: Final = 6  # of a letter's own columns
MAX_STEPS: Final = 500  # of one letter; the oldest go, the first stays
_INSERT: Final = f"INSERT INTO letters VALUES ({', '.join('?' * 18)})"
_UPDATE: Final = (
    "UPDATE letters SET grp = ?, place = ?, state = ?, reason = ?, cause = ?, policy = ?, attempts = ?, redrives = ?,"
    " first_ms = ?, last_ms = ?, due_ms = ?, size = ?, message_id = ? WHERE number = ?"
)
_IDENTIFY: Final = "UPDATE letters SET serial = ?, copies = ? WHERE number = ?"
_STEP: Final = f"INSERT INTO steps VALUES ({', '.join('?' * 18)})"
_FIND: Final = "INSERT INTO found (rowid, text) VALUES (?, ?)"
_UNFIND: Final = "INSERT INTO found (found, rowid, text) VALUES ('delete', ?, ?)"
_KNOWN: Final = (
    "SELECT id, queue, number, grp, place, state, text, serial, copies, last_ms, redrives, attempts"
    " FROM letters JOIN events ON letter = number WHERE id IN (SELECT value FROM json_each(?)) ORDER BY number"
)
_ENDS: Final = frozenset({"discarded", "retired"})  # of this copy nothing else follows, whatever clocks say


class _Letter:
    """One that the transaction is about. `before`: its group, place and state in the file, where it stands there.

    `moment`: time, redrives and attempts of the event that says so. `copies`: how often this very message may have been
    handled besides, by sessions that ended before they had acked it; then `is_renamed`, by its newest serial.
    """

    __slots__ = (
        "before", "body", "comments", "copies", "found", "is_renamed", "line", "moment", "notes", "number", "own",
        "serial", "steps", "text", "where",
    )  # fmt: skip

    def __init__(
        self,
        number: int,
        before: tuple[int, int, str] | None = None,
        text: str | None = None,
        serial: int | None = None,
        copies: int = 0,
        moment: tuple[int, int, int] = (0, 0, 0),
    ) -> None:
        self.number, self.before, self.found = number, before, text
        self.serial, self.copies, self.is_renamed = serial, copies, False
        self.where: tuple[int, int, str] | None = before
        self.moment = moment
        self.text, _, self.notes = (text or "").partition(comments.MARK)
        self.comments: list[Comment] = []
        self.own: tuple[Any, ...] = ()
        self.line: bytes | Row | None = None
        self.body: Body | None = None
        self.steps: dict[str, tuple[int, _Fate, int | None, str]] = {}

    def is_newer_than(self, moment: tuple[int, int, int]) -> bool:
        """Whether what holds is later in the letter's life than an event that is later in the stream.

        Only where time and life, which no clock changes, both say so: the clocks of hosts differ. What lies ahead of
        our clock holds until the next event.
        """
        return moment[0] < self.moment[0] <= wall_ms() and moment[1:] <= self.moment[1:]

    @property
    def is_lying(self) -> bool:
        """Whether it is in a queue, until somebody does something."""
        return self.where is not None and self.where[2] in LYING

    def rename(self, serial: int) -> None:
        """Take the serial of a later handling of what may be the same message."""
        self.copies += self.serial is not None and self.serial >= FIRST_SERIAL
        self.serial, self.is_renamed = serial, True

    def read(self, body: Body | None, text: str, *, is_new: bool) -> None:
        """Keep the body and the words of an event; a later one without the body says less, not other."""
        if body is not None and (body.content is not None or is_new):
            self.body = body
        if len(text) >= len(self.text):
            self.text = text

    @property
    def searched(self) -> str:
        """What it is found by: the words of its events, and of its notes."""
        return f"{self.text}{comments.MARK}{self.notes}" if self.notes else self.text


class _Fate:
    """What a transaction works out once for all letters whose events share a line."""

    __slots__ = ("died", "group", "is_long", "place", "queue", "shared", "state")

    def __init__(self, vhost: str, shared: Shared, numbers: Numbers) -> None:
        member = shared.members.get
        self.shared = shared  # so that nothing else gets its id
        self.queue = numbers.queue(vhost, shared.failed_queue)
        self.place = 0 if shared.place is None else numbers.place(vhost, *shared.place)
        self.state = None if shared.kind == _EDITED else rows.state_of(shared.members)  # None: it stays as it was
        self.died = member("arrival") == "inbox" and not member("redrive_id")  # else a task has it
        self.group = 0  # of those whose error is not known, once there is one
        self.is_long = (shared.step[4] or 0) + (shared.step[6] or 0) > MAX_STEPS // 4


class Letters:
    """Writes inside a transaction that somebody else began, and only in `write`."""

    def __init__(self, connection: sqlite3.Connection, numbers: Numbers) -> None:
        self._do = connection.execute
        self._many = connection.executemany
        self._numbers = numbers
        self._asked: set[str] = set()
        self._letters: dict[tuple[str, int], dict[int | None, _Letter]] = {}  # by id and failed queue, and serial
        self._touched: dict[int, tuple[tuple[str, int], _Letter]] = {}  # by number
        self._long: list[int] = []
        self._fates: dict[int, _Fate] = {}
        self._next = 0

    def recall(self, letter_ids: Iterable[str]) -> None:
        """What the file says of letters that `take` will be given."""
        asked = {*letter_ids} - self._asked
        self._asked |= asked
        for letter_id, queue, number, group, place, state, text, serial, copies, *moment in self._do(
            _KNOWN, (json.dumps([*asked]),)
        ):
            last_ms, redrives, attempts = moment
            where, when = (group, place, state), (last_ms, redrives, attempts)
            letter = _Letter(number, where, text, serial, copies, when)
            self._letters.setdefault((letter_id, queue), {})[serial] = letter

    def take(self, vhost: str, event: Event, line: bytes | Row, signature: str) -> None:
        """An event about a letter, as the line or row that told it; no line: it was imported.

        Raises one of rows.ODD, and then nothing of it counts.
        """
        shared, step = event.shared, rows.marked(event.step, signature)
        assert shared is not None
        fate = self._fates.get(id(shared)) or self._fate(vhost, shared)
        if event.id not in self._asked:
            self.recall([event.id])
        name = event.id, fate.queue
        known = self._letters.get(name, {})
        if known and not line and sum(letter.is_lying for letter in known.values()) > (event.serial or 0):
            return  # an import found no more equal letters than are known to lie
        letter = self._which(name, known, event)
        if letter is not None:
            step = self._step_of(letter, event, step, is_imported=not line)
            if not step:
                return
        elif any(other.copies and self._has_step(other, step, event.ts_ms) for other in known.values()):
            return  # told twice, and before it was handled once more
        if shared.kind in rows.STEPS:
            if letter is not None:  # else nothing is known of where it is
                self._lease(vhost, letter, event, step, signature)
                self._touch(name, letter)
            return
        before, body = None if letter is None else letter.where, event.body
        kept = line if isinstance(line, Row) else rows.without_body(line, event.own) if line else None
        group = self._group(vhost, fate, event) if before is None or fate.died else before[0]
        moment = event.ts_ms, shared.columns[4], shared.columns[3]
        if letter is None:
            letter = self._new(name, event.serial)
        elif event.ts_ms < letter.moment[0] and fate.state not in _ENDS and letter.is_newer_than(moment):
            self._touch(name, letter)
            self._keep_step(letter, fate, event, step, signature)  # it came from another router's memory, say
            return
        letter.moment = moment
        letter.read(body, event.text, is_new=before is None)
        state = fate.state or (_EDITED if before is None else before[2])
        letter.where, letter.own, letter.line = (group, fate.place, state), shared.columns + event.columns, kept
        self._touch(name, letter)
        self._keep_step(letter, fate, event, step, signature)

    def _touch(self, name: tuple[str, int], letter: _Letter) -> None:
        self._touched[letter.number] = name, letter

    def _which(self, name: tuple[str, int], known: dict[int | None, _Letter], event: Event) -> _Letter | None:
        """The letter of an event, of those that are equal; None: it is not known yet.

        Where the serial is new and the message was delivered before, it may be a letter that has none of a router, or
        one that an earlier session handled and did not ack; of several such that is not known, and each counts.
        """
        letter, serial = known.get(event.serial), event.serial
        if letter is not None or not known:
            return letter
        if serial is None:  # an older router's word
            return next((other for other in known.values() if other.is_lying), next(iter(known.values())))
        if not event.possible_copy:
            return None
        unnamed = [other for at, other in known.items() if at is None or at < FIRST_SERIAL]
        letter = next((other for other in unnamed if other.is_lying), next(iter(unnamed), None))
        if letter is None and len(known) == 1:
            letter = next(iter(known.values()))
            letter = letter if abs((letter.serial or 0) - serial) > SERIALS_OF_A_CHANNEL else None
        if letter is not None:
            del known[letter.serial]
            letter.rename(serial)
            known[serial] = letter
            self._touch(name, letter)
        return letter

    def _step_of(self, letter: _Letter, event: Event, step: str, *, is_imported: bool) -> str:
        """By which name the step is kept; "": the letter is imported, and known better, or it was told twice."""
        if not is_imported and not self._has_step(letter, step):
            return step
        if is_imported or not self._came_again(letter, event, step):
            return ""
        self._long.append(letter.number)
        return f"{step}@{event.ts_ms}"

    def _keep_step(self, letter: _Letter, fate: _Fate, event: Event, step: str, signature: str) -> None:
        letter.steps[step] = event.ts_ms, fate, event.columns[2], str(signature)
        if fate.is_long:
            self._long.append(letter.number)

    def comment(self, vhost: str, note: Comment) -> None:
        """What a person noted on a letter. Of one that is not known nothing is kept here."""
        name = note.letter, self._numbers.queue(vhost, note.queue)
        if note.letter not in self._asked:
            self.recall([note.letter])
        letter = next(iter(self._letters.get(name, {}).values()), None)
        if letter is not None:
            letter.comments.append(note)
            letter.notes = comments.with_note(letter.notes, note.text)
            self._touch(name, letter)

    def _lease(self, vhost: str, letter: _Letter, event: Event, step: str, signature: str) -> None:
        """A step on its way, which changes nothing about where it is."""
        assert event.shared is not None
        leased, is_long = event.shared._replace(step=rows.lease_step(event)), rows.times_leased(event) > MAX_STEPS // 4
        fate = self._fate(vhost, leased)
        letter.steps[step] = event.ts_ms, fate, event.columns[2], str(signature)
        if is_long:
            self._long.append(letter.number)

    def _fate(self, vhost: str, shared: Shared) -> _Fate:
        """Worked out once a transaction."""
        fate = self._fates[id(shared)] = _Fate(vhost, shared, self._numbers)
        return fate

    def _group(self, vhost: str, fate: _Fate, event: Event) -> int:
        """The group of an event; it is one death more, unless a task has the letter."""
        numbers, error = self._numbers, event.own.get("error")
        if error is None:
            number = fate.group = fate.group or numbers.group(vhost, fate.queue, fate.shared.members, None, event.ts_ms)
        else:
            number = numbers.group(vhost, fate.queue, fate.shared.members, error, event.ts_ms)
        if fate.died:
            numbers.died(number, event.ts_ms)
        return number

    def _has_step(self, known: _Letter, step: str, ts_ms: int | None = None) -> bool:
        """Whether it has that step; `ts_ms`: of that time."""
        if step in known.steps:
            return ts_ms in {None, known.steps[step][0]}
        there = "SELECT 1 FROM steps WHERE letter = ? AND step = ? AND ts_ms = coalesce(?, ts_ms)"
        return known.before is not None and self._do(there, (known.number, step, ts_ms)).fetchone() is not None

    def _came_again(self, known: _Letter, event: Event, step: str) -> bool:
        """Whether it lies once more after it had left: an equal message without x-death has the ids of the one before.

        A line that is only told twice has the time of a step that is known.
        """
        assert event.shared is not None
        lies = STATE_OF.get(event.shared.kind) in LYING
        had_left = known.where is not None and known.where[2] in FINISHED
        if not lies or not had_left or event.ts_ms <= max(self._times(known, step)):
            return False
        return not self._has_step(known, f"{step}@{event.ts_ms}")

    def _times(self, known: _Letter, step: str) -> tuple[int, int]:
        """When this step was, and the newest event that changed where the letter is."""
        last_ms = known.own[_LAST_MS] if known.own else self._first("last_ms FROM letters WHERE number = ?", known)
        if step in known.steps:
            return known.steps[step][0], last_ms
        return self._first("ts_ms FROM steps WHERE letter = ? AND step = ?", known, step), last_ms

    def _first(self, what: str, known: _Letter, *values: str) -> int:
        return int(self._do(f"SELECT {what}", (known.number, *values)).fetchone()[0])

    def _new(self, name: tuple[str, int], serial: int | None) -> _Letter:
        if not self._next:
            self._next = self._do("SELECT coalesce(max(number), 0) + 1 FROM letters").fetchone()[0]
        letter = self._letters.setdefault(name, {})[serial] = _Letter(self._next, serial=serial)
        self._next += 1
        return letter

    def write(self) -> None:
        """All that was taken."""
        new = [item for item in self._touched.values() if item[1].before is None]
        touched = [letter for _, letter in self._touched.values()]
        old = [letter for letter in touched if letter.before is not None and letter.own]
        self._many(
            _INSERT,
            [(a.number, name, queue, *(a.where or ()), *a.own, a.serial, a.copies) for (name, queue), a in new],
        )
        self._many(_UPDATE, [(*(letter.where or ()), *letter.own, letter.number) for letter in old])
        renamed = [letter for letter in touched if letter.before is not None and letter.is_renamed]
        self._many(_IDENTIFY, [(letter.serial, letter.copies, letter.number) for letter in renamed])
        self._write_texts([letter for _, letter in new], old)
        self._write_comments()
        self._write_steps()
        bodies = [(letter.number, *letter.body) for letter in touched if letter.body is not None]
        self._many("INSERT OR REPLACE INTO bodies VALUES (?, ?, ?, ?, ?)", bodies)
        for letter in touched:
            self._count(letter)
        for number in self._long:
            self._shorten(number)
        self._clear()

    def _write_comments(self) -> None:
        noted = [letter for _, letter in self._touched.values() if letter.comments]
        self._many(comments.INSERT, [comment.row(letter.number) for letter in noted for comment in letter.comments])
        others = [
            letter
            for letter in noted
            if letter.before is not None and not letter.own and letter.searched != letter.found
        ]
        self._many(_UNFIND, [(letter.number, letter.found) for letter in others])
        self._many(_FIND, [(letter.number, letter.searched) for letter in others])
        self._many(
            "UPDATE events SET text = ? WHERE letter = ?", [(letter.searched, letter.number) for letter in others]
        )

    def _write_steps(self) -> None:
        steps = [
            (letter.number, step, ts_ms, *fate.shared.step, due_ms, signature)
            for _, letter in self._touched.values()
            for step, (ts_ms, fate, due_ms, signature) in letter.steps.items()
        ]
        self._many(_STEP, steps)

    def _write_texts(self, new: list[_Letter], old: list[_Letter]) -> None:
        other = [letter for letter in old if letter.searched != letter.found]
        self._many(_UNFIND, [(letter.number, letter.found) for letter in other])
        self._many(_FIND, [(letter.number, letter.searched) for letter in (*other, *new)])
        changed = [(*rows.kept(letter.line), letter.searched, letter.number) for letter in old]
        self._many("UPDATE events SET shared = ?, line = ?, text = ? WHERE letter = ?", changed)
        added = [(letter.number, *rows.kept(letter.line), letter.searched) for letter in new]
        self._many("INSERT INTO events VALUES (?, ?, ?, ?)", added)

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

    def _clear(self) -> None:
        for cache in (self._asked, self._letters, self._touched, self._long, self._fates):
            cache.clear()

    def forget(self) -> None:
        """What was taken will never be written, and what is known of the file may be wrong."""
        self._clear()

    def delete(self, where: str, values: tuple[Any, ...]) -> int:
        """Take away the letters that fit, and all that hangs on them; → how many."""
        chosen = self._do(
            f"SELECT number, text, grp, place, state FROM letters JOIN events ON letter = number WHERE {where}",
            values,
        ).fetchall()
        numbers = [(row[0],) for row in chosen]
        self._many(_UNFIND, [row[:2] for row in chosen])
        self._many("DELETE FROM letters WHERE number = ?", numbers)
        for table in ("steps", "events", "bodies", "comments"):
            self._many(f"DELETE FROM {table} WHERE letter = ?", numbers)
        for row in chosen:
            self._numbers.counts[row[2:]] -= 1
        return len(chosen)
