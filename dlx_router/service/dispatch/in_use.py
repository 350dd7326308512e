"""In use: which dead-letter queues some router may publish to just now, so that none is deleted under a letter.

`queue.delete` with if-empty and if-unused is not atomic for publishers: what was routed to the queue between that look
and the end of its process is confirmed, because its queue is gone, and lost. So no router may delete a queue that it or
another one publishes to. Who publishes is a consumer of the queue's lock, an empty internal queue, from before the
first publish until after the last confirm; who deletes is its exclusive consumer. Consuming is a call, answered by the
queue, so the broker sees to it that there is either any number of the former or one of the latter.

The lock is held on the connection that publishes: where that is lost so is every confirm, and the letter is delivered
again. The lock's queue deletes itself with its last consumer.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from pamqp import commands

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.link import Link
from dlx_router.core.names import Names
from dlx_router.telemetry.logs import Once
from dlx_router.wire import frames

AGAIN_S: Final = 0.05
MOST: Final = 500  # a channel each; beyond, one lock for all others
OTHERS: Final = ""
FORBIDDEN: Final = 403
NOT_FOUND: Final = 404
EXCLUSIVE: Final = "exclusive use"
TAG: Final = "dlx-router"
_ARGUMENTS: Final = {"x-queue-type": "classic"}


class Busy(Exception):
    """Another router may publish to the queue, or it is not empty and unused any more."""


class InUse:
    """The locks of one session. `on_lost(queue)`: one that was held is no more."""

    def __init__(self, link: Callable[[], Link], names: Names, on_lost: Callable[[str], None]) -> None:
        self._link, self._names, self._on_lost = link, names, on_lost
        self._held: dict[str, _Lock] = {}
        self._others: set[str] = set()
        self._once = Once()

    async def unblocked(self) -> None:
        """Returns once the broker reads what we send: under an alarm no lock is had, and nothing is published."""
        while self._link().blocked:  # noqa: ASYNC110 - a link tells one listener only
            await asyncio.sleep(AGAIN_S)

    async def hold(self, queue: str) -> None:
        """Nobody deletes the queue from now on, until `release`. Waits while somebody does; LinkError, TimeoutError."""
        if queue in self._held or queue in self._others:
            return
        if len(self._held) < MOST:
            await self._shared(queue)
            return
        if OTHERS not in self._held:
            await self._shared(OTHERS)
        self._others.add(queue)

    async def release(self, queue: str) -> None:
        """No copy of this router is on its way to the queue, and none will be before the next `hold`."""
        self._others.discard(queue)
        for name in [queue] if self._others else [queue, OTHERS]:
            lock = self._held.pop(name, None)
            if lock is not None:
                await lock.end()

    async def delete(self, queue: str) -> None:
        """Delete it where it is empty and unused, and no router publishes there. Busy: it stays. LinkError.

        Returns too where it is gone already. No copy of this router may be on its way to it.
        """
        await self.release(queue)
        locks: list[_Lock] = []
        try:
            for name in (queue, OTHERS):
                locks.append(lock := _Lock(self._link(), self._names.in_use(name), lambda: None))
                await lock.take(exclusive=True)
            await locks[0].delete(queue)
        except ChannelClosed as error:
            self._warn(error)
            raise Busy(str(error)) from None
        finally:
            for lock in locks:
                await lock.end()

    def _warn(self, error: ChannelClosed) -> None:
        if error.code == FORBIDDEN and EXCLUSIVE not in error.text:
            fate = "idle dead-letter queues stay; `dlx-router permissions` says which rights would have them deleted"
            self._once.warn("rights", "dead_letter_queues.not_deleted", error=str(error), fate=fate)

    async def _shared(self, queue: str) -> None:
        while True:
            lock = _Lock(self._link(), self._names.in_use(queue), lambda: self._lost(queue))
            try:
                await lock.take(exclusive=False)
            except ChannelClosed as error:
                if error.code == NOT_FOUND or EXCLUSIVE in error.text:
                    await asyncio.sleep(AGAIN_S)
                    continue
                self._warn(error)  # nobody with our rights gets the other lock either, and so nobody deletes
                return
            except BaseException:
                lock.drop()
                raise
            self._held[queue] = lock
            return

    def _lost(self, queue: str) -> None:
        if self._held.pop(queue, None) is None:
            return
        lost, self._others = ({queue}, self._others) if queue else (self._others, set())
        for name in lost:
            self._on_lost(name)


class _Lock:
    """One lock on a channel of its own; `on_lost` is called where it ends without our will."""

    def __init__(self, link: Link, name: str, on_lost: Callable[[], None]) -> None:
        self._link, self._name, self._on_lost = link, name, on_lost
        self._channel = 0

    async def take(self, *, exclusive: bool) -> None:
        """Have it. ChannelClosed where somebody has it who does not share, or it went between the two steps."""
        self._channel = await self._link.open_channel(self)
        declare = frames.lenient(commands.Queue.Declare)
        consume = frames.lenient(commands.Basic.Consume)
        await self._call(declare(queue=self._name, durable=True, auto_delete=True, arguments=dict(_ARGUMENTS)))
        await self._call(consume(queue=self._name, consumer_tag=TAG, exclusive=exclusive))
        if not self._channel:
            raise ChannelClosed(NOT_FOUND, f"lock {self._name!r} was lost as it was taken")

    async def delete(self, queue: str) -> None:
        """Delete a queue that is empty and unused, by the channel that holds the lock: both end together."""
        await self._call(frames.lenient(commands.Queue.Delete)(queue=queue, if_unused=True, if_empty=True))

    async def _call(self, method: Any) -> None:  # noqa: ANN401 - any method with an answer
        await self._link.rpc(self._channel, method)

    async def end(self) -> None:
        """Have it no more. Cancelled first, because the queue learns late of a channel that ends."""
        channel, self._channel = self._channel, 0
        if channel and self._link.is_open:
            with suppress(ChannelClosed, LinkError, TimeoutError):
                await self._link.rpc(channel, commands.Basic.Cancel(TAG))
                await self._link.close_channel(channel)

    def drop(self) -> None:
        """As `end`, without waiting."""
        channel, self._channel = self._channel, 0
        if channel:
            self._link.drop_channel(channel)

    def on_event(self, event: Any) -> None:  # noqa: ANN401 - a frame is anything until it is matched
        """Nothing is ever published there; the broker may end the consumer."""
        if event.__class__ is frames.Cancelled:
            self.drop()
            self._on_lost()

    def on_closed(self, _error: Exception) -> None:
        """The channel is gone, and the lock with it."""
        channel, self._channel = self._channel, 0
        if channel:
            self._on_lost()
