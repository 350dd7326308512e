"""Letters by 64 bits of their ids: what a letter is looked for by when the next event about it comes.

Ids are random, so in one sorted table each new letter would change a page of its own: half of all that the index
wrote. New ones stand in a small table, which is put into the large one from time to time, sorted: then a page is
written once for many.
"""

import json
import sqlite3
from collections.abc import Sequence
from typing import Final

MOST_NEW: Final = 100_000
_ASK: Final = (
    "WITH asked AS MATERIALIZED (SELECT value FROM json_each(?))"
    " SELECT letter FROM keys WHERE key IN asked UNION ALL SELECT letter FROM new_keys WHERE key IN asked"
)
SOUGHT: Final = "SELECT letter FROM keys WHERE key = :key UNION ALL SELECT letter FROM new_keys WHERE key = :key"


class Keys:
    """Of one file, inside of transactions that somebody else began."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._do = connection.execute
        self._many = connection.executemany
        self._new: int | None = None  # at least so many are in the small table; None: not known

    def numbers(self, keys: Sequence[int]) -> list[int]:
        """The numbers of letters that have one of these keys."""
        return [row[0] for row in self._do(_ASK, (json.dumps(keys),))]

    def add(self, pairs: Sequence[tuple[int, int]]) -> None:
        """Keys and numbers of new letters."""
        self._many("INSERT INTO new_keys VALUES (?, ?)", sorted(pairs))
        if self._new is None:
            self._new = self._do("SELECT count(*) FROM new_keys").fetchone()[0]
        else:
            self._new += len(pairs)
        if self._new > MOST_NEW:
            self._do("INSERT INTO keys SELECT key, letter FROM new_keys ORDER BY key, letter")
            self._do("DELETE FROM new_keys")
            self._new = 0

    def remove(self, pairs: Sequence[tuple[int, int]]) -> None:
        """The same of letters that go."""
        for table in ("keys", "new_keys"):
            self._many(f"DELETE FROM {table} WHERE key = ? AND letter = ?", sorted(pairs))

    def forget(self) -> None:
        """The transaction failed."""
        self._new = None
