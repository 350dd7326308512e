"""State of a vhost that stands in its audits: changed by its leader, one change after the other, and read by the index.

A change is written as an audit; who made it is answered once the index has read it, so whoever asks next sees it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from fastapi import HTTPException

from dlx_router.admin.api.asking import asked
from dlx_router.admin.api.context import Context

SEEN_S: Final = 5.0
LOOK_S: Final = 0.05
T = TypeVar("T")


@dataclass(frozen=True)
class AuditedState(Generic[T]):
    """`left`: what the (action, details) of a vhost's audits under these actions leave, in whatever order they come."""

    name: str
    actions: tuple[str, ...]
    left: Callable[[Iterable[tuple[str, Mapping[str, Any]]]], T]

    def changing(self, given: Context) -> asyncio.Lock:
        """Held by whoever looks at what there is and changes it."""
        lock: asyncio.Lock = given.extras.setdefault(f"changing {self.name}", asyncio.Lock())
        return lock

    async def known(self, given: Context, vhost: str) -> T:
        """What the index knows, worked out beside the event loop: audits may be many. Raises as `asked` does."""
        return await asked(given, lambda reader: self.left(reader.audits_of(vhost, self.actions, 0)))

    async def until(self, given: Context, vhost: str, holds: Callable[[T], bool]) -> None:
        """Until the index has read it; after SEEN_S, or in trouble, all the same, since the journal has it."""
        deadline = asyncio.get_running_loop().time() + SEEN_S
        with suppress(HTTPException):
            while True:
                if holds(await self.known(given, vhost)) or asyncio.get_running_loop().time() > deadline:
                    return
                await asyncio.sleep(LOOK_S)
