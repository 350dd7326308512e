"""Topology: what the router owns in the broker is there before it is used.

Every look is passive; what exists is never declared again, so that other arguments than ours stay as they are. With
DECLARE=never nothing is declared or bound: what is missing is named, ready to be declared by hand. Names may be any
UTF-8 of 255 bytes, as in RabbitMQ (pamqp alone refuses most of it).
"""

import re
from collections.abc import Iterable
from dataclasses import replace
from typing import Any, Final, NamedTuple

from aio_pika.abc import AbstractConnection
from pamqp import commands

from dlx_router.broker import declared
from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.control import (
    DECLARE,
    HEARTBEAT_S,
    Control,
    Forbidden,
    Lost,
    NotFound,
    QueueExclusive,
    QueueMissing,
    QueueOwn,
    TopologyError,
)
from dlx_router.broker.declared import Found, Standing
from dlx_router.broker.definitions import (
    Binding,
    Definition,
    Exchange,
    Queue,
    core,
    dead_letter_queue,
    delayed,
    observe,
    release,
    rung,
)
from dlx_router.broker.link import Link, open_link
from dlx_router.broker.management import Management, ManagementError
from dlx_router.broker.name_flush import NameFlush
from dlx_router.core.attending import QueueFacts
from dlx_router.core.limits import KEEP, Retention
from dlx_router.core.names import Names, as_read, is_answerable
from dlx_router.wire.frames import lenient

__all__ = [
    "Forbidden",
    "Lost",
    "NotFound",
    "QueueExclusive",
    "QueueMissing",
    "QueueOwn",
    "Topology",
    "TopologyError",
    "TopologyMissing",
]

_FLAGS: Final = frozenset({"durable", "auto_delete", "exclusive", "internal"})
LONGEST_REFUSAL: Final = 160  # bytes besides the names, of what tells an argument that differs
MOST_DIFFERENCES: Final = 20  # more arguments than a queue can have that are compared
_QueueDeclare: Final = lenient(commands.Queue.Declare)
_QueueBind: Final = lenient(commands.Queue.Bind)
_ExchangeDeclare: Final = lenient(commands.Exchange.Declare)


class QueueCounts(NamedTuple):
    """Ready messages and consumers of each queue that could be looked at, and the queues that do not exist."""

    counts: dict[str, tuple[int, int]]
    missing: frozenset[str]


class TopologyMissing(TopologyError):
    """DECLARE=never, and something is not there; `definitions` say what, readable."""

    def __init__(self, where: str, missing: Iterable[Definition]) -> None:
        self.definitions = tuple(str(definition) for definition in missing)
        lines = "".join(f"\n  {line}" for line in self.definitions)
        super().__init__(f"{where} lacks what the router needs, and DECLARE=never. Declare by hand:{lines}")


