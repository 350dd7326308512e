"""Messages on their way to endpoints: gathered, written down, sent, and tried again.

What is told is written into the journal of its vhost (`webhook.told`), and so is what became of it (`webhook.done`):
the next leader sends what its predecessor could not. What is about the router alone is kept in memory.
"""

import asyncio
import random
import secrets
from collections.abc import Callable, Coroutine, Iterable, Mapping
from typing import Any, Final

from dlx_router.config.webhooks.endpoint import Endpoint, Endpoints
from dlx_router.core.gathering import Gathered, Gatherer
from dlx_router.core.notices import Message, Notice, of_document
from dlx_router.core.redelivery import is_over
from dlx_router.service.inflight.clock import steady_ms
from dlx_router.telemetry.logs import Once
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.wall_clock import wall_ms
from dlx_router.webhooks.pending import Pending
from dlx_router.webhooks.sender import Answer

TOLD: Final = "webhook.told"
DONE: Final = "webhook.done"
FATE: Final = "it is tried again for a day; letters go on"
Told = set[tuple[str, str, str]]  # endpoint, kind, key
Send = Callable[[Endpoint, Message], Coroutine[Any, Any, Answer]]
Record = Callable[[str, str, Mapping[str, Any]], None]  # vhost, action, details → the journal


class WebhookMessages:
    """Of all endpoints."""

    def __init__(self, send: Send, record: Record, metrics: Metrics) -> None:
        self._send, self._record, self._metrics = send, record, metrics
        self._endpoints: Endpoints = {}
        self._gatherers: dict[str, Gatherer] = {}
        self._pending: dict[str, Pending] = {}
        self._sending: dict[str, asyncio.Task[None]] = {}
        self._once = Once()

    def use(self, endpoints: Endpoints) -> None:
        """From now on these; what waits for one that is gone is dropped."""
        for name in self._endpoints.keys() - endpoints.keys():
            del self._gatherers[name]
            self._metrics.webhooks["dropped"] += len(self._pending.pop(name))
            if (sending := self._sending.pop(name, None)) is not None:
                sending.cancel()
        for name in endpoints.keys() - self._endpoints.keys():
            self._gatherers[name], self._pending[name] = Gatherer(), Pending()
        self._endpoints = endpoints

    def waiting(self) -> dict[str, int]:
        """By endpoint: how many messages it has not taken."""
        return {name: len(pending) for name, pending in self._pending.items()}

    def add(self, notices: Iterable[Notice], sent: Told) -> None:
        """To be told to whoever wants to know it, and was not `sent` by an earlier leader."""
        for notice in notices:
            for name, endpoint in self._endpoints.items():
                is_wanted = endpoint.wants(notice.kind, notice.vhost, notice.queues)
                if is_wanted and (name, notice.kind, notice.key) not in sent:
                    self._gatherers[name].add(notice, steady_ms())

    def adopt(self, records: Iterable[tuple[str, Mapping[str, Any]]]) -> Told:
        """What earlier leaders told, as the journal says; what they could not send is sent by us."""
        known: Told = set()
        open_: dict[tuple[str, str], Message] = {}
        for action, details in records:
            name = str(details.get("to"))
            if action == DONE:
                open_.pop((name, str(details.get("id"))), None)
            elif (message := of_document(details.get("message"))) is not None:
                open_[name, message.id] = message
                known |= {(name, message.kind, str(key)) for key in details.get("keys") or ()}
        for (name, _), message in open_.items():
            if name in self._pending and not is_over(message.ts_ms, wall_ms()):
                self._wait(name, message)
        return known

    def leave(self, vhost: str) -> None:
        """Another router leads it, and tells."""
        for name in self._endpoints:
            self._gatherers[name].drop(vhost)
            self._pending[name].drop(vhost)

    def pass_on(self) -> None:
        """What was gathered is told, and what is due is sent; to be called every now and then."""
        for name in self._endpoints:
            for gathered in self._gatherers[name].due(steady_ms()):
                self._enqueue(name, gathered)
            for message in self._pending[name].expired(wall_ms()):
                self._finish(name, message, "expired", {})
            self._begin(name)

    async def stop(self) -> None:
        """Nothing is being sent when this returns."""
        for task in self._sending.values():
            task.cancel()
        await asyncio.gather(*self._sending.values(), return_exceptions=True)
        self._sending.clear()

    # -- one endpoint -------------------------------------------------------------------------------------------

    def _enqueue(self, name: str, gathered: Gathered) -> None:
        message = Message(
            f"msg_{secrets.token_hex(16)}", gathered.kind, gathered.vhost, wall_ms(), gathered.total, gathered.items
        )
        self._record(gathered.vhost, TOLD, {"to": name, "message": message.to_document(), "keys": gathered.keys})
        self._wait(name, message)

    def _wait(self, name: str, message: Message) -> None:
        if (dropped := self._pending[name].add(message, steady_ms())) is not None:
            self._finish(name, dropped, "dropped", {})
            fate = "the oldest message was dropped: too many wait for this endpoint"
            self._once.warn(f"{name} full", "webhook.dropped", webhook=name, fate=fate)

    def _begin(self, name: str) -> None:
        sending = self._sending.get(name)
        if sending is not None and sending.done():
            del self._sending[name]
            sending.result()  # an error of ours is told by whoever keeps us going
        if name not in self._sending and self._pending[name].next(steady_ms()) is not None:
            self._sending[name] = asyncio.create_task(self._sent(name, self._pending[name]))

    async def _sent(self, name: str, pending: Pending) -> None:
        """All that is due, one after the other."""
        while (waiting := pending.next(steady_ms())) is not None:
            endpoint, message = self._endpoints[name], waiting.message
            answer = await self._send(endpoint, message)
            if not answer.taken:
                self._metrics.webhooks["refused" if answer.refused else "failed"] += 1
                pending.failed(message.id, steady_ms(), random.random(), answer.asked_ms)  # noqa: S311 - jitter, no secret
                self._once.warn(name, "webhook.failed", webhook=name, host=endpoint.host, error=answer.why, fate=FATE)
                continue
            pending.taken(message.id)
            self._finish(name, message, "delivered", {"status": answer.status, "tries": waiting.tries + 1})
            self._once.healed(name, "webhook.works", webhook=name)

    def _finish(self, name: str, message: Message, result: str, more: Mapping[str, Any]) -> None:
        self._metrics.webhooks[result] += 1
        self._record(message.vhost, DONE, {"to": name, "id": message.id, "result": result, **more})
