"""Attempts to have a session in a vhost: which host comes next, why the last one failed, and how long to wait."""

import asyncio
import random
import time
from collections.abc import Sequence
from typing import Final

from dlx_router.broker.address import Host
from dlx_router.core.printable import printable, redacted
from dlx_router.telemetry.logs import log
from dlx_router.telemetry.readiness import Readiness

FIRST_PAUSE_S: Final = 0.25
LONGEST_PAUSE_S: Final = 5.0
STEADY_S: Final = 30.0


class Attempts:
    """Of one vhost. `trouble`: what ended the last session, for people; "" before the first that failed.

    `found_no_vhost`: the broker ended it with the word that there is no such vhost, and has let us in since never.
    """

    def __init__(self, vhost: str, readiness: Readiness) -> None:
        self.trouble, self.found_no_vhost = "", False
        self._vhost, self._readiness = vhost, readiness
        self._failures = 0
        self._turn = 0  # which of the hosts is tried; the next after each failure

    def order(self, hosts: Sequence[Host]) -> Sequence[Host]:
        """In which they are tried from now on."""
        first = self._turn % len(hosts)
        return [*hosts[first:], *hosts[:first]]

    def forgive(self) -> None:
        """What ended the sessions is gone: the next failure is the first."""
        self._failures = 0

    def reached(self) -> None:
        """The broker let us in: there is such a vhost now, whatever the last attempt said."""
        self.found_no_vhost = False

    def failed(self, error: Exception, began_s: float) -> None:
        """A session ended that began then, by the monotonic clock. Readiness says so, and the log now and then."""
        self._turn += 1
        self._failures = 1 if time.monotonic() - began_s > STEADY_S else self._failures + 1
        where, reason = f"vhost {self._vhost!r}", str(error)
        self.trouble, self.found_no_vhost = printable(redacted(reason)), f"vhost {self._vhost} not found" in reason
        self._readiness.set(f"link {self._vhost}", reason if reason.startswith(where) else f"{where}: {reason}")
        if self._failures in {1, 5} or self._failures % 50 == 0:
            log.warning(
                "session.ended",
                vhost=self._vhost,
                error=reason,
                failures=self._failures,
                fate="unsettled letters are still in their queues; connecting again",
            )

    async def pause(self, stopping: asyncio.Event) -> None:
        """The longer the more failed one after the other; ends at once where it is to stop."""
        longest = min(FIRST_PAUSE_S * 2 ** min(self._failures, 10), LONGEST_PAUSE_S)
        try:
            async with asyncio.timeout(longest * random.uniform(0.5, 1.0)):  # noqa: S311 - jitter, no secret
                await stopping.wait()
        except TimeoutError:
            pass
