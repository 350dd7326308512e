"""Declared deaths on aio-pika: published with a confirm, mandatory, and only then is the message acked.

One publish at a time on a channel of its own: aiormq pairs a returned message with its publish by message id, and would
confuse two. Messages without an id are given one by it; the declaration says so, and the router takes it off again.

Importing this module has aio-pika keep the bytes of the properties that it reads, for copies of them
(docs/decisions/0063-copies-of-declared-messages.md): import it where aio-pika is imported, before messages come.
"""

from __future__ import annotations

import asyncio
import struct
import sys
from collections.abc import Coroutine, Iterable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final

import aio_pika.queue
from aio_pika import IncomingMessage
from aio_pika.abc import AbstractIncomingMessage
from aiormq import spec
from aiormq.abc import AbstractChannel, AbstractConnection, DeliveredMessage
from aiormq.exceptions import AMQPError, PublishError
from pamqp import decode
from pamqp.header import ContentHeader

from dlx_router.client import exact
from dlx_router.client.declaration import (
    FRAME_MAX,
    PREFIX,
    WITHIN_S,
    Delivered,
    Error,
    InexactHeader,
    InvalidDeclaration,
    NotAcked,
    NotDeclared,
    Undeliverable,
    Words,
    header,
    kept,
    missing_message,
    require_room,
)

_BROKEN: Final = (AMQPError, OSError, asyncio.TimeoutError, RuntimeError)

_PROPERTIES_AT: Final = 12  # of a content header: class, weight and body size come before
_WIRE: Final = "_dlx_router_wire"
_PUBLISHING: Final = "_dlx_router_publishing"
_INVENTED: Final = 33  # bytes of the id that aiormq gives to a message without one
_LATE: Final = "import dlx_router.client before messages come"


_read_header = ContentHeader.unmarshal


def _unmarshal(header: ContentHeader, data: bytes) -> None:
    """What pamqp reads, and the bytes that it read: on its own class, because it knows headers by that."""
    _read_header(header, data)
    setattr(header, _WIRE, data[_PROPERTIES_AT:])


class Received(IncomingMessage):
    """A message that has the bytes of its properties with it."""

    __slots__ = ("_wire",)

    def __init__(self, message: DeliveredMessage, no_ack: bool = False) -> None:  # noqa: FBT001, FBT002 - aio-pika's own
        super().__init__(message, no_ack)
        self._wire: bytes | None = getattr(message.header, _WIRE, None)

    @property
    def wire(self) -> bytes | None:
        """Flags and values as they came."""
        return self._wire


ContentHeader.unmarshal = _unmarshal  # type: ignore[assignment,method-assign]  # as above
aio_pika.queue.IncomingMessage = Received  # type: ignore[attr-defined]  # what queues hand out


class _Copy(spec.Basic.Properties):
    """Properties that are bytes already, but for an id that aiormq gives to a message without one.

    The id that aiormq knows it by is the one that is written: by that it finds what is returned.
    """

    def __init__(self, chunks: dict[str, bytes]) -> None:
        written = chunks.get("message_id", b"")[1:]  # of an empty id nothing is left, and aiormq takes it for none
        super().__init__(message_id=written.decode(errors="replace") or None)
        self._chunks = chunks if written else {**chunks, "message_id": b""}

    def marshal(self) -> bytes:
        message_id = self._chunks["message_id"] or exact.of_property("message_id", self.message_id)
        return exact.section_of({**self._chunks, "message_id": message_id})


def _read(wire: bytes) -> object:
    return decode.embedded_value(wire)[1]


def _doubt_late(value: object) -> str:
    if isinstance(value, datetime):
        return f"pamqp divides large timestamps by 1000, and {value} may have been one; {_LATE}"
    return exact.bytes_or_text(value)


_AIO_PIKA: Final = exact.Library(read=_read, doubt=exact.bytes_or_text)
_LATE_AIO_PIKA: Final = exact.Library(read=_read, doubt=_doubt_late)


