"""An event of the journal → what the index keeps of it. Pure."""

import base64
import binascii
import json
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

STATE_OF: Final = {
    "retried": "retrying",
    "held": "held",
    "released": "released",
    "dead_lettered": "dead",
    "parked": "parked",
    "quarantined": "quarantined",
    "discarded": "discarded",
    "redriven": "redriven",
    "edited": "edited",
    "retired": "retired",
}
GONE: Final = "gone"  # was lying in a queue that has been found empty since
LYING: Final = ("dead", "parked", "quarantined")  # in a queue, until somebody does something
STATES: Final = (*STATE_OF.values(), GONE)
TEXT_CHARS: Final = 4096  # of a letter are searched
_BODY_CHARS: Final = 2048
_SEARCHED_PROPS: Final = ("message_id", "correlation_id", "type", "app_id", "reply_to")


class Body(NamedTuple):
    """What the journal has of a body; `content` None: not even a part."""

    mode: str
    sha256: str | None
    content_type: str | None
    content: bytes | None


class EventError(ValueError):
    """A line is no event that this version can read."""


def event_of(line: bytes) -> dict[str, Any]:
    """The event of a line. Raises EventError."""
    try:
        event = json.loads(line)
        version = event["v"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise EventError("no JSON object with a version") from None
    if version not in {0, 1, 2} or not isinstance(event.get("kind"), str) or not isinstance(event.get("event_id"), str):
        raise EventError(f"version {version!r}, kind {event.get('kind')!r}")
    return dict(event)


def plain(text: object) -> str:
    """Text as SQLite can keep it: a byte that is not UTF-8 is spelt out."""
    if not isinstance(text, str):
        return "" if text is None else str(text)
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def place_of(event: Mapping[str, Any]) -> tuple[str, str] | None:
    """Exchange and routing key that a letter was left at for good; None while it is on its way."""
    target = event.get("target")
    if STATE_OF.get(event["kind"]) not in LYING or not isinstance(target, Mapping):
        return None
    return plain(target.get("exchange")), plain(target.get("routing_key"))


def body_of(event: Mapping[str, Any]) -> Body | None:
    """What this event has of the body; None where it has less than an earlier one may have had."""
    mode = event.get("body_mode", "none")
    if mode == "none":
        return None
    content = None
    try:
        if isinstance(event.get("body"), str):
            content = base64.b64decode(event["body"], validate=True)
    except (binascii.Error, ValueError):
        mode = "hash"
    sha, kind = event.get("body_sha256"), (event.get("props") or {}).get("content_type")
    return Body(plain(mode), plain(sha) or None, plain(kind) or None, content)


def text_of(event: Mapping[str, Any], body: Body | None) -> str:
    """What a letter is found by: its ids, keys, error, the values that the journal shows, and the start of its body."""
    return plain(" ".join(part for part in _texts(event, body) if part)[:TEXT_CHARS])


def _texts(event: Mapping[str, Any], body: Body | None) -> Iterator[str]:
    props, error = event.get("props") or {}, event.get("error") or {}
    for name in _SEARCHED_PROPS:
        yield str(props.get(name) or "")
    for name in ("type", "message", "frame"):
        yield str(error.get(name) or "")
    yield from {event.get("exchange") or "", event.get("routing_key") or ""}
    for death in (event.get("deaths") or ())[:1]:
        yield from (str(key) for key in death.get("routing_keys") or ())
    for values in (event.get("headers"), event.get("body_values")):
        yield from (values or {}).values()
    yield event.get("detail") or ""
    if body is not None and body.content is not None:
        yield body.content[: _BODY_CHARS * 4].decode(errors="ignore").replace("\0", " ")[:_BODY_CHARS]


def without_body(line: bytes, event: Mapping[str, Any]) -> bytes:
    """The line as it came, without a body, which is kept elsewhere."""
    if "body" not in event:
        return line
    return json.dumps({name: value for name, value in event.items() if name != "body"}, separators=(",", ":")).encode()
