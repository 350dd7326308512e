"""All of a vhost goes, because its stream is another one: a piece at a time, and all of it whoever ends in between.

In one transaction it would be as large as the file, in memory and on disk, and nothing else were done for minutes.
Inside of transactions that somebody else began.
"""

import sqlite3
from typing import Final

from dlx_router.index.letters import Letters

LOOKED_AT: Final = 50_000  # numbers of letters, by one piece: the others of the file are of other vhosts
_NOWHERE: Final = -2  # the offset of no message
_QUEUES: Final = "SELECT number FROM queues WHERE vhost = ?"


class Forgetting:
    """Of one file. What stands in it says that it was begun: the row of the vhost's stream goes last."""

    def __init__(self, connection: sqlite3.Connection, letters: Letters) -> None:
        self._do = connection.execute
        self._letters = letters

    def begin(self, vhost: str) -> None:
        """From now on nobody may take what is left for what a journal tells."""
        self._do("UPDATE streams SET offset = ? WHERE vhost = ?", (_NOWHERE, vhost))

    def is_begun(self, vhost: str) -> bool:
        """Whether it was, and has not ended."""
        row = self._do("SELECT offset FROM streams WHERE vhost = ?", (vhost,)).fetchone()
        return row is not None and row[0] == _NOWHERE

    def remove_letters(self, vhost: str, begin: int, at_most: int) -> int | None:
        """Some of those behind this number; → behind which there may be more, None: there are no more letters."""
        end = begin + LOOKED_AT
        chosen = f"number > ? AND number <= ? AND queue IN ({_QUEUES}) LIMIT ?"
        which = f"number IN (SELECT number FROM letters WHERE {chosen})"
        if self._letters.delete(which, (begin, end, vhost, at_most)) == at_most:
            return begin  # there may be more of them among these
        following = self._do("SELECT min(number) FROM letters WHERE number > ?", (end,)).fetchone()[0]
        return None if following is None else int(following) - 1

    def remove_rest(self, vhost: str) -> None:
        """What no letter of the vhost needs any more."""
        self._do(f"DELETE FROM groups WHERE queue IN ({_QUEUES})", (vhost,))
        for table in ("queues", "places", "gaps", "audits", "signatures", "streams"):
            self._do(f"DELETE FROM {table} WHERE vhost = ?", (vhost,))
