"""How much of the stream goes into one transaction: what comes in half a second, or a megabyte, and never nothing."""

import asyncio
from typing import Any, cast

from dlx_router.broker.reading import Read, Reading
from dlx_router.index.worker import AT_ONCE, GATHER_S, _gathered


class Stream:
    """Answers as a Reading does; what comes is put into `waiting`."""

    def __init__(self, *sizes: int) -> None:
        self.waiting = [Read(at, b"x" * size) for at, size in enumerate(sizes)]
        self.is_lost, self.acked = False, 0
        self._taken = 0

    async def take(self, at_most: int, within_s: float) -> list[Read]:
        if not self.waiting:
            await asyncio.sleep(within_s)  # what take() does: it waits for something to come
        batch, self.waiting = self.waiting[:at_most], self.waiting[at_most:]
        self._taken += len(batch)
        return batch

    async def gather(self, count: int, within_s: float) -> None:
        if not self.is_lost and len(self.waiting) < count:
            await asyncio.sleep(within_s)  # nothing more comes here
        assert self._taken == self.acked, "else the broker would send no more"

    def done(self) -> None:
        self.acked = self._taken


async def gathered(stream: Stream, until_s: float) -> tuple[list[Read], float]:
    """What was gathered, and how long it took."""
    clock = asyncio.get_running_loop().time
    began = clock()
    batch = await _gathered(cast("Reading", cast("Any", stream)), began + until_s)
    return batch, clock() - began


async def test_the_first_letter_after_a_pause_does_not_wait() -> None:
    batch, took_s = await gathered(Stream(100), -1.0)
    assert (len(batch), took_s < GATHER_S / 2) == (1, True)


async def test_what_comes_until_then_comes_along_and_is_acked() -> None:
    stream = Stream(*[100] * (AT_ONCE * 3))
    batch, took_s = await gathered(stream, 0.1)
    assert [message.offset for message in batch] == [*range(AT_ONCE * 3)]
    assert (stream.acked, 0.1 <= took_s < GATHER_S) == (AT_ONCE * 3, True)


async def test_what_came_before_the_stream_was_lost_is_kept() -> None:
    """Else a connection that breaks twice a second would never let the index go on."""
    stream = Stream(100)
    stream.is_lost = True
    batch, took_s = await gathered(stream, 5.0)
    assert (len(batch), took_s < 1.0) == (1, True)
