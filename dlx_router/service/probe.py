"""The probe channel: one publish at a time, so that a channel that closes names its culprit."""

import asyncio

from dlx_router.broker.link import ChannelClosed, Link, LinkError
from dlx_router.broker.publisher import Publisher
from dlx_router.service.job import Job
from dlx_router.service.render import Stationery


class Probe:
    """Publishes alone; callers are served one after the other."""

    def __init__(self, link: Link, stationery: Stationery, timeout_s: float) -> None:
        self._link = link
        self._stationery = stationery
        self._timeout_s = timeout_s
        self._lock = asyncio.Lock()
        self._answer: asyncio.Future[str | ChannelClosed] | None = None
        self._publisher: Publisher[Job] | None = None

    async def publish(self, job: Job) -> str | ChannelClosed:
        """Nothing ("") when confirmed and routed; "returned", "nacked", "timeout", or the ChannelClosed it caused.

        Raises LinkError when the link is gone.
        """
        async with self._lock:
            publisher = await self._ready()
            answer: asyncio.Future[str | ChannelClosed] = asyncio.get_running_loop().create_future()
            self._answer = answer
            exchange, key, section = self._stationery.write(job, publisher.stamp())
            publisher.publish(job, exchange, key, section, job.delivery.body)
            try:
                async with asyncio.timeout(self._timeout_s):
                    return await answer
            except TimeoutError:
                await publisher.close()
                return "timeout"

    async def _ready(self) -> Publisher[Job]:
        if self._publisher is None or not self._publisher.is_open:
            self._publisher = Publisher(self._link, on_answer=self._answered, on_doubt=self._closed)
            await self._publisher.open()
        return self._publisher

    def _answered(self, _job: Job, why: str) -> None:
        self._resolve(why)

    def _closed(self, _jobs: list[Job], error: Exception) -> None:
        self._resolve(error if isinstance(error, ChannelClosed) else "timeout")

    def _resolve(self, answer: str | ChannelClosed) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)


__all__ = ["LinkError", "Probe"]
