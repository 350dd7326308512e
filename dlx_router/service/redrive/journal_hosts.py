"""At which node a leader reads the journal: that of its session, and after a failure the next of the URL.

A stream is read only at a node that has a replica of it, and one that came into the cluster later has none: published
there is all the same, so the session does not fail, and no other attempt at that node would ever end otherwise.
"""

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager

from dlx_router.broker.address import Host
from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.link import Link
from dlx_router.telemetry.readiness import Readiness

_UNREAD = (LinkError, ChannelClosed, TimeoutError, OSError)


class JournalHosts:
    """Of one session. /readyz notes while it cannot be read, until it was, at any node, or `quiet()`."""

    def __init__(self, hosts: Sequence[Host], vhost: str, readiness: Readiness) -> None:
        self._hosts, self._vhost, self._readiness = hosts, vhost, readiness
        self._turn = 0
        self._note = f"leader reads {vhost}"

    @asynccontextmanager
    async def reading(self, link: Callable[[Host], Awaitable[Link]]) -> AsyncIterator[Link]:
        """A connection to read by, closed afterwards. What fails inside has the next node be asked the next time."""
        turn = self._turn
        host = self._hosts[turn % len(self._hosts)]
        try:
            opened = await link(host)
            opened.on_read = self.quiet  # a canary keeps its connection for as long as it watches
            try:
                yield opened
            finally:
                await opened.close()
        except _UNREAD as error:
            self._turn += self._turn == turn  # else another has passed over it meanwhile
            self._tell(host, error)
            raise
        self.quiet()

    def _tell(self, host: Host, error: Exception) -> None:
        why = str(error) or "no answer in time"
        text = (
            f"vhost {self._vhost!r}: this router leads, and cannot read the journal at {host.name}:{host.port}: {why}"
        )
        fate = "redrive tasks, exports and leases wait until it can; letters go on"
        now = "the nodes of AMQP_URL are tried in turn, and one of them needs a replica of the stream"
        self._readiness.note(self._note, f"{text}; {fate}; {now}")

    def quiet(self) -> None:
        """It was read, or somebody else leads."""
        self._readiness.drop_note(self._note)
