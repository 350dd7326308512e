"""Documents that people made and audits keep: read from events of anybody, and written down again before these end."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

RENEWED_MS: Final = 86_400_000
OF_AN_EVENT: Final = 20


def number(value: object) -> int:
    """A whole number of more than 0; 0 where it is none."""
    return value if isinstance(value, int) and not isinstance(value, bool) and 0 < value < 2**53 else 0


def listed(details: Mapping[str, Any], name: str) -> list[Any]:
    """The list of that name, if there is one."""
    many = details.get(name)
    return many if isinstance(many, list) else []


def renewal(
    name: str, documents: Sequence[Mapping[str, Any]], told_ms: Iterable[int], now_ms: int
) -> list[dict[str, Any]]:
    """Details of events that write all of them down once more; none where each was written down within a day."""
    if all(now_ms - at_ms < RENEWED_MS for at_ms in told_ms):
        return []
    pieces = [documents[at : at + OF_AN_EVENT] for at in range(0, len(documents), OF_AN_EVENT)]
    return [{name: piece, "kept_ms": now_ms} for piece in pieces]
