"""What one endpoint has not taken yet, and when it is tried again. Bounded, without a clock: every call says the time.

A message that is refused does not hold up the others; an endpoint that fails is left in peace for a while, whatever
waits for it.
"""

from dataclasses import dataclass
from typing import Final

from dlx_router.core import redelivery
from dlx_router.core.notices import Message

MOST: Final = 1000


@dataclass(slots=True)
class Waiting:
    """A message, how often it was tried, and when it may be again."""

    message: Message
    next_ms: int
    tries: int = 0


class Pending:
    """Of one endpoint."""

    def __init__(self) -> None:
        self._waiting: dict[str, Waiting] = {}  # the oldest first
        self._failures = 0
        self._rests_until_ms = 0

    def __len__(self) -> int:
        return len(self._waiting)

    def add(self, message: Message, now_ms: int) -> Message | None:
        """To be sent at once; → the oldest, where there is no room for both. One that is known is not added again."""
        if message.id in self._waiting:
            return None
        self._waiting[message.id] = Waiting(message, now_ms)
        return self._waiting.pop(next(iter(self._waiting))).message if len(self._waiting) > MOST else None

    def expired(self, now_ms: int) -> list[Message]:
        """Those that nobody wants to know any more; they are forgotten."""
        over = [
            waiting.message for waiting in self._waiting.values() if redelivery.is_over(waiting.message.ts_ms, now_ms)
        ]
        for message in over:
            del self._waiting[message.id]
        return over

    def next(self, now_ms: int) -> Waiting | None:
        """What is to be sent now: of those that are due the one that was tried least."""
        due = [waiting for waiting in self._waiting.values() if waiting.next_ms <= now_ms]
        return min(due, key=lambda waiting: waiting.tries) if due and now_ms >= self._rests_until_ms else None

    def taken(self, message_id: str) -> None:
        """The receiver has it."""
        self._failures = 0
        self._waiting.pop(message_id, None)

    def failed(self, message_id: str, now_ms: int, draw: float, asked_ms: int | None = None) -> None:
        """It has not."""
        self._failures += 1
        self._rests_until_ms = now_ms + redelivery.rest_ms(self._failures, asked_ms)
        if (waiting := self._waiting.get(message_id)) is not None:
            waiting.tries += 1
            waiting.next_ms = now_ms + redelivery.pause_ms(waiting.tries, draw, asked_ms)

    def drop(self, vhost: str) -> None:
        """Those of this vhost are somebody else's to send."""
        for message in [waiting.message for waiting in self._waiting.values() if waiting.message.vhost == vhost]:
            del self._waiting[message.id]
