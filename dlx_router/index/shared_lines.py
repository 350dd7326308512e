"""What the kept events of letters share, once in the file: each event is a row beside it, as in the journal.

A line that only one letter has is not kept for itself.
"""

import sqlite3
from collections import Counter
from collections.abc import Sequence
from typing import Final

from dlx_router.index import rows
from dlx_router.index.counted import Counted
from dlx_router.journal.reading import Row

Kept = tuple[int | None, bytes | None]
"""What an event is kept as: the number of what it shares, and its row; or no number, and a line."""
_MANY: Final = 2


class SharedLines(Counted):
    """Of one file, inside of transactions that somebody else began."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        super().__init__(connection, "shared", "line")

    def keep(self, lines: Sequence[bytes | Row | None]) -> list[Kept]:
        """How these events are to be kept, in their order."""
        many = Counter([line.shared.line for line in lines if isinstance(line, Row)])
        numbers = {
            line: self.use((line,), count) for line, count in many.items() if count >= _MANY or self.is_known((line,))
        }
        return [_kept(line, numbers) for line in lines]


def _kept(line: bytes | Row | None, numbers: dict[bytes, int]) -> Kept:
    if not isinstance(line, Row):
        return None, line
    number = numbers.get(line.shared.line)
    return number, rows.written(line) if number is None else rows.short(line)
