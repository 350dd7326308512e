"""Control: aio-pika connections for what is not on the path of letters, and the broker's refusals as our errors.

Every piece of work has a channel of its own, because a refusal closes the channel, and a deadline, because an answer
may never come. A connection that was lost meanwhile is opened again once, unseen. No error text holds a credential.
"""

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Final, TypeVar
from urllib.parse import quote

from aio_pika import Connection
from aio_pika.abc import AbstractConnection
from aiormq.abc import AbstractChannel
from aiormq.exceptions import (
    AMQPConnectionError,
    AMQPError,
    ChannelAccessRefused,
    ChannelClosed,
    ChannelLockedResource,
    ChannelNotFoundEntity,
    InvalidFrameError,
)
from yarl import URL

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.answers import ChannelClosed as LinkChannelClosed
from dlx_router.broker.answers import LinkError
from dlx_router.broker.link import open_link

TIMEOUT_S: Final = 10.0
CLOSE_S: Final = 2.0
HEARTBEAT_S: Final = 6
# StopAsyncIteration is what aiormq raises where a connection ends before its first frame.
_BROKEN: Final = (AMQPError, OSError, TimeoutError, RuntimeError, TypeError, ValueError, StopAsyncIteration)
Found = TypeVar("Found")
CONFIRMS_S: Final = 3.0


def time_to_confirm(*, known: bool) -> asyncio.Timeout:
    """All the time that an answer needs; but what was `known` before is confirmed soon, or believed: TimeoutError.

    A cluster whose metadata has no leader answers nobody who binds, and one with a frozen node nobody who asks its
    management API; its queues deliver meanwhile, and letters wait for whoever waits for such an answer.
    """
    return asyncio.timeout(CONFIRMS_S if known else None)


class TopologyError(Exception):
    """The broker did not let us look or declare; says where, what, and what now."""


class Forbidden(TopologyError):
    """403: the user lacks a right."""


class NotFound(TopologyError):
    """404: there is no such thing."""


class QueueMissing(NotFound):
    """404: there is no such queue."""


class QueueOwn(Forbidden):
    """A queue of the router itself, to which nothing is ever returned."""


class QueueExclusive(TopologyError):
    """405: the queue belongs to one connection."""


class Lost(TopologyError):
    """The connection is gone, or could not be made."""


_AGAIN: Final = "it is tried again"
_VERIFY: Final = "look at TLS_CA, TLS_SERVER_NAME and the broker's certificate; it is tried again"
_SHOWN: Final = "the broker refuses our certificate: look at TLS_CERT and TLS_KEY; it is tried again"
_HUNG_UP: Final = "is this an AMQP port, and TLS (amqps://) as expected? it is tried again"
_NO_TLS: Final = "is this a port with TLS? without it the URL begins with amqp://; it is tried again"
_LOGIN: Final = "look at user and password in AMQP_URL; it is tried again"
DECLARE: Final = "declare it, or take its name out of the policy"
# The first that fits. A queue whose node is down is a 404 too, but exists.
_REFUSALS: Final[tuple[tuple[type[Exception], str, type[TopologyError], str], ...]] = (
    (ChannelAccessRefused, "", Forbidden, "`dlx-router permissions` says which rights the router's user needs"),
    (ChannelLockedResource, "", QueueExclusive, "only the connection that declared it may use it"),
    (ChannelNotFoundEntity, "NOT_FOUND - no queue ", QueueMissing, DECLARE),
    (ChannelNotFoundEntity, "NOT_FOUND - no ", NotFound, DECLARE),
    (ChannelClosed, "", TopologyError, _AGAIN),
    (TimeoutError, "", TopologyError, _AGAIN),
    (AMQPError, "[Errno 1] [SSL: CERTIFICATE_VERIFY_FAILED]", Lost, _VERIFY),
    (AMQPError, "[Errno 1] [SSL: ", Lost, _NO_TLS),
    (AMQPError, "Server communication error: SSLError", Lost, _SHOWN),
    (AMQPError, "ACCESS_REFUSED - Login was refused", Lost, _LOGIN),
    (AMQPError, "Server connection unexpectedly closed", Lost, _HUNG_UP),
    (AMQPError, "Server connection reset", Lost, _HUNG_UP),
    (AMQPError, "", Lost, _AGAIN),
    (OSError, "", Lost, _AGAIN),
    (RuntimeError, "", Lost, _AGAIN),
    (StopAsyncIteration, "", Lost, _AGAIN),
)


