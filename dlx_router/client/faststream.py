"""Errors of handlers on FastStream: a middleware, and what FastStream rejects because of an exception says so.

```python
broker = RabbitBroker(url, middlewares=[DeclareErrors()])
```

Whether a message is rejected is for the `ack_policy` of its subscriber to say, as without it: `REJECT_ON_ERROR`
rejects; `NACK_ON_ERROR` gives back and `ACK` acks, and neither is a death.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from importlib import import_module
from typing import Any

from aio_pika import IncomingMessage
from faststream import BaseMiddleware
from faststream.exceptions import HandlerException

from dlx_router.client.aio_pika import Delivery
from dlx_router.client.declaration import PREFIX
from dlx_router.client.handlers import REASON, WITHIN_S, Redact, Settings


class DeclareErrors:
    """What `middlewares=[…]` takes; one for all subscribers. See `Settings` for what can be said."""

    def __init__(
        self, *, reason: str = REASON, redact: Redact | None = None, prefix: str = PREFIX, within: float = WITHIN_S
    ) -> None:
        self.settings = Settings(reason=reason, redact=redact, prefix=prefix, within=within)

    def __call__(self, msg: Any = None, **context: Any) -> _Middleware:
        """For one message; FastStream 0.5 gives no context."""
        middleware = _Middleware(msg, **context)
        middleware.settings = self.settings
        return middleware


class _Middleware(BaseMiddleware):  # type: ignore[misc]  # an extra
    """Has the message declare its errors, and notes the exception that ended the handler, before others wrap it."""

    settings: Settings

    async def consume_scope(self, call_next: Callable[[Any], Awaitable[Any]], msg: Any) -> Any:
        raw = getattr(msg, "raw_message", None)
        if not isinstance(raw, IncomingMessage):
            return await call_next(msg)
        msg.raw_message = delivery = Delivery(raw, self.settings, self._queue())
        try:
            return await call_next(msg)
        except Exception as error:
            delivery.ended_by(_why(error))
            raise

    def _queue(self) -> str | None:
        """The queue of the subscriber, with its prefix; FastStream keeps that in the context of the message."""
        context = getattr(self, "context", None) or import_module("faststream.utils.context.repository").context
        return getattr(getattr(context.get_local("handler_"), "_queue_obj", None), "name", None)


def _why(error: Exception) -> BaseException | None:
    """`raise RejectMessage from error`: that error, if there is one; to say no, `from None` too, is not to fail."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return cause if isinstance(error, HandlerException) else error
