"""Whether the broker has an alarm and takes no messages. It says so only to a connection that publishes.

So a message is published that no queue takes; it comes back where there is no alarm.
Source: rabbitmq.com/docs/connection-blocked.
"""

import asyncio
import secrets
from contextlib import suppress
from typing import Final, Self

from dlx_router.broker.link import Link
from dlx_router.broker.publisher import Publisher
from dlx_router.wire import properties

ANSWERS_S: Final = 2.0


class Alarm:
    """Looks by a link of its own, which it drops in the end: in order it cannot be closed while nobody reads it."""

    def __init__(self, link: Link) -> None:
        self._link = link
        self._why = ""
        self._answered = asyncio.Event()
        self._nobody = b"dlx-router nobody " + secrets.token_hex(8).encode()
        self._publisher: Publisher[None] = Publisher(
            link, on_answer=lambda _job, _why: self._answered.set(), on_doubt=lambda _jobs, _error: self._answered.set()
        )
        link.on_blocked = self._blocked

    async def __aenter__(self) -> Self:
        """Raises LinkError, ChannelClosed or TimeoutError where the broker does not let us look."""
        try:
            await self._publisher.open()
        except BaseException:
            self._link.abort()
            raise
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._link.abort()

    async def look(self) -> str:
        """The broker's reason to block publishers now; "" where it does not. LinkError: the link is gone."""
        if not self._link.is_open:
            raise self._link.closed.result()
        if not self._why:
            self._answered.clear()
            section = properties.build(headers=self._publisher.stamp())
            self._publisher.publish(None, b"", self._nobody, section, b"")
            with suppress(TimeoutError):
                async with asyncio.timeout(ANSWERS_S):
                    await self._answered.wait()
        return self._why

    def _blocked(self, blocked: bool, reason: str) -> None:  # noqa: FBT001 - the link's callback
        self._why = (reason or "an alarm") if blocked else ""
        self._answered.set()
