"""Declared deaths on aio-pika: published with a confirm, mandatory, and only then is the message acked.

One publish at a time on a channel of its own: aiormq pairs a returned message with its publish by message id, and would
confuse two. Messages without an id are given one by it; the declaration says so, and the router takes it off again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable
from datetime import timedelta
from typing import Any, Final

from aio_pika.abc import AbstractIncomingMessage
from aiormq import spec
from aiormq.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import AMQPError, PublishError
from pamqp import decode, encode
from pamqp.header import ContentHeader

from dlx_router.client.declaration import (
    FRAME_MAX,
    PREFIX,
    WITHIN_S,
    Dead,
    Delivered,
    Error,
    InvalidDeclaration,
    NotAcked,
    NotDeclared,
    Result,
    Undeliverable,
)
from dlx_router.client.exact import declared_headers, require_room, require_whole_seconds

__all__ = ["Dead", "Result", "dead", "dead_many"]

_BROKEN: Final = (AMQPError, OSError, asyncio.TimeoutError, RuntimeError)
_PUBLISHING: Final = "_dlx_router_publishing"
_INVENTED: Final = 33  # bytes of the id that aiormq gives to a message without one


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
    await _declare(Dead(reason, description, error, retry, retry_after, tag, message, queue), prefix, within)


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
    copied = copy_of(death, prefix)
    try:
        connection = message.channel.connection
    except _BROKEN as error:
        raise Undeliverable("the channel of the message is closed; it will be delivered once more") from error
    tuned = getattr(connection.connection_tune, "frame_max", None) or FRAME_MAX
    invented = 0 if copied.message_id else _INVENTED
    require_room(lambda: len(ContentHeader(body_size=len(message.body), properties=copied).marshal()) + invented, tuned)
    await _publish(connection, message, copied, f"{prefix}.declared", within)
    try:
        await message.ack()
    except _BROKEN as error:
        raise NotAcked(f"declared, but not acked: {error}; it will be delivered once more") from error


def copy_of(death: Dead, prefix: str = PREFIX) -> spec.Basic.Properties:
    """Return the properties of the copy. InexactHeader where pamqp cannot copy a header exactly."""
    message = death.message
    require_whole_seconds(message.timestamp)
    seconds = message.expiration  # aio-pika makes seconds of it, and 1000 ms of 1001
    delivered = Delivered(
        queue=death.queue,
        exchange=message.exchange or "",
        routing_key=message.routing_key or "",
        headers=message.headers,
        expiration=str(round(seconds * 1000)) if isinstance(seconds, (int, float)) else message.properties.expiration,
        has_id=bool(message.message_id),
    )
    copied: spec.Basic.Properties = message.properties
    copied.headers = declared_headers(death, delivered, prefix, _again, invents_ids=True)
    # a foreign user id would close the channel, and a message's own expiration would let it evaporate in the inbox
    copied.user_id, copied.expiration, copied.cluster_id = None, None, message.cluster_id or ""
    return copied


def _again(table: Any) -> object:  # noqa: ANN401 - as read by pamqp
    return decode.field_table(encode.field_table(table))[1]


async def _publish(
    connection: AbstractConnection,
    message: AbstractIncomingMessage,
    copied: spec.Basic.Properties,
    exchange: str,
    within: float,
) -> None:
    publishing = _publishing_of(connection)

    async def publish() -> None:
        async with publishing.lock:
            channel = await publishing.channel(connection)
            await channel.basic_publish(
                message.body,
                exchange=exchange,
                routing_key=message.routing_key or "",
                properties=copied,
                mandatory=True,
            )

    try:
        await asyncio.wait_for(publish(), within)
    except PublishError as error:
        raise Undeliverable(f"exchange {exchange!r} leads to no queue: does a router attend this vhost?") from error
    except _BROKEN as error:
        raise Undeliverable(f"exchange {exchange!r}: {str(error) or 'no answer in time'}") from error