class Topology:
    """Looks and declares in one vhost. All methods raise TopologyError where the broker does not let them."""

    def __init__(  # noqa: PLR0913 - where it is, and how it is asked
        self,
        host: Host,
        login: Login,
        tls: Tls | None,
        names: Names,
        *,
        declare: bool = True,
        heartbeat_s: int = HEARTBEAT_S,
        management: Management | None = None,
    ) -> None:
        """`management`: who is asked about queues whose absence the broker cannot tell by AMQP (`is_answerable`)."""
        self.vhost = login.vhost
        self.names = names
        self._address = (host, login, tls)
        self._heartbeat_s = heartbeat_s
        self._control = self.another("control")
        self._declare, self._management = declare, management
        self.flush_names = NameFlush(self._call, names)

    @property
    def declares(self) -> bool:
        """Whether anything may be declared, or deleted."""
        return self._declare

    def another(self, role: str) -> Control:
        """A connection of its own to the same place: one that publishes is not read while the broker has an alarm."""
        return Control(*self._address, role, heartbeat_s=self._heartbeat_s)

    async def link(self, role: str) -> Link:
        """The same for what has to hear everything that the broker says. LinkError where it cannot be made."""
        host, login, tls = self._address
        name = f"dlx-router {role} {self.vhost}"
        return await open_link(host, login, tls=tls, heartbeat=self._heartbeat_s, name=name)

    async def connect(self) -> AbstractConnection:
        """Connect now, to learn early; every method connects by itself."""
        return await self._control.connect()

    async def close(self) -> None:
        """Close; safe to repeat."""
        await self._control.close()

    # -- looking ------------------------------------------------------------------------------------------------

    async def exchange_exists(self, name: str) -> bool:
        """Whether the exchange exists; it may be internal. The default exchange always does."""
        if not name:
            return True
        try:
            await self._call(f"exchange {name!r}", _ExchangeDeclare(exchange=name, passive=True))
        except NotFound:
            return False
        return True

    async def queue_exists(self, name: str) -> bool:
        """Whether the queue exists, even if its node is down (TopologyError). QueueExclusive: it is for one only."""
        if (is_there := await self._by_management(name)) is not None:
            return is_there
        try:
            await self._call(f"queue {name!r}", _QueueDeclare(queue=name, passive=True))
        except NotFound:
            return False
        return True

    async def _by_management(self, queue: str) -> bool | None:
        """Whether the queue exists, by the management API; None if AMQP tells it, or the API does not."""
        if self._management is None or is_answerable(queue, self.vhost):
            return None
        try:
            return await self._management.facts(self.vhost, queue) is not None
        except ManagementError:
            return None

    async def depths(self, queues: Iterable[str]) -> dict[str, int]:
        """How many messages wait in each of these queues; what is not there, or cannot be looked at, is left out."""
        return {name: ready for name, (ready, _) in (await self.queue_counts(queues)).counts.items()}

    async def censuses(self, queues: Iterable[str]) -> dict[str, tuple[int, int]]:
        """Ready messages and consumers of each of these queues; those that cannot be looked at are left out."""
        return (await self.queue_counts(queues)).counts

    async def queue_counts(self, queues: Iterable[str]) -> QueueCounts:
        """The same, and which of them do not exist; of a queue with anything else wrong nothing is said.

        The first queue that cannot be looked at closes the channel: the others are then asked in two halves.
        """
        names, missing = [], frozenset[str]()
        for name in queues:
            is_there = is_answerable(name, self.vhost) or await self._by_management(name)
            if is_there:
                names.append(name)
            elif is_there is False:
                missing |= {name}
        counted = await self._counted(names)
        return QueueCounts(counted.counts, counted.missing | missing)

    async def _counted(self, names: list[str]) -> QueueCounts:
        looks = (_QueueDeclare(queue=name, passive=True) for name in names)
        try:
            answers = await self._call("looking at queues", *looks)
        except Lost:
            raise
        except TopologyError as error:
            if len(names) <= 1:
                is_missing = isinstance(error, QueueMissing) and names == [*map(as_read, names)]  # else it is another
                return QueueCounts({}, frozenset(names if is_missing else ()))
            parts = [await self._counted(part) for part in (names[: len(names) // 2], names[len(names) // 2 :])]
            return QueueCounts(parts[0].counts | parts[1].counts, parts[0].missing | parts[1].missing)
        counts = ((answer.message_count, answer.consumer_count) for answer in answers)
        return QueueCounts(dict(zip(names, counts, strict=True)), frozenset())

    async def is_idle(self, queue: str) -> bool:
        """Whether the queue is there, empty and without a consumer."""
        [answer] = await self._call(f"looking at queue {queue!r}", _QueueDeclare(queue=queue, passive=True))
        return not answer.message_count and not answer.consumer_count

    async def standing(self) -> Standing | None:
        """What stands under our names, as far as AMQP tells: by a declaration that the broker refuses where it differs.

        None where we may not declare. Nothing is changed: what is declared again exists. TopologyError otherwise.
        """
        if not self._declare:
            return None
        queues: dict[str, Found] = {}
        exchanges: dict[str, Found] = {}
        for definition in core(self.names):
            if not isinstance(definition, Binding):
                actual = await self._actual(definition)
                (queues if isinstance(definition, Queue) else exchanges)[definition.name] = actual
        return Standing(queues, exchanges, None, await self._version())

    async def lifetime(self, queue: str) -> QueueFacts | None:
        """Return whether the queue is auto-delete, exclusive or expiring; None if the broker does not let us ask.

        The broker compares a declaration with the queue before it checks the arguments. So a declaration with an
        argument that cannot be is refused in any case, with what differs, and never creates the queue. Policies are
        not compared. Raises QueueMissing, Lost.
        """
        if not is_answerable(queue, self.vhost, words=LONGEST_REFUSAL):
            return None
        flags = {"durable": True, "auto_delete": False}
        for _ in (*flags, "x-expires"):
            probe = _QueueDeclare(queue=queue, arguments={"x-expires": -1}, **flags)
            try:
                await self._call(f"looking at queue {queue!r}", probe)
            except (Lost, QueueMissing):
                raise
            except QueueExclusive:
                return QueueFacts(exclusive=True)
            except TopologyError as error:
                if "invalid arg 'x-expires'" in str(error):
                    raise QueueMissing(f"there is no queue {queue!r} in vhost {self.vhost!r}") from None
                key, value = declared.refused(str(error)) or ("", None)
                if key == "auto_delete":
                    return QueueFacts(auto_delete=True)
                if key == "durable":
                    flags[key] = False
                    continue
                if key in {"x-expires", "x-queue-type"}:  # only streams have another type, and they never expire
                    return QueueFacts(arguments={"x-expires": value} if key == "x-expires" else {})
                return None
        return None

    async def _version(self) -> tuple[int, ...]:
        async def work(channel: Any) -> str:
            version = channel.connection.server_properties.get("version", "")
            return version.decode() if isinstance(version, bytes) else str(version)

        return tuple(int(part) for part in re.findall(r"\d+", await self._control.run(work, "its version"))[:2])

    async def _actual(self, definition: Exchange | Queue) -> Found:
        """Each refusal tells one argument; with that as it is there, the next."""
        arguments: dict[str, Any] = dict(definition.arguments)
        actual = Found(
            definition.kind if isinstance(definition, Exchange) else str(arguments["x-queue-type"]), arguments
        )
        for _ in range(MOST_DIFFERENCES):
            try:
                await self._call(f"looking at {definition}", _declaration(replace(definition, arguments=arguments)))
            except Lost:
                raise
            except TopologyError as error:
                if (difference := declared.refused(str(error))) is None:
                    raise
                key, value = difference
                if key in {"x-queue-type", "type"}:
                    return replace(actual, kind=str(value or "classic"))
                if key in _FLAGS:
                    changed: dict[str, Any] = {key: bool(value)}
                    return replace(actual, **changed)
                arguments.pop(key, None)
                if value is not None:
                    arguments[key] = value
            else:
                break
        return actual

    # -- declaring ----------------------------------------------------------------------------------------------

    async def ensure_core(self) -> None:
        """All that must be there before the first letter is. TopologyMissing with DECLARE=never."""
        await self._ensure(core(self.names))

    async def ensure_observe(self) -> None:
        """Copies of dead letters have a place to come to."""
        await self._ensure(observe(self.names))

    async def ensure_rung(self, rung_ms: int) -> None:
        """Letters can wait `rung_ms`, and what follows the wait stands first."""
        await self._ensure((*release(self.names), *rung(self.names, rung_ms)))

    async def ensure_return_binding(self, queue: str) -> bool:
        """The queue gets what the return exchange is given under its key; False with DECLARE=never: not looked at.

        AMQP cannot look at bindings; without one the return comes back as unroutable. Raises QueueMissing,
        QueueExclusive, Forbidden, and QueueOwn for a queue of ours: no letter failed there.
        """
        if self.names.is_own(queue):
            raise QueueOwn(f"queue {queue!r} is the router's own; nothing is returned to it")
        there = _QueueDeclare(queue=queue, passive=True)
        if await self._by_management(queue) is False:
            raise QueueMissing(f"there is no queue {queue!r} in vhost {self.vhost!r}; {DECLARE}")
        key = self.names.return_key(queue)
        bound = _QueueBind(queue=queue, exchange=self.names.return_, routing_key=key)
        what = f"binding queue {queue!r} to exchange {self.names.return_!r}"
        await self._call(what, there, *([bound] if self._declare else []))
        return self._declare

    async def ensure_delayed(self, exchange: str) -> None:
        """All that is published to the exchange comes to a queue of ours. TopologyError where its type forbids that."""
        await self._ensure(delayed(self.names, exchange))
        if not self._declare:
            return  # AMQP tells the type only to who declares
        try:
            await self._call(f"exchange {exchange!r}", _declaration(Exchange(exchange, "fanout")))
        except Lost:
            raise
        except TopologyError as refused:
            try:
                await self._call(f"exchange {exchange!r}", _declaration(Exchange(exchange, "topic")))
            except Lost:
                raise
            except TopologyError:
                raise refused from None

    async def ensure_dead_letter_queue(
        self, name: str, kind: str, exchange: str | None, retention: Retention = KEEP, *, fifo: bool = False
    ) -> None:
        """The queue is there; with an exchange given, that one too (direct, if it was absent), and the binding."""
        retired = self.names.retired
        await self._ensure(dead_letter_queue(name, kind, exchange or None, retention, fifo=fifo, retired=retired))

    async def _ensure(self, definitions: Iterable[Definition]) -> None:
        """Each in its order; those that are missing and may not be declared are named together."""
        missing: list[Definition] = []
        made: list[Definition] = []
        for definition in definitions:
            if isinstance(definition, Binding):
                await self._bind(definition, missing)
            elif not await self._stands(definition):
                if self._declare:
                    await self._make(definition)
                else:
                    missing.append(definition)
                made.append(definition)
        if missing:
            raise TopologyMissing(f"vhost {self.vhost!r}", missing)
        if any(isinstance(item, Queue) and item.arguments.get("x-queue-type") != "classic" for item in made):
            await self.flush_names()

    async def _stands(self, definition: Exchange | Queue) -> bool:
        """As `_exists`; False without a look if AMQP could not tell: to declare what is there changes nothing."""
        if self._declare and not is_answerable(definition.name, self.vhost) and isinstance(definition, Queue):
            return await self._by_management(definition.name) or False
        return await self._exists(definition)

    async def _exists(self, definition: Exchange | Queue) -> bool:
        return await (
            self.exchange_exists(definition.name)
            if isinstance(definition, Exchange)
            else self.queue_exists(definition.name)
        )

    async def _make(self, definition: Exchange | Queue) -> None:
        try:
            await self._call(f"declaring {definition}", _declaration(definition))
        except TopologyError:
            if not await self._exists(definition):  # somebody else was faster, with other arguments
                raise

    async def _bind(self, binding: Binding, missing: list[Definition]) -> None:
        if self._declare:
            bind = _QueueBind(queue=binding.queue, exchange=binding.exchange, routing_key=binding.key)
            await self._call(f"binding queue {binding.queue!r} to exchange {binding.exchange!r}", bind)
        elif any(
            not isinstance(other, Binding) and other.name in {binding.queue, binding.exchange} for other in missing
        ):
            missing.append(binding)  # where both ends are there, nobody can look

    async def _call(self, what: str, *methods: Any) -> list[Any]:
        for method in methods:
            _require_meant(what, method)

        async def work(channel: Any) -> list[Any]:  # its interface hides `rpc`
            return [await channel.rpc(method) for method in methods]

        return await self._control.run(work, what)


def _require_meant(what: str, method: Any) -> None:
    """QueueMissing or NotFound where the broker would read the name of another queue or exchange than is meant.

    A name with CR or LF in it can only have been imported with definitions; AMQP reaches nothing of that name.
    """
    for kind, error in (("queue", QueueMissing), ("exchange", NotFound)):
        name: str = getattr(method, kind, "")
        if (read := as_read(name)) != name:
            raise error(f"{what}: the broker reads {name!r} as {read!r}, so there is no {kind} of that name")


def _declaration(definition: Exchange | Queue) -> Any:
    if isinstance(definition, Exchange):
        arguments = dict(definition.arguments)
        return _ExchangeDeclare(
            exchange=definition.name, exchange_type=definition.kind, durable=True, arguments=arguments
        )
    return _QueueDeclare(queue=definition.name, durable=True, arguments=dict(definition.arguments))
