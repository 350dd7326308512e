"""Declared deaths on aio-pika: published with a confirm, mandatory, and only then is the message acked.

One publish at a time on a channel of its own: aiormq pairs a returned message with its publish by message id, and would
confuse two. Messages without an id are given one by it; the declaration says so, and the router takes it off again.
"""

import asyncio
import struct
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import timedelta
from typing import Final
from weakref import WeakKeyDictionary

from aio_pika.abc import AbstractIncomingMessage
from aiormq import spec
from aiormq.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import AMQPError, PublishError
from pamqp.header import ContentHeader

from dlx_router.client.declaration import (
    FRAME_MAX,
    PREFIX,
    WITHIN_S,
    Delivered,
    Error,
    InvalidDeclaration,
    NotAcked,
    NotDeclared,
    Undeliverable,
    Words,
    header,
    kept,
    require_room,
)

_BROKEN: Final = (AMQPError, OSError, TimeoutError, RuntimeError)


class _Desk:
    """The publishing channel of one connection, opened on demand."""

    def __init__(self) -> None:
        self.lock = asyncio.Lock()
        self._channel: AbstractChannel | None = None

    async def channel(self, connection: AbstractConnection) -> AbstractChannel:
        if self._channel is None or self._channel.is_closed:
            self._channel = await connection.channel(publisher_confirms=True, on_return_raises=True)
        return self._channel


_desks: Final[WeakKeyDictionary[AbstractConnection, _Desk]] = WeakKeyDictionary()


@dataclass(frozen=True, slots=True, kw_only=True)
class Dead(Words):
    """One message of a batch, with what is said of it; see `dead`."""

    message: AbstractIncomingMessage
    queue: str | None = None


@dataclass(frozen=True, slots=True)
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
    `queue`: where it was taken from; needed unless it came by the default exchange or from the router.
    `within`: seconds, all in all.
    """
    one = Dead(
        message=message,
        reason=reason,
        description=description,
        error=error,
        retry=retry,
        retry_after=retry_after,
        tag=tag,
        queue=queue,
    )
    await _declare(one, prefix, within)


async def dead_many(items: Iterable[Dead], *, prefix: str = PREFIX, within: float = WITHIN_S) -> list[Result]:
    """One result for each, in order; one that cannot be declared keeps no other from it. `within` (s): for each."""
    results: list[Result] = []
    for one in items:
        try:
            await _declare(one, prefix, within)
        except (NotDeclared, NotAcked) as error:
            results.append(Result(one.message, error))
        else:
            results.append(Result(one.message))
    return results


async def _declare(one: Dead, prefix: str, within: float) -> None:
    message = one.message
    if message.processed:
        raise InvalidDeclaration("the message was acked or rejected before; declare its death instead of that")
    properties = message.properties
    delivered = Delivered(
        queue=one.queue,
        exchange=message.exchange or "",
        routing_key=message.routing_key or "",
        headers=message.headers,
        expiration=properties.expiration,
        has_id=bool(properties.message_id),
    )
    text = header(one, delivered, prefix, invents_ids=True)
    await _publish(message, properties, kept(message.headers, text), prefix, within)
    try:
        await message.ack()
    except _BROKEN as error:
        raise NotAcked(f"declared, but not acked: {error}; it will be delivered once more") from error


async def _publish(
    message: AbstractIncomingMessage,
    properties: spec.Basic.Properties,
    headers: dict[str, object],
    prefix: str,
    within: float,
) -> None:
    values = {name: getattr(properties, name) for name in spec.Basic.Properties.__slots__ if hasattr(properties, name)}
    # a foreign user id would close the channel, and a message's own expiration would let it evaporate in the inbox
    values |= {"headers": headers, "user_id": None, "expiration": None}
    copy = spec.Basic.Properties(**values)
    connection = message.channel.connection
    tuned = getattr(connection.connection_tune, "frame_max", None) or FRAME_MAX
    exchange = f"{prefix}.declared"
    try:
        size = len(ContentHeader(body_size=len(message.body), properties=copy).marshal())
    except (ValueError, TypeError, struct.error) as error:
        raise Undeliverable(f"exchange {exchange!r}: its properties cannot be written: {error!r}") from error
    require_room(size, tuned)
    desk = _desks.setdefault(connection, _Desk())
    try:
        async with asyncio.timeout(within), desk.lock:
            channel = await desk.channel(connection)
            await channel.basic_publish(
                message.body,
                exchange=exchange,
                routing_key=message.routing_key or "",
                properties=copy,
                mandatory=True,
            )
    except PublishError as error:
        raise Undeliverable(f"exchange {exchange!r} leads to no queue: does a router attend this vhost?") from error
    except _BROKEN as error:
        raise Undeliverable(f"exchange {exchange!r}: {str(error) or 'no answer in time'}") from error
