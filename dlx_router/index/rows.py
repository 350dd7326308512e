"""An event of the journal → what the index keeps of it. Pure."""

import base64
import binascii
import json
import re
from collections.abc import Iterator, Mapping
from hashlib import blake2b
from typing import Any, Final, NamedTuple

from dlx_router.core.bounded import MIB, Remembered
from dlx_router.core.signature import Signature
from dlx_router.journal.strict_json import decoded

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
STEPS: Final = frozenset({"leased", "lease_ended"})  # on a letter's way, which change nothing about where it is
GONE: Final = "gone"  # was lying in a queue that has been found empty since
LYING: Final = ("dead", "parked", "quarantined")  # in a queue, until somebody does something
STATES: Final = (*STATE_OF.values(), GONE)
_OF_LETTERS: Final = STEPS | STATE_OF.keys()
TEXT_CHARS: Final = 4096  # of a letter are searched
_BODY_CHARS: Final = 2048
_HALF: Final = 1 << 63
_MASK: Final = (1 << 64) - 1
_SEARCHED_PROPS: Final = ("message_id", "correlation_id", "type", "app_id", "reply_to")


_SHARED_BYTES: Final = 4096
_HEAD: Final = re.compile(rb'\{"v":[012],"event_id":"[\w-]+","id":"(\w+)",(?="kind":)')
_OWN_NAMES: Final = """v event_id id ts_ms draw due_ms first_death_ms last_death_ms props digest headers body_values
 redacted error body_mode body_sha256 body lease"""
_OWN: Final = frozenset(_OWN_NAMES.split())
_TIME: Final = b',"ts_ms":'  # no string has this in it: the quotes would be escaped


class Body(NamedTuple):
    """What the journal has of a body; `content` None: not even a part."""

    mode: str
    sha256: str | None
    content_type: str | None
    content: bytes | None


ODD: Final = (KeyError, TypeError, ValueError, AttributeError, OverflowError, RecursionError)
"""What an event of another shape raises, sooner or later."""


class EventError(ValueError):
    """A line is no event that this version can read."""


class Shared(NamedTuple):
    """What the events of letters that share a fate have in common; see `journal.events.Fragments`.

    `step`: the columns of `steps` from `kind` to `tries`, then those from `policy` on; `texts`: what it is found by.
    """

    members: Mapping[str, Any]
    kind: str
    reason: str
    cause: str | None
    policy: str | None
    step: tuple[tuple[Any, ...], tuple[Any, ...]]
    place: tuple[str, str] | None
    texts: tuple[str, ...]


class Event(NamedTuple):
    """An event of the journal: what it shares with others, and the members of its own (or all of them)."""

    id: str
    shared: Shared | None  # None: it is about no letter
    own: Mapping[str, Any]

    @property
    def step(self) -> str:
        """Tells this event from the others of its letter."""
        return plain(self.own["event_id"].rpartition("-")[2])


def event_of(line: bytes) -> Event:
    """The event of a line. Raises EventError.

    A line as the router writes it is taken apart: what lies between its ids and its time is the same in many lines,
    and understood once.
    """
    try:
        return _apart(line) or _alone(decoded(str(line, "utf-8")))
    except ODD:
        raise EventError("no event of a letter, nor of anything else that this version knows") from None


def _apart(line: bytes) -> Event | None:
    """None: it is not laid out as this version does it."""
    head = _HEAD.match(line)
    if head is None:
        return None
    begin, until = head.end(), line.find(_TIME, head.end())
    shared = _SHARED[line[begin:until]] if 0 < until <= begin + _SHARED_BYTES else None
    if shared is None:
        return None
    own = decoded(f"{str(head[0], 'ascii')}{str(line[until + 1 :], 'utf-8')}")
    return Event(str(head[1], "ascii"), shared, own) if own.keys() <= _OWN else None


def marked(event_id: str, signature: str) -> str:
    """By what an event is known as told: one that somebody else may have written is never in a true one's way."""
    return event_id if signature == Signature.OK else f"{event_id}?"


def imported(event: Mapping[str, Any]) -> Event:
    """One that was never a line. Raises what `event_of` does not: see ODD."""
    return Event(plain(event["id"]), shared_of(event), event)


def _alone(event: Any) -> Event:  # noqa: ANN401 - JSON
    if event["v"] not in {0, 1, 2} or not isinstance(event["kind"], str) or not isinstance(event["event_id"], str):
        raise EventError(f"version {event['v']!r}, kind {event['kind']!r}")
    if event["kind"] not in _OF_LETTERS or event.get("observed"):
        return Event("", None, event)
    return Event(plain(event["id"]), shared_of(event), event)


def _shared(members: bytes) -> Shared | None:
    """None: these are not the members of one letter's event, by themselves."""
    try:
        event = decoded(f"{{{str(members, 'utf-8')}}}")
        fits = event["kind"] in _OF_LETTERS and not event.get("observed") and event.keys().isdisjoint(_OWN)
        return shared_of(event) if fits else None
    except ODD:
        return None


