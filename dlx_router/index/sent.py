"""Questions about what redrive tasks sent: how many of their letters died again."""

import sqlite3
from collections.abc import Callable, Sequence
from typing import Final

DEAD: Final = ("dead_lettered", "parked", "quarantined")  # as a canary's letters come back
_COPIES: Final = (  # of a letter, in whichever failed queues
    "SELECT copy.number FROM letters AS one JOIN letters AS copy ON copy.id = one.id AND copy.serial IS one.serial"
    " WHERE one.number = sent.letter"
)


def came_back(ask: Callable[..., sqlite3.Cursor], tasks: Sequence[str], *, elsewhere: bool) -> dict[str, int]:
    """Letters that died again, by the task that had sent them; a task of which none did is left out.

    `elsewhere`: they were sent to another place than their failed queue, and die wherever that leads to.
    """
    same = f"died.letter IN ({_COPIES})" if elsewhere else "died.letter = sent.letter"
    again = (
        f"SELECT 1 FROM steps AS died WHERE {same} AND died.ts_ms >= sent.ts_ms AND died.kind IN {DEAD!r}"
        " AND died.redrive_id IS NULL"
    )
    sql = (
        "SELECT sent.redrive_id AS task, count(*) AS n FROM steps AS sent WHERE sent.kind = 'redriven'"
        f" AND sent.redrive_id IN ({', '.join('?' * len(tasks))}) AND EXISTS ({again}) GROUP BY 1"
    )
    return {row["task"]: row["n"] for row in ask(sql, tuple(tasks)).fetchall()}
