"""One letter of a plan → the message that goes back, and the event that tells it. Pure.

The copy is what the router would give back: body, properties, x-death and routing keys as they were, the letter's id,
and a signed record with `redrive_id` and one redrive more, at attempt 0. Application headers are not in the journal, so
not in the copy.
"""

import base64
import struct
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, NamedTuple
from zlib import crc32

from dlx_router.broker.stream import LETTERS, TELLS
from dlx_router.core import publication
from dlx_router.core.letter import Letter, Props
from dlx_router.core.names import MAX_NAME_BYTES, Names, as_read
from dlx_router.core.record import HEADER, ID_HEADER, TOWARDS_CONSUMERS_BYTES, Record, encode
from dlx_router.core.words import Cause
from dlx_router.journal.events import DETAIL_CHARS, Ruling, fragments
from dlx_router.journal.fields import MEDIA_TYPE
from dlx_router.journal.replay import letter_of
from dlx_router.spark.publishing import LARGEST_FRAME, Outgoing
from dlx_router.wire import table

ROUTER_ID: Final = "pipeline"
_PLAIN: Final = ("content_type", "content_encoding", "correlation_id", "reply_to", "message_id", "type", "app_id")
_NO_EVENT: Final = (LookupError, TypeError, AttributeError, ValueError, OverflowError, struct.error)  # from no router
_WHY_CHARS: Final = 200


class Spoilt(ValueError):
    """The archive does not hold this letter as it was; says what is wrong."""


class Sender(NamedTuple):
    """Who sends: which redrive, by which names, with which key records are signed; how many runs tried before."""

    redrive_id: str
    names: Names
    key: bytes
    tries: int = 0


def unbindable(queue: str, names: Names) -> str:
    """Why nothing is ever sent back to this queue, "" where it may be; whoever writes a journal may name any."""
    if names.is_own(queue):
        return "which is the router's own"
    if len(_raw(queue)) > MAX_NAME_BYTES:
        return "which is longer than a queue's name can be"
    return "" if as_read(queue) == queue else f"which the broker would read as {as_read(queue)!r}"


def prepared(event: Mapping[str, Any], sender: Sender, now_ms: int) -> tuple[Outgoing, bytes]:
    """`copy_of` and `event_of` a letter, which is made of its event once; both can be sent, and `taken_back` made.

    Raises Spoilt as `copy_of`, and where that is not so: whoever may write to the journal may write anything.
    """
    try:
        letter = _once_more(event, sender)
        copy, line = _copy(event, letter, sender), _redriven(event, letter, sender, now_ms)
        copy.encoded(1, 0, LARGEST_FRAME)
        _held(event, letter, sender, now_ms, "")
    except Spoilt:
        raise
    except _NO_EVENT as error:
        why = f"no router wrote such an event: {type(error).__name__}: {error}"
        raise Spoilt(why[:_WHY_CHARS]) from error
    return copy, line


def told_ms(event: Mapping[str, Any], sender: Sender, now_ms: int) -> int:
    """When it is told that the letter goes back: behind its newest event, whose router's clock may be ahead of ours.

    And behind what earlier tries told and took back. Spoilt: the event has no time.
    """
    if type(newest := event.get("ts_ms")) is not int:
        raise Spoilt(f"no router wrote such an event: its time is {newest!r}")
    return max(now_ms, newest + 1 + 2 * sender.tries)


def copy_of(event: Mapping[str, Any], sender: Sender) -> Outgoing:
    """The message for the failed queue. Raises Spoilt where the body is not whole, or not that of the letter."""
    return _copy(event, _once_more(event, sender), sender)


def _once_more(event: Mapping[str, Any], sender: Sender) -> Letter:
    """The letter as it is sent: one redrive more, and no death since."""
    before = letter_of(event)
    return replace(before, redrives=before.redrives + 1, tries=before.tries + sender.tries, fresh=())


def _copy(event: Mapping[str, Any], letter: Letter, sender: Sender) -> Outgoing:
    body = _body(event)
    record = record_of(event, letter, sender.redrive_id)
    if why := unbindable(record.failed_queue, sender.names):
        raise Spoilt(f"it failed at {record.failed_queue!r}, {why}")
    copy = publication.to_return(record, sender.names.return_, sender.names.return_key(record.failed_queue))
    headers = [
        *_x_death(event["deaths"]),
        *([table.array_of_longstr(b"CC", [_raw(key) for key in copy.cc])] if copy.cc else ()),
        *([table.array_of_longstr(b"BCC", [_raw(copy.bcc)])] if copy.bcc else ()),
        table.longstr(ID_HEADER.encode(), record.id.encode()),
        table.longstr(HEADER.encode(), encode(record, sender.key, TOWARDS_CONSUMERS_BYTES)),
    ]
    props = event.get("props") or {}
    plain: dict[str, Any] = {name: _raw(props[name]) for name in _PLAIN if props.get(name) is not None}
    plain |= {name: props[name] for name in ("delivery_mode", "priority") if props.get(name) is not None}
    plain |= {"timestamp": int(props["timestamp_s"])} if props.get("timestamp_s") is not None else {}
    tag = (event["vhost"], record.id, record.failed_queue)
    return Outgoing(tag, _raw(copy.exchange), _raw(copy.routing_key), b"".join(headers), plain, body)


