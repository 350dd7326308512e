"""What one endpoint has not taken yet: notices that are batched, messages that wait, and when each is tried again.

Notices of a kind in a vhost become one message INTERVAL_MS after the first of them. A message that is refused does not
hold up others, and an endpoint that fails is tried less often. Bounded; without a clock: every call says the time.
"""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from dlx_router.core.notices import MAX_ITEMS, Message, Notice

INTERVAL_MS: Final = 15_000
MAX_KEYS: Final = 1000  # of a message are written down
MAX_WAITING: Final = 1000
FIRST_PAUSE_MS: Final = 5_000
LONGEST_PAUSE_MS: Final = 3_600_000
LONGEST_REST_MS: Final = 60_000  # of an endpoint that fails, unless it asks for more
GIVE_UP_MS: Final = 24 * 3_600_000
JITTER: Final = 0.2


@dataclass(slots=True)
class _Batch:
    due_ms: int
    count: int = 0
    items: dict[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(slots=True)
class Waiting:
    """A message that was not taken yet. `keys`: of the notices that it tells, as many as are written down."""

    message: Message
    keys: tuple[str, ...]
    next_ms: int
    tries: int = 0


class Outbox:
    """The batches and messages of one endpoint."""

    def __init__(self) -> None:
        self._batches: dict[tuple[str, str], _Batch] = {}
        self._waiting: dict[str, Waiting] = {}  # by message id, the oldest first
        self._failures = 0
        self._rests_until_ms = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, notice: Notice, now_ms: int) -> None:
        """Batch a notice with others of its kind; of several with one key the letters are summed."""
        batch = self._batches.setdefault((notice.kind, notice.vhost), _Batch(now_ms + INTERVAL_MS))
        batch.count += int(notice.item.get("letters", 1))
        known, item = batch.items.get(notice.key), notice.item
        if known is not None and "letters" in item:
            item = {**item, "letters": int(known["letters"]) + int(item["letters"])}
        if known is not None or len(batch.items) < MAX_KEYS:
            batch.items[notice.key] = item

    def drop(self, vhost: str) -> None:
        """Forget what is about this vhost: another router leads it."""
        self._batches = {key: batch for key, batch in self._batches.items() if key[1] != vhost}
        self._waiting = {key: waiting for key, waiting in self._waiting.items() if waiting.message.vhost != vhost}

    def close_batches(self, now_ms: int, wall_ms: int) -> None:
        """Make messages of the batches whose time has come."""
        for kind, vhost in [key for key, batch in self._batches.items() if now_ms >= batch.due_ms]:
            batch = self._batches.pop((kind, vhost))
            items = tuple(batch.items.values())[:MAX_ITEMS]
            message = Message(f"msg_{secrets.token_hex(16)}", kind, vhost, wall_ms, batch.count, items)
            self._waiting[message.id] = Waiting(message, tuple(batch.items), now_ms)

    def expired(self, wall_ms: int) -> int:
        """Forget the messages that are a day old; return how many."""
        old = [key for key, waiting in self._waiting.items() if wall_ms - waiting.message.ts_ms >= GIVE_UP_MS]
        for key in old:
            del self._waiting[key]
        return len(old)

    def overflowed(self) -> int:
        """Forget the oldest messages where too many wait; return how many."""
        old = [*self._waiting][: max(0, len(self._waiting) - MAX_WAITING)]
        for key in old:
            del self._waiting[key]
        return len(old)

    def next(self, now_ms: int) -> Waiting | None:
        """Return the message to send now: of those that are due the one that was tried least."""
        due = [waiting for waiting in self._waiting.values() if waiting.next_ms <= now_ms]
        return min(due, key=lambda waiting: waiting.tries) if due and now_ms >= self._rests_until_ms else None

    def taken(self, message_id: str) -> None:
        """Forget a message that the receiver took."""
        self._failures = 0
        self._waiting.pop(message_id, None)

    def failed(self, message_id: str, now_ms: int, draw: float, asked_ms: int = 0) -> None:
        """Try a message again later. `draw` in 0..1; `asked_ms`: the pause that the receiver asked for."""
        self._failures += 1
        asked = min(asked_ms, LONGEST_PAUSE_MS)
        rest = min(1000 << min(self._failures - 1, 20), LONGEST_REST_MS)
        self._rests_until_ms = now_ms + max(rest, asked)
        if (waiting := self._waiting.get(message_id)) is not None:
            pause = min(FIRST_PAUSE_MS * 3 ** min(waiting.tries, 20), LONGEST_PAUSE_MS)
            waiting.tries += 1
            waiting.next_ms = now_ms + max(round(pause * (1 + JITTER * (2 * draw - 1))), asked)
