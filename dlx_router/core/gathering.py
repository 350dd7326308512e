"""Batches: notices of a kind in a vhost become one message at a fixed interval. No clock; one for each endpoint.

Nothing is left out: each notice is counted in exactly one message.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from dlx_router.core.notices import MAX_ITEMS, MOST_KEYS, Notice

INTERVAL_MS: Final = 15_000


class Gathered(NamedTuple):
    """What is to be told at once. `keys`: those of the notices, as many as are kept."""

    kind: str
    vhost: str
    total: int
    items: tuple[Mapping[str, Any], ...]
    keys: tuple[str, ...]


@dataclass(slots=True)
class _Batch:
    due_ms: int
    count: int = 0
    items: dict[str, Mapping[str, Any]] = field(default_factory=dict)


class Gatherer:
    """Of one endpoint."""

    def __init__(self) -> None:
        self._batches: dict[tuple[str, str], _Batch] = {}

    def add(self, notice: Notice, now_ms: int) -> None:
        """To be told with others of its kind, INTERVAL_MS after the first of them."""
        batch = self._batches.setdefault((notice.kind, notice.vhost), _Batch(now_ms + INTERVAL_MS))
        batch.count += int(notice.item.get("letters", 1))
        if notice.key in batch.items or len(batch.items) < MOST_KEYS:
            batch.items[notice.key] = _summed(batch.items.get(notice.key), notice.item)

    def due(self, now_ms: int) -> list[Gathered]:
        """What is to be told now."""
        due = {key: batch for key, batch in self._batches.items() if now_ms >= batch.due_ms}
        for key in due:
            del self._batches[key]
        return [
            Gathered(kind, vhost, batch.count, tuple(batch.items.values())[:MAX_ITEMS], tuple(batch.items))
            for (kind, vhost), batch in due.items()
        ]

    def drop(self, vhost: str) -> None:
        """Nothing of this vhost is ours to tell any more."""
        self._batches = {key: batch for key, batch in self._batches.items() if key[1] != vhost}


def _summed(known: Mapping[str, Any] | None, item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The newer one, with the letters of both."""
    if known is None or "letters" not in item:
        return item
    return {**item, "letters": int(known.get("letters", 0)) + int(item["letters"])}
