"""What is told of the state queue of a vhost: what no router wrote there, and that nobody leads."""

import time
from typing import Final

from dlx_router.broker.state import Moved
from dlx_router.telemetry.logs import Once, log
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness

OBJECTS_S: Final = 20.0  # a takeover has 5 s
# A leader of a build that answers no hellos is not known to lead. A rolling update that keeps every replica waits for
# the new one to be ready before it ends the old one, and Kubernetes gives up on it after 600 s.
ROLLOUT_S: Final = 600.0


class StateQueueWatch:
    """Of one vhost."""

    def __init__(self, vhost: str, queue: str, readiness: Readiness, metrics: Metrics) -> None:
        self._vhost, self._queue, self._readiness, self._metrics = vhost, queue, readiness, metrics
        self._key = f"leader {vhost}"
        self._since_s: float | None = None
        self._patience_s = ROLLOUT_S
        self.missing = ""  # why nobody leads
        self._once = Once()

    @property
    def missing_s(self) -> float | None:
        """For how long nobody leads; None: somebody does, or that is not known."""
        return None if self._since_s is None or not self.missing else time.monotonic() - self._since_s

    @property
    def leaderless(self) -> str:
        """That nobody leads, for how long and why; "" where somebody does, or that is not known."""
        lasts_s = self.missing_s
        return "" if lasts_s is None else f"nobody leads for {lasts_s:.0f} s now ({self.missing})"

    def moved(self, message: Moved) -> None:
        """Counted; logged once for each kind of junk, with what is known of who wrote it."""
        self._metrics.state_quarantined[self._vhost] += 1
        self._once.warn(
            message.why,
            "state.quarantined",
            vhost=self._vhost,
            queue=self._queue,
            cause=message.why,
            body_bytes=message.body_bytes,
            exchange=message.exchange,
            routing_key=message.routing_key,
            user=message.user or None,
            by="whoever may publish to the default exchange, or bind this queue (`dlx-router permissions` lists them)",
            fate="kept in the quarantine queue; others of this kind are not logged again",
        )

    def key_changed(self) -> None:
        """The key in the queue is not the one that this router has signed with."""
        log.warning(
            "state.key_changed",
            vhost=self._vhost,
            queue=self._queue,
            fate="letters that wait with records of the former key go to quarantine when their wait is over",
        )

    def began(self) -> None:
        """We lead since now. For how long is not known: a leader who is lost each second is none."""
        self._patience_s = OBJECTS_S

    def led(self) -> None:
        """We lead, or somebody else does: from now on that nobody does is a loss."""
        self._since_s, self._patience_s, self.missing = None, OBJECTS_S, ""
        self._readiness.drop_note(self._key)
        self._readiness.clear(self._key)
        self._once.healed("leader", "leader.found", vhost=self._vhost)

    def nobody_leads(self, why: str) -> None:
        """A note at first; when that lasts, an objection: 20 s after a leader was lost, 600 s where none was known."""
        now, self.missing = time.monotonic(), why
        self._since_s = self._since_s if self._since_s is not None else now
        text = f"vhost {self._vhost!r}: nobody leads, so redrive tasks and the index rest; letters go on: {why}"
        lasts = now - self._since_s > self._patience_s
        (self._readiness.set if lasts else self._readiness.note)(self._key, text)
        if lasts:
            self._readiness.drop_note(self._key)
            self._once.warn("leader", "leader.missing", vhost=self._vhost, error=why, fate="letters go on")

    def quiet(self) -> None:
        """It is not known, and others say why."""
        self._since_s, self.missing = None, ""
        self._readiness.drop_note(self._key)
        self._readiness.clear(self._key)
