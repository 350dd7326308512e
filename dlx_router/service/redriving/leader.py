"""Leading: one router of those that share a vhost has the tasks; the single active consumer of the state queue is it."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final

from dlx_router.broker.control import TopologyError
from dlx_router.broker.link import ChannelClosed, LinkError
from dlx_router.broker.state import StateQueue
from dlx_router.broker.topology import Topology
from dlx_router.telemetry.logs import Once

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 5.0
_RETRIED: Final = (LinkError, ChannelClosed, TopologyError, OSError, TimeoutError)


async def lead(topology: Topology, work: Callable[[], Awaitable[None]], *, is_elected: bool) -> None:
    """`work()` while this router leads, again and again, until cancelled. `work` is cancelled when the lead is lost.

    `is_elected`: it holds the state queue already, since it has its key from there.
    """
    once, failures = Once(), 0
    while True:
        try:
            if is_elected:
                await work()
            else:
                await _elected(topology, work)
        except _RETRIED as error:
            failures += 1
            once.warn("lead", "leader.interrupted", vhost=topology.vhost, error=str(error), fate="tasks wait; tried again")
        await asyncio.sleep(min(FIRST_PAUSE_S * 2 ** min(failures, 10), LONGEST_PAUSE_S))


async def _elected(topology: Topology, work: Callable[[], Awaitable[None]]) -> None:
    lost: asyncio.Future[TopologyError] = asyncio.get_running_loop().create_future()
    async with StateQueue(topology, on_lost=lambda why: None if lost.done() else lost.set_result(why)) as state:
        await state.wait_leader()
        working = asyncio.ensure_future(work())
        try:
            await asyncio.wait({working, lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            working.cancel()
            await asyncio.gather(working, return_exceptions=True)
        if lost.done():
            raise lost.result()
        if not working.cancelled() and (error := working.exception()) is not None:
            raise error
