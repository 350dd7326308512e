"""Numbers: queues, places and groups have one each, and letters and deaths are counted by them until a commit."""

import sqlite3
from collections import Counter
from collections.abc import Mapping
from typing import Any, Final

from dlx_router.core import fingerprint
from dlx_router.core.bounded import MIB, Bounded
from dlx_router.index import rows
from dlx_router.telemetry.wall_clock import wall_ms

MAX_CACHED: Final = 50_000


class Numbers:
    """Of one file. `counts`: letters more or fewer, by (group, place, state)."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._do = connection.execute
        self._connection = connection
        self._queues: Bounded[tuple[str, str], int] = _cache()
        self._places: Bounded[tuple[str, str, str], int] = _cache()
        self._groups: Bounded[str, int] = _cache()
        self.counts: Counter[tuple[int, int, str]] = Counter()
        self._seen: dict[int, list[int]] = {}  # group → deaths more, first and last of them

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
            fits = " AND ".join(f"{column} = ?" for column in columns.strip("()").split(", "))
            self._do(f"INSERT OR IGNORE INTO {table} VALUES ({', '.join('?' * len(values))})", values)
            number = int(self._do(f"SELECT number FROM {name} WHERE {fits}", values).fetchone()[0])
            cache[values] = number
        return number

    def group(self, vhost: str, queue: int, shared: Mapping[str, Any], error: Any, ts_ms: int) -> int:  # noqa: ANN401 - as the journal has it
        """Of the group of an event: what it shares with others, and its error."""
        member = shared.get
        identity = fingerprint.of_parts(
            vhost, member("failed_queue"), member("reason"), member("kind"), member("detail"), error
        )
        return self._groups.get(identity.id) or self._new_group(identity, queue, ts_ms)

    def died(self, group: int, ts_ms: int) -> None:
        """A letter more of this group died."""
        seen = self._seen.get(group)
        if seen is None:
            self._seen[group] = [1, ts_ms, ts_ms]
            return
        seen[0] += 1
        if ts_ms < seen[1]:
            seen[1] = ts_ms
        elif ts_ms > seen[2]:
            seen[2] = ts_ms

    def _new_group(self, identity: fingerprint.Fingerprint, queue: int, ts_ms: int) -> int:
        """New to us; it may stand in the file."""
        ts_ms = min(ts_ms, wall_ms())
        self._do(
            "INSERT OR IGNORE INTO groups (id, queue, reason, error_type, frame, message, first_ms, last_ms, deaths)"
            " VALUES (?, ?, ?, ?, ?, ?, ?, ?, 0)",
            (identity.id, queue, *map(rows.plain, identity[3:]), ts_ms, ts_ms),
        )
        number = int(self._do("SELECT number FROM groups WHERE id = ?", (identity.id,)).fetchone()[0])
        self._groups[identity.id] = number
        return number

    def settle(self) -> None:
        """Write what was counted.

        A death that is yet to come, by a clock that is ahead or by somebody's word, counts as one of now: else a letter
        of its group would have died again since it was resolved, whenever that is.
        """
        now = wall_ms()
        self._connection.executemany(
            "INSERT INTO counts VALUES (?, ?, ?, ?) ON CONFLICT (grp, place, state) DO UPDATE SET n = n + excluded.n",
            [(*key, n) for key, n in self.counts.items() if n],
        )
        self._connection.executemany(
            "UPDATE groups SET deaths = deaths + ?, first_ms = min(first_ms, ?), last_ms = max(min(last_ms, ?), ?)"
            " WHERE number = ?",
            [(n, min(first, now), now, min(last, now), number) for number, (n, first, last) in self._seen.items()],
        )
        self.counts.clear()
        self._seen.clear()

    def forget(self) -> None:
        """What was cached or counted is no longer what the file says."""
        for cache in (self._queues, self._places, self._groups, self.counts, self._seen):
            cache.clear()


def _cache() -> Bounded[Any, int]:
    return Bounded(most=MAX_CACHED, most_bytes=16 * MIB)
