"""Which vhosts are served where VHOSTS=* says all of them: asked for until one is named, and each minute afterwards.

Guarantees: a vhost that is made while the router runs is served a minute later, or /readyz says why it is not; only
one that the broker itself says is gone is left, for lists may be partial; none is served twice. See decision 0119.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import Final, Protocol

from dlx_router.broker.management import Management, ManagementError
from dlx_router.telemetry.logs import Once, log
from dlx_router.telemetry.readiness import Readiness

ASK_AGAIN_S: Final = 2.0  # at start
EVERY_S: Final = 60.0
MOST_SHOWN: Final = 5
NOTE: Final = "all vhosts"


class Attendant(Protocol):
    """What is asked of who attends a vhost."""

    @property
    def is_gone(self) -> bool:
        """Whether the broker says that there is no such vhost."""


class AllVhosts:
    """`begin(vhost)` has it served from then on; `leave(vhost)` returns once it is not any more."""

    def __init__(
        self,
        management: Management,
        readiness: Readiness,
        attendants: Mapping[str, Attendant],
        begin: Callable[[str], object],
        leave: Callable[[str], Awaitable[object]],
    ) -> None:
        self._management, self._readiness, self._attendants = management, readiness, attendants
        self._begin, self._leave = begin, leave
        self._once = Once()

    async def first(self, stop: asyncio.Event) -> list[str]:
        """Those that are served first; asked for until the management API names some, or a signal comes."""
        while not stop.is_set():
            try:
                return await self._management.vhosts()
            except ManagementError as error:
                self._readiness.set("start", f"which vhosts there are is not known: {error}")
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(ASK_AGAIN_S):
                    await stop.wait()
        return []

    async def watch(self) -> None:
        """Look again and again until cancelled."""
        while True:
            await asyncio.sleep(EVERY_S)
            await self._look()

    async def _look(self) -> None:
        """Begin what is new and leave what is gone; leaving takes seconds, so behind it is asked again."""
        while (named := await self._named()) is not None:
            for vhost in [vhost for vhost in named if vhost not in self._attendants]:
                self._begin(vhost)
                log.info("vhost.new", vhost=vhost, fate="it is served from now on")
            unnamed = [vhost for vhost in self._attendants if vhost not in named]
            self._note(unnamed)
            if not await self._leave_gone(unnamed):
                return

    async def _leave_gone(self, unnamed: Sequence[str]) -> bool:
        """Whether any of them was left. Each is judged right before: it may be there again since another was left."""
        is_any = False
        for vhost in unnamed:
            if self._attendants[vhost].is_gone:
                await self._leave(vhost)
                is_any = True
                fate = "what lay there went with it; served again if it is made anew"
                log.warning("vhost.gone", vhost=vhost, fate=fate)
        return is_any

    async def _named(self) -> list[str] | None:
        """As the management API names them now; None, and a note, where it does not."""
        try:
            named = await self._management.vhosts()
        except ManagementError as error:
            self._readiness.note(NOTE, f"VHOSTS=*: whether there are new vhosts is not known: {error}")
            self._once.warn(NOTE, "vhosts.unknown", error=str(error), fate="those that were named are served")
            return None
        self._once.healed(NOTE, "vhosts.known")
        return named

    def _note(self, unnamed: Sequence[str]) -> None:
        if not unnamed:
            self._readiness.drop_note(NOTE)
            return
        shown = ", ".join(map(repr, unnamed[:MOST_SHOWN])) + (" and more" if len(unnamed) > MOST_SHOWN else "")
        why = "its user may not see them any more, or a node does not know them yet"
        fate = "they are served while the broker has them, but not after a restart"
        self._readiness.note(NOTE, f"VHOSTS=*: the management API does not name {shown} any more ({why}): {fate}")
