"""Spares: letters that must not go back, because the broker would end them after few more returns, go to parking.

As on the way of letters (`Worker.spare` of dispatch): a connection that is lost while they are held is a return too.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from typing import Final, NamedTuple

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.link import Link
from dlx_router.core.letter import Letter
from dlx_router.redrive.task import Counts, Kind, Spec
from dlx_router.service.inflight.decoder import Envelope
from dlx_router.service.inflight.job import Job
from dlx_router.service.redrive.bindings import Bindings
from dlx_router.service.redrive.context import TaskContext
from dlx_router.service.redrive.copies import copies_of
from dlx_router.service.redrive.counters import Counters
from dlx_router.service.redrive.sender import Sender
from dlx_router.telemetry.logs import log
from dlx_router.wire import frames

LOOK_S: Final = 0.02
MOST_BYTES: Final = 16 << 20  # of those that stay
LEAST_KEPT: Final = 100  # with fewer nobody looks which of them are sent
FATE: Final = "in parking: their queue ends what is returned so often"


class Near(NamedTuple):
    """A letter near the limit of its queue. `job`: by which it is sent, where it is meant."""

    consumer: Consumer
    delivery: frames.Delivery
    letter: Letter
    envelope: Envelope
    job: Job | None

    @property
    def stays(self) -> bool:
        """Whether it is not meant, and so nothing will be done about it."""
        return self.job is None and self.consumer.is_open

    @property
    def goes_back(self) -> bool:
        """Whether it would be given back: nobody knows of a copy. One in doubt may be twice, and not be lost."""
        return not self.is_sent and not self.is_flying and self.consumer.is_open

    @property
    def is_flying(self) -> bool:
        """Whether its copy is published and not answered."""
        return not self.is_sent and self.job is not None and self.job.copy is not None

    @property
    def is_sent(self) -> bool:
        """Whether its copy has arrived: then it has an event, too."""
        return self.job is not None and bool(self.job.batches)


class Spares:
    """Of one task. What `keep` was given and nobody has sent is in parking, and acked, once `park` is over in time."""

    def __init__(self, task_id: str, spec: Spec, context: TaskContext, ways: Bindings) -> None:
        self._task_id, self._context, self._ways = task_id, context, ways
        self._spec = replace(spec, kind=Kind.PARK, to=None)
        self._kept: list[Near] = []
        self._many = LEAST_KEPT
        self._staying_bytes = 0

    def keep(self, near: Near) -> None:
        """It must not go back. What is sent meanwhile is forgotten, or its body would stay until the look ends."""
        self._kept.append(near)
        self._staying_bytes += len(near.delivery.body) if near.job is None else 0
        if len(self._kept) > self._many:
            self._kept = [kept for kept in self._kept if not kept.is_sent]
            self._many = max(2 * len(self._kept), LEAST_KEPT)

    @property
    def are_flying(self) -> bool:
        """Whether any of them has a copy that is not answered: its publisher must end before it can be parked."""
        return any(near.is_flying for near in self._kept)

    @property
    def are_large(self) -> bool:
        """Whether those that stay should be in parking before more are taken."""
        return self._staying_bytes > MOST_BYTES

    async def park_staying(self, out: Link, until_s: Callable[[], float]) -> int:
        """As `park`, before the look is over: only those about which nothing will be done."""
        staying = [near for near in self._kept if near.stays]
        self._kept, self._staying_bytes = [near for near in self._kept if near.job is not None], 0
        return await self._park(staying, out, until_s)

    async def park(self, out: Link, until_s: Callable[[], float]) -> int:
        """How many are in parking now. What the broker takes from nobody goes back after all."""
        kept, self._kept, self._staying_bytes = [near for near in self._kept if near.goes_back], [], 0
        return await self._park(kept, out, until_s)

    async def _park(self, kept: list[Near], out: Link, until_s: Callable[[], float]) -> int:
        if not kept:
            return 0
        counters = Counters(Counts())
        with suppress(LinkError, ChannelClosed, TimeoutError):
            async with asyncio.timeout(max(until_s() - time.monotonic(), 0)):
                await self._send(kept, out, counters)
        log.warning(
            "redrive.spared",
            task=self._task_id,
            queue=self._spec.queue,
            parked=(parked := counters.counts.sent),
            given_back=len(kept) - parked,
            fate=FATE,
        )
        return parked

    async def _send(self, kept: list[Near], out: Link, counters: Counters) -> None:
        wake, copies = asyncio.Event(), copies_of(self._task_id, self._spec, self._context)
        sender = Sender(self._spec, self._context, copies, ways=self._ways, counters=counters, wake=wake.set)
        await sender.open(out)
        for near in kept:
            while sender.room <= 0 and sender.failure is None:  # noqa: ASYNC110 - a link tells one listener only
                await asyncio.sleep(LOOK_S)
            if sender.failure is not None:  # the channel may be gone, too
                return
            await sender.send(copies.job(near.consumer, near.delivery, near.letter, near.envelope))
        while sender.pending and sender.failure is None:
            wake.clear()
            await wake.wait()
        await sender.close()
