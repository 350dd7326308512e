"""The decision: what happens to a letter, and why. Pure, total, explained.

The same `decide` answers the daemon, `policy explain`, policy tests and backtests; nothing else judges.
"""

from collections.abc import Callable
from dataclasses import replace
from enum import StrEnum
from typing import Final

from dlx_router.core.backoff import ladder_elapsed_ms, ladder_ms, wait_ms
from dlx_router.core.breaker import CLOSED, Verdict
from dlx_router.core.condition import Answer, any_holds, view
from dlx_router.core.letter import Arrival, Death, First, Letter
from dlx_router.core.names import RUNGS, Names
from dlx_router.core.outcome import DeadLetter, Decision, Discard, Forward, Hold, Park, Retry
from dlx_router.core.passing import Target
from dlx_router.core.policy import Effective
from dlx_router.core.target import MAX_NAME_BYTES, dead_letter_queue, final_keys
from dlx_router.core.words import UNKNOWN, Cause, State

GRACED: Final = frozenset({Cause.UNROUTABLE, Cause.MISSING_EXCHANGE, Cause.FORBIDDEN})


class Release(StrEnum):
    """What a letter whose rung is over does next."""

    WAIT = "wait"  # its time has not come: a smaller rung
    RETURN = "return"  # back to the failed queue
    JUDGE = "judge"  # it was held: decided anew


def attempts_of(letter: Letter, policy: Effective) -> int:
    """Failed deliveries that count: those before, and the new deaths at the failed queue with a reason in retry-on."""
    return letter.base_attempts + died(letter, policy)


def died(letter: Letter, policy: Effective) -> int:
    """How many of its new deaths count: those at the failed queue with a reason in retry-on."""
    return sum(
        death.times for death in letter.fresh if death.queue == letter.failed_queue and _counts(death.reason, policy)
    )


def decide(
    letter: Letter, policy: Effective | None, now_ms: int, draw: float, breaker: Callable[[], Verdict] = lambda: CLOSED
) -> Decision:
    """What happens to the letter. `draw` in (−1, 1) is the jitter's chance. Never raises, changes nothing.

    `breaker` is asked, once at most, of a letter that would be tried again or would use an attempt.
    """
    decision = _plain(letter, policy, now_ms, draw)
    if policy is None or not policy.looks_further or not _counts(letter.reason, policy):
        return decision
    if _astray(letter, policy) is not None or (letter.declared is not None and letter.declared.never):
        return decision
    attempts = attempts_of(letter, policy)
    never, failed = _refused(letter, policy, attempts, now_ms)
    other = _ended(letter, policy, attempts, Cause.NEVER_RETRY) if never else None
    other = other or _further(letter, policy, now_ms, decision, breaker)
    return replace(other, failed=failed) if failed else other


def _refused(letter: Letter, policy: Effective, attempts: int, now_ms: int) -> Answer:
    """Whether never-retry or retry-only say no, and which conditions failed."""
    seen = view(letter, attempts, now_ms)
    never = any_holds(policy.never_retry, seen)
    if never.holds or not policy.retry_only:
        return never
    only = any_holds(policy.retry_only, seen)
    return Answer(holds=not only.holds, failed=never.failed + only.failed)


def _further(
    letter: Letter, policy: Effective, now_ms: int, plain: Decision, breaker: Callable[[], Verdict]
) -> Decision:
    """What the clock and the breaker say to a decision. A letter whose time is over is nobody's probe."""
    attempts, last_ms = attempts_of(letter, policy), _last_ms(letter, policy)
    due_ms = plain.due_ms if isinstance(plain, Retry) else now_ms
    if last_ms is not None and due_ms > last_ms:
        return _ended(letter, policy, attempts, Cause.MAX_ELAPSED)
    if policy.outage is not None and (letter.fresh or isinstance(plain, Retry)):
        verdict = breaker()
        if verdict.wait_ms is not None:
            again = letter.state == State.HELD and letter.cause == Cause.OUTAGE and not letter.fresh
            tries = letter.tries + 1 if again else 1
            wait = max(verdict.wait_ms, RUNGS[0])  # below the lowest rung it would go straight back into the outage
            return Hold(Cause.OUTAGE, now_ms + wait, tries, letter.base_attempts, refusals=letter.refusals)
    return plain


