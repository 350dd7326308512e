"""Errors of handlers on aio-pika: `declare_errors(queue)`, and what is rejected because of an exception says so.

```python
queue = declare_errors(await channel.get_queue("orders.new"))
```

It covers `async with message.process()`, `message.reject()` and `message.nack(requeue=False)` where an exception is
being handled, and a callback that an exception leaves before its message was settled.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import TracebackType
from typing import Any, TypeVar, cast

from aio_pika import IncomingMessage
from aio_pika.abc import AbstractIncomingMessage, AbstractQueue
from aio_pika.tools import ensure_awaitable

from dlx_router.client.asynchronous import dead
from dlx_router.client.declaration import PREFIX, NotAcked, NotDeclared
from dlx_router.client.handlers import REASON, WITHIN_S, Redact, Settings, in_flight, not_acked, not_declared

Callback = Callable[[AbstractIncomingMessage], Any]
AnyQueue = TypeVar("AnyQueue", bound=AbstractQueue)


def declare_errors(
    queue: AnyQueue,
    *,
    reason: str = REASON,
    redact: Redact | None = None,
    prefix: str = PREFIX,
    within: float = WITHIN_S,
) -> AnyQueue:
    """The queue to take messages from: their errors are declared. See `Settings` for what can be said."""
    settings = Settings(reason=reason, redact=redact, prefix=prefix, within=within)
    return cast("AnyQueue", DeclaringQueue(queue, settings))


class DeclaringQueue:
    """A queue whose messages know it; all else is as aio-pika's."""

    def __init__(self, queue: AbstractQueue, settings: Settings) -> None:
        self._queue, self._settings = queue, settings

    def __getattr__(self, name: str) -> Any:
        return getattr(self._queue, name)

    async def consume(self, callback: Callback, *args: Any, **kwargs: Any) -> Any:
        """As aio-pika's, with its callback watched."""
        handle = ensure_awaitable(callback)

        async def take(message: AbstractIncomingMessage) -> object:
            delivery = self._delivery(message)
            try:
                return await handle(delivery)
            except Exception as error:
                await delivery.declared(error)
                raise

        return await self._queue.consume(take, *args, **kwargs)

    async def get(self, *args: Any, **kwargs: Any) -> Delivery | None:
        """As aio-pika's."""
        message = await self._queue.get(*args, **kwargs)
        return None if message is None else self._delivery(message)

    def iterator(self, **kwargs: Any) -> _Iterator:
        """As aio-pika's."""
        return _Iterator(self._queue.iterator(**kwargs), self._delivery)

    __aiter__ = iterator

    def _delivery(self, message: AbstractIncomingMessage) -> Delivery:
        return Delivery(message, self._settings, self._queue.name)


class _Iterator:
    """An iterator of aio-pika's; its messages know their queue, and what was being handled when they were given."""

    def __init__(self, iterator: Any, delivery: Callable[[AbstractIncomingMessage], Delivery]) -> None:
        self._iterator, self._delivery = iterator, delivery

    def __getattr__(self, name: str) -> Any:
        return getattr(self._iterator, name)

    def __aiter__(self) -> _Iterator:
        return self

    async def __anext__(self) -> Delivery:
        return self._delivery(await self._iterator.__anext__())

    async def __aenter__(self) -> _Iterator:  # noqa: PYI034 - Self came with Python 3.11
        await self._iterator.__aenter__()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._iterator.__aexit__(kind, error, trace)


class Delivery(IncomingMessage):
    """A copy of a message that was taken, to be settled in its place: its errors are declared."""

    __slots__ = ("_before", "_came_from", "_ended_by", "_settings")

    def __init__(self, message: AbstractIncomingMessage, settings: Settings, queue: str | None) -> None:
        for kind in IncomingMessage.__mro__:
            for name in vars(kind).get("__slots__", ()):
                slot = f"_{kind.__name__.lstrip('_')}{name}" if name.startswith("__") else name
                if hasattr(message, slot):
                    object.__setattr__(self, slot, getattr(message, slot))
        self._came_from, self._settings = queue, settings
        self._before = sys.exc_info()[1]  # what is being handled when it is given out
        self._ended_by: tuple[BaseException | None] | None = None

    def ended_by(self, error: BaseException | None) -> None:
        """Why it is going to be rejected, where somebody knows better than `in_flight`; None: for no error."""
        self._ended_by = (error,)

    async def reject(self, requeue: bool = False) -> None:
        """As aio-pika's; declared instead where an exception is why."""
        if requeue or not await self.declared(self._error()):
            await super().reject(requeue=requeue)

    async def nack(self, multiple: bool = False, requeue: bool = True) -> None:
        """As aio-pika's; declared instead where an exception is why."""
        if multiple or requeue or not await self.declared(self._error()):
            await super().nack(multiple=multiple, requeue=requeue)

    def _error(self) -> BaseException | None:
        return in_flight(self._before) if self._ended_by is None else self._ended_by[0]

    async def declared(self, error: BaseException | None) -> bool:
        """Its death is declared with this error, and it is acked; else it is as it was."""
        settings = self._settings
        if error is None or self.processed:
            return False
        try:
            await dead(
                self, settings.reason, error=settings.told_of(error), queue=self._came_from, prefix=settings.prefix,
                within=settings.within,
            )  # fmt: skip
        except NotAcked as failure:
            not_acked(self._came_from, failure)
        except NotDeclared as failure:
            not_declared(self._came_from, failure)
            return False
        return True
