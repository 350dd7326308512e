"""Declared deaths on pika (extra `pika`): published with a confirm, mandatory; only then is the message acked.

Blocking: call it on the thread of the connection, from a consumer's callback say.
"""

from __future__ import annotations

from collections.abc import Iterable
from copy import copy
from datetime import timedelta
from typing import Final, NamedTuple

import pika
from pika import data
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.compat import long
from pika.exceptions import AMQPError, NackError, UnroutableError

from dlx_router.client.declaration import (
    FRAME_MAX,
    PREFIX,
    Dead,
    Delivered,
    Error,
    NotAcked,
    NotDeclared,
    Result,
    Undeliverable,
)
from dlx_router.client.exact import bytes_or_text, declared_headers, require_room

__all__ = ["Dead", "Message", "Result", "dead", "dead_many"]

_PUBLISHER: Final = "_dlx_router_publisher"


class Message(NamedTuple):
    """What pika hands to a callback, in its order."""

    channel: BlockingChannel
    method: pika.spec.Basic.Deliver
    properties: pika.BasicProperties
    body: bytes


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
    _declare(Dead(reason, description, error, retry, retry_after, tag, message, queue), prefix)


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
    channel, method, _, body = death.message
    copied, exchange = copy_of(death, prefix), f"{prefix}.declared"
    # what was agreed upon, which pika says only inside; a larger frame would end the connection
    agreed = getattr(getattr(getattr(channel.connection, "_impl", None), "params", None), "frame_max", None)
    require_room(
        lambda: len(b"".join(copied.encode())), agreed if isinstance(agreed, int) and agreed > 0 else FRAME_MAX
    )
    try:
        publisher = _publisher(channel.connection)
        publisher.basic_publish(exchange, method.routing_key, body, copied, mandatory=True)
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


def copy_of(death: Dead, prefix: str = PREFIX) -> pika.BasicProperties:
    """Return the properties of the copy. InexactHeader where pika cannot copy a header exactly."""
    _, method, properties, _ = death.message
    delivered = Delivered(
        queue=death.queue,
        exchange=method.exchange,
        routing_key=method.routing_key,
        headers=properties.headers or {},
        expiration=properties.expiration,
        has_id=bool(properties.message_id),
    )
    copied = copy(properties)
    copied.headers = declared_headers(death, delivered, prefix, _again, _doubt)
    # a foreign user id would close the channel, and a message's own expiration would let it evaporate in the inbox
    copied.user_id = copied.expiration = None
    return copied


def _again(headers: dict[object, object]) -> object:
    pieces: list[bytes] = []
    data.encode_table(pieces, headers)
    return data.decode_table(b"".join(pieces), 0)[0]


def _doubt(value: object) -> str:
    if isinstance(value, long):
        return f"pika cuts fractions off, and {int(value)} may have been one; where it was none, set it to int(...)"
    return bytes_or_text(value)
