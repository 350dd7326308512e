"""Replay: an event → the letter as decide() saw it. The other direction of `events`, for backtests.

`decide(letter_of(event), policy, event["ts_ms"], event.get("draw", 0.0), lambda: verdict_of(event))` says again what
was decided.
"""

import json
from collections.abc import Mapping
from typing import Any, Final

from dlx_router.core.breaker import Breaker, Verdict
from dlx_router.core.letter import Arrival, Death, Declared, First, Letter
from dlx_router.core.words import Cause
from dlx_router.journal.encoding import oldest

_ARRIVALS: Final = {arrival.value: arrival for arrival in Arrival}


def letter_of(event: Mapping[str, Any]) -> Letter:
    """The letter of a letter's event. Raises KeyError on an event that tells of none, a gap say.

    Headers that the journal was not asked for, or that are redacted, are missing here too. To ask for a header or a
    body value that is no JSON, which no router writes, raises ValueError.
    """
    deaths = tuple([_death(entry) for entry in event["deaths"]])
    headers, bodies = event.get("headers", {}), event.get("body_values", {})
    return Letter(
        id=event["id"],
        vhost=event["vhost"],
        source=event["source"],
        arrival=_ARRIVALS[event["arrival"]],
        exchange=event["exchange"],
        routing_key=event["routing_key"],
        history=deaths,
        first=_first(event["first"]) if "first" in event else oldest(deaths),
        failed_queue=event["failed_queue"],
        reason=event["reason"],
        fresh=tuple([_fresh(entry, deaths) for entry in event["fresh"]]) if "fresh" in event else deaths,
        base_attempts=event["base_attempts"],
        redrives=event["redrives"],
        tries=event["tries"],
        state=event.get("state"),
        first_death_ms=event["first_death_ms"],
        last_death_ms=event["last_death_ms"],
        parent=event.get("parent"),
        error=event.get("error"),
        known_before=event.get("known_before", False),
        rejected_since=event.get("rejected_since", False),
        declared=_declared(event["declared"]) if "declared" in event else None,
        header=lambda name: _header(headers, name),
        cause=event.get("said_cause"),
        since_ms=event.get("since_ms", 0),
        body=lambda pointer: _json(bodies[pointer]) if pointer in bodies else None,
        content_type=event.get("props", {}).get("content_type") or "",  # null in a column of the archive
        size=event["digest"]["size"],
    )


def verdict_of(event: Mapping[str, Any]) -> Verdict:
    """What the breaker said; closed where it was not asked."""
    state = Breaker(event.get("breaker", Breaker.CLOSED))
    held = event["kind"] == "held" and event.get("cause") == Cause.OUTAGE
    return Verdict(state, event["due_ms"] - event["ts_ms"] if held else None)


def _declared(entry: Mapping[str, Any]) -> Declared:
    return Declared(entry.get("never", False), entry.get("retry_after_ms"), entry.get("tag"))


def _death(entry: Mapping[str, Any]) -> Death:
    return Death(
        entry["queue"],
        entry["reason"],
        entry["count"],
        entry["time_ms"] // 1000,
        entry["exchange"],
        tuple(entry["routing_keys"]),
        entry.get("original_expiration"),
    )


def _first(entry: Mapping[str, Any] | None) -> First | None:
    if entry is None:
        return None
    return First(entry["queue"], entry["exchange"], tuple(entry["routing_keys"]), entry["reason"])


def _fresh(entry: Mapping[str, Any], deaths: tuple[Death, ...]) -> Death:
    """A new death is one of the history, but for its count."""
    queue, reason, count = entry["queue"], entry["reason"], entry["count"]
    for death in reversed(deaths):
        if death.queue == queue and death.reason == reason:
            return death if death.times == count else death._replace(times=count)
    return Death(queue, reason, count, 0, "", ())


def _json(text: str) -> Any:  # noqa: ANN401 - JSON
    try:
        return json.loads(text)
    except RecursionError:
        raise ValueError("JSON that is nested too deeply") from None


def _header(headers: Mapping[str, str], name: str) -> str | None:
    """As a template sees it: a scalar as text, else None."""
    value = _json(headers[name]) if name in headers else None
    if value is None or isinstance(value, dict | list):
        return None
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value)
