"""An event of the journal → what the index keeps of it. Pure."""

import base64
import binascii
import json
import re
import zlib
from collections.abc import Iterator, Mapping
from typing import Any, Final, NamedTuple

from dlx_router.core.bounded import MIB, Remembered
from dlx_router.core.names import MAX_NAME_BYTES
from dlx_router.core.recovered import LEASES
from dlx_router.core.signature import Signature
from dlx_router.index import shapes
from dlx_router.journal.encoding import encode
from dlx_router.journal.fields import KINDS
from dlx_router.journal.reading import Row
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
STEPS: Final = frozenset(LEASES)  # on a letter's way, which change nothing about where it is
_OF_LETTERS: Final = STEPS | STATE_OF.keys()
_ASIDE: Final = frozenset({*KINDS} - {*_OF_LETTERS, "gap", "audit"})  # a letter's, and it lies nowhere
GONE: Final = "gone"  # was lying in a queue that has been found empty since
LYING: Final = ("dead", "parked", "quarantined")  # in a queue, until somebody does something
STATES: Final = (*STATE_OF.values(), GONE)
FINISHED: Final = ("discarded", "retired", "redriven", "released", "edited", GONE)
TEXT_CHARS: Final = 4096  # of a letter are searched
NOTES: Final = "\n\x1f"
"""Stands in the text by which a letter is found between what its events say, which never has its last character, and
what people noted: a newer event replaces only the former."""
_BODY_CHARS: Final = 2048
_HALF: Final = 1 << 63
_SEARCHED_PROPS: Final = ("message_id", "correlation_id", "type", "app_id", "reply_to")


_SHARED_BYTES: Final = 4096
_MOST_SHARED: Final = 1 << 15
_NOTHING: Final[Mapping[str, Any]] = {}
_HEAD: Final = re.compile(rb'\{"v":[012],"event_id":"[\w-]+","id":"(\w+)",(?="kind":)')
_OWN_NAMES: Final = """v event_id id serial possible_copy ts_ms draw due_ms first_death_ms last_death_ms props digest
 headers body_values redacted error body_mode body_sha256 body lease"""
_OWN: Final = frozenset(_OWN_NAMES.split())
_MORE_NAMES: Final = """draw headers body_values redacted error body_mode body_sha256 body parent since_ms lease
 serial possible_copy"""
_OF_A_ROW: Final = frozenset(_MORE_NAMES.split())  # what a row of ours may have further: none is said by the row itself
_BESIDE: Final = frozenset({"v", "props", "body_mode"})  # of a row's own, which its shared line may say beforehand
_VERSIONS: Final = frozenset({0, 1, 2})
_TIME: Final = b',"ts_ms":'  # no string has this in it: the quotes would be escaped
_DIED: Final = re.compile(rb'"time_ms":[0-9]{1,18}(?![0-9])')  # nor this; a longer one is looked at
_TIMELESS: Final = b'"time_ms":0'


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

    `step`: the columns of `fates`; `texts`: what it is found by.
    """

    members: Mapping[str, Any]
    kind: str
    failed_queue: str
    columns: tuple[Any, ...]  # of `letters`, from `reason` to `redrives`
    step: tuple[Any, ...]
    place: tuple[str, str] | None
    texts: tuple[str, ...]


class Event(NamedTuple):
    """An event of the journal, looked at in every part that the index keeps.

    `shared`: None: it is about no letter, and only `own` and `ts_ms` are said. `own`: members that are not shared (or
    all of them; of a row the further ones only). `step` tells it from the others of its letter. `columns`: of
    `letters`, from `first_ms` on. `text`: what a letter is found by: its ids, keys, error, the values that the journal
    shows, and the start of its body. `serial` tells the letter from messages that are equal byte for byte.
    """

    id: str
    shared: Shared | None
    own: Mapping[str, Any]
    ts_ms: int
    step: str = ""
    columns: tuple[int, int, int | None, int, str | None] = (0, 0, None, 0, None)
    text: str = ""
    body: Body | None = None
    serial: int | None = None
    possible_copy: bool = False


def event_of(line: bytes | Row) -> Event:
    """The event of a line, or of a row. Raises EventError.

    A line as the router writes it is taken apart: what lies between its ids and its time is the same in many lines but
    for the times of deaths, which nobody asks the index for, and understood once. So is what rows share.
    """
    try:
        if isinstance(line, Row):
            return (None if shapes.may_be_deep(line.text) else _of_row(line)) or _alone(line.event())
        return (None if shapes.may_be_deep(line) else _apart(line)) or _alone(decoded(str(line, "utf-8")))
    except ODD:
        raise EventError("no event of a letter, nor of anything else that this version knows") from None


def _apart(line: bytes) -> Event | None:
    """None: it is not laid out as this version does it."""
    head = _HEAD.match(line)
    if head is None:
        return None
    begin, until = head.end(), line.find(_TIME, head.end())
    shared = _SHARED[_DIED.sub(_TIMELESS, line[begin:until])] if 0 < until <= begin + _SHARED_BYTES else None
    if shared is None:
        return None
    own = decoded(f"{str(head[0], 'ascii')}{str(line[until + 1 :], 'utf-8')}")
    return _of_letter(named(str(head[1], "ascii")), shared, own) if own.keys() <= _OWN else None


def _of_row(row: Row) -> Event | None:
    """None: what it shares, or its further members, are not as this version writes them."""
    shared, more = _SHARED_LINES[row.shared.line], row.more
    if shared is None or (more and not more.keys() <= _OF_A_ROW):
        return None
    _, letter, step, ts_ms, due, first, _, _, size, _, props, *_ = row.values
    if not (letter.isascii() and letter.isalnum()):
        return None
    if not isinstance(shared, Shared):
        return Event("", None, shared, ts_ms)
    if more:
        shapes.look(more)
    common = shared.members.get("props")
    if common:
        props = {**common, **props}
    columns = ts_ms - first, ts_ms, None if due is None else ts_ms + due, size, _message_id(props)
    body = body_of(more, props) if more else None
    step = named(step.rpartition("-")[2])
    text = _text(shared, props, more, body)
    return Event(named(letter), shared, more, ts_ms, step, columns, text, body, *_serial(more))


def _of_letter(letter: str, shared: Shared, own: Mapping[str, Any]) -> Event:
    """Raises ODD."""
    shapes.look(own)
    props, digest, ts_ms = own.get("props") or _NOTHING, own.get("digest"), whole(int(own["ts_ms"]))
    first_ms, due_ms = whole(own.get("first_death_ms")), whole_or_none(own.get("due_ms"))
    columns = first_ms, ts_ms, due_ms, whole(digest.get("size")) if digest else 0, _message_id(props)
    body = body_of(own, props)
    step = named(own["event_id"].rpartition("-")[2])
    return Event(letter, shared, own, ts_ms, step, columns, _text(shared, props, own, body), body, *_serial(own))


def _serial(own: Mapping[str, Any]) -> tuple[int | None, bool]:
    serial = own.get("serial")
    return serial if serial is None else whole(serial), own.get("possible_copy") is True


def _message_id(props: Mapping[str, Any]) -> str | None:
    return named(props.get("message_id")) or None


def marked(event_id: str, signature: str) -> str:
    """By what an event is known as told: one that somebody else may have written is never in a true one's way."""
    return event_id if signature == Signature.OK else f"{event_id}?"


