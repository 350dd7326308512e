"""Who waits for which answer of the broker, and what ends a channel or a connection."""

import asyncio
from collections.abc import Sequence
from typing import Any, Final, Protocol

INTERNAL_ERROR: Final = 541


class LinkError(Exception):
    """The connection is gone or could not be made; says where, why and what the broker said.

    `code`: of the broker's close, 0 where there was none.
    """

    code = 0

    @property
    def is_crash(self) -> bool:
        """Whether something of the broker crashed that served this connection."""
        return self.code == INTERNAL_ERROR


class ChannelClosed(Exception):
    """The broker closed the channel; `code` as in AMQP (404, 403, 406, …)."""

    def __init__(self, code: int, text: str) -> None:
        super().__init__(f"{code} {text}")
        self.code = code
        self.text = text


class Handler(Protocol):
    """What a channel's owner does with its events; all calls are made inside the read that brought them."""

    def on_event(self, event: Any) -> None:
        """A delivery, confirm, return or cancel of this channel."""

    def on_closed(self, error: Exception) -> None:
        """The channel or the whole link is gone; called once."""


class _Deaf:
    """For a channel that is being closed: what still comes is for nobody."""

    def on_event(self, event: Any) -> None:
        pass

    def on_closed(self, error: Exception) -> None:
        pass


DEAF: Final = _Deaf()
QUESTIONS: Final = _Deaf()  # for a channel on which is only asked whether the broker answers


class Answers:
    """Questions by channel, oldest first. A question keeps its place even if nobody waits for its answer any more."""

    def __init__(self) -> None:
        self._waiting: dict[int, list[tuple[asyncio.Future[Any], Sequence[str]]]] = {}

    def awaited(self, channel: int, names: Sequence[str] = ()) -> asyncio.Future[Any]:
        """The place of an answer of one of these names (none: any). Who gives up waiting keeps it: the answer comes."""
        waiter = asyncio.get_running_loop().create_future()
        self._waiting.setdefault(channel, []).append((waiter, names))
        return waiter

    def give(self, channel: int, command: Any) -> None:
        """To the oldest question that it can answer: the broker does not keep to the order of different questions."""
        waiting = self._waiting.get(channel, [])
        for at, (waiter, names) in enumerate(waiting):
            if not names or command.name in names:
                del waiting[at]
                if not waiter.done():
                    waiter.set_result(command)
                return

    def nobody_gives(self, channel: int, error: Exception) -> None:
        """The channel is gone: who waits gets the error."""
        for waiter, _ in self._waiting.pop(channel, ()):
            if not waiter.done():
                waiter.set_exception(error)
                waiter.exception()  # nobody may be waiting: then it is no news either

    def end(self, error: Exception) -> None:
        """The connection is gone."""
        for channel in [*self._waiting]:
            self.nobody_gives(channel, error)
