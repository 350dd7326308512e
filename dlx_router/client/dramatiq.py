"""Errors of actors on dramatiq with RabbitMQ: a middleware, and what dramatiq gives up for good says why.

```python
broker.add_middleware(DeclareErrors())
```

dramatiq tries again by itself, and that is no death: its retries are messages of its own. When it has given up, after
the last retry, `throws` or an age limit, it rejects; that is declared with the exception that ended the last try.
"""

from __future__ import annotations

from typing import Any

from dramatiq.brokers.rabbitmq import RabbitmqBroker
from dramatiq.middleware import Middleware

from dlx_router.client.declaration import PREFIX, InvalidDeclaration
from dlx_router.client.handlers import REASON, Redact, Settings
from dlx_router.client.pika import watch


class DeclareErrors(Middleware):  # type: ignore[misc]  # an extra
    """What `add_middleware` takes. See `Settings` for what can be said."""

    def __init__(self, *, reason: str = REASON, redact: Redact | None = None, prefix: str = PREFIX) -> None:
        self.settings = Settings(reason=reason, redact=redact, prefix=prefix)

    def before_worker_boot(self, broker: Any, worker: object) -> None:  # noqa: ARG002 - dramatiq's own
        """Each consumer that the worker's broker makes from now on is watched."""
        if not isinstance(broker, RabbitmqBroker):
            raise InvalidDeclaration(f"broker {broker!r}: errors can only be declared on a RabbitmqBroker")
        consume = broker.consume

        def consume_watched(queue_name: str, *args: Any, **kwargs: Any) -> Any:
            return _watched(consume(queue_name, *args, **kwargs), queue_name, self.settings)

        broker.consume = consume_watched


def _watched(consumer: Any, queue: str, settings: Settings) -> Any:
    """The consumer, whose rejections know the exception that dramatiq keeps with a message."""
    deliveries, nack = watch(consumer.channel, settings), consumer.nack
    consumer.iterator = deliveries.watched(queue, consumer.iterator)

    def nack_with_error(message: Any) -> None:
        error = getattr(message, "_exception", None)
        if error is not None:
            deliveries.ended_by(message._tag, error)  # noqa: SLF001 - what dramatiq knows a delivery by
        nack(message)

    consumer.nack = nack_with_error
    return consumer
