"""Notes of people on letters: each is an audit of the journal, kept beside its letter and found by its words.

They stand and go with their letter: a note on a letter that the index does not know (any more) is an audit only.
"""

from collections.abc import Callable, Mapping
from sqlite3 import Cursor
from typing import Any, Final, NamedTuple

from dlx_router.index.rows import NOTES, plain

MOST: Final = 100  # of one letter are shown
TEXT_CHARS: Final = 2000
FOUND_CHARS: Final = 8192  # of all notes of a letter are searched
MARK: Final = NOTES
INSERT: Final = "INSERT OR IGNORE INTO comments VALUES (?, ?, ?, ?, ?)"
_SHOWN: Final = "SELECT ts_ms, actor, text FROM comments WHERE letter = ? ORDER BY ts_ms, event_id LIMIT ?"


class Comment(NamedTuple):
    """What somebody noted on the copy of a letter that failed in `queue`."""

    event_id: str
    letter: str
    queue: str
    ts_ms: int
    actor: str
    text: str

    def row(self, letter: int) -> tuple[str, int, int, str, str]:
        """As the table has it, by the letter's number."""
        return self.event_id, letter, self.ts_ms, self.actor, self.text


def comment_of(event_id: str, ts_ms: int, actor: str, details: Mapping[str, Any]) -> Comment:
    """Of an audit's details. Raises one of rows.ODD."""
    text = plain(details["text"])[:TEXT_CHARS]
    return Comment(event_id, plain(details["letter"]), plain(details["queue"]), ts_ms, actor, text)


def with_note(notes: str, text: str) -> str:
    """The words of a letter's notes, with those of another one; those of the first ones stay."""
    return f"{notes} {text}".strip()[:FOUND_CHARS]


def of_letter(ask: Callable[..., Cursor], number: int) -> list[dict[str, Any]]:
    """The notes on a letter, the oldest first."""
    return [dict(row) for row in ask(_SHOWN, (number, MOST))]
