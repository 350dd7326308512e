"""Numbers: queues, places and groups have one each, and letters and deaths are counted by them until a commit."""

import sqlite3
from collections import Counter
from typing import Any, Final

from dlx_router.core import fingerprint
from dlx_router.core.bounded import MIB, Bounded
from dlx_router.index import rows
from dlx_router.index.rows import Event

MAX_CACHED: Final = 50_000


class Numbers:
    """Of one file. `counts`: letters more or fewer, by (group, place, state)."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._do = connection.execute
        self._connection = connection
        self._queues: Bounded[tuple[str, str], int] = _cache()
        self._places: Bounded[tuple[str, str, str], int] = _cache()
        self._groups: Bounded[str, int] = _cache()
        self._plain: Bounded[tuple[str, str, str], int] = _cache()  # groups of deaths of which no error is known
        self.counts: Counter[tuple[int, int, str]] = Counter()
        self._seen: dict[int, tuple[int, int, int]] = {}  # group → deaths more, first and last of them

    def queue(self, vhost: str, name: str) -> int:
        """Of a failed queue."""
        return self._number(self._queues, "queues (vhost, name)", (vhost, name))

    def place(self, vhost: str, exchange: str, key: str) -> int:
        """Of what an exchange and a key lead to."""
        return self._number(self._places, "places (vhost, exchange, routing_key)", (vhost, exchange, key))

    def _number(self, cache: Bounded[Any, int], table: str, values: tuple[str, ...]) -> int:
        number = cache.get(values)
        if number is None:
            name, _, columns = table.partition(" ")
            fits = " AND ".join(f"{one} = ?" for one in columns.strip("()").split(", "))
            self._do(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(values))})", values)
            number = int(self._do(f"SELECT number FROM {name} WHERE {fits}", values).fetchone()[0])
            cache[values] = number
        return number

    def group(self, vhost: str, queue: int, event: Event, ts_ms: int, *, died: bool) -> int:
        """Of the group of an event; `died`: it tells a death more."""
        assert event.shared is not None
        told, error = event.shared.members.get, event.own.get("error")
        failed_queue, reason, kind = told("failed_queue"), told("reason"), told("kind")
        plain = None  # where no error is known, these say all; what is no text has no short way
        if error is None and kind != "quarantined" and isinstance(failed_queue, str) and isinstance(reason, str):
            plain = vhost, failed_queue, reason
        number = None if plain is None else self._plain.get(plain)
        if number is None:
            one = fingerprint.of_parts(vhost, failed_queue, reason, kind, told("detail"), error)
            number = self._groups.get(one.id) or self._new_group(one, queue, ts_ms)
            if plain is not None:
                self._plain[plain] = number
        if died:
            more, first, last = self._seen.get(number, (0, ts_ms, ts_ms))
            self._seen[number] = (more + 1, min(first, ts_ms), max(last, ts_ms))
        return number

    def _new_group(self, one: fingerprint.Fingerprint, queue: int, ts_ms: int) -> int:
        """New to us; it may stand in the file."""
        self._do(
            "INSERT OR IGNORE INTO groups (id, queue, reason, error_type, frame, message, first_ms, last_ms, deaths)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (one.id, queue, *map(rows.plain, one[3:]), ts_ms, ts_ms),
        )
        number = int(self._do("SELECT number FROM groups WHERE id = ?", (one.id,)).fetchone()[0])
        self._groups[one.id] = number
        return number

    def settle(self) -> None:
        """Write what was counted."""
        self._connection.executemany(
            "INSERT INTO counts VALUES (?, ?, ?, ?) ON CONFLICT (grp, place, state) DO UPDATE SET n = n + excluded.n",
            [(*key, n) for key, n in self.counts.items() if n],
        )
        self._connection.executemany(
            "UPDATE groups SET deaths = deaths + ?, first_ms = min(first_ms, ?), last_ms = max(last_ms, ?)"
            " WHERE number = ?",
            [(*seen, number) for number, seen in self._seen.items()],
        )
        self.counts.clear()
        self._seen.clear()

    def forget(self) -> None:
        """What was cached or counted is no longer what the file says."""
        for cache in (self._queues, self._places, self._groups, self._plain, self.counts, self._seen):
            cache.clear()


def _cache() -> Bounded[Any, int]:
    return Bounded(most=MAX_CACHED, most_bytes=16 * MIB)
