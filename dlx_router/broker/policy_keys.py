"""Which keys of a RabbitMQ policy make the broker skip it: one that a queue's type does not know, and it goes whole.

Source: `unsupported_policies` in `capabilities/0` of rabbit_classic_queue, rabbit_quorum_queue and rabbit_stream_queue,
read out of 3.10.8, 4.0.5 and 4.3.6; `filter-field-names` out of the main branch. What no version takes as the key of a
policy (`single-active-consumer`) is left out. Classic queues know `queue-leader-locator` from 4.0 on.
"""

from collections.abc import Iterable
from typing import Final

NEWEST: Final = (4, 3)
_UNKNOWN: Final = (0,)  # the version of a broker that does not tell; an export's
_STREAM_ONLY: Final = ("max-age", "stream-max-segment-size-bytes", "initial-cluster-size")
_MIRRORED: Final = ("ha-mode", "ha-params", "ha-sync-mode", "ha-promote-on-shutdown", "ha-promote-on-failure")
_SELECTORS: Final = ("selector-fields", "selector-field-max-bytes")
_IN_MEMORY: Final = ("max-in-memory-length", "max-in-memory-bytes")
_CLASSIC: Final = frozenset({
    *_STREAM_ONLY, *_SELECTORS, "delivery-limit", "dead-letter-strategy", "target-group-size", "filter-field-names",
})  # fmt: skip
_UNSUPPORTED: Final = {
    "classic": _CLASSIC | {*_IN_MEMORY},
    "quorum": frozenset({"max-priority", "queue-mode", "queue-master-locator", *_MIRRORED, *_STREAM_ONLY, *_SELECTORS}),
    "stream": frozenset({
        "dead-letter-exchange", "dead-letter-routing-key", "dead-letter-strategy", "message-ttl", "max-length",
        "overflow", "delivery-limit", "expires", "max-priority", "queue-mode", "queue-master-locator",
        "target-group-size", *_IN_MEMORY, *_MIRRORED, *_SELECTORS,
    }),
}  # fmt: skip
_BEFORE_4: Final = _UNSUPPORTED | {"classic": _CLASSIC | {"queue-leader-locator"}}


def unsupported(definition: Iterable[str], kind: str, version: tuple[int, ...] = NEWEST) -> tuple[str, ...]:
    """The keys for which a broker of this version skips the whole policy on queues of this type."""
    table = _BEFORE_4 if _UNKNOWN < version < (4,) else _UNSUPPORTED
    known = table.get(kind, frozenset())
    return tuple(sorted(key for key in definition if key in known))
