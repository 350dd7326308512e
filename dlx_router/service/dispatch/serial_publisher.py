"""Serial publisher: one publish at a time, so that a channel that closes names its culprit."""

import asyncio
from typing import Final

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.link import Link
from dlx_router.broker.publisher import Publisher
from dlx_router.service.inflight.encoder import Encoder
from dlx_router.service.inflight.job import Job

MOST_QUESTIONS: Final = 8  # each a channel, and a letter that waits unacked


class SerialPublisher:
    """Publishes alone; callers are served one after the other."""

    def __init__(self, link: Link, encoder: Encoder, timeout_s: float) -> None:
        self._link = link
        self._encoder = encoder
        self._timeout_s = timeout_s
        self._lock = asyncio.Lock()
        self._answer: asyncio.Future[str | ChannelClosed] | None = None
        self._publisher: Publisher[Job] | None = None
        self._lent = 0
        self._free: list[SerialPublisher] = []

    def lend(self) -> "SerialPublisher | None":
        """One for a question to a silent target: it may take the whole timeout, and nothing else waits for it.

        None: as many are on their way as may be. Questions must not outrun the answers.
        """
        if self._free:
            return self._free.pop()
        if self._lent == MOST_QUESTIONS:
            return None
        self._lent += 1
        return SerialPublisher(self._link, self._encoder, self._timeout_s)

    def take_back(self, probe: "SerialPublisher") -> None:
        """That question is over."""
        self._free.append(probe)

    async def publish(self, job: Job, *, bare: bool = False) -> str | ChannelClosed:
        """Nothing ("") when confirmed and routed; "returned", "nacked", "timeout", or the ChannelClosed it caused.

        `bare`: into quarantine, without what the broker told of its deaths. Raises LinkError when the link is gone.
        """
        async with self._lock:
            publisher = await self._ready()
            answer: asyncio.Future[str | ChannelClosed] = asyncio.get_running_loop().create_future()
            self._answer = answer
            write = self._encoder.bare if bare else self._encoder.write
            exchange, key, section = write(job, publisher.stamp())
            publisher.publish(job, exchange, key, section, job.delivery.body)
            try:
                return await self._in_time(answer)
            except TimeoutError:
                await publisher.close()
                return "timeout"

    async def _in_time(self, answer: asyncio.Future[str | ChannelClosed]) -> str | ChannelClosed:
        """The answer, or TimeoutError. While the broker reads nothing from us it cannot be late."""
        while True:
            was_blocked = self._link.blocked
            await asyncio.wait({answer}, timeout=self._timeout_s)
            if answer.done():
                return answer.result()
            if not was_blocked and not self._link.blocked:
                raise TimeoutError

    async def _ready(self) -> Publisher[Job]:
        if self._publisher is None or not self._publisher.is_open:
            self._publisher = Publisher(self._link, on_answer=self._answered, on_doubt=self._closed)
            await self._publisher.open()
        return self._publisher

    def _answered(self, _job: Job, why: str) -> None:
        self._resolve(why)

    def _closed(self, _jobs: list[Job], error: Exception) -> None:
        if not self._link.is_open:  # what became of it will be seen: the letter is delivered again
            self._fail(error)
        else:
            self._resolve(error if isinstance(error, ChannelClosed) else "timeout")

    def _fail(self, error: Exception) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)
            self._answer.exception()  # who asked may be gone: then it is no news either

    def _resolve(self, answer: str | ChannelClosed) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(answer)


__all__ = ["LinkError", "SerialPublisher"]
