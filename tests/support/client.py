"""A plain RabbitMQ client for tests (pika): it shares no code with the router, so both cannot be wrong the same way.

pika may change integer widths in headers. Where bytes matter use `tests.support.raw`.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self

import pika
from pika.adapters.blocking_connection import BlockingChannel
from pika.exceptions import ChannelClosedByBroker

from tests.support.eventually import eventually

Unroutable = pika.exceptions.UnroutableError
Refused = pika.exceptions.NackError


@dataclass(frozen=True)
class Message:
    """What a consumer sees. It stays unacknowledged until one of the verbs is said."""

    body: bytes
    headers: Mapping[str, Any]
    properties: pika.BasicProperties
    exchange: str
    routing_key: str
    redelivered: bool
    channel: BlockingChannel
    tag: int

    def ack(self) -> Self:
        """Done."""
        self.channel.basic_ack(self.tag)
        return self

    def reject(self) -> Self:
        """Failed: the broker dead-letters it."""
        self.channel.basic_reject(self.tag, requeue=False)
        return self

    def requeue(self) -> Self:
        """Given back (basic.nack)."""
        self.channel.basic_nack(self.tag, requeue=True)
        return self

    def put_back(self) -> Self:
        """Given back as failed (basic.reject): counts towards a delivery limit on every version."""
        self.channel.basic_reject(self.tag, requeue=True)
        return self

    @property
    def deaths(self) -> list[dict[str, Any]]:
        """Header x-death, newest first; empty where there is none."""
        return list(self.headers.get("x-death", []))


class Client:
    """One connection to one vhost. Publishes are mandatory and confirmed: an error is raised, never swallowed."""

    def __init__(self, url: str) -> None:
        parameters = pika.URLParameters(url)
        parameters.heartbeat = 0  # a test may look away for long
        self.connection = pika.BlockingConnection(parameters)
        self.channel = self._open()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Gives back what is unacknowledged; safe on a connection that is gone."""
        if self.connection.is_open:
            self.connection.close()

    def queue(self, name: str, kind: str = "classic", **arguments: Any) -> str:
        """Declare a durable queue. `dead_letter_exchange="x"` is argument x-dead-letter-exchange; gives the name."""
        table = {f"x-{key.replace('_', '-')}": value for key, value in arguments.items()}
        self.channel.queue_declare(name, durable=True, arguments={"x-queue-type": kind, **table})
        return name

    def exchange(self, name: str, kind: str = "direct") -> str:
        """Declare a durable exchange; gives the name."""
        self.channel.exchange_declare(name, exchange_type=kind, durable=True)
        return name

    def bind(self, queue: str, exchange: str, key: str = "") -> None:
        """Route `key` of `exchange` to `queue`."""
        self.channel.queue_bind(queue, exchange, routing_key=key)

    def publish(
        self,
        body: bytes | str,
        *,
        key: str,
        exchange: str = "",
        headers: Mapping[str, Any] | None = None,
        **properties: Any,
    ) -> None:
        """Confirmed, persistent; raises Unroutable or Refused. `properties` as pika.BasicProperties has them."""
        given = {"delivery_mode": 2, **properties, "headers": dict(headers) if headers is not None else None}
        data = body.encode() if isinstance(body, str) else body
        self.channel.basic_publish(exchange, key, data, pika.BasicProperties(**given), mandatory=True)

    def get(self, queue: str) -> Message | None:
        """The next message, unacknowledged; None if the queue is empty now."""
        method, properties, body = self.channel.basic_get(queue)
        if method is None:
            return None
        headers = properties.headers or {}
        where = (method.exchange, method.routing_key, method.redelivered)
        return Message(body, headers, properties, *where, self.channel, method.delivery_tag)

    def await_message(self, queue: str, within: float = 10) -> Message:
        """The next message, unacknowledged, as soon as there is one; the queue too may yet have to appear."""
        eventually(lambda: self.ready(queue), within)  # 3.10 ends a connection that gets from a queue being made
        return eventually(lambda: self.get(queue), within)  # type: ignore[return-value]  # eventually gives no None

    def take(self, queue: str, within: float = 10) -> Message:
        """The next message, acknowledged, as soon as there is one."""
        return self.await_message(queue, within).ack()

    def fail(self, queue: str, within: float = 10) -> Message:
        """The next message, rejected: it dies here."""
        return self.await_message(queue, within).reject()

    def depth(self, queue: str) -> int:
        """Ready messages now."""
        return int(self.channel.queue_declare(queue, passive=True).method.message_count)

    def exists(self, queue: str) -> bool:
        """The queue is declared."""
        return self.ready(queue) is not None

    def ready(self, queue: str) -> int | None:
        """Ready messages now; None where there is no such queue."""
        probe = self.connection.channel()
        try:
            answer = probe.queue_declare(queue, passive=True)
        except ChannelClosedByBroker:
            return None
        probe.close()
        return int(answer.method.message_count)

    def _open(self) -> BlockingChannel:
        channel = self.connection.channel()
        channel.confirm_delivery()
        return channel
