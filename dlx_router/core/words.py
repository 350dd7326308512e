"""The frozen vocabulary: reasons, actions, causes and states, spelled once.

See docs/architecture.md ("Words"); the four broker reasons are those of rabbit_dead_letter.erl.
"""

from enum import StrEnum
from typing import Final

APPLICATION: Final = "application"
UNKNOWN: Final = "unknown"
REJECTED: Final = "rejected"
BROKER_REASONS: Final = frozenset({"rejected", "expired", "maxlen", "delivery_limit"})


_KNOWN: Final = BROKER_REASONS | {UNKNOWN, APPLICATION}
OTHER: Final = "__other__"


def counted(reason: str) -> str:
    """The reason as metrics name it: any publisher can write an x-death, and so any text, as often as he likes."""
    if reason in _KNOWN:
        return reason
    return APPLICATION if reason.startswith(f"{APPLICATION}:") else OTHER


class Action(StrEnum):
    """What is done with a letter; also the metric label `action`."""

    RETRY = "retry"
    DEAD_LETTER = "dead_letter"
    PARK = "park"
    QUARANTINE = "quarantine"
    FORWARD = "forward"
    DISCARD = "discard"
    HOLD = "hold"
    RELEASE = "release"
    RETIRE = "retire"


class State(StrEnum):
    """Where a letter stands, as its record says."""

    RETRYING = "retrying"
    DEAD = "dead"
    PARKED = "parked"
    HELD = "held"


class Cause(StrEnum):
    """Why a letter did not take the plain way; a bounded set, safe as a metric label."""

    ATTEMPTS_SPENT = "attempts_spent"
    NEVER_RETRY = "never_retry"
    MAX_ELAPSED = "max_elapsed"
    NO_POLICY = "no_policy"
    UNKNOWN_ORIGIN = "unknown_origin"
    UNROUTABLE = "unroutable"
    MISSING_EXCHANGE = "missing_exchange"
    FORBIDDEN = "forbidden"
    ROUTING_KEY_TOO_LONG = "routing_key_too_long"
    CYCLE = "cycle"
    LOOP = "loop"
    REDRIVE_EXHAUSTED = "redrive_exhausted"
    MALFORMED = "malformed"
    TOO_LARGE = "too_large"
    OUTAGE = "outage"
    TARGET_REFUSED = "target_refused"
    RETENTION = "retention"
