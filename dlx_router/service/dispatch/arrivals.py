"""Passage: what a desk says of messages that have not failed, in relayed and guarded queues."""

from typing import TYPE_CHECKING

from dlx_router.core.decision import forward, origin, waiting
from dlx_router.core.letter import First, Letter
from dlx_router.core.outcome import Park
from dlx_router.core.passing import EXPIRED, Limits, Stamps, Target, due_ms, limits_of
from dlx_router.core.words import UNKNOWN, Cause
from dlx_router.service.inflight.decoder import Place
from dlx_router.service.inflight.in_force import InForce
from dlx_router.service.inflight.job import Job

if TYPE_CHECKING:
    from dlx_router.service.dispatch.decider import Decider


def limits(in_force: InForce, queue: str) -> Limits:
    """What a policy says of the messages in this queue."""
    return limits_of(in_force.policy_of(queue, UNKNOWN))


def dies(decider: "Decider", job: Job, place: Place, reason: str, came: First | None = None) -> None:
    """It fails here and now: a letter as the broker would have made it, judged like any other."""
    letter = decider.opened(job, place, dies=reason, came=came)
    if letter is not None:
        decider.decided(job, letter)


def relay(decider: "Decider", job: Job, place: Place, target: Target) -> None:
    """It lives: on to the target."""
    letter = decider.opened(job, place, lives=True)
    if letter is not None:
        _forward(decider, job, letter, target, place)


def goes_on(decider: "Decider", job: Job, letter: Letter, place: Place, now_ms: int) -> None:
    """It waited because its relay's target had refused it."""
    came = origin(letter)
    target, ends = (
        job.in_force.leads_to(came.queue),
        due_ms(limits(job.in_force, came.queue), Stamps(), letter.first_death_ms),
    )
    if ends is not None and ends <= now_ms:
        dies(decider, job, place, EXPIRED, came)
    elif target is None:
        decider.apply(job, Park(Cause.NO_POLICY, letter.base_attempts), now_ms)
    else:
        _forward(decider, job, letter, target, place)


def _forward(decider: "Decider", job: Job, letter: Letter, target: Target, place: Place) -> None:
    job.policy = job.in_force.policy_of(origin(letter).queue, UNKNOWN)
    decision = forward(letter, target, place.names)
    if isinstance(decision, Park):
        job.letter = waiting(letter)  # remembered by where it was, not by what somebody wrote on it
    decider.carry_out(job, decision, UNKNOWN)
