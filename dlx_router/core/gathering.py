"""Gathering: many notices of a kind become few messages. A state machine without a clock, one for each endpoint.

The first of a kind is told after a moment, in which others may come. What comes then waits for a gap, four times as
long after each message, a quarter of an hour at most; once nothing came for a whole gap it is told at once again.
Nothing is left out: each notice is counted in exactly one message.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from dlx_router.core.notices import MAX_ITEMS, MOST_KEYS, Notice

MOMENT_MS: Final = 3_000
FIRST_GAP_MS: Final = 15_000
LONGEST_GAP_MS: Final = 900_000
GROWTH: Final = 4


class Gathered(NamedTuple):
    """What is to be told at once. `keys`: those of the notices, as many as are kept."""

    kind: str
    vhost: str
    total: int
    items: tuple[Mapping[str, Any], ...]
    keys: tuple[str, ...]


@dataclass(slots=True)
class _Kind:
    """One kind of notices in one vhost. `not_before_ms`: when the next message may go."""

    gap_ms: int
    due_ms: int | None = None
    not_before_ms: int = 0
    count: int = 0
    items: dict[str, Mapping[str, Any]] = field(default_factory=dict)


class Gatherer:
    """Of one endpoint."""

    def __init__(self) -> None:
        self._kinds: dict[tuple[str, str], _Kind] = {}

    def add(self, notice: Notice, now_ms: int) -> None:
        """To be told with others of its kind."""
        batch = self._kinds.setdefault((notice.kind, notice.vhost), _Kind(FIRST_GAP_MS))
        if batch.due_ms is None:
            if now_ms >= batch.not_before_ms + batch.gap_ms:  # it was quiet
                batch.gap_ms = FIRST_GAP_MS
            batch.due_ms = max(now_ms + MOMENT_MS, batch.not_before_ms)
        batch.count += int(notice.item.get("letters", 1))
        if notice.key in batch.items or len(batch.items) < MOST_KEYS:
            batch.items[notice.key] = _summed(batch.items.get(notice.key), notice.item)

    def due(self, now_ms: int) -> list[Gathered]:
        """What is to be told now."""
        gathered = []
        for (kind, vhost), batch in self._kinds.items():
            if batch.due_ms is None or now_ms < batch.due_ms:
                continue
            named = tuple(batch.items.values())[:MAX_ITEMS]
            gathered.append(Gathered(kind, vhost, batch.count, named, tuple(batch.items)))
            batch.due_ms, batch.not_before_ms = None, now_ms + batch.gap_ms
            batch.gap_ms = min(batch.gap_ms * GROWTH, LONGEST_GAP_MS)
            batch.count, batch.items = 0, {}
        return gathered

    def drop(self, vhost: str) -> None:
        """Nothing of this vhost is ours to tell any more."""
        for key in [key for key in self._kinds if key[1] == vhost]:
            del self._kinds[key]


def _summed(known: Mapping[str, Any] | None, item: Mapping[str, Any]) -> Mapping[str, Any]:
    """The newer one, with the letters of both."""
    if known is None or "letters" not in item:
        return item
    return {**item, "letters": int(known.get("letters", 0)) + int(item["letters"])}
