"""Retired: the consumer of what retention took out of its queue. The journal will be the only place where that is."""

from collections.abc import Callable, Coroutine
from typing import Any, Final

from dlx_router.core.letter import Arrival
from dlx_router.core.names import Names
from dlx_router.journal.batch import Batch, sure
from dlx_router.service.dispatch.worker import Worker
from dlx_router.service.sources.consumers import Consumers

PREFETCH: Final = 200


class Retention:
    """Consumes while the stream confirms. What waits in memory for a stream that does not would stop all letters."""

    def __init__(
        self, consumers: Consumers, names: Names, worker: Worker, spawn: Callable[[Coroutine[Any, Any, None]], None]
    ) -> None:
        self._consumers, self._names, self._worker, self._spawn = consumers, names, worker, spawn
        self._rests = False

    async def begin(self) -> None:
        """Consume from now on."""
        name = self._names.retired
        self._consumer = await self._consumers.consume(self._worker, name, Arrival.RETIRED, PREFETCH)

    async def again(self) -> None:
        """Consume anew, unless it rests."""
        if not self._rests:
            await self._consumers.leave(self._names.retired)
            await self.begin()

    def rest_until(self, batch: Batch) -> None:
        """Take nothing more until the stream has this batch, or never will."""
        if self._rests:
            return
        self._rests = True
        self._consumer.cancel()  # at once: what is given back next must not come again
        self._spawn(self._rest(batch))

    async def _rest(self, batch: Batch) -> None:
        await self._consumers.leave(self._names.retired)
        await sure([batch])
        self._rests = False
        await self.begin()
