"""What an index's file keeps, read without its reader."""

import json
import sqlite3
import zlib
from typing import Any

from dlx_router.journal.reading import event_of


def kept_events(connection: sqlite3.Connection) -> list[tuple[int, Any, str]]:
    """Number of the letter, its newest event (not how it is written), and the text that it is found by."""
    sql = "SELECT letter, shared, line, text FROM events ORDER BY 1"
    return [(letter, _event(shared, line), text) for letter, shared, line, text in connection.execute(sql)]


def kept_steps(connection: sqlite3.Connection) -> list[Any]:
    """The journeys of all letters; of each step what it says, not how it is written."""
    columns = (
        "kind, source, reason, cause, attempts, redrives, tries, policy, exchange, routing_key, refused, redrive_id"
    )
    return connection.execute(
        f"SELECT letter, step, ts_ms, due_ms, signature, {columns} FROM steps ORDER BY 1, 2"
    ).fetchall()


def _event(shared: bytes | None, line: bytes | None) -> Any:
    if line is None:
        return None
    return json.loads(line) if shared is None else event_of(zlib.decompress(shared), line)
