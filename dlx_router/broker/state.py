"""The state queue: who is active, and the key that signs, for routers without a key file.

The key is a message in a queue with a single active consumer. Guarantees: the key is never lost, whenever we are
killed; two routers never use two keys; `active` is said only by the one consumer, once it has seen all that lay before.

How: we consume and publish a hello. A hello of ours that comes back proves that we are the active consumer and, the
queue being in order, that every earlier message has been seen. An active router acks the hellos of others, so a standby
repeats its own. What is no hello is kept: held unacked for at most `renew_s`, then published again, and acked only
when the copy came back. A new key is used only once it came back: the first in the queue is the key of all.
"""

import asyncio
import base64
import binascii
import json
import secrets
import time
from collections.abc import Callable, Coroutine
from types import TracebackType
from typing import Any, Final, Self

import structlog
from aio_pika import DeliveryMode, Message
from aio_pika.abc import AbstractChannel, AbstractIncomingMessage

from dlx_router.broker.control import Control, TopologyError
from dlx_router.broker.topology import Topology

RENEW_S: Final = 30.0
HELLO_S: Final = 1.0  # a takeover has 5 s, and a standby learns of it by its next hello
WITHIN_S: Final = 15.0
KEY_BYTES: Final = 32
PREFETCH: Final = 1000

_log = structlog.get_logger("dlx_router")


