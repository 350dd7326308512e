"""Saved searches written down once more each day, so that they outlive the journal's retention and the index's file."""

import asyncio
from collections.abc import Mapping
from typing import Final

from dlx_router.core.saved_searches import ACTIONS, KEPT, left, renewal
from dlx_router.index.reader import IndexAway, TooLong
from dlx_router.index.supervisor import Supervisor
from dlx_router.journal.audit import audit
from dlx_router.service.vhost.runner import VhostRunner
from dlx_router.telemetry.wall_clock import wall_ms

EVERY_S: Final = 600.0
CURRENT_MS: Final = 60_000  # an index that is further behind may not know of a search that was deleted
_ACTOR: Final = "router"


async def watch(index: Supervisor, attendants: Mapping[str, VhostRunner], router_id: str) -> None:
    """Until cancelled, of the vhosts that we lead. What cannot be written now is looked at again."""
    while True:
        await asyncio.sleep(EVERY_S)
        for vhost, runner in attendants.items():
            if runner.leadership.is_ours and runner.journal.is_working:
                await _renew(index, vhost, runner, router_id)


async def _renew(index: Supervisor, vhost: str, runner: VhostRunner, router_id: str) -> None:
    now_ms = wall_ms()
    if now_ms - index.as_of_ms(vhost, now_ms) > CURRENT_MS:
        return
    try:
        searches = await asyncio.to_thread(lambda: left(index.reader.audits_of(vhost, ACTIONS, 0)))
    except (IndexAway, TooLong, OSError):
        return
    for details in renewal(searches, now_ms):
        if runner.leadership.is_ours:
            line = audit(router_id, vhost, actor=_ACTOR, action=KEPT, details=details, ts_ms=now_ms)
            runner.journal.record(line)
