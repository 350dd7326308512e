"""What people are shown of an event as it is, although no column has it: each part has the shape that readers expect.

Whoever may write to the journal may write anything there: what has another shape is refused as it comes, and not by
each of those who show it. Pure.
"""

import re
from collections.abc import Mapping
from typing import Any, Final

from dlx_router.core.nested_json import MAX_DEPTH, is_deep

LATEST_MS: Final = 253_370_764_800_000  # the year 9999, in every time zone; no router's clock says so
MOST_LOST: Final = 1 << 40  # events of a gap: sums of these stay numbers that a file holds
MOST_TIME: Final = 1 << 80  # of a death: the ms of any seconds of 64 bits, which a message may bring
_ID: Final = re.compile(r"[!-~]+")  # of an audit: it becomes a part of a cursor
_OF_A_DEATH: Final = (("queue", str), ("reason", str), ("count", int), ("exchange", str), ("routing_keys", list))


def look(members: Mapping[str, Any]) -> None:
    """Raises TypeError or ValueError: a member of a letter's event has another shape than routers write."""
    for name in members.keys() & _CHECKS.keys():
        if not _CHECKS[name](members[name]):
            raise TypeError(f"no router writes such {name}")


def look_deep(event: Any) -> None:  # noqa: ANN401 - JSON
    """Raises ValueError: it is nested more deeply than it can be shown."""
    if is_deep(event):
        raise ValueError(f"more than {MAX_DEPTH} levels")


def may_be_deep(text: bytes) -> bool:
    """Whether the JSON in it has to be looked at for that; false of nearly all that routers write."""
    return text.count(b"[") + text.count(b"{") > MAX_DEPTH


def moment(ms: int) -> int:
    """A time by some router's clock. Raises ValueError: that is none."""
    if not 0 <= ms <= LATEST_MS:
        raise ValueError(f"{ms} is no time")
    return ms


def audit_id(event_id: str) -> str:
    """The id of an audit. Raises ValueError."""
    if _ID.fullmatch(event_id) is None:
        raise ValueError("no router names an audit so")
    return event_id


def details_of(audit: Mapping[str, Any]) -> Mapping[str, Any]:
    """What an audit says further. Raises TypeError."""
    details = audit.get("details")
    if not isinstance(details, dict | None):
        raise TypeError("details that are no object")
    return details or {}


def lost(events: int) -> int:
    """How many events are missing. Raises ValueError."""
    if not 0 <= events <= MOST_LOST:
        raise ValueError(f"{events} events cannot be missing")
    return events


def _is_text(value: Any) -> bool:  # noqa: ANN401 - JSON
    return isinstance(value, str)


def _are_texts(value: Any) -> bool:  # noqa: ANN401 - JSON
    return value is None or (isinstance(value, list) and all(isinstance(text, str) for text in value))


def _is_object(value: Any) -> bool:  # noqa: ANN401 - JSON
    return value is None or isinstance(value, dict)


def _are_deaths(value: Any) -> bool:  # noqa: ANN401 - JSON
    return value is None or (isinstance(value, list) and all(map(_is_death, value)))


def _is_death(value: Any) -> bool:  # noqa: ANN401 - JSON
    return (
        isinstance(value, dict)
        and all(isinstance(value.get(name), kind) for name, kind in _OF_A_DEATH)
        and _are_texts(value["routing_keys"])
        and isinstance(value.get("time_ms", 0), int)
        and abs(value.get("time_ms", 0)) < MOST_TIME
    )


_CHECKS: Final = {
    "body_mode": _is_text,
    "body_values": _is_object,
    "deaths": _are_deaths,
    "error": _is_object,
    "headers": _is_object,
    "lease": _is_object,
    "props": _is_object,
    "redacted": _are_texts,
    "target": _is_object,
}
