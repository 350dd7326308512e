"""A decision in a sentence, for people."""

from typing import assert_never

from dlx_router.core.letter import Letter
from dlx_router.core.outcome import DeadLetter, Decision, Discard, Forward, Hold, Park, Retry
from dlx_router.core.policy import Effective
from dlx_router.core.words import Cause


def explain(decision: Decision, letter: Letter, policy: Effective | None) -> str:
    """One sentence for people: what happens, and the rule that says so."""
    by = f"policy {policy.policy}" if policy is not None else "no policy"
    died = f"{letter.reason} at {letter.failed_queue}"
    match decision:
        case Retry():
            limit = policy.max_attempts if policy is not None else 0
            left = "without limit" if limit < 0 else f"of {limit}"
            return f"{died}: attempt {decision.attempts} {left} failed; tried again in {decision.wait_ms} ms ({by})"
        case DeadLetter():
            where = f"exchange {decision.exchange!r} with key {decision.keys[0]!r}"
            return f"{died}: {decision.cause} after {decision.attempts} attempts; to {where} ({by})"
        case Park():
            where = f" at {decision.target!r}" if decision.target else ""
            is_own = decision.cause is Cause.FORBIDDEN and policy is not None and policy.ours.is_own(decision.target)
            whose = ", which is the router's own" if is_own else ""
            return f"{died}: parked, {decision.cause}{where}{whose} ({by})"
        case Hold():
            where = f" at {decision.target!r}" if decision.target else ""
            return f"{died}: {decision.cause}{where}; held, try {decision.tries} ({by})"
        case Forward():
            return f"forwarded to exchange {decision.exchange!r} with key {decision.keys[0]!r}"
        case Discard():
            return f"{died}: discarded, as the policy says ({by})"
        case _:
            assert_never(decision)
