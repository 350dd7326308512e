"""Errors of handlers on pika: `declare_errors(channel)`, and what is rejected because of an exception says so.

```python
channel = declare_errors(connection.channel())
```

It covers `basic_reject` and `basic_nack` with `requeue=False` where an exception is being handled, and a callback that
an exception leaves before its message was settled: the exception goes on as before, but the message does not come back.
For `basic_consume`, `consume` and `basic_get` of a BlockingChannel, on the thread of its connection.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from typing import Any, Final, NamedTuple, TypeVar

from pika.adapters.blocking_connection import BlockingChannel

from dlx_router.client.declaration import PREFIX, InvalidDeclaration, NotAcked, NotDeclared
from dlx_router.client.handlers import REASON, Redact, Settings, in_flight, not_acked, not_declared
from dlx_router.client.sync import Message, dead

Callback = Callable[[Any, Any, Any, bytes], object]
AnyChannel = TypeVar("AnyChannel", bound=BlockingChannel)
_WATCHED: Final = "_dlx_router_deliveries"
_OVERRIDDEN: Final = ("basic_consume", "consume", "basic_get", "basic_ack", "basic_nack", "basic_reject")


def declare_errors(
    channel: AnyChannel, *, reason: str = REASON, redact: Redact | None = None, prefix: str = PREFIX
) -> AnyChannel:
    """The same channel; errors of messages that it takes from now on are declared. `Settings`: what can be said."""
    watch(channel, Settings(reason=reason, redact=redact, prefix=prefix))
    return channel


def watch(channel: BlockingChannel, settings: Settings) -> Deliveries:
    """What the channel takes from now on; one that is watched already gets the new settings."""
    if not isinstance(channel, BlockingChannel):
        raise InvalidDeclaration(f"channel {channel!r}: it has to be a channel of a BlockingConnection")
    known: Deliveries | None = getattr(channel, _WATCHED, None)
    if known is not None:
        known.settings = settings
        return known
    made = Deliveries(channel, settings)
    setattr(channel, _WATCHED, made)
    for name in _OVERRIDDEN:
        setattr(channel, name, getattr(made, name))
    return made


class _Taken(NamedTuple):
    queue: str
    message: Message
    before: BaseException | None  # what was being handled when it came


class Deliveries:
    """What a channel has taken and not settled, which is as much as its prefetch lets it; and how it is settled."""

    def __init__(self, channel: BlockingChannel, settings: Settings) -> None:
        self.settings = settings
        self._channel = channel
        self._own = {name: getattr(channel, name) for name in _OVERRIDDEN}
        self._taken: dict[int, _Taken] = {}
        self._ended_by: dict[int, BaseException] = {}

    def taken(self, queue: str, method: Any, properties: Any, body: bytes) -> None:
        """A message came, and is to be settled."""
        message = Message(self._channel, method, properties, body)
        self._taken[method.delivery_tag] = _Taken(queue, message, sys.exc_info()[1])

    def ended_by(self, delivery_tag: int, error: BaseException) -> None:
        """Why it is going to be rejected, where somebody knows better than `in_flight`. From any thread."""
        self._ended_by[delivery_tag] = error

    def basic_consume(
        self, queue: str, on_message_callback: Callback, auto_ack: bool = False, *args: Any, **kwargs: Any
    ) -> Any:
        """As pika's, with its callback watched."""

        def take(channel: Any, method: Any, properties: Any, body: bytes) -> None:
            self.taken(queue, method, properties, body)
            try:
                on_message_callback(channel, method, properties, body)
            except Exception as error:
                self._declared(method.delivery_tag, error)
                raise

        callback = on_message_callback if auto_ack else take
        return self._own["basic_consume"](queue, callback, auto_ack, *args, **kwargs)

    def consume(self, queue: str, auto_ack: bool = False, *args: Any, **kwargs: Any) -> Iterator[Any]:
        """As pika's."""
        return self.watched(queue, self._own["consume"](queue, auto_ack, *args, **kwargs), auto_ack=auto_ack)

    def watched(self, queue: str, deliveries: Iterator[Any], *, auto_ack: bool = False) -> Iterator[Any]:
        """The same deliveries, taken note of."""
        for method, properties, body in deliveries:
            if method is not None and not auto_ack:
                self.taken(queue, method, properties, body)
            yield method, properties, body

    def basic_get(self, queue: str, auto_ack: bool = False) -> Any:
        """As pika's."""
        method, properties, body = self._own["basic_get"](queue, auto_ack)
        if method is not None and not auto_ack:
            self.taken(queue, method, properties, body)
        return method, properties, body

    def basic_ack(self, delivery_tag: int = 0, multiple: bool = False) -> None:
        """As pika's."""
        self._forget(delivery_tag, multiple=multiple)
        self._own["basic_ack"](delivery_tag, multiple)

    def basic_nack(self, delivery_tag: int = 0, multiple: bool = False, requeue: bool = True) -> None:
        """As pika's; declared instead where an exception is why."""
        if multiple or requeue or not self._declared(delivery_tag, self._error(delivery_tag)):
            self._forget(delivery_tag, multiple=multiple)
            self._own["basic_nack"](delivery_tag, multiple, requeue)

    def basic_reject(self, delivery_tag: int = 0, requeue: bool = True) -> None:
        """As pika's; declared instead where an exception is why."""
        if requeue or not self._declared(delivery_tag, self._error(delivery_tag)):
            self._forget(delivery_tag)
            self._own["basic_reject"](delivery_tag, requeue)

    def _error(self, delivery_tag: int) -> BaseException | None:
        known, taken = self._ended_by.get(delivery_tag), self._taken.get(delivery_tag)
        return known or in_flight(taken.before if taken else None)

    def _declared(self, delivery_tag: int, error: BaseException | None) -> bool:
        """The death of the message is declared with this error, and it is acked; else it is as it was."""
        taken, settings = self._taken.get(delivery_tag), self.settings
        if taken is None or error is None:
            return False
        try:
            details = settings.told_of(error)
            dead(taken.message, settings.reason, error=details, queue=taken.queue, prefix=settings.prefix)
        except NotAcked as failure:
            not_acked(taken.queue, failure)
        except NotDeclared as failure:
            not_declared(taken.queue, failure)
            return False
        self._forget(delivery_tag)
        return True

    def _forget(self, delivery_tag: int, *, multiple: bool = False) -> None:
        """By AMQP's count: with `multiple` all up to it, and all there are for 0."""
        tags = [tag for tag in self._taken if not delivery_tag or tag <= delivery_tag] if multiple else [delivery_tag]
        for tag in tags:
            self._taken.pop(tag, None)
            self._ended_by.pop(tag, None)