_SHARED: Final = Remembered(_shared, most=2048, most_bytes=16 * MIB)


def shared_of(event: Mapping[str, Any]) -> Shared:
    """Raises ODD."""
    target, kind = event.get("target"), event["kind"]
    reason, cause = plain(event.get("reason")), plain(event.get("cause")) or None
    policy = plain(event.get("policy")) or None
    numbers = (whole_or_none(event.get(name)) for name in ("attempts", "redrives", "tries"))
    aim = (plain(target.get("exchange")), plain(target.get("routing_key"))) if target else (None, None)
    others = (plain(event.get(name)) or None for name in ("refused", "redrive_id"))
    step = (kind, plain(event.get("source")), reason, cause, *numbers), (policy, *aim, *others)
    return Shared(event, kind, reason, cause, policy, step, place_of(event), tuple(_keys(event)))


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
        return (int(letter_id[-16:], 16) & _MASK) - _HALF
    except ValueError:
        return int.from_bytes(blake2b(letter_id.encode(), digest_size=8).digest()) - _HALF


def own_of(event: Event) -> tuple[Any, ...]:
    """What a letter's row says of its newest event: the columns of `letters` from `reason` on."""
    shared, own = event.shared, event.own
    assert shared is not None
    props, digest = own.get("props"), own.get("digest")
    return (
        shared.reason,
        shared.cause,
        shared.policy,
        shared.step[0][4] or 0,
        shared.step[0][5] or 0,
        whole(own.get("first_death_ms")),
        whole(int(own["ts_ms"])),
        whole_or_none(own.get("due_ms")),
        whole(digest.get("size")) if digest else 0,
        (plain(props.get("message_id")) or None) if props else None,
    )


def whole(value: Any) -> int:  # noqa: ANN401 - a journal may have been written by anybody
    """A number as SQLite can keep it; 0 for none. Raises TypeError, ValueError, OverflowError."""
    number = value if type(value) is int else int(value or 0)
    if not -_HALF <= number < _HALF:
        raise OverflowError(f"{number} has more than 64 bits")
    return number


def whole_or_none(value: Any) -> int | None:  # noqa: ANN401 - as above
    """The same, but None for none."""
    return None if value is None else whole(value)


def lease_step(event: Event) -> tuple[Any, ...]:
    """What a step of a lease says, as Shared.step; how the lease ended stands where others have their cause."""
    shared = event.shared
    assert shared is not None
    (kind, source, reason, cause, *numbers), rest = shared.step
    ended = plain((event.own.get("lease") or {}).get("ended")) or cause
    return (kind, source, reason, ended, *numbers, whole_or_none(event.own.get("due_ms")), *rest)


def times_leased(event: Event) -> int:
    """How often the letter was received; 0 where its event does not say."""
    return whole((event.own.get("lease") or {}).get("receives"))


def text_of(event: Event, body: Body | None) -> str:
    """What a letter is found by: its ids, keys, error, the values that the journal shows, and the start of its body.

    What is said twice stands there once.
    """
    assert event.shared is not None
    parts = dict.fromkeys(_texts(event.own))
    parts.update(dict.fromkeys(event.shared.texts))
    if body is not None and body.content is not None:
        parts[body.content[: _BODY_CHARS * 4].decode(errors="ignore").replace("\0", " ")[:_BODY_CHARS]] = None
    parts.pop("", None)
    return plain(" ".join(parts)[:TEXT_CHARS])


def _texts(own: Mapping[str, Any]) -> Iterator[str]:
    props, error = own.get("props"), own.get("error")
    if props:
        yield from [str(props[name] or "") for name in _SEARCHED_PROPS if name in props]
    if error:
        yield from [str(error.get(name) or "") for name in ("type", "message", "frame")]
    for values in (own.get("headers"), own.get("body_values")):
        if values:
            yield from values.values()


def _keys(event: Mapping[str, Any]) -> Iterator[str]:
    if event.get("arrival") != "release":  # its exchange is the router's, its key stands in its deaths
        yield from (event.get("exchange") or "", event.get("routing_key") or "")
    for death in (event.get("deaths") or ())[:1]:
        yield from map(str, death.get("routing_keys") or ())
    yield event.get("detail") or ""


def without_body(line: bytes, own: Mapping[str, Any]) -> bytes:
    """The line as it came, without a body, which is kept elsewhere."""
    if "body" not in own:
        return line
    if isinstance(own["body"], str) and line.endswith(end := f',"body":"{own["body"]}"}}'.encode()):
        return line[: -len(end)] + b"}"  # as we write it; base64 has no quotes, so this is the last member
    whole = json.loads(line)
    del whole["body"]
    return json.dumps(whole, separators=(",", ":")).encode()
