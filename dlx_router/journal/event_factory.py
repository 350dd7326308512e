"""Rulings: what core decided, in the journal's words. See docs/architecture.md ("Words")."""

from dataclasses import dataclass

from dlx_router.core.letter import Letter
from dlx_router.core.outcome import Decision
from dlx_router.core.publication import Publication, Way
from dlx_router.core.words import Action, Cause
from dlx_router.journal.events import KIND_OF, Ruling


@dataclass(frozen=True, slots=True)
class EventFactory:
    """Who decides: one router, by one revision of the policies."""

    router_id: str
    revision: str
    observes: bool = False  # and carries nothing out

    def decided(self, decision: Decision, copy: Publication | None, policy: str, breaker: str = "") -> Ruling:
        """Of a decision and the copy that carries it out (None: discarded); `policy` "" where none matched."""
        refused = getattr(decision, "target", "")
        ruling = self._ruling(decision.action, decision.attempts, copy, policy, decision.cause or "", refused)
        return ruling._replace(breaker=breaker) if breaker else ruling

    def released(self, letter: Letter, copy: Publication, policy: str) -> Ruling:
        """Of a letter whose wait is over, on its way back to the failed queue."""
        return self._ruling(Action.RELEASE, letter.base_attempts, copy, policy, "", "")

    def retired(self, letter: Letter, policy: str) -> Ruling:
        """Of a letter that left its dead-letter queue by retention, and is nowhere else any more."""
        return self._ruling(Action.RETIRE, letter.base_attempts, None, policy, Cause.RETENTION, "")

    def quarantined(self, letter: Letter, why: str, queue: str) -> Ruling:
        """Of what cannot be read or published; `why` is a cause, and behind a colon what was said."""
        cause, _, detail = why.partition(": ")
        return Ruling(
            KIND_OF[Action.QUARANTINE],
            letter.base_attempts,
            self.router_id,
            revision=self.revision,
            cause=cause,
            detail=detail,
            exchange="",
            routing_key=queue,
            observed=self.observes,
        )

    def _ruling(
        self, action: Action, attempts: int, copy: Publication | None, policy: str, cause: str, refused: str
    ) -> Ruling:
        waits = copy is not None and copy.way is Way.RUNG
        return Ruling(
            KIND_OF[action],
            attempts,
            self.router_id,
            policy=policy,
            revision=self.revision,
            cause=cause,
            exchange=None if copy is None or waits else copy.exchange,
            routing_key="" if copy is None or waits else copy.routing_key,
            rung_ms=0 if copy is None else copy.rung_ms,
            refused=refused,
            observed=self.observes,
        )
