"""Errors of handlers on FastStream: a middleware, and what FastStream rejects because of an exception says so.

```python
broker = RabbitBroker(url, middlewares=[DeclareErrors()])
```

Whether a message is rejected is for the `ack_policy` of its subscriber to say, as without it: `REJECT_ON_ERROR`
rejects; `NACK_ON_ERROR` gives back and `ACK` acks, and neither is a death.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Any

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
        if isinstance(msg, Delivery):
            msg.settings = self.settings
        return _Middleware(msg, **context)


class _Middleware(BaseMiddleware):  # type: ignore[misc]  # an extra
    """Takes note of the exception that ended the handler, before others make something else of it."""

    async def consume_scope(self, call_next: Callable[[Any], Awaitable[Any]], msg: Any) -> Any:
        try:
            return await call_next(msg)
        except Exception as error:
            raw = getattr(msg, "raw_message", None)
            if isinstance(raw, Delivery):
                raw.ended_by = (_why(error),)
            raise


def _why(error: Exception) -> BaseException | None:
    """`raise RejectMessage from error`: that error, if there is one; to say no, `from None` too, is not to fail."""
    cause = error.__cause__ or (None if error.__suppress_context__ else error.__context__)
    return cause if isinstance(error, HandlerException) else error
