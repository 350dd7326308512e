"""Holding: how a queue is looked through so that no look counts as a delivery that could end a letter.

What counts as one: docs/architecture.md ("What the broker does").
"""

from enum import StrEnum
from typing import Final

NACK_IS_FREE: Final = (4, 3)
DEFAULT_LIMIT_SINCE: Final = (4, 0)
DEFAULT_LIMIT: Final = 20
NO_LIMIT: Final = 1_000_000  # nobody looks at a letter so often


class Holding(StrEnum):
    """What is done with letters that stay."""

    GIVE_BACK = "give back"  # held unacked, then given back in their order
    ASIDE = "aside"  # moved to a side queue and back, because each return counts


def holding(kind: str | None, version: tuple[int, ...], limit: int | None, *, limit_known: bool) -> Holding:
    """How letters of this queue are held. `kind` None: not known; `limit` None: none is set."""
    if kind == "classic" or version >= NACK_IS_FREE:
        return Holding.GIVE_BACK
    if kind is None or not limit_known:
        return Holding.ASIDE
    effective = DEFAULT_LIMIT if limit is None and version >= DEFAULT_LIMIT_SINCE else limit
    if effective is None or effective < 0 or effective >= NO_LIMIT:
        return Holding.GIVE_BACK
    return Holding.ASIDE
