"""The writer of the index: events in, rows out, an offset with them in one transaction.

Guarantees: an event counts once, however often it comes; what is in the file is exactly what the journal said up to
the offset that stands in it. One process, one thread.
"""

import hashlib
import json
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

from dlx_router.core.signature import Signature
from dlx_router.index import rows, shapes
from dlx_router.index.comments import comment_of
from dlx_router.index.forgetting import Forgetting
from dlx_router.index.ids import Numbers
from dlx_router.index.letters import Letters
from dlx_router.index.rows import FINISHED, GONE, LYING, ODD, Event, EventError
from dlx_router.index.unneeded import Unneeded
from dlx_router.journal.audit import COMMENT, MAX_DETAILS_BYTES
from dlx_router.journal.packing import FormatError
from dlx_router.journal.reading import Row, parts
from dlx_router.telemetry.wall_clock import wall_ms

GROUP_STATES: Final = ("open", "ignored", "resolved")
SET_GROUP: Final = "group.set"
IMPORT: Final = "letters.import"
LOOKED_AT: Final = 50_000
MOST_GONE: Final = 2_000  # letters that go in one transaction: what reads and asks waits meanwhile
_ORDERS: Final = (SET_GROUP, COMMENT)
CLOCKS_MS: Final = 2_000  # clocks of hosts differ by no more than that
PORTION_BYTES: Final = 4 << 20  # of events, in one transaction: some 10,000 of them
_BAD_VALUES: Final = (sqlite3.InterfaceError, sqlite3.ProgrammingError, sqlite3.DataError)
"""What SQLite says to a value that no column takes: nothing of the file is wrong, and each new try would end so."""
NOTE_CHARS: Final = 2000  # of a group
_compact: Final = json.JSONEncoder(separators=(",", ":")).encode


class Message(NamedTuple):
    """A message of the stream; `version` as `reading.parts` takes it."""

    offset: int
    body: bytes
    signature: str = Signature.NONE
    version: int | None = None


class Portion:
    """What one transaction puts in: the events of some messages."""

    def __init__(self) -> None:
        self.events: list[tuple[Event, bytes | Row, str]] = []
        self.unread = 0
        self.size = 0
        self.last: Message | None = None

    def read(self, message: Message) -> None:
        """Add a message. Raises FormatError: its events are not known."""
        self.last = message
        self.size += len(message.body)
        shared: set[bytes] = set()
        for part in parts(message.body, message.version):
            if isinstance(part, Row):
                self.size += len(part.text)
                if part.shared.line not in shared:
                    shared.add(part.shared.line)
                    self.size += len(part.shared.line)
            else:
                self.size += len(part)
            try:
                self.events.append((rows.event_of(part), part, message.signature))
            except EventError:
                self.unread += 1


