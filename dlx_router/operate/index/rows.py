"""An event of the journal → what the index keeps of it. Pure."""

import base64
import binascii
import json
from collections.abc import Mapping
from hashlib import blake2b
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
_HALF: Final = 1 << 63
_MASK: Final = (1 << 64) - 1
_SEARCHED_PROPS: Final = ("message_id", "correlation_id", "type", "app_id", "reply_to")


_decode: Final = json.JSONDecoder().decode


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
        event = _decode(str(line, "utf-8"))
        version = event["v"]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise EventError("no JSON object with a version") from None
    if version not in {0, 1, 2} or not isinstance(event.get("kind"), str) or not isinstance(event.get("event_id"), str):
        raise EventError(f"version {version!r}, kind {event.get('kind')!r}")
    found: dict[str, Any] = event
    return found


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


def key_of(letter_id: str) -> int:
    """A letter id as a number of 64 bits, by which it is looked for; other ids may have the same."""
    try:
        return (int(letter_id[:16], 16) & _MASK) - _HALF
    except ValueError:
        return int.from_bytes(blake2b(letter_id.encode(), digest_size=8).digest()) - _HALF


def own_of(event: Mapping[str, Any]) -> tuple[Any, ...]:
    """What a letter's row says of its newest event: the columns of `letters` from `reason` on."""
    props, digest = event.get("props"), event.get("digest")
    return (
        plain(event.get("reason")),
        plain(event.get("cause")) or None,
        plain(event.get("policy")) or None,
        whole(event.get("attempts")),
        whole(event.get("redrives")),
        whole(event.get("first_death_ms")),
        whole(event["ts_ms"]),
        whole_or_none(event.get("due_ms")),
        whole(digest.get("size")) if digest else 0,
        (plain(props.get("message_id")) or None) if props else None,
    )


def step_of(event: Mapping[str, Any]) -> tuple[Any, ...]:
    """A line of a letter's journey: the columns of `steps` from `ts_ms` on."""
    target = event.get("target")
    return (
        whole(event["ts_ms"]),
        event["kind"],
        plain(event.get("source")),
        plain(event.get("reason")),
        plain(event.get("cause")) or None,
        whole_or_none(event.get("attempts")),
        whole_or_none(event.get("redrives")),
        whole_or_none(event.get("tries")),
        whole_or_none(event.get("due_ms")),
        plain(event.get("policy")) or None,
        plain(target.get("exchange")) if target else None,
        plain(target.get("routing_key")) if target else None,
        plain(event.get("refused")) or None,
        plain(event.get("redrive_id")) or None,
    )


def whole(value: Any) -> int:  # noqa: ANN401 - a journal may have been written by anybody
    """A number as SQLite can keep it; 0 for none. Raises TypeError, ValueError, OverflowError."""
    number = int(value or 0)
    if not -_HALF <= number < _HALF:
        raise OverflowError(f"{number} has more than 64 bits")
    return number


def whole_or_none(value: Any) -> int | None:  # noqa: ANN401 - as above
    """The same, but None for none."""
    return None if value is None else whole(value)


def text_of(event: Mapping[str, Any], body: Body | None) -> str:
    """What a letter is found by: its ids, keys, error, the values that the journal shows, and the start of its body.

    What is said twice stands there once.
    """
    parts = dict.fromkeys(_texts(event, body))
    parts.pop("", None)
    return plain(" ".join(parts)[:TEXT_CHARS])


def _texts(event: Mapping[str, Any], body: Body | None) -> list[str]:
    props, error = event.get("props"), event.get("error")
    texts = [str(props[name] or "") for name in _SEARCHED_PROPS if name in props] if props else []
    if error:
        texts += [str(error.get(name) or "") for name in ("type", "message", "frame")]
    if event.get("arrival") != "release":  # its exchange is the router's, its key stands in its deaths
        texts += (event.get("exchange") or "", event.get("routing_key") or "")
    for death in (event.get("deaths") or ())[:1]:
        texts += map(str, death.get("routing_keys") or ())
    for values in (event.get("headers"), event.get("body_values")):
        if values:
            texts += values.values()
    texts.append(event.get("detail") or "")
    if body is not None and body.content is not None:
        texts.append(body.content[: _BODY_CHARS * 4].decode(errors="ignore").replace("\0", " ")[:_BODY_CHARS])
    return texts


def without_body(line: bytes, event: Mapping[str, Any]) -> bytes:
    """The line as it came, without a body, which is kept elsewhere."""
    if "body" not in event:
        return line
    if isinstance(event["body"], str) and line.endswith(end := f',"body":"{event["body"]}"}}'.encode()):
        return line[: -len(end)] + b"}"  # as we write it; base64 has no quotes, so this is the last member
    return json.dumps({name: value for name, value in event.items() if name != "body"}, separators=(",", ":")).encode()
