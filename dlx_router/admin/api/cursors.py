"""Cursors of lists that are ordered by time, then id: where the page before ended."""

from typing import Annotated

from fastapi import Query

TimeCursor = Annotated[
    str | None, Query(max_length=300, pattern=r"^[0-9]{1,16}\..+$", description="`next` of the page before.")
]


def cursor_of(ms: int, name: str) -> str:
    """The cursor behind what stands there."""
    return f"{ms}.{name}"


def place_of(cursor: str) -> tuple[int, str]:
    """The time (ms) and the id behind which the page begins."""
    ms, _, name = cursor.partition(".")
    return int(ms), name