class Store:
    """Over a connection that `open_writer` gave. Every method may raise sqlite3.Error, and then changed nothing.

    (`apply` may have put in the first of the messages; `position` says which.)
    """

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._do = connection.execute
        self._connection = connection
        self._numbers = Numbers(connection)
        self._letters = Letters(connection, self._numbers)
        self._unneeded = Unneeded(connection, _ORDERS)
        self._forgetting = Forgetting(connection, self._letters)
        self._pruned = 0  # the number of the last letter that `prune` looked at
        self._is_signed = False  # an event of this transaction, before the one that is taken
        self.unreadable = ""  # the last message that could not be read, and why; "": none

    def close(self) -> None:
        """Close the file."""
        self._connection.close()

    def position(self, vhost: str) -> tuple[int, bytes] | None:
        """Offset and digest of the last message that is in here; None: nothing is."""
        row = self._do("SELECT offset, digest FROM streams WHERE vhost = ?", (rows.plain(vhost),)).fetchone()
        return None if row is None else (row[0], row[1])

    def last_ms(self, vhost: str) -> int | None:
        """Time of the last event that was put in; None: none is known, or all of the last portion lie ahead of us."""
        row = self._do("SELECT last_ms FROM streams WHERE vhost = ?", (rows.plain(vhost),)).fetchone()
        return None if row is None else int(row[0]) or None

    def count(self) -> int:
        """How many letters are in here."""
        return int(self._do("SELECT coalesce(sum(n), 0) FROM counts").fetchone()[0])

    def apply(self, vhost: str, messages: Iterable[Message]) -> int:
        """Put it in, in transactions of some size, each whole or not at all; → how many events."""
        return sum(self._put(rows.plain(vhost), portion) for portion in self._portions(messages))

    def _portions(self, messages: Iterable[Message]) -> Iterator[Portion]:
        """What is read of messages may be large, whatever their size."""
        portion = Portion()
        for message in messages:
            try:
                portion.read(message)
            except FormatError as error:
                portion.unread += 1
                self.unreadable = f"message at offset {message.offset}: {error}"
            if portion.size >= PORTION_BYTES:
                yield portion
                portion = Portion()
        if portion.last is not None:
            yield portion

    def _put(self, vhost: str, portion: Portion) -> int:
        """All of it, or nothing. Where a value in it stops all others, each event by itself."""
        try:
            with self._transaction():
                return self._take(vhost, portion, self._event)
        except (*_BAD_VALUES, *ODD):
            with self._transaction():
                return self._take(vhost, portion, self._alone)

    def _take(self, vhost: str, portion: Portion, take: Callable[[str, Event, bytes | Row, str], None]) -> int:
        taken, unread, last_ms, last = 0, portion.unread, 0, portion.last
        assert last is not None
        ahead_ms = wall_ms() + CLOCKS_MS  # what is later than that says nothing of how far this is
        self._letters.recall(event.id for event, _, _ in portion.events if event.shared is not None)
        self._is_signed = False
        for event, line, signature in portion.events:
            self._is_signed = self._is_signed or signature == Signature.OK
            try:
                take(vhost, event, line, signature)
                last_ms = event.ts_ms if 0 < event.ts_ms <= ahead_ms else last_ms
                taken += 1
            except ODD:
                unread += 1
        self._do(
            "INSERT INTO streams VALUES (?, ?, ?, ?, ?, ?) ON CONFLICT (vhost) DO UPDATE SET"
            " offset = excluded.offset, digest = excluded.digest, events = events + excluded.events,"
            " unread = unread + excluded.unread, last_ms = excluded.last_ms",
            (vhost, last.offset, digest(last.body), taken, unread, last_ms),
        )
        self._count(vhost, Counter(signature for _, _, signature in portion.events))
        return taken

    def _alone(self, vhost: str, event: Event, line: bytes | Row, signature: str) -> None:
        """Written at once, so that what is wrong with it is its own. Raises ValueError."""
        self._do("SAVEPOINT event")
        try:
            self._event(vhost, event, line, signature)
            self._letters.write()
            self._numbers.settle()
        except (*_BAD_VALUES, *ODD) as error:
            self._numbers.forget()
            self._letters.forget()
            self._do("ROLLBACK TO event")
            self._do("RELEASE event")
            raise ValueError(f"no values of an event: {error}") from None
        self._do("RELEASE event")

    def _count(self, vhost: str, signed: Counter[str]) -> None:
        add = "INSERT INTO signatures VALUES (?, ?, ?) ON CONFLICT DO UPDATE SET events = events + excluded.events"
        for signature, events in signed.items():
            self._do(add, (vhost, str(signature), events))

    def signatures(self, vhost: str) -> dict[str, int]:
        """How many events have which signature."""
        return dict(self._do("SELECT signature, events FROM signatures WHERE vhost = ?", (rows.plain(vhost),)))

    def begin_to_forget(self, vhost: str) -> None:
        """Its stream is another one: what is in here of it is true no more, whenever `forget` takes it away."""
        with self._transaction():
            self._forgetting.begin(rows.plain(vhost))

    def is_forgetting(self, vhost: str) -> bool:
        """Whether that was begun, by this process or one before, and has not ended."""
        return self._forgetting.is_begun(rows.plain(vhost))

    def forget(self, vhost: str) -> Iterator[None]:
        """Nothing of this vhost is in here any more, once all pieces are through: each is a transaction of its own."""
        self.begin_to_forget(vhost)
        begin: int | None = 0
        while begin is not None:
            yield
            with self._transaction():
                begin = self._forgetting.remove_letters(rows.plain(vhost), begin, MOST_GONE)
        with self._transaction():
            self._forgetting.remove_rest(rows.plain(vhost))
        self._numbers.forget()

    def emptied(self, vhost: str, place: tuple[str, str], until_ms: int) -> int:
        """The queue behind a place was found empty: what came there by then lies there no more. → how many letters."""
        where = (rows.plain(vhost), *map(rows.plain, place))
        with self._transaction():
            row = self._do(
                "SELECT number FROM places WHERE vhost = ? AND exchange = ? AND routing_key = ?", where
            ).fetchone()
            if row is None:
                return 0
            lying = ", ".join(f"'{state}'" for state in LYING)
            groups = "SELECT grp FROM counts WHERE place = ? AND n > 0"
            chosen = f"grp IN ({groups}) AND place = ? AND last_ms <= ? AND state IN ({lying})"
            values = (*row, *row, until_ms)
            for group, state, n in self._do(
                f"SELECT grp, state, count(*) FROM letters WHERE {chosen} GROUP BY grp, state", values
            ).fetchall():
                self._numbers.counts[group, row[0], state] -= n
                self._numbers.counts[group, 0, GONE] += n
            changed = self._do(f"UPDATE letters SET state = '{GONE}', place = 0 WHERE {chosen}", values)
            return changed.rowcount

    def prune(self, *, before_ms: int, at_most: int) -> int:
        """Letters that are finished and older go, the oldest first; → how many did.

        Each call looks at the next LOOKED_AT letters only, and begins again after the last: it costs the same for a
        million letters.
        """
        finished = ", ".join(f"'{state}'" for state in FINISHED)
        begin, end = self._pruned, self._pruned + LOOKED_AT
        chosen = f"number > ? AND number <= ? AND last_ms < ? AND state IN ({finished}) ORDER BY number LIMIT ?"
        with self._transaction():
            gone = self._letters.delete(
                f"number IN (SELECT number FROM letters WHERE {chosen})", (begin, end, before_ms, at_most)
            )
            if gone < at_most:  # else there may be more of them among these
                following = self._do("SELECT min(number) FROM letters WHERE number > ?", (end,)).fetchone()[0]
                self._pruned = 0 if following is None else following - 1
        return gone

    def shrink(self, at_most: int) -> int:
        """The oldest letters go, finished or not: the file has its size. → how many did."""
        with self._transaction():
            return self._letters.delete("number IN (SELECT number FROM letters ORDER BY number LIMIT ?)", (at_most,))

    def tidy(self, *, before_ms: int, age_ms: int) -> bool:
        """Some of what is older than that and nothing needs goes, letters aside; → whether all was looked at by now.

        A group has its age by the journal too: it may be `age_ms` older than the last event of its vhost.
        """
        with self._removing():
            return self._unneeded.remove(before_ms, age_ms)

    def relieve(self, max_bytes: int) -> None:
        """The file is nearly full: where something else than letters may fill it, that goes first, however young."""
        if self._unneeded.has_many(max_bytes):
            self._unneeded.begin()
            self._repeat(self._unneeded.remove_young)
        self._repeat(lambda: self._unneeded.remove_foreign(max_bytes))

    def _repeat(self, piece: Callable[[], bool]) -> None:
        """Each time in a transaction of its own, until it says that it was the last."""
        is_over = False
        while not is_over:
            with self._removing():
                is_over = piece()

    def used_bytes(self) -> int:
        """What is in use of the file."""
        size, count, free = (
            self._do(f"PRAGMA {pragma}").fetchone()[0] for pragma in ("page_size", "page_count", "freelist_count")
        )
        return int(size * (count - free))

    def is_sound(self) -> bool:
        """Whether SQLite finds nothing wrong with the file; takes seconds for a large one."""
        try:
            return bool(self._do("PRAGMA quick_check(1)").fetchone()[0] == "ok")
        except sqlite3.DatabaseError:
            return False

    # -- one event ----------------------------------------------------------------------------------------------

    def _event(self, vhost: str, event: Event, line: bytes | Row, signature: str) -> None:
        if event.shared is not None:
            self._letters.take(vhost, event, line, signature)
        else:
            self._other(vhost, event.own, signature)

    def _other(self, vhost: str, event: Mapping[str, Any], signature: str) -> None:
        """About no letter, or about one to which nothing was done."""
        kind = event["kind"]
        if kind == "gap":
            times = (rows.whole(event.get(name)) for name in ("from_ms", "to_ms"))
            numbers = shapes.lost(rows.whole(event.get("events"))), *times
            values = (rows.named(event["event_id"]), vhost, rows.named(event.get("router_id")), *numbers)
            self._do("INSERT OR IGNORE INTO gaps VALUES (?, ?, ?, ?, ?, ?)", values)
        elif kind == "audit":
            self._audit(vhost, event, signature)

    def _audit(self, vhost: str, event: Mapping[str, Any], signature: str) -> None:
        details, ts_ms = shapes.details_of(event), shapes.moment(rows.whole(event["ts_ms"]))
        actor, action = rows.named(event.get("actor")), rows.named(event.get("action"))
        text = _compact(details)
        if len(text) > MAX_DETAILS_BYTES:
            raise ValueError(f"details of {len(text)} bytes; no router writes more than {MAX_DETAILS_BYTES}")
        if action == IMPORT:
            imported = rows.imported({**details["letter"], "event_id": event["event_id"]})
            self._letters.take(vhost, imported, b"", signature)
            return
        event_id = rows.marked(shapes.audit_id(rows.named(event["event_id"])), signature)
        row = (event_id, vhost, ts_ms, actor, action, text, str(signature))
        if not self._do("INSERT OR IGNORE INTO audits VALUES (?, ?, ?, ?, ?, ?, ?)", row).rowcount:
            return
        if action in _ORDERS and self._obeyed(vhost, signature):
            self._obey(vhost, action, details, actor, ts_ms, event_id)

    def _obey(self, vhost: str, action: str, details: Mapping[str, Any], actor: str, ts_ms: int, event_id: str) -> None:
        """What people set is so because its audit stands in the journal."""
        if action == COMMENT:
            self._letters.comment(vhost, comment_of(event_id, ts_ms, actor, details))
        elif details.get("state") in {*GROUP_STATES, None}:
            self._set_group(vhost, details, actor, ts_ms)

    def _obeyed(self, vhost: str, signature: str) -> bool:
        """An order in a journal that is signed has to be; before the first signed event there were none."""
        if signature == Signature.OK:
            return True
        if self._is_signed:
            return False
        signed = "SELECT 1 FROM signatures WHERE vhost = ? AND signature = ?"
        return signature != Signature.BAD and self._do(signed, (vhost, str(Signature.OK))).fetchone() is None

    def _set_group(self, vhost: str, details: Mapping[str, Any], actor: str, ts_ms: int) -> None:
        """A state that is not named stays; so does a note. Nothing is set in other vhosts: others may publish there."""
        where = "id = ? AND queue IN (SELECT number FROM queues WHERE vhost = ?)"
        group = rows.plain(details["group"]), vhost
        if details.get("state") is not None:
            self._do(
                f"UPDATE groups SET state = ?, state_ms = ?, until_ms = ?, actor = ? WHERE {where}",
                (details["state"], ts_ms, rows.whole_or_none(details.get("until_ms")), actor, *group),
            )
        if "note" in details:
            note = rows.plain(details["note"])[:NOTE_CHARS] or None
            self._do(f"UPDATE groups SET note = ?, actor = ? WHERE {where}", (note, actor, *group))

    # -- many ---------------------------------------------------------------------------------------------------

    @contextmanager
    def _removing(self) -> Iterator[None]:
        """A transaction after which numbers of queues, places and groups may be others'."""
        with self._transaction():
            yield
        if self._unneeded.has_removed:
            self._unneeded.has_removed = False
            self._numbers.forget()

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._do("BEGIN IMMEDIATE")
        try:
            yield
            self._letters.write()
            self._numbers.settle()
            self._do("COMMIT")
        except BaseException:
            self._numbers.forget()
            self._letters.forget()
            if self._connection.in_transaction:
                self._do("ROLLBACK")
            raise


def digest(body: bytes) -> bytes:
    """Tells one message of a stream from another at the same offset."""
    return hashlib.blake2b(body, digest_size=16).digest()


def was_written_since(since_ms: int, body: bytes, version: int | None) -> bool:
    """Whether an event of a message is of then or later; what is later than our clock says nothing of that."""
    portion = Portion()
    with suppress(FormatError):
        portion.read(Message(0, body, version=version))
    return any(since_ms <= event.ts_ms <= wall_ms() + CLOCKS_MS for event, _, _ in portion.events)
