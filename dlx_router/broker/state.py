"""The state queue: who leads, and the key that signs, for routers without a key file.

The queue has a single active consumer. We publish a hello and consume: when our own hello is delivered, we are the
active consumer and have seen everything before it, the key message included. A copy of the key is published and
confirmed before the old one is acked, so that no crash can lose it; and because nothing stays unacked over a minute,
no consumer timeout comes near.
"""

import asyncio
import base64
import json
import secrets
from types import TracebackType
from typing import Final, Self

import aio_pika
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from dlx_router.broker.topology import Topology

RENEW_S: Final = 45.0
KEY_BYTES: Final = 32


class StateQueue:
    """Our part in the state queue of one vhost, for as long as the block lasts."""

    def __init__(self, topology: Topology) -> None:
        self._topology = topology
        self._instance = secrets.token_hex(8)
        self._channel: AbstractChannel | None = None
        self._active = asyncio.Event()
        self._key: bytes | None = None
        self._held: AbstractIncomingMessage | None = None
        self._renewing: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        connection = await self._topology.connect()
        self._channel = await connection.channel(publisher_confirms=True)
        await self._channel.set_qos(prefetch_count=100)
        queue = await self._channel.get_queue(self._topology.names.state, ensure=False)
        await queue.consume(self._read)
        await self._publish({"kind": "hello", "v": 1, "instance": self._instance})
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._renewing is not None:
            self._renewing.cancel()
        if self._channel is not None and not self._channel.is_closed:
            await self._channel.close()

    @property
    def key(self) -> bytes:
        """The key; only after `wait_active`."""
        if self._key is None:
            raise RuntimeError("the state queue is not ours yet")
        return self._key

    async def wait_active(self) -> None:
        """Until we are the active consumer and the key is known. May take for ever: another router is active."""
        await self._active.wait()
        if self._key is None:
            self._key = secrets.token_bytes(KEY_BYTES)
            await self._publish_key()
        self._renewing = asyncio.create_task(self._renew())

    async def _read(self, message: AbstractIncomingMessage) -> None:
        said = json.loads(message.body)
        if said.get("kind") == "key":
            self._key = base64.b64decode(said["key"])
            held, self._held = self._held, message
            if held is not None:
                await held.ack()
            return
        await message.ack()
        if said.get("instance") == self._instance:
            self._active.set()

    async def _renew(self) -> None:
        while True:
            await asyncio.sleep(RENEW_S)
            await self._publish_key()  # the copy comes back to us, and then the old one is acked

    async def _publish_key(self) -> None:
        await self._publish({"kind": "key", "v": 1, "key": base64.b64encode(self.key).decode()})

    async def _publish(self, document: dict[str, object]) -> None:
        assert self._channel is not None  # noqa: S101 - opened on enter
        message = aio_pika.Message(
            json.dumps(document).encode(), delivery_mode=aio_pika.DeliveryMode.PERSISTENT, message_id=secrets.token_hex(8)
        )
        await self._channel.default_exchange.publish(message, self._topology.names.state, mandatory=True)