def imported(event: Mapping[str, Any]) -> Event:
    """One that was never a line. Raises what `event_of` does not: see ODD."""
    return _of_letter(named(event["id"]), shared_of(event), event)


def _alone(event: Any) -> Event:  # noqa: ANN401 - JSON
    shapes.look_deep(event)
    if event["v"] not in _VERSIONS or not isinstance(event["kind"], str) or not isinstance(event["event_id"], str):
        raise EventError(f"version {event['v']!r}, kind {event['kind']!r}")
    if event["kind"] not in _OF_LETTERS or event.get("observed"):
        return Event("", None, event, whole(event.get("ts_ms")))
    return _of_letter(named(event["id"]), shared_of(event), event)


def _shared(members: bytes) -> Shared | None:
    """None: these are not the members of one letter's event, by themselves."""
    try:
        event = decoded(f"{{{str(members, 'utf-8')}}}")
        fits = event["kind"] in _OF_LETTERS and not event.get("observed") and event.keys().isdisjoint(_OWN)
        return shared_of(event) if fits else None
    except ODD:
        return None


_SHARED: Final = Remembered(_shared, most=2048, most_bytes=6 * MIB)


def _shared_line(line: bytes) -> Shared | Mapping[str, Any] | None:
    """As `_shared`, of the line that rows share; of letters to which nothing was done, its members."""
    try:
        event = decoded(str(line, "utf-8"))
        shapes.look_deep(event)
        if event["v"] not in _VERSIONS or not event.keys() & _OWN <= _BESIDE or event["body_mode"] != "none":
            return None
        if event["kind"] in _OF_LETTERS and not event.get("observed"):
            return shared_of(event)
        return {"kind": event["kind"]} if event["kind"] in _ASIDE or event.get("observed") is True else None
    except ODD:
        return None


_SHARED_LINES: Final = Remembered(_shared_line, most=2048, most_bytes=4 * MIB)


def shared_of(event: Mapping[str, Any]) -> Shared:
    """Raises ODD."""
    shapes.look(event)
    target, kind = event.get("target"), named(event["kind"])
    reason, cause = named(event.get("reason")), named(event.get("cause")) or None
    policy = named(event.get("policy")) or None
    numbers = (whole_or_none(event.get(name)) for name in ("attempts", "redrives", "tries"))
    aim = (named(target.get("exchange")), named(target.get("routing_key"))) if target else (None, None)
    others = (named(event.get(name)) or None for name in ("refused", "redrive_id"))
    revision = named(event.get("revision")) or None
    step = kind, named(event.get("source")), reason, cause, *numbers, policy, revision, *aim, *others
    columns = reason, cause, policy, step[4] or 0, step[5] or 0
    texts = tuple(_keys(event))
    " ".join(texts)  # what is no text raises TypeError
    if not isinstance(event["failed_queue"], str):
        raise TypeError("the group of such a queue would be that of others too")
    return Shared(event, kind, named(event["failed_queue"]), columns, step, place_of(event), texts)


