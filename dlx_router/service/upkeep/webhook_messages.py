"""Messages on their way to endpoints: batched, sent, tried again, and written down once they were taken.

What an endpoint took is written into the journal of its vhost (`webhook.told`): a later leader does not tell it again,
and finds in the index what its predecessor could not tell.
"""

import asyncio
import random
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from dlx_router.config.webhooks.endpoint import Endpoint, Endpoints
from dlx_router.core.notices import Message, Notice
from dlx_router.service.inflight.clock import steady_ms
from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.wall_clock import wall_ms
from dlx_router.webhooks.outbox import Outbox
from dlx_router.webhooks.sender import Answer

TOLD: Final = "webhook.told"
FATE: Final = "it is tried again for a day; letters go on"
Told = set[tuple[str, str, str]]  # endpoint, kind, key
Send = Callable[[Endpoint, Message], Coroutine[Any, Any, Answer]]
Record = Callable[[str, str, Mapping[str, Any]], None]  # vhost, action, details → the journal


class WebhookMessages:
    """The messages of all endpoints."""

    def __init__(self, send: Send, record: Record, metrics: Metrics) -> None:
        self._send, self._record, self._metrics = send, record, metrics
        self._endpoints: Endpoints = {}
        self._outboxes: dict[str, Outbox] = {}
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._once = Once()

    def use(self, endpoints: Endpoints) -> None:
        """Send to these from now on; drop what waits for one that is gone."""
        for name in self._endpoints.keys() - endpoints.keys():
            self._metrics.webhooks["dropped"] += len(self._outboxes.pop(name))
            if (sending := self._sending.pop(name, None)) is not None:
                sending.cancel()
        self._outboxes = {name: self._outboxes.get(name) or Outbox() for name in endpoints}
        self._endpoints = endpoints

    def waiting(self) -> dict[str, int]:
        """Return how many messages each endpoint has not taken."""
        return {name: len(outbox) for name, outbox in self._outboxes.items()}

    def add(self, notices: Iterable[Notice], known: Told) -> None:
        """Add notices for the endpoints that want them and were not told them by an earlier leader."""
        for notice in notices:
            for name, endpoint in self._endpoints.items():
                is_wanted = endpoint.wants(notice.kind, notice.vhost, notice.queues)
                if is_wanted and (name, notice.kind, notice.key) not in known:
                    self._outboxes[name].add(notice, steady_ms())

    def leave(self, vhost: str) -> None:
        """Drop what is about a vhost that another router leads now."""
        for outbox in self._outboxes.values():
            outbox.drop(vhost)

    def pass_on(self) -> None:
        """Send what is due; call it every now and then."""
        for name, outbox in self._outboxes.items():
            outbox.close_batches(steady_ms(), wall_ms())
            self._metrics.webhooks["expired"] += outbox.expired(wall_ms())
            if dropped := outbox.overflowed():
                self._metrics.webhooks["dropped"] += dropped
                fate = "the oldest message was dropped: too many wait for this endpoint"
                self._once.warn(f"{name} full", "webhook.dropped", webhook=name, fate=fate)
            sending = self._sending.get(name)
            if sending is not None and sending.done():
                del self._sending[name]
                sending.result()  # an unforeseen error is raised to the caller
            if name not in self._sending and outbox.next(steady_ms()) is not None:
                self._sending[name] = asyncio.create_task(self._send_due(name, outbox))

    async def stop(self) -> None:
        """Cancel what is being sent."""
        for task in self._sending.values():
            task.cancel()
        await asyncio.gather(*self._sending.values(), return_exceptions=True)
        self._sending.clear()

    async def _send_due(self, name: str, outbox: Outbox) -> None:
        """Send all that is due to an endpoint, one after the other."""
        while (waiting := outbox.next(steady_ms())) is not None:
            endpoint, message = self._endpoints[name], waiting.message
            answer = await self._send(endpoint, message)
            if not answer.taken:
                self._metrics.webhooks["refused" if answer.refused else "failed"] += 1
                outbox.failed(message.id, steady_ms(), random.random(), answer.asked_ms)  # noqa: S311 - jitter, no secret
                self._once.warn(name, "webhook.failed", webhook=name, host=endpoint.host, error=answer.why, fate=FATE)
                continue
            outbox.taken(message.id)
            self._metrics.webhooks["delivered"] += 1
            details = {"to": name, "id": message.id, "kind": message.kind, "keys": waiting.keys, "ts_ms": message.ts_ms}
            self._record(message.vhost, TOLD, details)
            self._once.healed(name, "webhook.works", webhook=name)
