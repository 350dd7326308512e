"""Outage: a decision asks the breaker of the letter's queue at most once; what it said is part of the event."""

from collections.abc import Callable

from dlx_router.core.breaker import CLOSED, Breakers, Verdict
from dlx_router.core.decision import died
from dlx_router.core.letter import Letter
from dlx_router.service.inflight.job import Job


def breaker_of(breakers: Breakers, job: Job, letter: Letter, now_ms: int) -> Callable[[], Verdict]:
    """Asks for this letter; without the key `outage` in its policy the breaker is closed."""

    def ask() -> Verdict:
        policy = job.policy
        if policy is None or policy.outage is None:
            return CLOSED
        breaker = breakers.of(letter.failed_queue, policy.outage, now_ms)
        verdict = breaker.ask(letter.id, now_ms, deaths=died(letter, policy), tries=letter.tries)
        job.breaker = verdict.state.value
        return verdict

    return ask
