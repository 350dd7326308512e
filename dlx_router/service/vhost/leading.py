"""Leading: work that is done while this router leads a vhost, and again after what the broker did to it."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, Final

from dlx_router.service.redrive.runner import RETRIED
from dlx_router.service.vhost.leadership import Leadership
from dlx_router.telemetry.logs import Once

LOOK_S: Final = 1.0
LONGEST_LOOK_S: Final = 60.0
Work = Callable[[int], Coroutine[Any, Any, None]]


async def lead(leadership: Leadership, work: Work) -> None:
    """`work(term)` while we lead, again after what the broker did to us, until cancelled."""
    changed_now = asyncio.Event()
    with leadership.heard(changed_now.set):
        await _leading(leadership, work, changed_now)


async def _leading(leadership: Leadership, work: Work, changed_now: asyncio.Event) -> None:
    once, pause = Once(), LOOK_S
    while True:
        changed_now.clear()
        if leadership.term is None:
            await changed_now.wait()
            continue
        working = asyncio.create_task(work(leadership.term))
        hearing = asyncio.create_task(changed_now.wait())
        try:
            await asyncio.wait({working, hearing}, return_when=asyncio.FIRST_COMPLETED)
            if working.done() and (error := working.exception()) is not None:
                fate = "no redrive task goes on until it is; tried again"
                said = str(error) if isinstance(error, RETRIED) else repr(error)  # letters do not wait for tasks
                once.warn("learn", "redrive.not_leading", vhost=leadership.vhost, error=said, fate=fate)
                await asyncio.wait({hearing}, timeout=pause)
                pause = min(pause * 2, LONGEST_LOOK_S)
            elif working.done():
                await hearing
        finally:
            for one in (working, hearing):
                one.cancel()
            await asyncio.gather(working, hearing, return_exceptions=True)
