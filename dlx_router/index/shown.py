"""Rows of the index → what the reader answers, as JSON has it."""

import json
import sqlite3
import zlib
from collections.abc import Callable
from typing import Any, Final

from dlx_router.core.attempts import outcomes, why_parked
from dlx_router.core.recovered import fate
from dlx_router.index import comments
from dlx_router.index.queries import listed
from dlx_router.index.rows import LYING
from dlx_router.journal.reading import event_of

_PLACES: Final = frozenset({"number", "exchange", "routing_key", "sent_exchange", "sent_routing_key"})
_JOURNEY: Final = (
    "SELECT ts_ms, kind, source, reason, cause, attempts, redrives, tries, due_ms, policy, revision, exchange,"
    " routing_key, refused, redrive_id, signature FROM steps WHERE letter = ?"
    " ORDER BY ts_ms, kind != 'released'"
)
FIRST: Final = 5  # of a failed queue: one that was sent back and rests again would hide those behind it
_RESTING: Final = (  # by index alone: of each group in a state, the letter that was known first
    "SELECT groups.queue, (SELECT min(number) FROM letters INDEXED BY letters_group WHERE grp = rests.grp"
    " AND state = rests.state) AS number FROM (SELECT DISTINCT grp, state FROM counts WHERE n > 0"
    f" AND state IN {LYING!r}) AS rests JOIN groups ON groups.number = rests.grp ORDER BY number"
)


def outcome(letter: dict[str, Any], *, as_of_ms: int, window_ms: int) -> str | None:
    """What became of a letter that the reader gave, by its newest event; None: that event is not known.

    `as_of_ms`: until when the index has the journal; `window_ms`: of the letter's policy. See `core.recovered`.
    """
    if letter["newest"] is None:
        return None
    kind, ts_ms, due_ms = letter["newest"]
    return fate(kind, ts_ms, due_ms, as_of_ms=as_of_ms, window_ms=window_ms)


def resting_since(ask: Callable[..., sqlite3.Cursor]) -> dict[tuple[str, str], int]:
    """By failed queue: since when the letter rests that rests longest, as far as the first ones of its groups tell."""
    first: dict[int, list[int]] = {}
    for failed, number in ask(_RESTING):
        if number is not None and len(first.setdefault(failed, [])) < FIRST:
            first[failed].append(number)
    numbers = listed([number for its in first.values() for number in its])
    sql = (
        "SELECT queues.vhost, queues.name, min(letters.last_ms) AS ms FROM letters"
        f" JOIN queues ON queues.number = letters.queue WHERE letters.number IN ({numbers}) GROUP BY queues.number"
    )
    return {(row["vhost"], row["name"]): row["ms"] for row in ask(sql)}


def letter_told(row: sqlite3.Row) -> dict[str, Any]:
    """A letter of a list; `row`: queries.LETTER of it."""
    letter = {key: row[key] for key in row.keys() if key not in _PLACES}  # noqa: SIM118 - a Row iterates over its values
    letter["newest"] = None if row["newest"] is None else json.loads(row["newest"])
    letter["cursor"] = row["number"]
    letter["target"] = _place(row["exchange"], row["routing_key"])
    letter["sent_to"] = _place(row["sent_exchange"], row["sent_routing_key"])
    return letter


def _place(exchange: str | None, routing_key: str | None) -> dict[str, str | None] | None:
    return None if exchange is None else {"exchange": exchange, "routing_key": routing_key}


def whole_letter(ask: Callable[..., sqlite3.Cursor], row: sqlite3.Row) -> dict[str, Any]:
    """The same, with its journey, its newest event, and what is kept of its body."""
    number = (row["number"],)
    steps = ask(_JOURNEY, number).fetchall()
    line = ask("SELECT shared, line FROM events WHERE letter = ?", number).fetchone()
    body = ask("SELECT mode, sha256, content_type, body FROM bodies WHERE letter = ?", number).fetchone()
    letter, journey = letter_told(row), [dict(step) for step in steps]
    return {
        **letter,
        "journey": [{**step, **outcome} for step, outcome in zip(journey, outcomes(journey), strict=True)],
        "parked": why_parked(letter, journey),
        "comments": comments.of_letter(ask, row["number"]),
        "event": None if line is None else _event(line["shared"], line["line"]),
        "stored": None if body is None else tuple(body),
    }


def _event(shared: bytes | None, line: bytes | None) -> dict[str, Any] | None:
    """The event as the journal told it; None: the letter was imported."""
    if line is None:
        return None
    event: dict[str, Any] | None = event_of(zlib.decompress(shared), line) if shared is not None else json.loads(line)
    return event


def group_told(ask: Callable[..., sqlite3.Cursor], row: sqlite3.Row) -> dict[str, Any]:
    """A group, with how many of its letters are in which state."""
    counts = ask("SELECT state, sum(n) FROM counts WHERE grp = ? GROUP BY state", (row["number"],)).fetchall()
    states = {state: n for state, n in counts if n > 0}
    error = ("reason", "error_type", "frame", "message")
    names = ("id", "vhost", *error, "first_ms", "last_ms", "deaths", "note", "actor")
    return {
        **{name: row[name] for name in names},
        "failed_queue": row["name"],
        "state": row["now_state"],
        "until_ms": row["until_ms"] if row["now_state"] == "ignored" else None,
        "returned": row["state"] == "resolved" and row["now_state"] == "open",
        "lying": sum(n for state, n in states.items() if state in LYING),
        "states": states,
    }
