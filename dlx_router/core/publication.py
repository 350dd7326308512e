"""The publication: exactly what is to be sent for a decision, still as values.

Towards a failed queue the letter looks as at its first delivery (key, CC, type, priority, delivery mode); at rest it
keeps what we took off in its record. See docs/architecture.md ("Delay").
"""

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Final

from dlx_router.core.letter import Declared, Letter, Props
from dlx_router.core.names import MAX_NAME_BYTES, RUNGS
from dlx_router.core.outcome import DeadLetter, Decision, Forward, Hold, Park, Retry
from dlx_router.core.record import AT_REST_BYTES, TOWARDS_CONSUMERS_BYTES, Record
from dlx_router.core.target import original_keys
from dlx_router.core.value import value
from dlx_router.core.words import Action, Cause, State

# The headers that each kind of aliases takes for itself. See docs/policies.md.
ALIASES: Final[Mapping[str, tuple[str, ...]]] = {
    "emq": (
        "sourceQueueName",
        "sourceTag",
        "deadTimestamp",
        "originalMessageID",
        "originalReceiveCount",
        "DLQ.sourceQueue",
    ),
    "artemis": ("_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "_AMQ_ORIG_MESSAGE_ID"),
}


class Way(StrEnum):
    """Which kind of target a publication has; it tells what must exist first."""

    RETURN = "return"
    RUNG = "rung"
    TARGET = "target"
    PARKING = "parking"
    FORWARD = "forward"


@value(frozen=True, slots=True)
class Content:
    """What the record is bound to, and the properties as they came."""

    crc32: int
    size: int
    props: Props


@value(frozen=True, slots=True)
class Publication:
    """One copy to send. `cc` None keeps the CC header as it came; else it is set to exactly these (none: removed).

    `aside`: of a delayed message, whose headers under names of ours or the broker's come out again as they went in.
    """

    way: Way
    exchange: str
    routing_key: str
    record: Record
    record_bytes: int
    cc: tuple[str, ...] | None = None
    bcc: str | None = None
    rung_ms: int = 0
    aliases: tuple[str, ...] = ()
    needs_queue: str | None = None
    delivery_mode: int | None = 2
    priority: int | None = None
    aside: bool = False


STATES = {
    Action.RETRY: State.RETRYING,
    Action.DEAD_LETTER: State.DEAD,
    Action.PARK: State.PARKED,
    Action.HOLD: State.HELD,
    Action.FORWARD: State.HELD,  # no forwarded copy carries it: it is what would be kept if the target refused
}


def record_of(letter: Letter, decision: Decision, content: Content, *, policy: str, revision: str) -> Record:
    """What we shall remember of the letter after this decision."""
    tries = decision.tries if isinstance(decision, Hold) else 0
    target = decision.target or None if isinstance(decision, Hold | Park) else None
    due = decision.due_ms if isinstance(decision, Retry | Hold) else None
    waits = isinstance(decision, Retry) and decision.wait_ms >= RUNGS[0]
    return _remembered(
        letter,
        content,
        state=STATES[decision.action],
        policy=policy,
        revision=revision,
        attempts=decision.attempts,
        tries=tries,
        cause=decision.cause,
        due_ms=due,
        declared=letter.declared,
        target=target,
        since_ms=letter.since_ms or None,
        wait_ms=decision.wait_ms if waits and isinstance(decision, Retry) else None,
        refusals=decision.refusals if isinstance(decision, Hold) else 0,
    )


def waiting(record: Record, wait_ms: int | None, due_ms: int) -> Record:
    """The record as it says what is left of the wait; its end may come sooner than was told, never later."""
    due = due_ms if record.due_ms is None else min(record.due_ms, due_ms)
    if record.wait_ms == wait_ms and record.due_ms == due:
        return record
    return replace(record, wait_ms=wait_ms, due_ms=due)


def redriven(letter: Letter, content: Content, *, policy: str, revision: str, redrive_id: str) -> Record:
    """What is remembered of a letter that is sent back: its next death is the first attempt of a new stay.

    `letter.redrives` counts this redrive already.
    """
    return _remembered(letter, content, state=State.RETRYING, policy=policy, revision=revision, redrive_id=redrive_id)


def _remembered(  # noqa: PLR0913 - what differs between a decision and a redrive
    letter: Letter,
    content: Content,
    *,
    state: State,
    policy: str,
    revision: str,
    attempts: int = 0,
    tries: int = 0,
    cause: Cause | None = None,
    due_ms: int | None = None,
    declared: Declared | None = None,
    target: str | None = None,
    since_ms: int | None = None,
    redrive_id: str | None = None,
    wait_ms: int | None = None,
    refusals: int = 0,
) -> Record:
    """The record of this letter: what it is and where it has been, whatever happens to it now."""
    return Record(
        id=letter.id,
        state=state,
        vhost=letter.vhost,
        failed_queue=letter.failed_queue,
        attempts=attempts,
        redrives=letter.redrives,
        tries=tries,
        reason=letter.reason,
        policy=policy,
        revision=revision,
        first_death_ms=letter.first_death_ms,
        last_death_ms=letter.last_death_ms,
        deaths=letter.history,
        crc32=content.crc32,
        size=content.size,
        first=letter.first,
        cause=cause,
        due_ms=due_ms,
        props=content.props,
        error=letter.error,
        declared=declared,
        redrive_id=redrive_id,
        parent=letter.parent,
        shadowed=letter.shadowed,
        target=target,
        since_ms=since_ms,
        wait_ms=wait_ms,
        serial=letter.serial,
        refusals=refusals,
        more=letter.more,
    )


def to_return(record: Record, exchange: str, key: str) -> Publication:
    """The copy that goes back to exactly the failed queue, by `exchange` and the binding `key`.

    A BCC does it, so that the consumer sees the routing key and CC of the first delivery; the broker strips it. Where
    the letter's own keys could be taken for a binding key, where the first is too long for a routing key (the topic of
    MQTT was), or nothing is bound, the default exchange leads there.
    """
    keys = record.deaths[0].routing_keys if record.deaths else ()
    first = keys[0] if keys else record.failed_queue
    mode, priority = record.props.delivery_mode, record.props.priority
    plain = not key or not _fits(first) or any(name.startswith("to:") for name in keys)
    return Publication(
        Way.RETURN,
        "" if plain else exchange,
        record.failed_queue if plain else first,
        record,
        TOWARDS_CONSUMERS_BYTES,
        cc=() if plain else keys[1:],
        bcc=None if plain else key,
        delivery_mode=mode,
        priority=priority,
    )


def leads_to(copy: Publication) -> str:
    """The target as people know it: the failed queue of what goes back, else the exchange, else the queue."""
    return copy.record.failed_queue if copy.way is Way.RETURN else copy.exchange or copy.routing_key


def to_rung(record: Record, exchange: str, rung_ms: int, came: str = "") -> Publication:
    """The copy that waits; without a priority, which would disturb the order of expiry (4.0 – 4.2).

    `came`: its routing key, for a letter whose history tells none that can be published.
    """
    keys = record.deaths[0].routing_keys if record.deaths else ()
    return Publication(
        Way.RUNG,
        exchange,
        keys[0] if keys and _fits(keys[0]) else came,
        record,
        AT_REST_BYTES,
        cc=keys[1:] if len(keys) > 1 else None,  # a record that is cut loses them; x-death tells them behind the rung
        rung_ms=rung_ms,
    )


def _fits(key: str) -> bool:
    """Whether it can be published as a routing key."""
    return len(key.encode(errors="surrogateescape")) <= MAX_NAME_BYTES


def to_target(decision: DeadLetter, letter: Letter, record: Record, aliases: tuple[str, ...]) -> Publication:
    """The final copy. The policy's key replaces the CC keys too; original keys route as the broker would."""
    original = original_keys(letter)
    kinds = aliases if letter.history else ()
    cc = original[1:] if len(original) > 1 and decision.keys != original else record.cc
    final = replace(record, cc=cc, shadowed=_shadowed(letter, kinds))
    untold = decision.keys == original and not (letter.history and letter.history[0].routing_keys)  # only CC knows
    return Publication(
        Way.TARGET,
        decision.exchange,
        decision.keys[0],
        final,
        AT_REST_BYTES,
        cc=None if untold else decision.keys[1:],
        aliases=kinds,
        needs_queue=decision.queue,
        priority=record.props.priority,
    )


def to_relayed(decision: Forward, record: Record) -> Publication:
    """The copy of a message that lives: as it came, with all its properties; only a policy's key takes off the CC."""
    return Publication(
        Way.FORWARD,
        decision.exchange,
        decision.keys[0],
        record,
        0,
        cc=None if decision.kept else (),
        delivery_mode=record.props.delivery_mode,
        priority=record.props.priority,
    )


def _shadowed(letter: Letter, kinds: tuple[str, ...]) -> Mapping[str, str] | None:
    """What the producer said under the names that aliases take; empty once they were written: theirs are ours now."""
    if not kinds or letter.shadowed is not None:
        return letter.shadowed
    texts = {name: letter.header(name) for kind in kinds for name in ALIASES[kind]}
    return {name: text for name, text in texts.items() if text is not None}


def to_parking(letter: Letter, record: Record, queue: str) -> Publication:
    """The copy for the parking queue, by the default exchange; its CC keys must not route again."""
    original = original_keys(letter)
    kept = replace(record, cc=original[1:]) if len(original) > 1 else record
    return Publication(Way.PARKING, "", queue, kept, AT_REST_BYTES, cc=(), priority=record.props.priority)
