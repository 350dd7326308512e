"""Topology: what the router owns in the broker, declared through aio-pika on a connection of its own.

Speed does not matter here. Every look is passive and on a throw-away channel, because a 404 closes the channel; what
exists is never declared again with other arguments.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Final, TypeVar
from urllib.parse import quote

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractConnection
from aiormq.exceptions import (
    AMQPError,
    ChannelAccessRefused,
    ChannelClosed,
    ChannelLockedResource,
    ChannelNotFoundEntity,
)
from yarl import URL

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.core.names import Names

# −1 deletes at the first return on 3.10, and a queue made without a limit cannot be redeclared with one later.
NO_LIMIT: Final = 2_147_483_647
TIMEOUT_S: Final = 15.0
QUORUM: Final[Mapping[str, Any]] = {
    "x-queue-type": "quorum", "x-delivery-limit": NO_LIMIT, "x-overflow": "reject-publish",
}
Found = TypeVar("Found")


class TopologyError(Exception):
    """The broker did not let us look or declare; says where, what, and what now."""


class Forbidden(TopologyError):
    """403: the user lacks a right."""


class QueueMissing(TopologyError):
    """404: no such queue."""


class QueueExclusive(TopologyError):
    """405: the queue belongs to one connection."""


class TopologyMissing(TopologyError):
    """DECLARE=never, and something is not there."""


class Topology:
    """Looks and declares in one vhost."""

    def __init__(self, host: Host, login: Login, tls: Tls | None, names: Names, *, declare: bool = True) -> None:
        self.vhost = login.vhost
        self.names = names
        self._host, self._login, self._tls, self._declare = host, login, tls, declare
        self._connection: AbstractConnection | None = None
        self._lock = asyncio.Lock()

    async def connect(self) -> AbstractConnection:
        """The connection, opened anew where it is gone. Raises TopologyError."""
        async with self._lock:
            if self._connection is None or self._connection.is_closed:
                self._connection = await self._open()
            return self._connection

    async def close(self) -> None:
        """Close; safe to repeat."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed:
            await connection.close()

    async def _open(self) -> AbstractConnection:
        url = URL.build(
            scheme="amqps" if self._tls else "amqp", host=self._host.name, port=self._host.port,
            user=self._login.user, password=self._login.password, path="/",
        ).with_path("/" + quote(self._login.vhost, safe=""), encoded=True)
        options: dict[str, Any] = {"client_properties": {"connection_name": f"dlx-router control {self.vhost}"}}
        if self._tls is not None:
            options["ssl_context"] = self._tls.context()
            if self._tls.server_name:
                url = url.update_query({"server_hostname": self._tls.server_name})
        try:
            connection: AbstractConnection = await aio_pika.connect(url, timeout=TIMEOUT_S, **options)
            return connection
        except (OSError, AMQPError, TimeoutError) as error:
            where = f"{self._host.name}:{self._host.port}"
            raise TopologyError(f"control connection to {where}, vhost {self.vhost!r}: {str(error) or 'no answer'}") from None

    async def on_channel(self, work: Callable[[AbstractChannel], Awaitable[Found]], what: str) -> Found:
        """Do the work on a channel of its own; the broker's refusals become TopologyErrors about `what`."""
        connection = await self.connect()
        try:
            async with asyncio.timeout(TIMEOUT_S):
                channel = await connection.channel(publisher_confirms=False)
                try:
                    return await work(channel)
                finally:
                    if not channel.is_closed:
                        await channel.close()
        except ChannelNotFoundEntity as error:
            raise QueueMissing(f"{what}: {error}") from None
        except ChannelLockedResource as error:
            raise QueueExclusive(f"{what}: {error}") from None
        except ChannelAccessRefused as error:
            raise Forbidden(f"{what}: {error}") from None
        except (ChannelClosed, AMQPError, OSError, TimeoutError, RuntimeError) as error:
            raise TopologyError(f"{what}: {str(error) or 'no answer from the broker'}") from None

    # -- looking ------------------------------------------------------------------------------------------------

    async def exchange_exists(self, name: str) -> bool:
        """Whether the exchange exists; it may be internal."""
        try:
            await self.on_channel(
                lambda channel: channel.declare_exchange(name, passive=True), f"exchange {name!r}"
            )
        except QueueMissing:
            return False
        return True

    async def queue_exists(self, name: str) -> bool:
        """Whether the queue exists. Raises QueueExclusive where it belongs to one connection."""
        try:
            await self.on_channel(lambda channel: channel.declare_queue(name, passive=True), f"queue {name!r}")
        except QueueMissing:
            return False
        return True

    # -- ours ---------------------------------------------------------------------------------------------------

    async def ensure_core(self) -> None:
        """Everything that must be there before the first letter; release and its binding before any rung."""
        names = self.names
        rescued = {
            **QUORUM, "x-dead-letter-exchange": "", "x-dead-letter-routing-key": names.quarantine,
            "x-dead-letter-strategy": "at-least-once",
        }
        missing = [
            *await self._queue(names.quarantine, QUORUM), *await self._queue(names.parking, rescued),
            *await self._caught(names.release, rescued), *await self._caught(names.inbox, rescued),
            *await self._exchange(names.return_, "direct"),
            *await self._queue(names.state, {**QUORUM, "x-single-active-consumer": True}),
        ]
        if missing:
            listed = "\n  ".join(missing)
            raise TopologyMissing(f"DECLARE=never, and vhost {self.vhost!r} lacks:\n  {listed}")

    async def ensure_rung(self, rung_ms: int) -> None:
        """A queue on which a letter waits `rung_ms`, then goes to release; confirmed, hence at-least-once."""
        arguments = {
            **QUORUM, "x-message-ttl": rung_ms, "x-dead-letter-exchange": self.names.release,
            "x-dead-letter-strategy": "at-least-once",
        }
        name = self.names.delay(rung_ms)
        missing = await self._caught(name, arguments)
        if missing:
            raise TopologyMissing(f"DECLARE=never, and vhost {self.vhost!r} lacks: {'; '.join(missing)}")

    async def ensure_return_binding(self, queue: str) -> None:
        """The failed queue gets letters by its own key of the return exchange. QueueMissing, QueueExclusive, Forbidden."""

        async def bind(channel: AbstractChannel) -> None:
            found = await channel.declare_queue(queue, passive=True)
            await found.bind(self.names.return_, self.names.return_key(queue))

        await self.on_channel(bind, f"binding queue {queue!r} to {self.names.return_}")

    async def ensure_dead_letter_queue(self, name: str, kind: str, exchange: str | None) -> None:
        """The DLQ, and with an exchange given that exchange and the DLQ's binding by its own name."""
        arguments = dict(QUORUM) if kind == "quorum" else {"x-overflow": "reject-publish"}
        missing = await self._queue(name, arguments)
        if exchange is not None:
            missing += await self._exchange(exchange, "direct")
        if missing:
            raise TopologyMissing(f"DECLARE=never, and vhost {self.vhost!r} lacks: {'; '.join(missing)}")
        if exchange is not None:
            await self._bound(name, exchange, name)

    async def _caught(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        """A fanout exchange and the queue of the same name behind it."""
        missing = await self._queue(name, arguments) + await self._exchange(name, "fanout")
        if not missing:
            await self._bound(name, name, "")
        return missing

    async def _queue(self, name: str, arguments: Mapping[str, Any]) -> list[str]:
        if await self.queue_exists(name):
            return []
        if not self._declare:
            return [f"durable queue {name} {dict(arguments)}"]
        what = f"declaring queue {name!r}"
        try:
            await self.on_channel(
                lambda channel: channel.declare_queue(name, durable=True, arguments=dict(arguments)), what
            )
        except TopologyError:
            if not await self.queue_exists(name):  # somebody else may have been faster, with other arguments
                raise
        return []

    async def _exchange(self, name: str, kind: str) -> list[str]:
        if await self.exchange_exists(name):
            return []
        if not self._declare:
            return [f"durable {kind} exchange {name}"]
        await self.on_channel(
            lambda channel: channel.declare_exchange(name, aio_pika.ExchangeType(kind), durable=True),
            f"declaring exchange {name!r}",
        )
        return []

    async def _bound(self, queue: str, exchange: str, key: str) -> None:
        if not self._declare:
            return  # bindings cannot be looked at by AMQP; who declares by hand binds by hand

        async def bind(channel: AbstractChannel) -> None:
            found = await channel.get_queue(queue, ensure=False)
            await found.bind(exchange, key)

        await self.on_channel(bind, f"binding queue {queue!r} to exchange {exchange!r}")


__all__ = [
    "Forbidden", "QueueExclusive", "QueueMissing", "Topology", "TopologyError",
    "TopologyMissing",
]
