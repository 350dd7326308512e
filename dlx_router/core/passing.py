"""Passing: what happens to a message that has not failed, in a queue whose limits the router enforces.

A message that passes is no letter: it becomes one by dying of its age (`expired`) or of the queue's length (`maxlen`),
exactly as the broker would have let it die. See docs/modes.md.
"""

from collections import deque
from typing import Final, NamedTuple

from dlx_router.core.letter import Death, History
from dlx_router.core.policy import Effective
from dlx_router.core.template import Template

MAX_MARKS: Final = 4096
EXPIRED: Final = "expired"
MAXLEN: Final = "maxlen"


class Limits(NamedTuple):
    """What holds for a queue; None: no such limit.

    `trusts`: the producer's `timestamp` is a basis of age. `strict`: one at a time, whatever it costs (ordering: fifo).
    """

    ttl_ms: int | None = None
    length: int | None = None
    length_bytes: int | None = None
    trusts: bool = False
    strict: bool = False

    @property
    def any(self) -> bool:
        """Whether anything may die here."""
        return self.ttl_ms is not None or self.measured

    @property
    def measured(self) -> bool:
        """Whether the queue's length matters."""
        return self.length is not None or self.length_bytes is not None


class Target(NamedTuple):
    """Where a relay forwards to; `routing_key` None: all keys as they came."""

    exchange: str
    routing_key: Template | None = None


class Stamps(NamedTuple):
    """What a message tells of its age: header timestamp_in_ms, property `timestamp` (s), property `expiration`."""

    broker_ms: int | None = None
    producer_s: int | None = None
    expiration: str | None = None


def limits_of(policy: Effective | None) -> Limits:
    """The limits that a policy sets for a queue."""
    if policy is None:
        return Limits()

    def get(key: str) -> int | None:
        setting = policy.settings.get(key)
        return None if setting is None else setting.value

    trusts, ordering = policy.settings.get("trust-timestamp"), policy.settings.get("ordering")
    return Limits(
        get("message-ttl"),
        get("max-length"),
        get("max-length-bytes"),
        trusts is not None and bool(trusts.value),
        ordering is not None and ordering.value == "fifo",
    )


def born_ms(limits: Limits, stamps: Stamps, arrived_ms: int | None = None) -> int | None:
    """Since when the message has surely been there (epoch ms); None where nothing tells.

    Each basis is a time at which it was there already, so the earliest is the best and none makes it die early. A
    producer's stamp has whole seconds: it was written before the next one began.
    """
    trusted = stamps.producer_s * 1000 + 999 if limits.trusts and stamps.producer_s is not None else None
    known = [ms for ms in (arrived_ms, stamps.broker_ms, trusted) if ms is not None]
    return min(known) if known else None


def due_ms(limits: Limits, stamps: Stamps, arrived_ms: int | None = None) -> int | None:
    """When the message is to die of its age (epoch ms); None: never.

    As in the broker the shorter of the queue's limit and the message's own `expiration` counts. That one is the
    broker's affair while the message lies in the queue, so it counts only from its arrival here.
    """
    born = born_ms(limits, stamps, arrived_ms)
    ends = [born + limits.ttl_ms] if born is not None and limits.ttl_ms is not None else []
    own = stamps.expiration
    if arrived_ms is not None and own is not None and own.isascii() and own.isdigit():
        ends.append(arrived_ms + int(own))
    return min(ends) if ends else None


def excess(limits: Limits, ready: int, mean_bytes: float) -> int:
    """How many of the oldest have to die so that what is left keeps to the limits."""
    over = max(0, ready - limits.length) if limits.length is not None else 0
    if limits.length_bytes is not None and mean_bytes > 0:
        over = max(over, ready - int(limits.length_bytes / mean_bytes))
    return min(over, ready)


def recorded(deaths: History, death: Death) -> History:
    """The history with one death more, as the broker records it: counted by (queue, reason), most recent first.

    An entry that is there keeps its first time, exchange, keys and expiration. See
    docs/architecture.md ("What the broker does").
    """
    known = next((entry for entry in deaths if entry.key == death.key), None)
    newest = death if known is None else known._replace(times=known.times + 1)
    return (newest, *(entry for entry in deaths if entry is not known))


class Marks:
    """Since when the next deliveries of a queue have surely been there.

    A queue is first in, first out: what was counted in it at a time comes before all that arrives later. So the next
    `ready` deliveries after a count were there when it was made. Where much has left the queue by another door (a
    purge), the marks are worth nothing and are dropped: a message may then live longer, never shorter.
    """

    def __init__(self, slack: int) -> None:
        """`slack`: how many deliveries may be on their way to us when a count is answered."""
        self._slack = slack
        self._marks: deque[tuple[int, int]] = deque()  # deliveries up to this one were there at (ms)
        self.seen = 0

    def delivered(self, now_ms: int) -> int:
        """A delivery comes: since when (epoch ms) it has surely been there."""
        self.seen += 1
        marks = self._marks
        while marks and marks[0][0] < self.seen:
            marks.popleft()
        return min(marks[0][1], now_ms) if marks else now_ms

    def counted(self, ready: int, asked: int, now_ms: int) -> None:
        """The answer at `now_ms`: `ready` messages lie in the queue; `asked` was `seen` when the question was put.

        Both err to the safe side: what was delivered meanwhile is not added, and the time is that of the answer.
        """
        marks, last = self._marks, asked + ready
        if marks and last + self._slack < marks[-1][0]:
            marks.clear()
        if last > self.seen and (not marks or last > marks[-1][0]):
            marks.append((last, now_ms))
        if len(marks) > MAX_MARKS:
            self._marks = deque(mark for at, mark in enumerate(marks) if at % 2)  # a later mark is never too early
