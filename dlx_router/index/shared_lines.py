"""What the kept events of letters share, once in the file: each event is a row beside it, as in the journal.

A line that only one letter has is not kept for itself, and one that nobody needs any more goes.
"""

import sqlite3
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final

from dlx_router.core.bounded import MIB, Bounded
from dlx_router.index import rows
from dlx_router.journal.reading import Row

Kept = tuple[int | None, bytes | None]
"""What an event is kept as: the number of what it shares, and its row; or no number, and a line."""
_MOST: Final = 20_000


class SharedLines:
    """Of one file, inside of transactions that somebody else began."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._do = connection.execute
        self._many = connection.executemany
        self._numbers: Bounded[bytes, int] = Bounded(most=_MOST, most_bytes=16 * MIB)  # one in two rows is harmless
        self._uses: Counter[int] = Counter()

    def keep(self, lines: Sequence[bytes | Row | None]) -> list[Kept]:
        """How these events are to be kept, in their order."""
        many = Counter([line.shared.line for line in lines if isinstance(line, Row)])
        numbers = {line: self._number(line, count) for line, count in many.items()}
        found: list[Kept] = []
        for line in lines:
            if not isinstance(line, Row):
                found.append((None, line))
                continue
            number = numbers[line.shared.line]
            found.append((number, rows.written(line) if number is None else rows.short(line)))
        return found

    def _number(self, line: bytes, count: int) -> int | None:
        number = self._numbers.get(line)
        if number is None:
            if count == 1:
                return None
            number = self._do("INSERT INTO shared (line, uses) VALUES (?, 0)", (line,)).lastrowid
            assert number is not None
            self._numbers[line] = number
        self._uses[number] += count
        return number

    def leave(self, numbers: Iterable[int]) -> None:
        """So many events that shared these are gone, or said anew."""
        self._uses.subtract(numbers)

    def settle(self) -> None:
        """Write what was counted; what nobody needs goes."""
        changed = [(by, number) for number, by in self._uses.items() if by]
        self._many("UPDATE shared SET uses = uses + ? WHERE number = ?", changed)
        lost = [(number,) for by, number in changed if by < 0]
        for number in lost:
            found = self._do("DELETE FROM shared WHERE number = ? AND uses <= 0 RETURNING line", number).fetchone()
            if found is not None:
                self._numbers.forget(found[0])
        self._uses.clear()

    def forget(self) -> None:
        """The transaction failed."""
        self._uses.clear()
        self._numbers.clear()
