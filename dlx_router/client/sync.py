"""Declared deaths on pika (extra `pika`): published with a confirm, mandatory; only then is the message acked.

Blocking: call it on the thread of the connection, from a consumer's callback say.

Importing this module has pika keep the bytes of the properties that it reads, for copies of them
(docs/decisions/0063-copies-of-declared-messages.md): import it where pika is imported, before messages come.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Final, NamedTuple

import pika
from pika import data
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.compat import long
from pika.exceptions import AMQPError, NackError, UnroutableError

from dlx_router.client import exact
from dlx_router.client.declaration import (
    FRAME_MAX,
    PREFIX,
    Delivered,
    Error,
    NotAcked,
    NotDeclared,
    Undeliverable,
    Words,
    header,
    kept,
    missing_message,
    require_room,
)

_PUBLISHER: Final = "_dlx_router_publisher"


def _doubt(value: object) -> str:
    if isinstance(value, long):
        return (
            f"pika cuts fractions off, and {int(value)} may have been one; "
            "import dlx_router.client.sync before messages come, or set it to int(...) or a float"
        )
    return exact.bytes_or_text(value)


_PIKA: Final = exact.Library(read=lambda wire: data.decode_value(wire, 0)[0], doubt=_doubt)


class _Received(pika.BasicProperties):  # type: ignore[misc]  # pika is an extra
    """What pika reads, and the bytes that it read."""

    __slots__ = ("wire",)  # in no __dict__, by which pika compares and shows properties

    def decode(self, encoded: bytes, offset: int = 0) -> _Received:
        super().decode(encoded, offset)
        self.wire = encoded[offset:]
        return self


pika.spec.props[pika.BasicProperties.INDEX] = _Received


class _Copy(pika.BasicProperties):  # type: ignore[misc]  # pika is an extra
    """Properties that are bytes already."""

    def __init__(self, section: bytes) -> None:
        super().__init__()
        self._section = section

    def encode(self) -> list[bytes]:
        return [self._section]


class Message(NamedTuple):
    """What pika hands to a callback, in its order."""

    channel: BlockingChannel
    method: pika.spec.Basic.Deliver
    properties: pika.BasicProperties
    body: bytes


@dataclass(frozen=True)
class Dead(Words):
    """One message of a batch, with what is said of it, by keyword; see `dead`."""

    message: Message = field(default_factory=missing_message)
    queue: str | None = None


@dataclass(frozen=True)
class Result:
    """What became of one message of a batch: `error` None means declared and acked."""

    message: Message
    error: NotDeclared | NotAcked | None = None

    @property
    def ok(self) -> bool:
        """Declared and acked."""
        return self.error is None


def dead(  # noqa: PLR0913 - what there is to say of a death
    message: Message,
    reason: str,
    *,
    description: str | None = None,
    error: Error | None = None,
    retry: str | None = None,
    retry_after: float | timedelta | None = None,
    tag: str | None = None,
    queue: str | None = None,
    prefix: str = PREFIX,
) -> None:
    """As `dlx_router.client.dead`: the death is declared and the message acked, or NotDeclared is raised."""
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
    _declare(death, prefix)


def dead_many(items: Iterable[Dead], *, prefix: str = PREFIX) -> list[Result]:
    """One result for each, in order; a message that cannot be declared keeps no other from it."""
    results: list[Result] = []
    for death in items:
        try:
            _declare(death, prefix)
        except (NotDeclared, NotAcked) as error:
            results.append(Result(death.message, error))
        else:
            results.append(Result(death.message))
    return results


def _declare(death: Dead, prefix: str) -> None:
    channel, method, properties, body = death.message
    headers = properties.headers or {}
    delivered = Delivered(
        queue=death.queue,
        exchange=method.exchange,
        routing_key=method.routing_key,
        headers=headers,
        expiration=properties.expiration,
        has_id=bool(properties.message_id),
    )
    text = header(death, delivered, prefix)
    section = _section(properties, kept(headers, text))
    exchange = f"{prefix}.declared"
    require_room(len(section), _frame_max(channel.connection))
    try:
        publisher = _publisher(channel.connection)
        publisher.basic_publish(exchange, method.routing_key, body, _Copy(section), mandatory=True)
    except UnroutableError as error:
        raise Undeliverable(f"exchange {exchange!r} leads to no queue: does a router attend this vhost?") from error
    except (NackError, AMQPError, OSError) as error:
        raise Undeliverable(f"exchange {exchange!r}: {error!r}") from error
    try:
        channel.basic_ack(method.delivery_tag)
    except (AMQPError, OSError) as error:
        raise NotAcked(f"declared, but not acked: {error!r}; it will be delivered once more") from error


def _publisher(connection: BlockingConnection) -> BlockingChannel:
    """A channel of its own, so that a refusal does not close the consumer's.

    Kept by the connection itself: it leads back to it, and kept here it would outlive every lost one.
    """
    channel: BlockingChannel | None = getattr(connection, _PUBLISHER, None)
    if channel is None or channel.is_closed:
        channel = connection.channel()
        channel.confirm_delivery()
        setattr(connection, _PUBLISHER, channel)  # only now: without confirms nothing may be acked
    return channel


def _section(properties: pika.BasicProperties, headers: dict[str, object]) -> bytes:
    came: bytes | None = getattr(properties, "wire", None)
    before = None if came is None else pika.BasicProperties().decode(came)
    return exact.section_of(exact.copied(properties, before, came, headers, _PIKA))


def _frame_max(connection: BlockingConnection) -> int:
    """What was agreed upon; pika tells it only inside. A larger frame would end the connection."""
    agreed = getattr(getattr(getattr(connection, "_impl", None), "params", None), "frame_max", None)
    return agreed if isinstance(agreed, int) and agreed > 0 else FRAME_MAX
