"""Events: what was decided → the event in the journal for which the source waits."""

from collections.abc import Sequence
from dataclasses import replace
from zlib import crc32

from dlx_router.core.letter import Letter, letter_id
from dlx_router.journal import privacy
from dlx_router.journal.events import KIND_OF, NO_BODY, Fragments, Ruling, fragments, unreadable
from dlx_router.journal.privacy import Rule, rule_of
from dlx_router.journal.writer import Journal
from dlx_router.service.inflight import decoder
from dlx_router.service.inflight.job import Job
from dlx_router.telemetry.logs import Once


def tell(journal: Journal, job: Job, ruling: Ruling, now: int) -> None:
    """The event of a decision that went the long way; its source waits for it.

    It comes behind what was told of this delivery before, within one millisecond too: the newest is what holds.
    """
    policy = job.policy if job.policy is not None or not job.cause else job.disclosing  # a call for few letters only
    rule, letter, envelope = rule_of(policy), job.letter, job.envelope
    if letter is None or not journal.is_on or not rule.wants(ruling.kind):
        return
    own = NO_BODY
    if envelope is not None and (letter.error is not None or not rule.is_plain or ruling.kind == privacy.RETIRED):
        headers, body = envelope.props.headers, job.delivery.body
        own = privacy.disclosed(rule, ruling.kind, headers=headers, body=body, error=letter.error)
    content = envelope.content if envelope is not None else None
    event = journal.event(
        fragments(privacy.discreet(rule, letter), ruling),
        letter.id,
        now + len(job.batches),
        first_ms=letter.first_death_ms,
        last_ms=letter.last_death_ms,
        crc32=content.crc32 if content is not None else crc32(job.delivery.body),
        size=len(job.delivery.body),
        props=envelope.props if envelope is not None else None,
        due_ms=job.copy.record.due_ms if job.copy is not None else None,
        draw=job.draw,
        serial=letter.serial,
        possible_copy=letter.possible_copy,
        extra=own,
    )
    job.draw = None
    job.batches += (journal.record(event),)


def letter_line(  # noqa: PLR0913 - what an event is made of
    letter: Letter,
    envelope: decoder.Envelope,
    ruling: Ruling,
    rule: Rule,
    *,
    ts_ms: int,
    due_ms: int | None = None,
    extra: str = NO_BODY,
) -> bytes:
    """The line of an event about a letter that was read, as its policy lets it be told."""
    return fragments(privacy.discreet(rule, letter), ruling).line(
        letter.id,
        ts_ms,
        first_ms=letter.first_death_ms,
        last_ms=letter.last_death_ms,
        crc32=envelope.content.crc32,
        size=envelope.content.size,
        props=envelope.props,
        due_ms=due_ms,
        serial=letter.serial,
        possible_copy=letter.possible_copy,
        extra=extra,
    )


def tell_where(journal: Journal, job: Job, ruling: Ruling, now: int) -> None:
    """As `tell`; but where a queue is made for the copy it is `tell_late` that tells, once it is known which one."""
    waits = job.copy is not None and job.copy.needs_queue is not None
    job.untold = (journal, ruling, now) if waits else None
    if not waits:
        tell(journal, job, ruling, now)


def tell_late(job: Job) -> None:
    """The event that waited until the broker had said where the copy goes; nothing where all is told."""
    untold, copy = job.untold, job.copy
    if untold is not None and copy is not None:
        job.untold = None
        journal, ruling, now = untold
        tell(journal, job, ruling._replace(routing_key=copy.routing_key), now)


def lesson(journal: Journal, job: Job) -> tuple[Fragments | None, Rule] | None:
    """What the next letters like this one share in the journal (None: it hears nothing); None: it teaches nothing."""
    rule, letter, decision, copy, policy = rule_of(job.policy), job.letter, job.decision, job.copy, job.policy
    if letter is None or decision is None or copy is None or policy is None:
        return None
    if not journal.is_on or not rule.wants(KIND_OF[job.action]):
        return None, rule
    return fragments(letter, job.in_force.event_factory.decided(decision, copy, policy.policy)), rule


def unread(job: Job, place: decoder.Place, now: int) -> Letter:
    """What there is to tell of a message that cannot be read."""
    delivery = job.delivery
    exchange, key = decoder.text(delivery.exchange), decoder.text(delivery.routing_key)
    raw = delivery.header[decoder.PROPERTIES_AT :]
    name = letter_id(place.vhost, place.source, delivery.exchange, delivery.routing_key, raw, b"", delivery.body)
    letter = unreadable(name, place.vhost, place.source, place.arrival, exchange, key, now)
    return replace(letter, serial=place.serials + delivery.tag, possible_copy=delivery.redelivered)


def untrusted(once: Once, queue: str, exchange: str) -> None:
    """An x-death is not looked at: told once for each queue and exchange."""
    once.warn(
        f"untrusted {queue} {exchange}",
        "x-death.not_trusted",
        queue=queue,
        exchange=exchange,
        fate="such letters count as new; where this is how the broker brings dead letters there, name the exchange: "
        "key dead-letter-exchanges of the queue's attachment",
    )


def not_in_runs(once: Once, queue: str, error: Exception) -> None:
    """Letters that are alike cannot be written together: told once for each queue."""
    fate = "each goes by itself: slower, and nothing else; please report it"
    once.warn(f"runs {queue}", "letters.not_in_runs", queue=queue, error=repr(error), fate=fate)


def failed_conditions(once: Once, letter: Letter, failed: Sequence[str]) -> None:
    """A condition that cannot be evaluated is told once for each queue and text."""
    for condition in failed:
        once.warn(
            f"{letter.failed_queue} {condition}",
            "condition.failed",
            queue=letter.failed_queue,
            condition=condition,
            letter=letter.id,
            fate="it counts as false for this letter; others of this kind are not logged again",
        )