class _Publishing:
    """The publishing channel of one connection, opened on demand."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._channel: AbstractChannel | None = None

    async def channel(self, connection: AbstractConnection) -> AbstractChannel:
        if self._channel is None or self._channel.is_closed:
            self._channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        return self._channel


def _publishing_of(connection: AbstractConnection) -> _Publishing:
    """Kept by the connection itself: it leads back to it, and kept here it would outlive every lost one."""
    publishing: _Publishing | None = getattr(connection, _PUBLISHING, None)
    if publishing is None:
        publishing = _Publishing()
        setattr(connection, _PUBLISHING, publishing)
    return publishing


@dataclass(frozen=True)
class Dead(Words):
    """One message of a batch, with what is said of it, by keyword; see `dead`."""

    message: AbstractIncomingMessage = field(default_factory=missing_message)
    queue: str | None = None


@dataclass(frozen=True)
class Result:
    """What became of one message of a batch: `error` None means declared and acked."""

    message: AbstractIncomingMessage
    error: NotDeclared | NotAcked | None = None

    @property
    def ok(self) -> bool:
        """Declared and acked."""
        return self.error is None


async def dead(  # noqa: PLR0913 - what there is to say of a death
    message: AbstractIncomingMessage,
    reason: str,
    *,
    description: str | None = None,
    error: Error | None = None,
    retry: str | None = None,
    retry_after: float | timedelta | None = None,
    tag: str | None = None,
    queue: str | None = None,
    prefix: str = PREFIX,
    within: float = WITHIN_S,
) -> None:
    """The death is declared and the message acked, or NotDeclared is raised and the message is as it was.

    `reason`: a name, `on: {"application:NAME": …}` in policies. `error`: an exception, or {type, message, frame}.
    `retry="never"`: straight to its dead-letter target. `retry_after`: seconds or a timedelta, up to the policy's cap.
    `queue`: where it was taken from; needed unless it came by the default exchange without CC, or from the router.
    `within`: seconds, all in all.
    """
    death = Dead(
        message=message,
        reason=reason,
        description=description,
        error=error,
        retry=retry,
        retry_after=retry_after,
        tag=tag,
        queue=queue,
    )
    await _declare(death, prefix, within)


async def dead_many(items: Iterable[Dead], *, prefix: str = PREFIX, within: float = WITHIN_S) -> list[Result]:
    """One result for each, in order; one that cannot be declared keeps no other from it. `within` (s): for each."""
    results: list[Result] = []
    for death in items:
        try:
            await _declare(death, prefix, within)
        except (NotDeclared, NotAcked) as error:
            results.append(Result(death.message, error))
        else:
            results.append(Result(death.message))
    return results


async def _declare(death: Dead, prefix: str, within: float) -> None:
    message = death.message
    if message.processed:
        raise InvalidDeclaration("the message was acked or rejected before; declare its death instead of that")
    delivered = Delivered(
        queue=death.queue,
        exchange=message.exchange or "",
        routing_key=message.routing_key or "",
        headers=message.headers,
        expiration=_expiration(message),
        has_id=bool(message.message_id),
    )
    text = header(death, delivered, prefix, invents_ids=True)
    await _publish(message, _copy(message, kept(message.headers, text)), prefix, within)
    try:
        await message.ack()
    except _BROKEN as error:
        raise NotAcked(f"declared, but not acked: {error}; it will be delivered once more") from error


def _wire(message: AbstractIncomingMessage) -> bytes | None:
    return message.wire if isinstance(message, Received) else None


def _before(wire: bytes) -> IncomingMessage:
    """The message as aio-pika had read it."""
    header = ContentHeader()
    header.unmarshal(bytes(_PROPERTIES_AT) + wire)
    nowhere: Any = None
    return IncomingMessage(DeliveredMessage(spec.Basic.Deliver(), header, b"", nowhere), no_ack=True)


def _expiration(message: AbstractIncomingMessage) -> str | None:
    """As it came: aio-pika makes a float of it, and 1000 of 1001."""
    wire = _wire(message)
    if wire is None or message.expiration != _before(wire).expiration:
        return message.properties.expiration
    came = exact.chunks(wire).get("expiration")
    return came[1:].decode() if came else None


def _copy(message: AbstractIncomingMessage, headers: dict[str, object]) -> _Copy:
    wire = _wire(message)
    if wire is None and message.timestamp is not None:
        raise InexactHeader(f"property 'timestamp': {_doubt_late(message.timestamp)}, {exact.ADVICE}")
    before, library = (None, _LATE_AIO_PIKA) if wire is None else (_before(wire), _AIO_PIKA)
    return _Copy(exact.copied(message, before, wire, headers, library))


def _connection(message: AbstractIncomingMessage) -> AbstractConnection:
    """That the message came by; Undeliverable where its channel is closed, so that it could not be acked either."""
    try:
        return message.channel.connection
    except _BROKEN as error:
        raise Undeliverable("the channel of the message is closed; it will be delivered once more") from error


async def _publish(message: AbstractIncomingMessage, copy: _Copy, prefix: str, within: float) -> None:
    connection = _connection(message)
    tuned = getattr(connection.connection_tune, "frame_max", None) or FRAME_MAX
    exchange = f"{prefix}.declared"
    try:
        size = len(ContentHeader(body_size=len(message.body), properties=copy).marshal())
        size += 0 if copy.message_id else _INVENTED
    except (ValueError, TypeError, struct.error) as error:
        raise Undeliverable(f"exchange {exchange!r}: its properties cannot be written: {error!r}") from error
    require_room(size, tuned)
    publishing = _publishing_of(connection)

    async def publish() -> None:
        async with publishing.lock:
            channel = await publishing.channel(connection)
            await channel.basic_publish(
                message.body, exchange=exchange, routing_key=message.routing_key or "", properties=copy, mandatory=True
            )

    try:
        await _in_time(publish(), within)
    except PublishError as error:
        raise Undeliverable(f"exchange {exchange!r} leads to no queue: does a router attend this vhost?") from error
    except _BROKEN as error:
        raise Undeliverable(f"exchange {exchange!r}: {str(error) or 'no answer in time'}") from error


async def _in_time(work: Coroutine[Any, Any, None], within: float) -> None:
    if sys.version_info < (3, 11):
        await asyncio.wait_for(work, within)
    else:
        async with asyncio.timeout(within):
            await work
