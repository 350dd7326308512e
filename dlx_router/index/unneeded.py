"""Rows beside letters that nothing needs any more: they go, a piece at a time, so that the file's bound holds for all.

Guarantees: what a letter or a person refers to stays, and so do audits of what people set. Inside of
transactions that somebody else began.
"""

import sqlite3
from collections.abc import Iterable
from typing import Any, Final

from dlx_router.core.signature import Signature

AT_ONCE: Final = 20_000  # numbers of groups that one call looks at
AUDITS: Final = 2_000  # at once
MOST_GAPS: Final = 10_000  # are told: a journal that lost events so often has other troubles
GROUP_BYTES: Final = 100_000  # of the file's bound for each group: with more, those without letters go when it is full
AUDIT_BYTES: Final = 1 << 20  # the same for each audit that no router signed: it may have an eighth of that
_COUNTS: Final = "DELETE FROM counts WHERE grp > ? AND grp <= ? AND n = 0"
_PART: Final = "DELETE FROM groups WHERE number > :begin AND number <= :end"
_ALONE: Final = (  # without letters, and nobody said anything of it
    "state = 'open' AND note IS NULL AND NOT EXISTS (SELECT 1 FROM counts WHERE counts.grp = groups.number)"
)
_YOUNG: Final = f"{_PART} AND {_ALONE}"
_OLD: Final = (  # by the journal's time too: while it is read from its start, what a person set later is not known yet
    f"{_PART} AND last_ms < :before AND last_ms < (SELECT streams.last_ms - :age FROM queues"
    f" JOIN streams ON streams.vhost = queues.vhost WHERE queues.number = groups.queue) AND {_ALONE}"
)
_NEXT: Final = (
    "SELECT min(number) FROM (SELECT min(number) AS number FROM groups WHERE number > ?1"
    " UNION ALL SELECT min(grp) FROM counts WHERE grp > ?1)"
)
_PLACES: Final = "DELETE FROM places WHERE number NOT IN (SELECT place FROM counts)"
_QUEUES: Final = "DELETE FROM queues WHERE number NOT IN (SELECT queue FROM groups)"
_GAPS: Final = (
    "DELETE FROM gaps WHERE rowid IN (SELECT rowid FROM gaps WHERE to_ms < ?1"
    " OR rowid <= (SELECT max(rowid) FROM gaps) - ?2 LIMIT ?3)"
)
_OURS: Final = f"signature = '{Signature.OK}'"


class Unneeded:
    """Of one file. `lasting`: actions of audits which are orders: told again, they must be known as told before."""

    def __init__(self, connection: sqlite3.Connection, lasting: Iterable[str]) -> None:
        self._do = connection.execute
        self._looked = 0  # the greatest number of a group that the last call looked at
        self.has_removed = False  # queues, places or groups since it was set so
        actions = ", ".join(f"'{action}'" for action in lasting)
        self._audits = (
            "DELETE FROM audits WHERE rowid IN (SELECT rowid FROM audits WHERE ts_ms < ?"
            f" AND NOT ({_OURS} AND action IN ({actions})) ORDER BY ts_ms LIMIT ?)"
        )

    def remove(self, before_ms: int, age_ms: int) -> bool:
        """The next piece of what is older; → whether this was the last one, and the next call begins again."""
        return self._piece(_OLD, before_ms, age_ms)

    def remove_young(self) -> bool:
        """The same, however young it is, of groups and what only they needed."""
        return self._piece(_YOUNG, None, 0)

    def begin(self) -> None:
        """The next piece is the first one."""
        self._looked = 0

    def has_many(self, max_bytes: int) -> bool:
        """Whether groups are so many that they and not letters may fill the file."""
        return bool(self._do("SELECT count(*) FROM groups").fetchone()[0] > max_bytes // GROUP_BYTES)

    def remove_foreign(self, max_bytes: int) -> bool:
        """Some audits that no router of ours signed, where they may fill the file; → whether these were the last."""
        sql = (
            f"DELETE FROM audits WHERE rowid IN (SELECT rowid FROM audits WHERE NOT {_OURS}"
            " ORDER BY rowid DESC LIMIT ? OFFSET ?)"
        )
        return self._do(sql, (AUDITS, max_bytes // AUDIT_BYTES)).rowcount < AUDITS

    def _piece(self, groups: str, before_ms: int | None, age_ms: int) -> bool:
        begin, end = self._looked, self._looked + AT_ONCE
        self._do(_COUNTS, (begin, end))
        fields = {"begin": begin, "end": end, "before": before_ms, "age": age_ms}
        self._delete(groups, fields)
        following = self._do(_NEXT, (end,)).fetchone()[0]
        self._looked = 0 if following is None else following - 1
        if not self._looked:
            self._end(before_ms)
        return not self._looked

    def _end(self, before_ms: int | None) -> None:
        """What is looked at once all groups were."""
        if before_ms is not None:
            self._do(_GAPS, (before_ms, MOST_GAPS, AT_ONCE))
            self._do(self._audits, (before_ms, AUDITS))
        self._delete(_PLACES)
        self._delete(_QUEUES)

    def _delete(self, sql: str, fields: Any = ()) -> None:  # noqa: ANN401 - as SQLite takes them
        self.has_removed |= self._do(sql, fields).rowcount > 0
