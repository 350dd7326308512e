"""Exporting: a letter as one line of JSON, whole but for what its policy redacts. Pure.

A header or a place of the body that the policy's key `journal: {redact: …}` names is in no line, and `redacted` says
that it is missing, and so is what the letter's error says of it; a body that should be redacted and is not JSON is left
out whole. What else that key says of bodies (none, hash, final) is about the journal: whoever may export may see them.
The router's own headers are told as members.
"""

import base64
from collections.abc import Mapping
from typing import Any, Final

from dlx_router.core.letter import Letter, Props
from dlx_router.journal import encoding
from dlx_router.journal.privacy import Rule, error_of, plain, without
from dlx_router.wire import table
from dlx_router.wire.properties import Properties

OWN: Final = b"dlx-router"
_TEXTS: Final = ("content_type", "content_encoding", "correlation_id", "reply_to", "type", "app_id", "cluster_id")


def line(letter: Letter, props: Properties, first: Props, body: bytes, *, group: str, rule: Rule) -> bytes:
    """The letter. `props` is what it has now, `first` what it came with before the router first touched it."""
    headers, gone = _headers(props.headers, rule)
    shown, missing = _body(body, rule)
    error, derived = error_of(rule, letter.error)
    document: dict[str, Any] = {
        "id": letter.id,
        "vhost": letter.vhost,
        "failed_queue": letter.failed_queue,
        "group": group,
        "reason": letter.reason,
        "cause": letter.cause,
        "state": letter.state,
        "attempts": letter.base_attempts,
        "redrives": letter.redrives,
        "first_death_ms": letter.first_death_ms,
        "last_death_ms": letter.last_death_ms,
        "deaths": [encoding.death(death) for death in letter.history],
        "error": error or None,
        "shadowed": {name: value for name, value in (letter.shadowed or {}).items() if not rule.hides(name)} or None,
        "properties": _properties(props, first),
        "headers": headers,
        "size": len(body),
        "body": None if shown is None else base64.b64encode(shown).decode(),
        "redacted": sorted({*gone, *missing, *derived}),
    }
    return encoding.encode({name: value for name, value in document.items() if value is not None}).encode()


def _properties(props: Properties, first: Props) -> Mapping[str, Any]:
    """Those that are set, by AMQP's names with underscores; `timestamp` in seconds."""
    octets = {name: value for name in _TEXTS if (value := getattr(props, name)) is not None}
    texts = {name: value.decode(errors="surrogateescape") for name, value in octets.items()}
    rest = {**first._asdict(), "timestamp": props.timestamp}
    return texts | {name: value for name, value in rest.items() if value is not None}


def _headers(headers: bytes, rule: Rule) -> tuple[dict[str, Any], list[str]]:
    """By name, as JSON has them, and the names that are hidden. What nests too deep is {"base64": …}, as bytes are."""
    shown: dict[str, Any] = {}
    gone: list[str] = []
    for raw, at in table.entries(headers).items():
        name = raw.decode(errors="surrogateescape")
        if raw.startswith(OWN):
            continue
        if rule.hides(name):
            gone.append(name)
        else:
            shown[name] = _value(headers, at)
    return shown, gone


def _value(headers: bytes, at: table.Span) -> Any:  # noqa: ANN401 - a header is of any type
    try:
        return plain(chr(headers[at[1]]), table.decode_value(headers, at[1]))
    except table.TableError:
        return {"base64": base64.b64encode(headers[at[1] : at[2]]).decode()}


def _body(body: bytes, rule: Rule) -> tuple[bytes | None, list[str]]:
    places = [place for place in rule.redact if place.startswith("/")]
    if not places:
        return body, []
    shown, gone = without(body, places)
    return shown, places if shown is None else gone
