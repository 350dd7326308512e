"""Delaying: what a desk does with messages of delayed exchanges. None of them is a letter: no death, no attempt.

A message that waits is held on the ladder without a cause. Its record names the queue that it came to and the exchange
that it goes on to, so that it arrives there whatever the policies say meanwhile. See docs/migrate-delayed-plugin.md.
"""

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.core import delaying
from dlx_router.core.decision import origin
from dlx_router.core.letter import First, Letter
from dlx_router.core.names import RUNGS
from dlx_router.core.outcome import Forward, Hold, Park
from dlx_router.core.publication import Publication, Way
from dlx_router.core.record import Record
from dlx_router.core.words import UNKNOWN, Action, Cause, State
from dlx_router.service.inflight import decoder, saved_headers
from dlx_router.service.inflight.admissible import admissible
from dlx_router.service.inflight.clock import now_ms
from dlx_router.service.inflight.decoder import Envelope, Malformed, Place
from dlx_router.service.inflight.job import Job
from dlx_router.wire import frames, properties, table

if TYPE_CHECKING:
    from dlx_router.service.dispatch.decider import Decider

_LOWEST_MS: Final = RUNGS[0]


def begin(decider: "Decider", job: Job, place: Place, entry: Delayed) -> None:
    """A message was published to a delayed exchange: it waits, or goes on at once. What came back has waited."""
    try:
        letter, envelope = _read(job.delivery, place)
    except Malformed as error:
        decider.unreadable(job, place, error)
        return
    job.letter, job.envelope = letter, envelope
    asked = 0 if envelope.record is not None else saved_headers.asked_ms(envelope)
    wait, now = delaying.wait_ms(asked, entry.default_ms), now_ms()
    job.policy = job.in_force.policy_of(letter.failed_queue, UNKNOWN)
    if wait < _LOWEST_MS:
        _go_on(decider, job, letter, entry.to, now + wait if wait else None)
    else:
        decider.carry_out(job, Hold(None, now + wait, 0, 0, target=entry.to), UNKNOWN, now)


def goes_on(decider: "Decider", job: Job, place: Place, letter: Letter, record: Record) -> None:
    """A rung is over: the next one, or on to where the message was to go when it came.

    One that was refused there goes where the exchange leads now.
    """
    assert job.envelope is not None
    if not saved_headers.is_sound(job.envelope):
        decider.unreadable(job, place, Malformed(f"{saved_headers.HEADER.decode()}: what was put aside cannot be read"))
        return
    now = now_ms()
    job.policy = job.in_force.policy_of(letter.failed_queue, UNKNOWN)
    left = decider.left_ms(job, letter, record, now)
    if left >= _LOWEST_MS:
        job.action = Action.RELEASE
        decider.wait_on(job, record, left, now)
        return
    entry = job.in_force.attended.delayed.get(letter.failed_queue)
    to = entry.to if entry is not None and record.cause is not None else record.target
    if not to:
        decider.apply(job, Park(Cause.NO_POLICY), now)
        return
    if record.cause is None:
        decider.late(now - letter.due_ms)
    _go_on(decider, job, letter, to, now + left if left else None)


def delayed_copy(copy: Publication) -> Publication:
    """The copy as it is written of a delayed message."""
    return replace(copy, aside=copy.way in {Way.RUNG, Way.PARKING, Way.FORWARD})


def _go_on(decider: "Decider", job: Job, letter: Letter, to: str, due_ms: int | None) -> None:
    """`due_ms`: what is left of the wait is too short for a rung."""
    decider.carry_out(job, Forward(to, origin(letter).routing_keys, kept=True), UNKNOWN)
    if due_ms is not None and job.copy is not None:
        job.copy = replace(job.copy, record=replace(job.copy.record, due_ms=due_ms))


def _read(delivery: frames.Delivery, place: Place) -> tuple[Letter, Envelope]:
    """The message, whatever its headers tell of deaths; a record counts only where it was written of this very wait."""
    try:
        props = properties.parse(delivery.header, decoder.PROPERTIES_AT)
        props, found = admissible(props, table.entries(props.headers))
        own = _came_back(delivery, props, found, place)
        content, _ = decoder.content_of(delivery.body, props, own)
        envelope = Envelope(delivery, props, found, content, (), foreign_record=False, record=own)
        if not saved_headers.is_sound(envelope):
            raise Malformed(f"{saved_headers.HEADER.decode()}: what was put aside cannot be read")
        saved_headers.asked_ms(envelope)
    except (table.TableError, frames.WireError) as error:
        raise Malformed(str(error)) from error
    return _letter(delivery, envelope, place), envelope


def _came_back(
    delivery: frames.Delivery, props: properties.Properties, found: dict[bytes, table.Span], place: Place
) -> Record | None:
    """Our record of this message's first wait: somebody moved it back here, out of parking say."""
    own, _ = decoder.record_of(props.headers, found, place)
    if own is None or own.failed_queue != place.source or own.first is None:
        return None
    return own if decoder.content_of(delivery.body, props, own)[1] else None


def _letter(delivery: frames.Delivery, envelope: Envelope, place: Place) -> Letter:
    own, now = envelope.record, now_ms()
    exchange, key = decoder.text(delivery.exchange), decoder.text(delivery.routing_key)
    source = place.source
    return Letter(
        id=own.id if own else decoder.identity(delivery, envelope.props, envelope.found, place.vhost, source),
        vhost=place.vhost,
        source=source,
        arrival=place.arrival,
        exchange=exchange,
        routing_key=key,
        history=(),
        first=own.first if own else First(source, exchange, (key,), UNKNOWN),
        failed_queue=source,
        reason=UNKNOWN,
        fresh=(),
        base_attempts=0,
        redrives=0,
        tries=0,
        state=State.HELD if own else None,
        first_death_ms=own.first_death_ms if own else now,
        last_death_ms=now,
        size=len(delivery.body),
    )
