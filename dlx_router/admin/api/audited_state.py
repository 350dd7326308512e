"""State of a vhost that stands in its audits: changed by its leader, one change after the other, and read by the index.

A change is written as an audit; who made it is answered once the index has read it, so whoever asks next sees it.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from fastapi import HTTPException

from dlx_router.admin.api.answers import refuse
from dlx_router.admin.api.asking import asked
from dlx_router.admin.api.context import Context

SEEN_S: Final = 5.0
CAUGHT_UP_S: Final = 3.0  # a connection ends after 10, and a change has to be written and read meanwhile
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

    async def await_caught_up(self, given: Context, vhost: str) -> None:
        """Until the index has read the journal to its end: what it lacks may be what is to be changed.

        503 where that takes longer: who has just begun to lead is waited for, and no index that is made anew.
        """
        deadline = asyncio.get_running_loop().time() + CAUGHT_UP_S
        while given.index is not None and not given.index.has_caught_up(vhost):
            if asyncio.get_running_loop().time() > deadline:
                why = f"the index still reads the journal of vhost {vhost!r}: not all {self.name} are known; ask again"
                raise refuse(503, why, retry_after_s=2)
            await asyncio.sleep(LOOK_S)

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
