"""A publishing channel: every publish is stamped with its number, so that a return can be told apart.

A `basic.return` carries no tag, and order does not help: the first ack after a return may be another publish's. After
the channel closes, nothing is published on it again; what was unanswered is handed back as in doubt.
"""

import asyncio
import contextlib
import struct
from collections.abc import Callable, Sequence
from typing import Any, Final, Generic, TypeVar

from pamqp import commands

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.link import Link
from dlx_router.core.settlement import Confirms, Part, RunOfJobs
from dlx_router.wire import frames, stamp, table

RETURNED: Final = "returned"
NACKED: Final = "nacked"
TIMEOUT: Final = "timeout"
_pack_number = struct.Struct(">q").pack


Job = TypeVar("Job", bound=Any)


class Publisher(Generic[Job]):
    """Publishes with `mandatory` and confirms; each job is answered once.

    By `on_done(jobs)` when they were confirmed and routed, and `on_runs(parts)` for what of runs was; by
    `on_answer(job, why)`, why "returned" or "nacked" (or "" as for `on_done`); or by `on_doubt(jobs, error)` when the
    channel closed.
    """

    def __init__(
        self,
        link: Link,
        *,
        on_answer: Callable[[Job, str], None],
        on_doubt: Callable[[list[Job], Exception], None],
        on_done: Callable[[list[Job]], None] | None = None,
        on_runs: Callable[[list[Part[Job]]], None] | None = None,
    ) -> None:
        self._link = link
        self._on_done, self._on_runs = on_done, on_runs
        self._on_answer = on_answer
        self._on_doubt = on_doubt
        self._confirms: Confirms[Job] = Confirms()
        self._channel = 0
        self._lost: Exception | None = None

    def __len__(self) -> int:
        return len(self._confirms)

    @property
    def is_open(self) -> bool:
        """Whether jobs can be published."""
        return self._channel > 0  # 0 again as soon as the channel or the link is gone

    async def open(self) -> None:
        """Open the channel in confirm mode. Raises what closed it, also where that came right behind the answer."""
        self._lost = None
        channel = await self._link.open_channel(self)
        await self._link.rpc(channel, commands.Confirm.Select())
        if self._lost is not None:
            raise self._lost
        self._channel = channel

    def publish(self, job: Job, exchange: bytes, routing_key: bytes, section: bytes, body: bytes) -> None:
        """Send now (with the current read's writes); the answer comes later. `section` is stamped already.

        Raises FrameTooLarge, and then nothing was sent and no number is taken.
        """
        data = frames.publish(self._channel, exchange, routing_key, section, body, self._link.frame_max)
        self._confirms.publish(job)
        self._link.send(data)

    def publish_run(self, run: RunOfJobs[Job], count: int) -> None:
        """Take numbers for so many, which `send` sends."""
        self._confirms.publish_run(run, count)

    def send(self, parts: Sequence[frames.Buffer], size: int) -> None:
        """Send frames of publishes that have their numbers already; they are some `size` bytes."""
        self._link.send_parts(parts, size)

    @property
    def outlet(self) -> tuple[int, int, int]:
        """The channel, 0 where it is closed; the number of the next publish; how many bytes a frame may hold."""
        largest = (self._link.frame_max or frames.LARGEST) - frames.FRAME_OVERHEAD
        return self._channel, self._confirms.next_number, largest

    def stamp(self) -> bytes:
        """The header entry that carries the number of the next publish."""
        return table.PUB_PREFIX + _pack_number(self._confirms.next_number)

    @property
    def next_number(self) -> int:
        """Of the next publish; it begins at 1."""
        return self._confirms.next_number

    def unanswered(self, before: int) -> list[Job]:
        """The jobs with a lower number that have no answer yet, in order."""
        return self._confirms.before(before)

    def on_event(self, event: Any) -> None:
        """A confirm or a return."""
        if event.__class__ is frames.Confirm:
            if event.ok and self._on_done is not None:
                jobs = self._confirms.plain(event.tag, multiple=event.multiple)
                if jobs is not None:
                    parts = (
                        self._confirms.runs(event.tag, multiple=event.multiple) if self._confirms.stretches else None
                    )
                    if parts and self._on_runs is not None:
                        self._on_runs(parts)
                    if jobs or not parts:
                        self._on_done(jobs)
                    return
            why = "" if event.ok else NACKED
            answer = self._on_answer
            for job, returned in self._confirms.answered(event.tag, multiple=event.multiple):
                answer(job, returned or why)
        elif event.__class__ is frames.Returned:
            number = self._number_of(event)
            if number is not None:
                self._confirms.returned(number, RETURNED)

    def _number_of(self, returned: frames.Returned) -> int | None:
        """Which publish comes back. What could not be stamped was sent alone: then it is that one."""
        try:
            number = stamp.find_pub(returned.header)
        except (frames.WireError, table.TableError):
            number = None
        return self._confirms.only if number is None else number

    def on_closed(self, error: Exception) -> None:
        """Hand back what is in doubt."""
        self._channel, self._lost = 0, error
        self._on_doubt(self._confirms.in_doubt(), error)

    async def close(self) -> None:
        """Close the channel by our own will; what was unanswered is in doubt."""
        channel, self._channel = self._channel, 0
        if channel:
            with contextlib.suppress(LinkError, ChannelClosed, TimeoutError):  # the broker may have been faster
                await self._link.close_channel(channel)
            self.on_closed(TimeoutError("closed by us"))


async def answered(future: asyncio.Future[str], within: float) -> str:
    """The answer, or "timeout"."""
    try:
        async with asyncio.timeout(within):
            return await future
    except TimeoutError:
        return TIMEOUT