class StateQueue:
    """Our part in the state queue of one vhost, for as long as the block lasts. The key appears in no repr or error."""

    def __init__(
        self,
        topology: Topology,
        *,
        on_lost: Callable[[TopologyError], None] = lambda _why: None,
        renew_s: float = RENEW_S,
        hello_s: float = HELLO_S,
    ) -> None:
        self.active = False
        self._queue = topology.names.state
        self._control: Control = topology.another("state")
        self._on_lost, self._renew_s, self._hello_s = on_lost, renew_s, hello_s
        self._instance = secrets.token_hex(8)
        self._channel: AbstractChannel
        self._held: dict[bytes, AbstractIncomingMessage] = {}
        self._key: bytes | None = None
        self._greeted = asyncio.Event()  # our hello came back
        self._keyed = asyncio.Event()  # a key came
        self._came = asyncio.Event()  # a copy came back
        self._renewed: set[bytes] = set()
        self._lost: asyncio.Future[TopologyError] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Takes its place in the queue; raises TopologyError where it cannot."""
        try:
            async with self._control.translated(f"queue {self._queue!r}"), asyncio.timeout(WITHIN_S):
                await self._consume()
        except BaseException:
            await self._control.close()
            raise
        self._spawn(self._greet)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.active = False
        self._on_lost = lambda _why: None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._control.close()

    @property
    def key(self) -> bytes:
        """The key that signs; RuntimeError before `wait_active`."""
        if self._key is None or not self._greeted.is_set():
            raise RuntimeError("wait_active() before asking for the key")
        return self._key

    async def wait_active(self) -> None:
        """Until we are the active consumer and the key is known; for ever, while another is. TopologyError: lost."""
        await self._unless_lost(self._greeted.wait())
        if self._key is None:
            await self._unless_lost(self._publish(_new_key(self._instance)))
            await self._unless_lost(self._keyed.wait())
        self.active = not self._lost.done()
        self._spawn(self._renew)

    # -- reading ------------------------------------------------------------------------------------------------

    async def _consume(self) -> None:
        connection = await self._control.connect()
        self._channel = connection.channel(publisher_confirms=True, on_return_raises=True)
        await self._channel.initialize()
        self._channel.close_callbacks.add(lambda _channel, _why: self._lose("the channel was closed"))
        underlay = await self._channel.get_underlay_channel()
        underlay.on_consumer_cancel_callbacks.add(lambda _frame: self._lose("the broker ended our consumer"))
        await self._channel.set_qos(prefetch_count=PREFETCH)
        queue = await self._channel.get_queue(self._queue, ensure=False)
        await queue.consume(self._read)

    async def _read(self, message: AbstractIncomingMessage) -> None:
        document = _parsed(message.body)
        match document.get("kind"):
            case "hello":
                await self._hello(document, message)
            case "key" if self._adopt(document):
                await self._hold(message)
            case "key":
                await self._refuse_key(message)
            case _:
                await self._hold(message)

    async def _hello(self, document: dict[str, Any], message: AbstractIncomingMessage) -> None:
        await message.ack()
        if document.get("instance") == self._instance:
            self._greeted.set()

    def _adopt(self, document: dict[str, Any]) -> bool:
        """Whether this is the key: the first one seen is."""
        key = _decoded(document.get("key"))
        if self._key is None:
            self._key = key
        return key is not None and secrets.compare_digest(key, self._key or b"")

    async def _refuse_key(self, message: AbstractIncomingMessage) -> None:
        if _decoded(_parsed(message.body).get("key")) is None:
            await self._hold(message)
            self._lose("it holds a key that this version cannot read; run the version that wrote it")
            return
        _log.warning("state.second_key", queue=self._queue, fate="dropped: it lay behind the key in use")
        await message.ack()

    async def _hold(self, message: AbstractIncomingMessage) -> None:
        """Keep it; an older copy has had its day."""
        older = self._held.pop(message.body, None)
        self._held[message.body] = message
        self._renewed.discard(message.body)
        self._came.set()
        if self._key is not None:
            self._keyed.set()
        if older is not None:
            await older.ack()

    # -- writing ------------------------------------------------------------------------------------------------

    async def _greet(self) -> None:
        """Say hello until it comes back; whoever is active acks it, so it is said again."""
        while not self._greeted.is_set():
            await self._publish(_hello(self._instance))
            try:
                async with asyncio.timeout(self._hello_s):
                    await self._greeted.wait()
            except TimeoutError:
                continue

    async def _renew(self) -> None:
        """Nothing of ours stays unacked for long; copies that do not come back say that we are active no more."""
        while True:
            await asyncio.sleep(self._renew_s)
            self._renewed = set(self._held)
            for body in [*self._renewed]:
                await self._publish(body)
            try:
                async with asyncio.timeout(WITHIN_S):
                    await self._all_came()
            except TimeoutError:
                self._lose("a copy of the key did not come back; another router is active")
                return

    async def _all_came(self) -> None:
        while self._renewed:
            self._came.clear()
            await self._came.wait()

    async def _publish(self, body: bytes) -> None:
        """Confirmed and persistent. It takes as long as an alarm of the broker does: that is no loss."""
        message = Message(body, delivery_mode=DeliveryMode.PERSISTENT, message_id=secrets.token_hex(8))
        async with self._control.translated("publishing"):
            await self._channel.default_exchange.publish(message, self._queue, mandatory=True)

    # -- ending -------------------------------------------------------------------------------------------------

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(self._watched(work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _watched(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except TopologyError as error:
            self._lose(str(error))

    def _lose(self, why: str) -> None:
        if self._lost.done():
            return
        error = TopologyError(f"state queue {self._queue!r} ({self._control.where}): {why}")
        was_active, self.active = self.active, False
        self._lost.set_result(error)
        if was_active:
            self._on_lost(error)

    async def _unless_lost(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
        if self._lost.done():
            raise self._lost.result()
        task.result()


def _hello(instance: str) -> bytes:
    return _written({"kind": "hello", "v": 1, "instance": instance})


def _new_key(instance: str) -> bytes:
    key = base64.b64encode(secrets.token_bytes(KEY_BYTES)).decode()
    return _written(
        {"kind": "key", "v": 1, "key": key, "instance": instance, "created_ms": time.time_ns() // 1_000_000}
    )


def _written(document: dict[str, Any]) -> bytes:
    return json.dumps(document, separators=(",", ":")).encode()


def _parsed(body: bytes) -> dict[str, Any]:
    try:
        document = json.loads(body)
    except ValueError:
        return {}
    return document if isinstance(document, dict) else {}


def _decoded(text: object) -> bytes | None:
    try:
        key = base64.b64decode(text, validate=True) if isinstance(text, str) else b""
    except (binascii.Error, ValueError):
        return None
    return key if len(key) == KEY_BYTES else None
