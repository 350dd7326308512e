"""Questions: which letters are wanted → SQL and its values."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from dlx_router.core.recovered import ORDER, SILENT

FEW: Final = 20_000  # so many are sorted faster than they are looked for from the newest on
MAX_TERMS: Final = 16
Sees = Callable[[str, str], bool]  # whether a vhost and its failed queue may be seen
_SENT: Final = (
    "CASE WHEN letters.state = 'redriven' THEN (SELECT steps.{0} FROM steps"
    " WHERE steps.letter = letters.number AND steps.kind = 'redriven' ORDER BY steps.ts_ms DESC LIMIT 1) END"
    " AS sent_{0}"
)
_STEP_ORDER: Final = ", ".join(f"steps.{'step' if column == 'event_id' else column} DESC" for column in ORDER)
_NEWEST: Final = (  # of the events that say what became of the letter: what `core.recovered.fate` asks for
    "(SELECT json_array(steps.kind, steps.ts_ms, steps.due_ms) FROM steps"
    f" WHERE steps.letter = letters.number AND steps.kind NOT IN {SILENT!r} ORDER BY {_STEP_ORDER} LIMIT 1) AS newest"
)
LETTER: Final = (
    'letters.number, letters.id, queues.vhost, queues.name AS failed_queue, groups.id AS "group", letters.state,'
    " letters.reason, letters.cause, letters.policy, letters.attempts, letters.redrives, letters.first_ms,"
    " letters.last_ms, letters.due_ms, letters.size, letters.message_id, letters.serial, letters.copies"
    ", places.exchange, places.routing_key"
    f", {_SENT.format('exchange')}, {_SENT.format('routing_key')}"
    f", {_NEWEST}"
)
JOINS: Final = (
    " JOIN queues ON queues.number = letters.queue JOIN groups ON groups.number = letters.grp"
    " LEFT JOIN places ON places.number = letters.place"
)


@dataclass(frozen=True, slots=True)
class Wanted:
    """Which letters. None: any. Times in ms, of the letter's newest event."""

    vhost: str | None = None
    failed_queue: str | None = None
    group: str | None = None
    states: Sequence[str] = ()
    reason: str | None = None
    policy: str | None = None
    since_ms: int | None = None
    until_ms: int | None = None
    text: str | None = None


def visible(ask: Callable[..., sqlite3.Cursor], wanted: Wanted, sees: Sees) -> list[int]:
    """The failed queues that are wanted and may be seen."""
    rows = ask("SELECT number, vhost, name FROM queues").fetchall()
    return [
        row["number"]
        for row in rows
        if wanted.vhost in {None, row["vhost"]}
        and wanted.failed_queue in {None, row["name"]}
        and sees(row["vhost"], row["name"])
    ]


def letters_of(
    ask: Callable[..., sqlite3.Cursor],
    wanted: Wanted,
    numbers: Sequence[int],
    before: int | None,
    limit: int,
    *,
    oldest: bool = False,
) -> tuple[str, tuple[Any, ...]]:
    """The question and its values. Numbers are chosen first, and only the chosen letters are looked up whole."""
    by_index = wanted.text is None and _few(ask, wanted, numbers)
    tests, values = _tests(ask, wanted, numbers, by_index=by_index)
    source, number = f"letters {'INDEXED BY letters_group' if by_index else 'NOT INDEXED'}", "letters.number"
    if wanted.text is not None:
        source, number = "found CROSS JOIN letters ON letters.number = found.rowid", "found.rowid"
        tests.append("found MATCH ?")
        values.append(query(wanted.text))
    if before is not None:
        tests.append(f"{number} {'>' if oldest else '<'} ?")
        values.append(before)
    order = "ASC" if oldest else "DESC"
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    chosen = f"SELECT {number} AS one FROM {source}{where} ORDER BY {number} {order} LIMIT ?"
    sql = f"SELECT {LETTER} FROM ({chosen}) CROSS JOIN letters ON letters.number = one{JOINS} ORDER BY one {order}"
    return sql, (*values, limit)


def _tests(
    ask: Callable[..., sqlite3.Cursor], wanted: Wanted, numbers: Sequence[int], *, by_index: bool
) -> tuple[list[str], list[Any]]:
    tests: list[str] = []
    values: list[Any] = []
    if by_index:
        fits, values = _counted(wanted, numbers)
        tests.append(f"letters.grp IN (SELECT counts.grp FROM {fits} AND counts.n > 0)")
    else:
        if wanted.failed_queue is not None or len(numbers) < ask("SELECT count(*) FROM queues").fetchone()[0]:
            tests.append(f"letters.queue IN ({listed(numbers)})")
        if wanted.group is not None:
            tests.append("letters.grp = (SELECT number FROM groups WHERE id = ?)")
            values.append(wanted.group)
    if wanted.states:
        tests.append(f"letters.state IN ({', '.join('?' * len(wanted.states))})")
        values.extend(wanted.states)
    for test, value in (
        ("letters.reason = ?", wanted.reason),
        ("letters.policy = ?", wanted.policy),
        ("letters.last_ms >= ?", wanted.since_ms),
        ("letters.last_ms < ?", wanted.until_ms),
    ):
        if value is not None:
            tests.append(test)
            values.append(value)
    return tests, values


def _few(ask: Callable[..., sqlite3.Cursor], wanted: Wanted, numbers: Sequence[int]) -> bool:
    """Whether an index finds so few that sorting them is nothing."""
    fits, values = _counted(wanted, numbers)
    return (ask(f"SELECT sum(n) FROM {fits}", values).fetchone()[0] or 0) <= FEW


def _counted(wanted: Wanted, numbers: Sequence[int]) -> tuple[str, list[Any]]:
    """The counts of what is wanted: what stands behind FROM, and its values."""
    tests, values = [f"groups.queue IN ({listed(numbers)})"], []
    if wanted.group is not None:
        tests.append("groups.id = ?")
        values.append(wanted.group)
    if wanted.states:
        tests.append(f"counts.state IN ({', '.join('?' * len(wanted.states))})")
        values.extend(wanted.states)
    return f"counts JOIN groups ON groups.number = counts.grp WHERE {' AND '.join(tests)}", values


def query(text: str) -> str:
    """Words → FTS5: all of them, in any order; "a phrase" as it is; a * behind a word: what begins so."""
    terms: list[str] = []
    for number, part in enumerate(text.split('"')):
        words = [part] if number % 2 else part.split()
        for word in words:
            starred = word.endswith("*") and number % 2 == 0
            bare = "".join(char if char.isalnum() else " " for char in word).strip()
            if bare:
                terms.append(f'"{bare}"{"*" if starred else ""}')
    return " ".join(terms[:MAX_TERMS]) or '""'


def listed(numbers: Sequence[int]) -> str:
    """For an IN."""
    return ",".join(map(str, numbers))