def _last_ms(letter: Letter, policy: Effective) -> int | None:
    """The last moment at which a retry may end; None without a limit."""
    if policy.max_elapsed_ms is None:
        return None
    return (letter.since_ms or letter.first_death_ms) + policy.max_elapsed_ms


def _ended(letter: Letter, policy: Effective, attempts: int, cause: Cause) -> Decision:
    """No retry, for this cause."""
    end = _end(letter, policy, attempts)
    return replace(end, cause=cause) if isinstance(end, DeadLetter) else end


def _end(letter: Letter, policy: Effective, attempts: int) -> Decision:
    """What becomes of a letter that is not tried again; one that was redriven too often is parked for that."""
    if policy.discard:  # it stands for the end alone: tries come first, as before a dead-letter queue
        return Discard(attempts)
    if letter.redrives and 0 <= policy.max_redrives <= letter.redrives:
        return Park(Cause.REDRIVE_EXHAUSTED, attempts)
    return _dead_letter(letter, policy, attempts)


def _plain(letter: Letter, policy: Effective | None, now_ms: int, draw: float) -> Decision:
    """By reason and attempts alone."""
    if (cause := _astray(letter, policy)) is not None:
        return Park(cause, letter.base_attempts)
    if policy is None:
        return Park(Cause.NO_POLICY, letter.base_attempts)
    attempts = attempts_of(letter, policy)
    if _may_retry(letter, policy, attempts):
        wait = 0 if letter.state == State.HELD and not letter.fresh else _wait(letter, policy, attempts, draw)
        return Retry(wait, now_ms + wait, attempts)
    return _end(letter, policy, attempts)


def forward(letter: Letter, target: Target, ours: Names) -> Forward | Park:
    """What a relay does with a message that lives; parked where its key has no place in a frame, or is one of ours."""
    came = origin(letter)
    exchange, original = came.exchange, came.routing_keys
    if target.routing_key is None:
        if (own := _own(ours, target.exchange, original)) is not None:
            return Park(Cause.FORBIDDEN, letter.base_attempts, own)
        return Forward(target.exchange, original, kept=True, attempts=letter.base_attempts)
    values = {"queue": came.queue, "exchange": exchange, "routing_key": original[0], "vhost": letter.vhost}
    key, missing = target.routing_key.render(values, letter.header)
    if len(key.encode(errors="surrogateescape")) > MAX_NAME_BYTES:
        return Park(Cause.ROUTING_KEY_TOO_LONG, letter.base_attempts, target.exchange)
    if (own := _own(ours, target.exchange, (key,))) is not None:
        return Park(Cause.FORBIDDEN, letter.base_attempts, own)
    return Forward(target.exchange, (key,), missing_headers=missing, attempts=letter.base_attempts)


def origin(letter: Letter) -> First:
    """Queue, exchange and keys by which a living message came to its relay."""
    if passes(letter) and letter.first is not None:
        return letter.first
    return First(letter.source, letter.exchange, (letter.routing_key,), UNKNOWN)


def passes(letter: Letter) -> bool:
    """Whether it was held on its way through a relay: it waits for no death, and its record says where it came from."""
    return letter.state == State.HELD and letter.reason == UNKNOWN and not letter.fresh and letter.first is not None


def waiting(letter: Letter) -> Letter:
    """The message as it is remembered when its relay's target refuses it; `passes` tells it afterwards."""
    came = origin(letter)
    return replace(letter, reason=UNKNOWN, failed_queue=came.queue, first=came)


def _astray(letter: Letter, policy: Effective | None) -> Cause | None:
    """Letters that must not be judged by keys: unknown origin, loops, cycles."""
    if letter.reason == UNKNOWN and not letter.history:
        return None if policy is not None and policy.named_exactly else Cause.UNKNOWN_ORIGIN
    if letter.arrival is Arrival.INBOX and letter.state is not None and not letter.fresh:
        return Cause.LOOP
    if letter.known_before and letter.reason != "rejected" and not letter.rejected_since:
        return Cause.CYCLE
    return None


def _wait(letter: Letter, policy: Effective, attempts: int, draw: float) -> int:
    """What the policy says, or what the consumer asked for when it declared the death; never over the policy's cap."""
    asked = letter.declared.retry_after_ms if letter.declared is not None else None
    return wait_ms(policy, attempts, draw) if asked is None else min(asked, policy.cap_ms)


