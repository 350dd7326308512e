"""Where a journal ends, and whether it is the one that was read before: by what the broker sends, never by its silence.

The broker says neither that the end of a stream is reached nor that there is nothing in it, so the newest message is
asked for by itself. A journal is empty where none comes and the broker counts none.
"""

import asyncio
import math
from collections.abc import Awaitable, Callable
from typing import Final

from dlx_router.broker import reading
from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.control import Lost
from dlx_router.broker.reading import Read, Reading

SILENT_S: Final = 15.0  # for what has to come: messages that we had, and the newest where there are some
CHUNK_S: Final = 10.0  # from one message to the next at the end of a stream that seems to be shorter than it was
FIRST_S: Final = 0.5  # where there may be nothing yet
SOON_S: Final = 2.0  # until it is asked again where nothing came
LATER_S: Final = 30.0  # and where something did, but nothing comes, or what comes is old
Newest = Callable[[float, float], Awaitable[reading.Newest]]
"""The newest message: none comes in so many seconds, nor another one in so many behind it. See `reading.newest`."""
Fits = Callable[[Read], bool]


def asked_of(stream: Reading, name: str) -> Newest:
    """Over the stream's own connection. Raises Lost."""

    async def newest(first_s: float, quiet_s: float) -> reading.Newest:
        try:
            return await reading.newest(stream.link, name, first_s, quiet_s)
        except (LinkError, ChannelClosed, TimeoutError) as error:
            why = str(error) or "no answer in time"
            raise Lost(f"stream {name!r}: its newest message cannot be read: {why}; it is tried again") from None

    return newest


def empty_of(stream: Reading, name: str) -> Callable[[], Awaitable[bool]]:
    """Whether the broker counts no message in it: so it says too where it cannot ask, which alone is no answer."""

    async def is_empty() -> bool:
        assert stream.consumer is not None
        try:
            return (await stream.consumer.counted())[0] == 0
        except (LinkError, ChannelClosed, TimeoutError) as error:
            why = str(error) or "no answer in time"
            raise Lost(f"stream {name!r}: its messages cannot be counted: {why}; it is tried again") from None

    return is_empty


async def is_same(stream: Reading, name: str, offset: int, fits: Fits, newest: Newest, *, is_new: Fits) -> bool:
    """Whether the message at `offset`, from which `stream` is read, is the one that `fits`. Raises Lost: not known.

    It is not where another message comes (ours is long gone, or the stream is made anew), nor where the stream ends
    before: it was made anew too. A replica that lags behind is a stream that has not ended: while messages come, only
    one that `is_new`, written since we asked, cannot lie before ours.
    """
    messages = await stream.take(1, within_s=SILENT_S)
    stream.done()
    if messages:
        return messages[0].offset == offset and fits(messages[0])
    message, is_last = await newest(SILENT_S, CHUNK_S)
    if message is None or message.offset >= offset:
        raise Lost(f"stream {name!r}: nothing came in {SILENT_S:g} s, and we had a message of it; it is tried again")
    if not is_last and not is_new(message):
        raise Lost(f"stream {name!r}: what came is older than what we had, and more follows; it is tried again")
    return False


class End:
    """Of a journal that is being read. `offset`: of its newest message when it was asked for last; None: not known.

    −1: it had none. `lags`: it is read from a replica that has yet to copy what was written since. `is_new`: whether a
    message was written just now.
    """

    def __init__(self, name: str, newest: Newest, is_empty: Callable[[], Awaitable[bool]], *, is_new: Fits) -> None:
        self.offset: int | None = None
        self._name, self._newest, self._is_empty, self._is_new = name, newest, is_empty, is_new
        self._clock = asyncio.get_running_loop().time
        self._asked_s = -math.inf
        self.lags = False
        self._behind_s: float | None = None  # since when there is more, and nothing comes

    async def look(self, at: int | None, *, is_quiet: bool) -> None:
        """Ask, where it is time to. `at`: offset of the last message that we have; `is_quiet`: nothing came behind it.

        Raises Lost where something has to come and does not: what is read stands still, and is not the whole journal.
        """
        if self._is_due(is_quiet=is_quiet):
            await self._ask(at)
        is_behind = is_quiet and self.offset is not None and (-1 if at is None else at) < self.offset
        if not is_behind:
            self._behind_s = None
        elif self._behind_s is None:
            self._behind_s = self._clock()
        elif self._clock() - self._behind_s > SILENT_S:
            raise self._lost()

    @property
    def is_fresh(self) -> bool:
        """Whether it was asked for so lately that it need not be asked for again."""
        return self._clock() < self._asked_s + (SOON_S if self.offset is None and not self.lags else LATER_S)

    def begins(self) -> None:
        """A message came: where this journal was said to be empty, how long it is is not known any more.

        A broker whose replica has just become the leader sends nothing for a while, and counts none either.
        """
        if self.offset is not None and self.offset < 0:
            self.offset, self._asked_s = None, -math.inf

    def _is_due(self, *, is_quiet: bool) -> bool:
        """What came where nobody knew of anything may be all that there is."""
        return (is_quiet or self.offset is None) and not self.is_fresh

    async def _ask(self, at: int | None) -> None:
        known = -1 if self.offset is None else self.offset
        message, is_last = await self._newest(FIRST_S, reading.QUIET_S)
        if message is None and (at is not None or known >= 0):
            message, is_last = await self._newest(SILENT_S, reading.QUIET_S)
            if message is None:
                raise self._lost()
        self.lags = message is not None and not is_last and not self._is_new(message)
        if message is not None and not self.lags:
            self.offset = max(message.offset, known)
        elif known < 0:
            self.offset = -1 if message is None and await self._is_empty() else None
        self._asked_s = self._clock()

    def _lost(self) -> Lost:
        return Lost(f"stream {self._name!r}: nothing comes, and there is more of it; it is tried again")