def record_of(event: Mapping[str, Any], letter: Letter, redrive_id: str) -> Record:
    """What the letter, which counts this redrive already, remembers of it: its next death begins a new stay."""
    props = event.get("props") or {}
    content = publication.Content(
        event["digest"]["crc32"], event["digest"]["size"], Props(**{name: props.get(name) for name in Props._fields})
    )
    policy, revision = event.get("policy") or "", event["revision"]
    return publication.redriven(letter, content, policy=policy, revision=revision, redrive_id=redrive_id)


def event_of(event: Mapping[str, Any], sender: Sender, now_ms: int) -> bytes:
    """The journal's line for it, kind `redriven`. Each try has an event of its own."""
    return _redriven(event, _once_more(event, sender), sender, now_ms)


def _redriven(event: Mapping[str, Any], letter: Letter, sender: Sender, now_ms: int) -> bytes:
    return _line(event, letter, sender, now_ms, kind="redriven", exchange=sender.names.return_,
                 routing_key=sender.names.return_key(event["failed_queue"]))  # fmt: skip


def taken_back(event: Mapping[str, Any], sender: Sender, now_ms: int, why: str) -> bytes:
    """The line that takes `event_of` back, kind `held`: nothing came to the failed queue in this try, `why` not."""
    return _held(event, _once_more(event, sender), sender, now_ms, why)


def _held(event: Mapping[str, Any], letter: Letter, sender: Sender, now_ms: int, why: str) -> bytes:
    return _line(event, letter, sender, now_ms, kind="held", cause=Cause.TARGET_REFUSED,
                 refused=event["failed_queue"], detail=why[:DETAIL_CHARS])  # fmt: skip


def _line(
    event: Mapping[str, Any],
    letter: Letter,
    sender: Sender,
    now_ms: int,
    *,
    kind: str,
    **fields: Any,  # noqa: ANN401 - fields of a ruling, each of its own type
) -> bytes:
    digest = event["digest"]
    ruling = Ruling(
        kind, 0, ROUTER_ID, policy=event.get("policy") or "", revision=event["revision"],
        redrive_id=sender.redrive_id, **fields,
    )  # fmt: skip
    return fragments(letter, ruling).line(
        letter.id, now_ms, first_ms=letter.first_death_ms, last_ms=letter.last_death_ms, crc32=digest["crc32"],
        size=digest["size"],
    )  # fmt: skip


def batch_of(lines: list[bytes], sender: Sender) -> Outgoing:
    """A message for the journal with these lines; its tag is None."""
    headers = table.long_(b"v", 1) + TELLS[LETTERS]
    journal = sender.names.journal.encode()
    return Outgoing(None, b"", journal, headers, {"content_type": MEDIA_TYPE, "delivery_mode": 2}, b"".join(lines))


def _body(event: Mapping[str, Any]) -> bytes:
    if event.get("body_mode") != "inline" or event.get("body") is None:
        raise Spoilt("the journal does not hold the body; policy key journal: {body: final} makes it")
    if event.get("redacted"):
        raise Spoilt("something was taken out of the letter (redact)")
    body = base64.b64decode(event["body"])
    if len(body) != event["digest"]["size"] or crc32(body) != event["digest"]["crc32"]:
        raise Spoilt("the body in the archive is not the letter's: size or checksum differ")
    return body


def _x_death(deaths: list[Mapping[str, Any]]) -> list[bytes]:
    """x-death as the consumer would see it."""
    if not deaths:
        return []
    entries = [
        b"".join(
            (
                table.long_(b"count", death["count"]),
                table.longstr(b"reason", _raw(death["reason"])),
                table.longstr(b"queue", _raw(death["queue"])),
                table.timestamp(b"time", death["time_ms"] // 1000),
                table.longstr(b"exchange", _raw(death["exchange"])),
                table.array_of_longstr(b"routing-keys", [_raw(key) for key in death["routing_keys"]]),
            )
        )
        for death in deaths
    ]
    return [table.field_array(b"x-death", entries)]


def _raw(text: str) -> bytes:
    return text.encode(errors="surrogateescape")
