"""What a declared death is made of, whichever client library sends it. Pure: values in, values out.

Layout of the header: docs/client.md. What is too long is cut, because a consumer that cannot say why a message
is dead must still be able to say that it is; what is wrong by the programmer's mistake is refused.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, Final, Union

from dlx_router.client import exception
from dlx_router.client.exception import cut

PREFIX: Final = "dlx-router"
HEADER: Final = "dlx-death"
WITHIN_S: Final = 30.0
MAX_TYPE, MAX_MESSAGE, MAX_FRAME, MAX_TAG = exception.MAX_TYPE, exception.MAX_MESSAGE, exception.MAX_FRAME, 255
FRAME_MAX: Final = 131_072  # RabbitMQ's own, and what pika asks for
FRAME_EDGE: Final = 8
MAX_RETRY_AFTER_MS: Final = 365 * 86_400_000
_REASON: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,63}", re.ASCII)
# Written by the broker or by the router at each death or delivery: a copy would be taken for their word.
_STALE: Final = re.compile(r"x-death|x-(first|last)-death-.*|x-delivery-count|x-acquired-count|x-stream-offset|BCC")
_OURS: Final = frozenset({HEADER, "dlx-router-pub"})
_AT_REST: Final = frozenset({"dead", "parked"})
Error = Union[BaseException, Mapping[str, str]]


class NotDeclared(Exception):
    """The death was not declared; the message is not acked, so nothing is lost."""


class InvalidDeclaration(NotDeclared, ValueError):
    """The call is wrong: says which argument, and what it should be."""


class FromDeadLetterQueue(NotDeclared):
    """The message lies in a dead-letter queue: it is dead already. Redrive it, or ack it."""


class Undeliverable(NotDeclared):
    """The broker did not take it: no router, no right, too large, or no answer in time."""


class InexactHeader(NotDeclared):
    """A header or property cannot be written as it came, or has no type in AMQP: says which, why and what now."""


class NotAcked(Exception):
    """The death was declared, but the message could not be acked: it will be delivered once more."""


def missing_message() -> Any:  # noqa: ANN401 - of the field's type
    """The default of a field that has to be given, after others that need not: Python 3.9 has no `kw_only`."""
    raise TypeError("missing 1 required keyword argument: 'message'")


@dataclass(frozen=True)
class Words:
    """What a consumer says of a death, by keyword; checked when made. `retry_after`: seconds, or a timedelta."""

    reason: str
    description: str | None = None
    error: Error | None = None
    retry: str | None = None
    retry_after: float | timedelta | None = None
    tag: str | None = None

    def __post_init__(self) -> None:
        reason: object = self.reason  # callers need not have a type checker
        if not isinstance(reason, str) or not _REASON.fullmatch(reason.removeprefix("application:")):
            wanted = "1 to 64 of A-Z a-z 0-9 _ . -, beginning with a letter or digit, card-declined say"
            raise InvalidDeclaration(f"reason {self.reason!r}: it has to be {wanted}")
        if self.retry not in {None, "never"}:
            raise InvalidDeclaration(
                f'retry {self.retry!r}: only "never" can be said; leave it out to let policies decide'
            )
        if self.retry is not None and self.retry_after is not None:
            raise InvalidDeclaration('retry="never" and retry_after exclude each other')
        self.retry_after_ms()

    def retry_after_ms(self) -> int | None:
        """The wait that is asked for, in whole milliseconds."""
        after = self.retry_after
        if after is None:
            return None
        seconds: object = after.total_seconds() if isinstance(after, timedelta) else after
        if not isinstance(seconds, (int, float)) or not 0 <= seconds * 1000 <= MAX_RETRY_AFTER_MS:
            raise InvalidDeclaration(f"retry_after {after!r}: it has to be seconds or a timedelta, 0 to a year")
        return round(seconds * 1000)


@dataclass(frozen=True)
class Dead(Words):
    """One message of a batch, with what is said of it, by keyword; see `dead`."""

    message: Any = field(default_factory=missing_message)
    queue: str | None = None


@dataclass(frozen=True)
class Result:
    """What became of one message of a batch: `error` None means declared and acked."""

    message: Any
    error: NotDeclared | NotAcked | None = None

    @property
    def ok(self) -> bool:
        """Declared and acked."""
        return self.error is None


@dataclass(frozen=True)
class Delivered:
    """What is to be known of the message that is dead."""

    queue: str | None
    exchange: str
    routing_key: str
    headers: Mapping[str, Any]
    expiration: str | None
    has_id: bool


def header(words: Words, message: Delivered, prefix: str, *, invents_ids: bool = False) -> str:
    """The text of header `dlx-death`. Raises InvalidDeclaration or FromDeadLetterQueue.

    `invents_ids`: the client library gives an id to messages that have none; then the header says that there was none.
    """
    queue = _queue(message, prefix)
    _require_alive(message, queue, prefix)
    members: dict[str, Any] = {
        "queue": queue,
        "exchange": message.exchange,
        "routing_keys": [message.routing_key, *_carbon_copies(message.headers)],
        "reason": f"application:{words.reason.removeprefix('application:')}",
        "description": _cut(words.description, MAX_MESSAGE),
        "retry": words.retry,
        "retry_after_ms": words.retry_after_ms(),
        "tag": _cut(words.tag, MAX_TAG),
        "error": None if words.error is None else error_told(words.error),
        "original_expiration": message.expiration,
    }
    text = {name: value for name, value in members.items() if value is not None}
    if invents_ids and not message.has_id:
        text["message_id"] = None
    return json.dumps(text, separators=(",", ":"))


def kept(headers: Mapping[str, Any], declaration: str) -> dict[str, Any]:
    """The headers of the copy: as they came, without what only holds for the delivery, and with the declaration."""
    return {**{name: value for name, value in headers.items() if is_kept(name)}, HEADER: declaration}


def is_kept(name: str | bytes) -> bool:
    """Whether the header of this name comes along."""
    return name not in _OURS and not (isinstance(name, str) and _STALE.fullmatch(name))  # no text: stays bytes


def _queue(message: Delivered, prefix: str) -> str:
    """The queue that the message was taken from, where the delivery tells it."""
    if message.queue:
        return message.queue
    failed, key = _record(message.headers).get("failed_queue"), message.routing_key
    if not message.exchange and (failed == key or not message.headers.get("CC")):
        return key
    if message.exchange == f"{prefix}.return" and failed:
        return str(failed)
    by = f"exchange {message.exchange!r}" if message.exchange else "the default exchange, which CC leads to more queues"
    raise InvalidDeclaration(f"queue: it came by {by}, so say which queue it was taken from")


def _require_alive(message: Delivered, queue: str, prefix: str) -> None:
    record = _record(message.headers)
    read = queue.replace("\r", "").replace("\n", "")  # by the broker, where a queue is declared or bound
    if read.startswith(f"{prefix}.") or (record.get("state") in _AT_REST and record.get("failed_queue") != queue):
        raise FromDeadLetterQueue(f"a letter in {queue!r} is dead already; redrive it, or ack it")


def _record(headers: Mapping[str, Any]) -> dict[str, Any]:
    text = headers.get("dlx-router")
    try:
        record = json.loads(text) if isinstance(text, (str, bytes, bytearray)) else None
    except (ValueError, RecursionError):  # anybody can write that header
        return {}
    return record if isinstance(record, dict) else {}


def _carbon_copies(headers: Mapping[str, Any]) -> Sequence[str]:
    keys = headers.get("CC")
    return [key for key in keys if isinstance(key, str)] if isinstance(keys, list) else []


def error_told(error: Error) -> dict[str, str] | None:
    """{type, message, frame} without what is not known, each cut to its length; None where nothing is."""
    if isinstance(error, BaseException):
        return exception.described(error)
    limits = {"type": MAX_TYPE, "message": MAX_MESSAGE, "frame": MAX_FRAME}
    members = {name: _cut(error.get(name), limit) for name, limit in limits.items()}
    return {name: text for name, text in members.items() if text} or None


def _cut(text: object, limit: int) -> str | None:
    return None if text is None else cut(str(text), limit)
