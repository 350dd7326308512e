"""Questions: which letters are wanted → SQL and its values."""

import sqlite3
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

FEW: Final = 20_000  # so many are sorted faster than they are looked for from the newest on
MAX_TERMS: Final = 16
Sees = Callable[[str, str], bool]  # whether a vhost and its failed queue may be seen
_SENT: Final = (
    "CASE WHEN letters.state = 'redriven' THEN (SELECT steps.{0} FROM steps WHERE steps.letter = letters.number"
    " AND steps.kind = 'redriven' ORDER BY steps.ts_ms DESC LIMIT 1) END AS sent_{0}"
)
LETTER: Final = (
    'letters.number, letters.id, queues.vhost, queues.name AS failed_queue, groups.id AS "group", letters.state,'
    " letters.reason, letters.cause, letters.policy, letters.attempts, letters.redrives, letters.first_ms,"
    " letters.last_ms, letters.due_ms, letters.size, letters.message_id, places.exchange, places.routing_key"
    f", {_SENT.format('exchange')}, {_SENT.format('routing_key')}"
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
    ask: Callable[..., sqlite3.Cursor], wanted: Wanted, numbers: Sequence[int], before: int | None
) -> tuple[str, tuple[Any, ...]]:
    """The question and its values; LIMIT comes behind it."""
    total = ask("SELECT count(*) FROM queues").fetchone()[0]
    tests: list[str] = []
    values: list[Any] = []
    source = f"letters{JOINS}"
    by_index = wanted.text is None and _few(ask, wanted, numbers)
    plus = "" if by_index else "+"
    if wanted.text is not None:
        source = f"found CROSS JOIN letters ON letters.number = found.rowid{JOINS}"
        tests.append("found MATCH ?")
        values.append(query(wanted.text))
    if len(numbers) < total or wanted.failed_queue is not None:
        tests.append(f"{plus}letters.queue IN ({listed(numbers)})")
    if wanted.group is not None:
        tests.append(f"{plus}letters.grp = (SELECT number FROM groups WHERE id = ?)")
        values.append(wanted.group)
    if wanted.states:
        tests.append(f"{plus}letters.state IN ({', '.join('?' * len(wanted.states))})")
        values.extend(wanted.states)
    for test, value in (
        ("letters.reason = ?", wanted.reason),
        ("letters.policy = ?", wanted.policy),
        ("letters.last_ms >= ?", wanted.since_ms),
        ("letters.last_ms < ?", wanted.until_ms),
        ("found.rowid < ?" if wanted.text is not None else "letters.number < ?", before),
    ):
        if value is not None:
            tests.append(test)
            values.append(value)
    order = "found.rowid" if wanted.text is not None else "letters.number"
    where = f" WHERE {' AND '.join(tests)}" if tests else ""
    return f"SELECT {LETTER} FROM {source}{where} ORDER BY {order} DESC", tuple(values)


def _few(ask: Callable[..., sqlite3.Cursor], wanted: Wanted, numbers: Sequence[int]) -> bool:
    """Whether an index finds so few that sorting them is nothing."""
    tests, values = [f"groups.queue IN ({listed(numbers)})"], []
    if wanted.group is not None:
        tests.append("groups.id = ?")
        values.append(wanted.group)
    if wanted.states:
        tests.append(f"counts.state IN ({', '.join('?' * len(wanted.states))})")
        values.extend(wanted.states)
    sql = f"SELECT sum(n) FROM counts JOIN groups ON groups.number = counts.grp WHERE {' AND '.join(tests)}"
    return (ask(sql, values).fetchone()[0] or 0) <= FEW


def query(text: str) -> str:
    """Words → FTS5: all of them, in any order; "a phrase" as it is; a * behind a word: what begins so."""
    terms: list[str] = []
    for number, part in enumerate(text.split('"')):
        words = [part] if number % 2 else part.split()
        for word in words:
            starred = word.endswith("*") and number % 2 == 0
            bare = "".join(one if one.isalnum() else " " for one in word).strip()
            if bare:
                terms.append(f'"{bare}"{"*" if starred else ""}')
    return " ".join(terms[:MAX_TERMS]) or '""'


def listed(numbers: Sequence[int]) -> str:
    """For an IN."""
    return ",".join(map(str, numbers))
