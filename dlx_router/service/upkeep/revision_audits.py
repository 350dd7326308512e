"""What each revision of the policies was, written into the journal by whoever leads when it comes into force.

So two revisions can be compared later, on any replica, whatever became of the files.
"""

import asyncio
import time
from collections import deque
from collections.abc import Callable, Mapping
from typing import Final

from dlx_router.config.policy_files.loader import LoadedPolicies
from dlx_router.config.policy_files.revision_document import document_of
from dlx_router.index.reader import IndexAway, TooLong
from dlx_router.index.revisions import IN_FORCE
from dlx_router.index.supervisor import Supervisor
from dlx_router.journal.audit import audit
from dlx_router.journal.revision_text import packed
from dlx_router.service.vhost.runner import VhostRunner
from dlx_router.telemetry.wall_clock import wall_ms

LOOK_S: Final = 2.0
AGAIN_S: Final = 60.0  # until the index should have read what was written
MOST_AN_HOUR: Final = 30  # of a vhost: files that change all the time leave the journal's room to letters
AN_HOUR_S: Final = 3_600.0
CLOSE_MS: Final = 5_000  # so far behind the journal the index knows what an earlier leader wrote
_ACTOR: Final = "router"


class Recent:
    """When audits were written of late, so that there are never more than MOST_AN_HOUR of them in an hour."""

    def __init__(self) -> None:
        self._at_s: deque[float] = deque(maxlen=MOST_AN_HOUR)

    def may_write(self, now_s: float) -> bool:
        """Whether one may be written now, which then counts."""
        if len(self._at_s) == MOST_AN_HOUR and now_s - self._at_s[0] < AN_HOUR_S:
            return False
        self._at_s.append(now_s)
        return True


class RevisionAudits:
    """`watch` looks every other second whether the journal has said last what is in force."""

    def __init__(
        self,
        index: Supervisor,
        attendants: Mapping[str, VhostRunner],
        in_force: Callable[[], LoadedPolicies],
        router_id: str,
    ) -> None:
        self._index, self._attendants, self._in_force, self._router_id = index, attendants, in_force, router_id
        self._written: dict[str, tuple[str, float]] = {}
        self._recent: dict[str, Recent] = {}

    async def watch(self) -> None:
        """Until cancelled."""
        while True:
            for vhost, runner in [*self._attendants.items()]:
                await self._look(vhost, runner)
            await asyncio.sleep(LOOK_S)

    async def _look(self, vhost: str, runner: VhostRunner) -> None:
        """Nobody waits for it: what is not written now is written by a later look."""
        loaded = self._in_force()
        revision = loaded.policies.revision
        if not (runner.leadership.is_ours and runner.journal.is_on and self._is_close(vhost)):
            return
        before, at = self._written.get(vhost, ("", 0.0))
        if before == revision and time.monotonic() - at < AGAIN_S:
            return
        try:
            known = await asyncio.to_thread(self._index.reader.newest_revision, vhost)
        except (IndexAway, TooLong, OSError):
            return
        if known != revision and runner.leadership.is_ours:
            if not self._recent.setdefault(vhost, Recent()).may_write(time.monotonic()):
                return
            line = await asyncio.to_thread(self._line, vhost, loaded)
            runner.journal.record(line)
        self._written[vhost] = revision, time.monotonic()

    def _is_close(self, vhost: str) -> bool:
        behind = ((self._index.status.get("vhosts") or {}).get(vhost) or {}).get("behind_ms")
        return behind is not None and behind <= CLOSE_MS

    def _line(self, vhost: str, loaded: LoadedPolicies) -> bytes:
        document = document_of(loaded.policies, vhost, loaded)
        details = {
            "revision": loaded.policies.revision,
            "policies": len(document["policies"]),
            "packed": packed(document),
        }
        return audit(self._router_id, vhost, actor=_ACTOR, action=IN_FORCE, details=details, ts_ms=wall_ms())