def _may_retry(letter: Letter, policy: Effective, attempts: int) -> bool:
    if letter.declared is not None and letter.declared.never:
        return False
    return _counts(letter.reason, policy) and (policy.max_attempts < 0 or attempts < policy.max_attempts)


def _counts(reason: str, policy: Effective) -> bool:
    """Whether a death for this reason is tried again; one without a known reason never is."""
    return reason != UNKNOWN and reason.partition(":")[0] in policy.retry_on


def _dead_letter(letter: Letter, policy: Effective, attempts: int) -> Decision:
    never = letter.declared is not None and letter.declared.never
    cause = Cause.ATTEMPTS_SPENT if _counts(letter.reason, policy) and not never else Cause.NEVER_RETRY
    keys, missing = final_keys(letter, policy, attempts)
    exchange = policy.dead_letter_exchange or ""
    queue = dead_letter_queue(policy, letter.failed_queue) if policy.auto_create else None
    if len(keys[0].encode(errors="surrogateescape")) > MAX_NAME_BYTES:
        return Park(Cause.ROUTING_KEY_TOO_LONG, attempts, exchange)
    if letter.source == queue or (exchange == "" and letter.source in keys):
        return Park(Cause.LOOP, attempts, letter.source)
    if exchange == "" and queue is None and not _allowed(policy, keys[0]):
        return Park(Cause.FORBIDDEN, attempts, keys[0])
    if (own := _own(policy.ours, exchange, keys, queue)) is not None:
        return Park(Cause.FORBIDDEN, attempts, own)
    if exchange == "" and queue is None and _circles(letter, keys[0]):
        return Park(Cause.CYCLE, attempts, keys[0])
    return DeadLetter(exchange, keys, attempts, cause, queue, missing)


def _own(ours: Names, exchange: str, keys: tuple[str, ...], queue: str | None = None) -> str | None:
    """The first name among its targets that is the router's: what is put there is no dead letter, or gone."""
    named = (exchange, *(keys if exchange == "" else ()), *(() if queue is None else (queue,)))
    return next((name for name in named if ours.is_own(name)), None)


def _circles(letter: Letter, queue: str) -> bool:
    """RabbitMQ's own rule, which a republish escapes: it died in its target, and nothing since was `rejected`."""
    walked: list[Death] = []
    for death in letter.history:
        walked.append(death)
        if death.queue == queue:
            return all(entry.reason != "rejected" for entry in walked)
    return False


def _allowed(policy: Effective, queue: str) -> bool:
    """A template may let the message name the queue, but only among those that the policy allows.

    Without such a list no header may: lint refuses that key in each policy, but policies that are merged may bring it.
    """
    setting = policy.settings.get("allow-queues")
    if setting is None:
        return policy.routing_key is None or not policy.routing_key.uses_headers
    return any(selector.fits(queue) for selector in setting.value)


def release(letter: Letter, left_ms: int) -> Release:
    """What a letter from the release queue does: never early, and a held one is decided anew.

    `left_ms`: of its wait. What is left of a hold is not waited for below the lowest rung.
    """
    if left_ms > 0 and (letter.state != State.HELD or left_ms >= RUNGS[0]):
        return Release.WAIT
    return Release.JUDGE if letter.state == State.HELD else Release.RETURN


def hold(  # noqa: PLR0913 - what a wait depends on
    letter: Letter,
    cause: Cause,
    attempts: int,
    now_ms: int,
    *,
    grace_ms: int,
    target: str,
    steps: int = 1,
    unsent_ms: int = 1000,
    refusals: int = 0,
) -> Hold | Park:
    """A refused letter goes `steps` up the ladder; an unroutable one is parked when the grace is over.

    `steps` 0: it was not sent, and waits for `unsent_ms`. `refusals`: how often it was sent and not confirmed.
    """
    tries = (letter.tries if letter.state == State.HELD and letter.cause == cause else 0) + steps
    if cause in GRACED and ladder_elapsed_ms(tries - 1) >= grace_ms:
        return Park(cause, attempts, target)
    due_ms = now_ms + (ladder_ms(tries) if steps else unsent_ms)
    return Hold(cause, due_ms, tries, attempts, target, refusals=refusals)