class Control:
    """One connection to one vhost, opened on demand and again after a loss."""

    def __init__(self, host: Host, login: Login, tls: Tls | None, role: str, *, heartbeat_s: int = HEARTBEAT_S) -> None:
        self._host, self._login, self._tls, self._role = host, login, tls, role
        self._heartbeat_s = heartbeat_s
        self._connection: AbstractConnection | None = None
        self._opening = asyncio.Lock()

    @property
    def where(self) -> str:
        """The vhost and the node, for people."""
        return f"vhost {self._login.vhost!r} on {self._host.name}:{self._host.port}"

    async def connect(self) -> AbstractConnection:
        """The connection, opened anew where it is gone. Raises Lost."""
        async with self._opening:
            if self._connection is None or self._connection.is_closed:
                self._connection = await self._open()
            return self._connection

    async def close(self) -> None:
        """Close; safe to repeat and on a connection that is gone."""
        connection, self._connection = self._connection, None
        if connection is not None and not connection.is_closed:
            await _shut(connection)

    async def run(self, work: Callable[[AbstractChannel], Awaitable[Found]], what: str) -> Found:
        """The result of work that may be done twice, on a channel of its own. Raises TopologyError about `what`."""
        reused, used = self._connection is not None, None
        try:
            used = await self.connect()
            return await self._attempt(used, work, what)
        except Lost:
            if not reused:
                raise
            if used is not None and self._connection is used:  # else others have opened a new one meanwhile
                await self.close()
            return await self._attempt(await self.connect(), work, what)

    async def _attempt(
        self, connection: AbstractConnection, work: Callable[[AbstractChannel], Awaitable[Found]], what: str
    ) -> Found:
        async with self.translated(what), asyncio.timeout(TIMEOUT_S):
            channel = await _channel(connection)
            try:
                return await work(channel)
            finally:
                await _end(channel)

    @contextlib.asynccontextmanager
    async def translated(self, what: str) -> AsyncIterator[None]:
        """The broker's refusals and losses inside the block become TopologyErrors about `what`.

        A cancel always gets out: Python 3.11's wait_for, which aio-pika uses, forgets one that comes with the answer.
        """
        task = asyncio.current_task()
        before = task.cancelling() if task else 0
        try:
            yield
        except asyncio.CancelledError:
            if task is None or task.cancelling() > before:
                raise
            # aiormq cancels what waits on a connection that it loses: nobody asked us to stop
            raise Lost(f"{what}: the connection to {self.where} was lost; it is opened again") from None
        except _BROKEN as error:
            _cancelled_since(task, before)
            raise _refusal(f"{what} ({self.where})", error) from None
        _cancelled_since(task, before)

    async def _open(self) -> AbstractConnection:
        connection = Connection(self._url(), ssl_context=None if self._tls is None else self._tls.context())
        connection.kwargs["client_properties"] = {"connection_name": f"dlx-router {self._role} {self._login.vhost}"}
        if self._tls is not None and self._tls.server_name:
            connection.kwargs["server_hostname"] = self._tls.server_name
        try:
            async with self.translated(f"{self._role} connection"):
                await self._connect(connection)
        except asyncio.CancelledError:
            await _shut(connection)
            raise
        return connection

    async def _connect(self, connection: AbstractConnection) -> None:
        try:
            await connection.connect(timeout=TIMEOUT_S)
        except InvalidFrameError as error:
            raise AMQPConnectionError(await self._why(error)) from None

    async def _why(self, error: Exception) -> str:
        """The broker's own words where it does not open the vhost; the library keeps them to itself."""
        try:
            link = await open_link(self._host, self._login, tls=self._tls, heartbeat=self._heartbeat_s, name=self._role)
            await link.close()
        except (LinkError, LinkChannelClosed, OSError, TimeoutError) as cause:
            return str(cause)
        return type(error).__name__

    def _url(self) -> URL:
        """Where aiormq reads the very name of the vhost; TopologyError for one that no URL tells it.

        A path that is not encoded loses its dot segments: of `a/../b` only `b` would be left, which is another vhost.
        """
        vhost = self._login.vhost
        node = URL.build(
            scheme="amqps" if self._tls else "amqp",
            host=self._host.name,
            port=self._host.port,
            user=self._login.user,
            password=self._login.password,
        )
        path = f"/{quote(vhost, safe='/', errors='surrogateescape')}"
        url = node.with_path(path, encoded=True).with_query(heartbeat=self._heartbeat_s)
        if (read := url.path[1:].replace("%2F", "/")) != vhost:  # as aiormq reads it
            raise TopologyError(
                f"{self.where} cannot be served: the library that declares queues would open vhost {read!r} instead; "
                "serve one without %2F in its name"
            )
        return url


def _cancelled_since(task: "asyncio.Task[object] | None", before: int) -> None:
    if task is not None and task.cancelling() > before:
        raise asyncio.CancelledError


async def _shut(connection: AbstractConnection) -> None:
    with contextlib.suppress(*_BROKEN):
        async with asyncio.timeout(CLOSE_S):
            await connection.close()


async def _channel(connection: AbstractConnection) -> AbstractChannel:
    """A channel of aiormq's own: each that aio-pika opens leaves 11 KB on its connection for as long as that lasts."""
    transport = connection.transport
    if transport is None:
        raise ConnectionError("the connection is closed")
    await transport.ready()
    return await transport.connection.channel(publisher_confirms=False)


async def _end(channel: AbstractChannel) -> None:
    """Close a channel whose work is over; what goes wrong here is no fault of that work.

    One that waits for the broker hears of its end no sooner than of that: it is left then.
    """
    if not channel.is_closed:
        with contextlib.suppress(*_BROKEN):
            async with asyncio.timeout(CLOSE_S):
                await channel.close()


def _refusal(what: str, error: Exception) -> TopologyError:
    for kind, start, made, advice in _REFUSALS:
        if isinstance(error, kind) and str(error).startswith(start):
            return made(f"{what}: {_reason(error)}; {advice}")
    return TopologyError(f"{what}: {_reason(error)}; no such name can exist in the broker")


def _reason(error: Exception) -> str:
    if isinstance(error, TimeoutError):
        return "no answer in time"
    if isinstance(error, socket.gaierror):
        return f"the name of the host is not known ({error.strerror})"
    return str(error).rstrip(".") or type(error).__name__
