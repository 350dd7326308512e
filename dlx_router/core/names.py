"""What we call our things in the broker, and the grid of rungs on which letters wait."""

import re
from bisect import bisect_right
from dataclasses import dataclass
from hashlib import blake2b
from typing import Final

_S, _M, _H, _D = 1_000, 60_000, 3_600_000, 86_400_000
_STEPS: Final = (1, 1.25, 1.5, 2, 2.5, 3, 4, 5, 6, 8)
MAX_KEY_BYTES: Final = 240
MAX_NAME_BYTES: Final = 255
REFUSAL_BYTES: Final = 40  # NOT_FOUND - no exchange '' in vhost ''
LONGEST: Final = 16  # digits of a rung's ms, and more than any has


def _grid() -> tuple[int, ...]:
    tens = (10, 12, 15, 20, 30, 40, 50)
    steps = {int(100 * step) for step in _STEPS}
    steps |= {int(unit * step) for unit in (_S, _M, _H) for step in _STEPS}
    steps |= {unit * ten for unit in (_S, _M) for ten in tens} | {_H * ten for ten in (10, 12, 15, 20)}
    return tuple(sorted(steps | {_D * day for day in range(1, 8)}))


RUNGS: Final = _grid()


_DIGEST: Final = re.compile("[0-9a-f]{16}")  # as `_hash` writes it
_UNREAD: Final = str.maketrans("", "", "\r\n")


def as_read(name: str) -> str:
    """The name that the broker reads where a queue or exchange is declared, looked at, bound or deleted.

    RabbitMQ takes CR and LF out of it there, and only there: what it publishes to, consumes from, gets or purges, and
    every routing key, it reads as it stands. Source: rabbit_channel.erl, strip_cr_lf; the same on 3.10, 4.0 and 4.3.
    """
    return name.translate(_UNREAD) if "\n" in name or "\r" in name else name


def is_answerable(*names: str, words: int = REFUSAL_BYTES) -> bool:
    """Whether the broker can refuse what names these: its reason has 255 bytes, `words` of them besides the names.

    It cuts a longer reason by characters. If some of them have several bytes it is still too long to be sent, and the
    connection ends (541, from 4.0 on), or a character is cut (3.10).
    """
    text = "".join(names)
    return text.isascii() or len(text.encode(errors="surrogateescape")) + words <= MAX_NAME_BYTES


def rung_for(remaining_ms: int) -> int | None:
    """The largest rung that is not longer than what remains; None below the lowest."""
    at = bisect_right(RUNGS, remaining_ms)
    return RUNGS[at - 1] if at else None


def return_key(queue: str) -> str:
    """The binding key that leads back to exactly this queue; by hash where the name is over 240 bytes."""
    data = queue.encode(errors="surrogateescape")
    return f"to:{queue}" if len(data) <= MAX_KEY_BYTES else f"to:{blake2b(data, digest_size=16).hexdigest()}"


def _hash(data: bytes) -> str:
    return blake2b(data, digest_size=8).hexdigest()


@dataclass(frozen=True)
class Names:
    """The names under one prefix."""

    prefix: str = "dlx-router"

    def __post_init__(self) -> None:
        for name in ("inbox", "declared", "release", "parking", "quarantine", "retired", "state", "journal", "observe"):
            object.__setattr__(self, name, f"{self.prefix}.{name}")
        object.__setattr__(self, "fifo", f"{self.inbox}.fifo")
        object.__setattr__(self, "inlets", frozenset({self.inbox, self.fifo}))
        object.__setattr__(self, "return_", f"{self.prefix}.return")
        object.__setattr__(self, "_dotted", f"{self.prefix}.")
        object.__setattr__(self, "_delayed", f"{self.prefix}.delayed.")

    inbox: str = ""
    declared: str = ""
    release: str = ""
    return_: str = ""
    parking: str = ""
    quarantine: str = ""
    retired: str = ""
    state: str = ""
    journal: str = ""
    observe: str = ""
    fifo: str = ""
    inlets: frozenset[str] = frozenset()  # by any of these dead letters come
    _dotted: str = ""
    _delayed: str = ""

    def delay(self, rung_ms: int) -> str:
        """Exchange and queue of a rung."""
        return f"{self.prefix}.delay.{rung_ms}"

    def delayed(self, exchange: str) -> str:
        """The queue of a delayed exchange; by hash where the name is over 255 bytes."""
        data = exchange.encode(errors="surrogateescape")
        name = f"{self.prefix}.delayed.{exchange}"
        return name if len(name) - len(exchange) + len(data) <= MAX_NAME_BYTES else f"{self._delayed}{_hash(data)}"

    def is_delayed(self, queue: str) -> bool:
        """Whether it is the queue of a delayed exchange."""
        return as_read(queue).startswith(self._delayed)

    def guard(self, queue: str) -> str:
        """The queue that only the router has that guards `queue`."""
        return f"{self.prefix}.guard.{_hash(queue.encode(errors='surrogateescape'))}"

    def is_guard(self, queue: str) -> bool:
        """Whether it has a name that `guard` gives: whatever else begins so is somebody else's."""
        begin, _, digest = queue.rpartition(".")
        return begin == f"{self.prefix}.guard" and _DIGEST.fullmatch(digest) is not None

    def in_use(self, queue: str) -> str:
        """The queue that says who publishes to a dead-letter queue; "": to any of many."""
        return f"{self.prefix}.in-use.{_hash(queue.encode(errors='surrogateescape'))}"

    def flush(self, number: str) -> str:
        """The queue that is made for a moment, so that the broker writes the names of others down."""
        return f"{self.prefix}.flush.{number}"

    def is_own(self, name: str) -> bool:
        """Whether a queue or exchange is ours, as the broker reads its name."""
        return as_read(name).startswith(self._dotted)

    def rung_for(self, remaining_ms: int) -> int | None:
        """See `rung_for`."""
        return rung_for(remaining_ms)

    def rung_of(self, queue: str) -> int | None:
        """How long a queue keeps letters; None where it is no rung."""
        prefix, _, number = queue.rpartition(".")
        known = prefix == f"{self.prefix}.delay" and number.isascii() and number.isdigit() and len(number) < LONGEST
        return int(number) if known else None

    def return_key(self, queue: str) -> str:
        """See `return_key`."""
        return return_key(queue)
