"""Saved searches and status pages, written down once more each day.

So they outlive the journal's retention and the index's file.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final

from dlx_router.core import saved_searches, status_pages
from dlx_router.index.reader import IndexAway, Reader, TooLong
from dlx_router.index.supervisor import Supervisor
from dlx_router.journal.audit import audit
from dlx_router.service.vhost.runner import VhostRunner
from dlx_router.telemetry.wall_clock import wall_ms

EVERY_S: Final = 600.0
CURRENT_MS: Final = 60_000  # an index that is further behind may not know what was deleted
_ACTOR: Final = "router"


async def watch(index: Supervisor, attendants: Mapping[str, VhostRunner], router_id: str) -> None:
    """Until cancelled, of the vhosts that we lead. What cannot be written now is looked at again."""
    while True:
        await asyncio.sleep(EVERY_S)
        for vhost, runner in [*attendants.items()]:  # with VHOSTS=* they come and go
            if runner.leadership.is_ours and runner.journal.is_working:
                await _renew(index, vhost, runner, router_id)


async def _renew(index: Supervisor, vhost: str, runner: VhostRunner, router_id: str) -> None:
    now_ms = wall_ms()
    if now_ms - index.as_of_ms(vhost, now_ms) > CURRENT_MS:
        return
    try:
        events = await asyncio.to_thread(_events, index.reader, vhost, now_ms)
    except (IndexAway, TooLong, OSError):
        return
    for action, details in events:
        if runner.leadership.is_ours:
            line = audit(router_id, vhost, actor=_ACTOR, action=action, details=details, ts_ms=now_ms)
            runner.journal.record(line)


def _events(reader: Reader, vhost: str, now_ms: int) -> list[tuple[str, dict[str, Any]]]:
    """Action and details of what is to be written down now."""
    searches = saved_searches.left(reader.audits_of(vhost, saved_searches.ACTIONS, 0))
    pages = status_pages.left(reader.audits_of(vhost, status_pages.ACTIONS, 0))
    return [
        *((saved_searches.KEPT, details) for details in saved_searches.renewal(searches, now_ms)),
        *((status_pages.KEPT, details) for details in status_pages.renewal(pages, now_ms)),
    ]
