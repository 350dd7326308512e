"""Errors of tasks on Celery with RabbitMQ: `declare_errors(app)`, and what Celery rejects for good says why.

```python
declare_errors(app)
```

Celery rejects a task that failed where `task_acks_late` is on and `task_acks_on_failure_or_timeout` is off, and where
the task raises `Reject(error, requeue=False)`. By default it acks, failed or not, and that stays so. Its retries are
messages of their own and no deaths. The worker's main process declares, by a connection of its own.
"""

from __future__ import annotations

import codecs
from contextlib import suppress
from socket import timeout
from threading import Lock
from typing import Any, Final

import amqp
from amqp.serialization import dumps, loads
from billiard.einfo import ExceptionWithTraceback
from celery import Celery
from celery.exceptions import Reject
from kombu.transport import pyamqp
from kombu.utils.imports import symbol_by_name

from dlx_router.client.declaration import PREFIX, Delivered, InexactHeader, NotDeclared, Undeliverable, Words
from dlx_router.client.exact import declared_headers, require_room
from dlx_router.client.handlers import REASON, WITHIN_S, Redact, Settings, not_declared

_LOST: Final = pyamqp.Transport.recoverable_connection_errors
_EXACT: Final = frozenset({"utf-8", "ascii", "iso8859-1"})  # what py-amqp decodes by these is the same bytes again


def declare_errors(
    app: Celery,
    *,
    reason: str = REASON,
    redact: Redact | None = None,
    prefix: str = PREFIX,
    within: float = WITHIN_S,
) -> Celery:
    """The same app; errors of its tasks are declared by its workers. See `Settings` for what can be said.

    For all tasks but those that have a `Request` of their own.
    """
    declarer = _Declarer(app, Settings(reason=reason, redact=redact, prefix=prefix, within=within))
    app.Task.Request = _request(symbol_by_name(app.Task.Request), declarer)
    return app


def _request(base: Any, declarer: _Declarer) -> Any:
    class Request(base):  # type: ignore[misc]  # as above
        """As Celery's; what it rejects because of an exception is declared."""

        _dlx_router_error: dict[str, str] | None = None

        def on_failure(self, exc_info: Any, *args: Any, **kwargs: Any) -> Any:
            self._dlx_router_error = declarer.told_of(exc_info)
            return super().on_failure(exc_info, *args, **kwargs)

        def reject(self, requeue: bool = False) -> None:
            details = self._dlx_router_error
            if requeue or self.acknowledged or details is None or not declarer.declared(self.message, details):
                super().reject(requeue=requeue)
                return
            self.acknowledge()
            self.send_event("task-rejected", requeue=False)

    return Request


class _Declarer:
    """The one connection by which the process of a worker declares."""

    def __init__(self, app: Celery, settings: Settings) -> None:
        self._app = app
        self._settings = settings
        self._lock = Lock()  # pools of threads fail in many of them
        self._opened: Any = None

    def told_of(self, exc_info: Any) -> dict[str, str] | None:
        """Of what a task failed with; None where it only said no."""
        error, traceback = exc_info.exception, getattr(exc_info, "tb", None)
        if isinstance(error, ExceptionWithTraceback):  # of a pool of processes
            error = error.exc
        if isinstance(error, Reject):
            why = error.reason  # a cause would not come along from a pool of processes
            return self._settings.told_of(why, traceback) if isinstance(why, BaseException) else None
        details = self._settings.told_of(error, traceback)
        module, name = getattr(error, "exc_module", None), getattr(error, "exc_cls_name", None)
        if module and name:  # its own class could not be pickled
            details["type"] = f"{module}.{name}" if module != "builtins" else str(name)
        return details

    def declared(self, message: Any, details: dict[str, str]) -> bool:
        """Its death is declared, and it is still to be acked; else it is as it was."""
        queue = _queue(message)
        try:
            self._declare(message, queue, details)
        except NotDeclared as failure:
            not_declared(queue, failure)
            return False
        return True

    def _declare(self, message: Any, queue: str | None, details: dict[str, str]) -> None:
        if not isinstance(message.channel, amqp.Channel):
            raise InexactHeader("it came by another transport than pyamqp")
        info, prefix = message.delivery_info, self._settings.prefix
        delivered = Delivered(
            queue=queue,
            exchange=info.get("exchange") or "",
            routing_key=info.get("routing_key") or "",
            headers=message.headers,
            expiration=message.properties.get("expiration"),
            has_id=bool(message.properties.get("message_id")),
        )
        headers = declared_headers(Words(reason=self._settings.reason, error=details), delivered, prefix, _again)
        # a foreign user id would close the channel, and a message's own expiration would let it evaporate in the inbox
        properties = {**message.properties, "application_headers": headers, "user_id": None, "expiration": None}
        with self._lock:
            self._publish(f"{prefix}.declared", delivered.routing_key, amqp.Message(_body(message), **properties))

    def _publish(self, exchange: str, routing_key: str, copy: amqp.Message) -> None:
        """Once more where the connection had been lost in the meantime."""
        for last in (self._opened is None, True):
            try:
                self._publish_once(exchange, routing_key, copy)
            except NotDeclared:
                raise
            except Exception as error:
                self._close()
                if last or isinstance(error, timeout) or not isinstance(error, _LOST):
                    raise Undeliverable(f"exchange {exchange!r}: {error}") from error
            else:
                return

    def _publish_once(self, exchange: str, routing_key: str, copy: amqp.Message) -> None:
        within = self._settings.within
        if self._opened is None:
            connection = self._app.connection_for_write(heartbeat=0, connect_timeout=within)  # nobody would let it beat
            self._opened = connection, connection.channel()
        _, channel = self._opened
        require_room(lambda: len(copy._serialize_properties()), channel.connection.frame_max)  # noqa: SLF001 - it has no other way
        channel.basic_publish_confirm(
            copy, exchange=exchange, routing_key=routing_key, mandatory=True, timeout=within, confirm_timeout=within
        )

    def _close(self) -> None:
        """What was said on it, and not answered, might be taken for an answer to the next."""
        opened, self._opened = self._opened, None
        if opened is not None:
            with suppress(Exception):
                opened[0].close()


def _again(headers: dict[Any, object]) -> object:
    return loads("F", dumps("F", [headers]), 0)[0][0]


def _body(message: Any) -> bytes:
    """As it came: py-amqp decodes a body that names its encoding."""
    body = message.body
    if not isinstance(body, str):
        return bytes(body)
    encoding = codecs.lookup(message.content_encoding).name
    if encoding not in _EXACT:
        raise InexactHeader(
            f"its body was decoded by {encoding!r}, and may not be the same bytes if it is encoded again"
        )
    return body.encode(encoding)


def _queue(message: Any) -> str | None:
    """The queue of the consumer that took it; kombu knows its consumers by their tags."""
    tag = (message.delivery_info or {}).get("consumer_tag")
    callback = getattr(message.channel, "callbacks", {}).get(tag)
    tags = getattr(getattr(callback, "__self__", None), "_active_tags", {})
    return next((queue for queue, of_queue in tags.items() if of_queue == tag), None)
