"""Errors of handlers on aio-pika: `declare_errors(queue)`, and what is rejected because of an exception says so.

```python
queue = declare_errors(await channel.get_queue("orders.new"))
```

It covers `async with message.process()`, `message.reject()` and `message.nack(requeue=False)` where an exception is
being handled, and a callback that an exception leaves before its message was settled.

Importing this module has aio-pika's queues hand out messages that know their queue, as `dlx_router.client` does for
their bytes: import it before messages come.
"""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Any, Final, TypeVar
from weakref import WeakKeyDictionary

import aio_pika.queue
import aio_pika.robust_queue
from aio_pika.abc import AbstractIncomingMessage, AbstractQueue
from aio_pika.tools import ensure_awaitable
from aiormq.abc import DeliveredMessage

from dlx_router.client.asynchronous import Received, dead
from dlx_router.client.declaration import PREFIX, NotAcked, NotDeclared
from dlx_router.client.handlers import REASON, WITHIN_S, Redact, Settings, in_flight, not_acked, not_declared

Callback = Callable[[AbstractIncomingMessage], Any]
AnyQueue = TypeVar("AnyQueue", bound=AbstractQueue)
_settings: Final[WeakKeyDictionary[AbstractQueue, Settings]] = WeakKeyDictionary()


def declare_errors(
    queue: AnyQueue,
    *,
    reason: str = REASON,
    redact: Redact | None = None,
    prefix: str = PREFIX,
    within: float = WITHIN_S,
) -> AnyQueue:
    """The same queue; from now on errors of its messages are declared. See `Settings` for what can be said."""
    _settings[queue] = Settings(reason=reason, redact=redact, prefix=prefix, within=within)
    return queue


class Delivery(Received):
    """A message that knows its queue, and whether its errors are declared."""

    __slots__ = ("before", "came_from", "ended_by", "settings")

    def __init__(self, message: DeliveredMessage, no_ack: bool = False) -> None:
        super().__init__(message, no_ack)
        self.came_from: str | None = None
        self.settings: Settings | None = None
        self.before: BaseException | None = None  # what was being handled when it came
        self.ended_by: tuple[BaseException | None] | None = None  # where somebody knows better than `in_flight`

    def taken_from(self, queue: AbstractQueue) -> None:
        """Known as soon as it is handed out."""
        self.came_from, self.settings, self.before = queue.name, _settings.get(queue), sys.exc_info()[1]

    async def reject(self, requeue: bool = False) -> None:
        """As aio-pika's; declared instead where an exception is why."""
        if requeue or not await self.declared(self._error()):
            await super().reject(requeue=requeue)

    async def nack(self, multiple: bool = False, requeue: bool = True) -> None:
        """As aio-pika's; declared instead where an exception is why."""
        if multiple or requeue or not await self.declared(self._error()):
            await super().nack(multiple=multiple, requeue=requeue)

    def _error(self) -> BaseException | None:
        return in_flight(self.before) if self.ended_by is None else self.ended_by[0]

    async def declared(self, error: BaseException | None) -> bool:
        """Its death is declared with this error, and it is acked; else it is as it was."""
        settings = self.settings
        if settings is None or error is None or self.processed:
            return False
        try:
            await dead(
                self, settings.reason, error=settings.told_of(error), queue=self.came_from, prefix=settings.prefix,
                within=settings.within,
            )  # fmt: skip
        except NotAcked as failure:
            not_acked(self.came_from, failure)
        except NotDeclared as failure:
            not_declared(self.came_from, failure)
            return False
        return True


def _watched(queue: AbstractQueue, callback: Callback) -> Callable[[AbstractIncomingMessage], Awaitable[Any]]:
    handle = ensure_awaitable(callback)

    async def take(message: AbstractIncomingMessage) -> object:
        if not isinstance(message, Delivery):
            return await handle(message)
        message.taken_from(queue)
        try:
            return await handle(message)
        except Exception as error:
            await message.declared(error)
            raise

    return take


_consume, _get = aio_pika.queue.Queue.consume, aio_pika.queue.Queue.get


async def _consume_watched(self: aio_pika.queue.Queue, callback: Callback, *args: Any, **kwargs: Any) -> str:
    return await _consume(self, _watched(self, callback), *args, **kwargs)


async def _get_watched(self: aio_pika.queue.Queue, *args: Any, **kwargs: Any) -> Any:
    message = await _get(self, *args, **kwargs)
    if isinstance(message, Delivery):
        message.taken_from(self)
    return message


def _watch_iterator(kind: Any) -> None:
    """What whoever iterates is handling is older than the message, which came to a task of aio-pika's."""
    following = kind.__anext__

    async def following_watched(self: Any) -> Any:
        message = await following(self)
        if isinstance(message, Delivery):
            message.before = sys.exc_info()[1]
        return message

    kind.__anext__ = following_watched


aio_pika.queue.IncomingMessage = Delivery  # type: ignore[attr-defined]  # what queues hand out
aio_pika.queue.Queue.consume = _consume_watched  # type: ignore[method-assign]  # as above
aio_pika.queue.Queue.get = _get_watched  # type: ignore[method-assign]  # as above
for _kind in (aio_pika.queue.QueueIterator, aio_pika.robust_queue.RobustQueueIterator):
    if "__anext__" in vars(_kind):  # the robust one has its own, or it inherits it, by version
        _watch_iterator(_kind)