def plain(text: object) -> str:
    """Text as SQLite can keep it: a byte that is not UTF-8 is spelt out."""
    if not isinstance(text, str):
        return "" if text is None else str(text)
    if text.isascii():
        return text
    return text.encode("utf-8", "backslashreplace").decode()


def named(text: object) -> str:
    """As `plain`, of a name or a word, which has a column. Raises ValueError: no router writes such a long one.

    Of queues and places all are read at once, again and again: whoever may write to the journal chooses how many, and
    must not choose how long too.
    """
    spelt = text if isinstance(text, str) else plain(text)
    if len(spelt) > MAX_NAME_BYTES:
        raise ValueError(f"a name of {len(spelt)} characters; {MAX_NAME_BYTES} are the most")
    return plain(spelt)


def state_of(event: Mapping[str, Any]) -> str | None:
    """Where a letter is after its event, one of STATES; None: where it was.

    One that has not to wait before it is tried again goes back at once, and no `released` tells of it.
    """
    if event["kind"] == "retried" and isinstance(event.get("target"), Mapping) and not event.get("rung_ms"):
        return STATE_OF["released"]
    return STATE_OF.get(event["kind"])


def place_of(event: Mapping[str, Any]) -> tuple[str, str] | None:
    """Exchange and routing key that a letter was left at for good; None while it is on its way."""
    target = event.get("target")
    if STATE_OF.get(event["kind"]) not in LYING or not isinstance(target, Mapping):
        return None
    return named(target.get("exchange")), named(target.get("routing_key"))


def body_of(event: Mapping[str, Any], props: Mapping[str, Any]) -> Body | None:
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
    sha, kind = event.get("body_sha256"), props.get("content_type")
    return Body(named(mode), named(sha) or None, named(kind) or None, content)


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
    kind, source, reason, cause, *rest = shared.step
    return kind, source, reason, named((event.own.get("lease") or _NOTHING).get("ended")) or cause, *rest


def times_leased(event: Event) -> int:
    """How often the letter was received; 0 where its event does not say."""
    return whole((event.own.get("lease") or _NOTHING).get("receives"))


def _text(shared: Shared, props: Mapping[str, Any], own: Mapping[str, Any], body: Body | None) -> str:
    """What is said twice stands there once."""
    parts = [str(props[name] or "") for name in _SEARCHED_PROPS if name in props] if props else []
    if own:
        if error := own.get("error"):
            parts += [str(error.get(name) or "") for name in ("type", "message", "frame")]
        for values in (own.get("headers"), own.get("body_values")):
            if values:
                parts += values.values()
    parts += shared.texts
    if body is not None and body.content is not None:
        parts.append(body.content[: _BODY_CHARS * 4].decode(errors="ignore").replace("\0", " ")[:_BODY_CHARS])
    once = dict.fromkeys(parts)
    once.pop("", None)
    return plain(" ".join(once)[:TEXT_CHARS].replace(NOTES[-1], " "))


def _keys(event: Mapping[str, Any]) -> Iterator[str]:
    if event.get("arrival") != "release":  # its exchange is the router's, its key stands in its deaths
        yield from (event.get("exchange") or "", event.get("routing_key") or "")
    for death in (event.get("deaths") or ())[:1]:
        yield from map(str, death.get("routing_keys") or ())
    yield event.get("detail") or ""


def kept(line: bytes | Row | None) -> tuple[bytes | None, bytes | None]:
    """An event as the file keeps it, without a body: what rows share, compressed, and the row; or none and a line.

    Each letter has what it shares with others for itself, so a long one is not kept: no router writes such.
    """
    if not isinstance(line, Row):
        return None, line
    if len(line.shared.line) > _MOST_SHARED:
        return None, None
    text = line.text
    if "body" in line.more:
        *values, more = line.values
        text = encode([*values, {name: member for name, member in more.items() if name != "body"}]).encode()
    return _COMPRESSED[line.shared.line], text


_COMPRESSED: Final = Remembered(zlib.compress, most=2048, most_bytes=4 * MIB)


def without_body(line: bytes, own: Mapping[str, Any]) -> bytes:
    """The line as it came, without a body, which is kept elsewhere."""
    if "body" not in own:
        return line
    if isinstance(own["body"], str) and line.endswith(end := f',"body":"{own["body"]}"}}'.encode()):
        return line[: -len(end)] + b"}"  # as we write it; base64 has no quotes, so this is the last member
    whole = json.loads(line)
    del whole["body"]
    return json.dumps(whole, separators=(",", ":")).encode()
