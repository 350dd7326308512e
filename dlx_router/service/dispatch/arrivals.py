"""What is to be done with a message that has not just died: values in, what to do out.

Relays bring messages that live, delayed exchanges those that wait, release what has waited, retention what nobody wants
any more. Nothing here reads a clock, throws dice or tells anybody: decider.py does, and carries out what is said here.
About a letter that has just died core/decision decides alone.
"""

from dataclasses import replace
from typing import Final, NamedTuple

from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.core import delaying
from dlx_router.core.decision import Release, forward, origin, passes, release, waiting
from dlx_router.core.letter import First, Letter
from dlx_router.core.names import RUNGS
from dlx_router.core.outcome import Decision, Forward, Hold, Park
from dlx_router.core.passing import EXPIRED, Limits, Stamps, Target, due_ms, limits_of
from dlx_router.core.policy import Effective
from dlx_router.core.publication import Publication, Way
from dlx_router.core.record import Record
from dlx_router.core.words import UNKNOWN, Cause
from dlx_router.service.inflight import saved_headers
from dlx_router.service.inflight.decoder import Envelope, Malformed
from dlx_router.service.inflight.in_force import InForce

_LOWEST_MS: Final = RUNGS[0]
_COUNTED: Final = ""  # when it was first decided


class Decided(NamedTuple):
    """This is decided about the letter, and counted under a reason.

    `due_ms`: it goes on no sooner, for what is left of its wait is too short for a rung. `late_ms`: its wait is over
    since then.
    """

    letter: Letter
    policy: Effective | None
    decision: Decision
    reason: str = UNKNOWN
    due_ms: int | None = None
    late_ms: int | None = None


class Waits(NamedTuple):
    """What was decided stands: on the next rung, or back to its queue where nothing is left of the wait."""

    policy: Effective | None
    record: Record
    left_ms: int
    late_ms: int | None = None


class Dies(NamedTuple):
    """It fails here and now, for this reason; `came`: how it came to the queue where it fails."""

    reason: str
    came: First


# None: it is judged, as one that has just died.
Outcome = Decided | Waits | Dies | None


def limits(in_force: InForce, queue: str) -> Limits:
    """What a policy says of the messages in this queue."""
    return limits_of(in_force.policy_of(queue, UNKNOWN))


def relayed(in_force: InForce, letter: Letter, target: Target) -> Decided:
    """It lives, in a relayed queue: on to the target."""
    decision = forward(letter, target, in_force.rules.names)
    if isinstance(decision, Park):
        letter = waiting(letter)  # remembered by where it was, not by what somebody wrote on it
    return Decided(letter, in_force.disclosing(origin(letter).queue, UNKNOWN), decision)


def delayed(in_force: InForce, letter: Letter, envelope: Envelope, entry: Delayed, now_ms: int) -> Decided:
    """It was published to a delayed exchange: it waits, or goes on at once. What came back has waited.

    It is no letter: no death, no attempt. On the ladder it is held without a cause, and its record names the queue that
    it came to and the exchange that it goes on to, whatever policies say meanwhile: docs/migrate-delayed-plugin.md.
    """
    asked = 0 if envelope.record is not None else saved_headers.asked_ms(envelope)
    wait = delaying.wait_ms(asked, entry.default_ms)
    policy = in_force.policy_of(letter.failed_queue, UNKNOWN)
    if wait < _LOWEST_MS:
        return _onward(letter, policy, entry.to, now_ms + wait if wait else None)
    return Decided(letter, policy, Hold(None, now_ms + wait, 0, 0, target=entry.to))


def released(in_force: InForce, letter: Letter, envelope: Envelope, left_ms: int, now_ms: int) -> Outcome:
    """A rung is over. Raises Malformed, where what a delayed message had put aside cannot be read."""
    record = envelope.record
    if record is not None and in_force.rules.names.is_delayed(letter.failed_queue):
        if not saved_headers.is_sound(envelope):
            raise Malformed(f"{saved_headers.HEADER.decode()}: what was put aside cannot be read")
        return _delayed_again(in_force, letter, record, left_ms, now_ms)
    step = release(letter, left_ms)
    if record is not None and step is not Release.JUDGE:
        late_ms = now_ms - (record.due_ms or now_ms) if step is Release.RETURN else None
        kept = replace(record, deaths=letter.history) if record.cut else record
        return Waits(in_force.resolve(letter), kept, left_ms, late_ms)
    return _relayed_again(in_force, letter, now_ms) if passes(letter) else None


def retired(letter: Letter, record: Record | None) -> Letter:
    """It died again, in its dead-letter queue; where and why it failed is what its record says."""
    if record is None:
        return letter
    return replace(letter, failed_queue=record.failed_queue, reason=record.reason, base_attempts=record.attempts)


def put_aside(copy: Publication) -> Publication:
    """The copy of a delayed message: what it brought under names of ours is put aside while it rests."""
    return replace(copy, aside=copy.way in {Way.RUNG, Way.PARKING, Way.FORWARD})


def _relayed_again(in_force: InForce, letter: Letter, now_ms: int) -> Outcome:
    """It waited because its relay's target had refused it."""
    came = origin(letter)
    target, ends = in_force.leads_to(came.queue), due_ms(limits(in_force, came.queue), Stamps(), letter.first_death_ms)
    if ends is not None and ends <= now_ms:
        return Dies(EXPIRED, came)
    if target is None:
        return Decided(letter, None, Park(Cause.NO_POLICY, letter.base_attempts), _COUNTED)
    return relayed(in_force, letter, target)


def _delayed_again(in_force: InForce, letter: Letter, record: Record, left_ms: int, now_ms: int) -> Outcome:
    """The next rung, or on to where it was to go when it came; one that was refused there, where that is now."""
    policy = in_force.policy_of(letter.failed_queue, UNKNOWN)
    if left_ms >= _LOWEST_MS:
        return Waits(policy, record, left_ms)
    entry = in_force.attended.delayed.get(letter.failed_queue)
    to = entry.to if entry is not None and record.cause is not None else record.target
    if not to:
        return Decided(letter, policy, Park(Cause.NO_POLICY), _COUNTED)
    late_ms = max(0, now_ms - letter.due_ms) if record.cause is None else None
    return _onward(letter, policy, to, now_ms + left_ms if left_ms else None, late_ms)


def _onward(
    letter: Letter, policy: Effective | None, to: str, due_ms: int | None, late_ms: int | None = None
) -> Decided:
    forwarded = Forward(to, origin(letter).routing_keys, kept=True)
    return Decided(letter, policy, forwarded, due_ms=due_ms, late_ms=late_ms)
