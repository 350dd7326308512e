"""Rows that many others refer to: each stands in the file once, is counted, and goes with the last that needs it."""

import sqlite3
from collections import Counter
from collections.abc import Iterable
from typing import Any, Final

from dlx_router.core.bounded import MIB, Bounded

_MOST: Final = 20_000
_MOST_BYTES: Final = 16 * MIB


class Counted:
    """Of one table of a file: `number`, what its rows say, `uses`. Inside of transactions that somebody else began.

    What is in memory says which row there is, so one may stand there twice, which is harmless: after a restart, say.
    """

    def __init__(self, connection: sqlite3.Connection, table: str, columns: str) -> None:
        self._do = connection.execute
        self._many = connection.executemany
        self._columns = columns
        places = ", ".join("?" * len(columns.split(", ")))
        self._insert = f"INSERT INTO {table} ({columns}, uses) VALUES ({places}, 0)"
        self._add = f"UPDATE {table} SET uses = uses + ? WHERE number = ?"
        self._remove = f"DELETE FROM {table} WHERE number = ? AND uses <= 0 RETURNING {columns}"
        self._numbers: Bounded[tuple[Any, ...], int] = Bounded(most=_MOST, most_bytes=_MOST_BYTES)
        self._uses: Counter[int] = Counter()

    def is_known(self, row: tuple[Any, ...]) -> bool:
        """Whether it surely stands in the file."""
        return row in self._numbers

    def use(self, row: tuple[Any, ...], count: int) -> int:
        """The number of this row, which so many others more refer to."""
        number = self._numbers.get(row)
        if number is None:
            number = self._do(self._insert, row).lastrowid
            assert number is not None
            self._numbers[row] = number
        self._uses[number] += count
        return number

    def leave(self, numbers: Iterable[int], count: int = 1) -> None:
        """So many that referred to these are gone, or refer to others."""
        for number in numbers:
            self._uses[number] -= count

    def settle(self) -> None:
        """Write what was counted; what nobody needs goes."""
        changed = [(by, number) for number, by in self._uses.items() if by]
        self._many(self._add, changed)
        for by, number in changed:
            gone = None if by > 0 else self._do(self._remove, (number,)).fetchone()
            if gone is not None:
                self._numbers.forget(tuple(gone))
        self._uses.clear()

    def forget(self) -> None:
        """The transaction failed."""
        self._uses.clear()
        self._numbers.clear()
