"""Arrival: what a delivery tells, judged against what we remember. Broker facts + record → Letter.

Attempts are our own counter: deaths at the failed queue since the letter last entered it other than by our retry.
See docs/architecture.md ("Life of a letter").
"""

from collections.abc import Callable, Mapping
from dataclasses import replace
from itertools import takewhile
from typing import Any, Final

from dlx_router.core.bounded import MIB, Remembered
from dlx_router.core.declaration import Declaration
from dlx_router.core.history import Merged, continues, fold, merge, same_deaths, uncut, without_own
from dlx_router.core.letter import HISTORIES, Arrival, Death, First, History, Letter
from dlx_router.core.record import Record
from dlx_router.core.value import value
from dlx_router.core.words import REJECTED, UNKNOWN, State

SHARED_DEATHS: Final = 8  # longer histories are rare, and not worth the memory of the cache


@value(frozen=True, slots=True)
class Facts:
    """What the delivery says: `deaths` is its x-death as it came, `record` ours if the signature held."""

    vhost: str
    source: str
    arrival: Arrival
    exchange: str
    routing_key: str
    deaths: History
    record: Record | None
    belongs: bool  # the record is about this content, not copied from another message
    native: bool  # came by a death into an exchange of ours, not by a publish
    first: First | None  # x-first-death-* of the delivery
    now_ms: int
    header: Callable[[str], str | None] = lambda _name: None  # a scalar header as text
    body: Callable[[str], Any] = lambda _pointer: None  # a place of a JSON body
    content_type: str = ""
    size: int = 0
    declaration: Declaration | None = None  # it came as a declared death; then `deaths` is empty
    error: Mapping[str, Any] | None = None  # that headers of other clients tell
    rests: bool = False  # nothing has died since the record was written
    serial: int | None = None  # of this delivery; a letter without one in its record takes it
    redelivered: bool = False


def read(facts: Facts, is_own: Callable[[str], bool], new_id: Callable[[str], str]) -> Letter:
    """The letter. Never raises: odd histories were refused before. `new_id(failed_queue)` is called for new letters."""
    if facts.declaration is not None:
        return _declared(facts, facts.declaration, is_own, new_id)
    record = facts.record
    if record is None or not facts.belongs:
        return _new(facts, record, new_id, is_own)
    deaths = fold(without_own(facts.deaths, is_own)) if facts.deaths else ()
    if record.cut:
        record = replace(record, deaths=_whole(record.deaths, facts, is_own))
    if facts.rests:
        return _known(facts, uncut(deaths, record.deaths, cut=record.cut), record, is_own)
    merged = merge(
        deaths,
        record.deaths,
        cut=record.cut,
        restarted=_restarted(deaths, record),
        native=facts.native and facts.arrival is Arrival.INBOX,  # the end of a wait is no death of the letter
    )
    return _known(facts, _homely(merged, record, is_own), record, is_own)


def _whole(remembered: History, facts: Facts, is_own: Callable[[str], bool]) -> History:
    """The deaths with the keys that a cut record lost: x-death tells them, and that of its rung those it waits with."""
    keys_of = {death.key: death.routing_keys for death in reversed(facts.deaths)}
    waits = facts.arrival is Arrival.RELEASE and remembered
    if waits and (rung := next((death for death in facts.deaths if is_own(death.queue)), None)) is not None:
        keys_of.setdefault(remembered[0].key, rung.routing_keys)
    whole = []
    for death in remembered:
        keys = keys_of.get(death.key, ())
        lost = keys[: len(death.routing_keys)] == death.routing_keys
        whole.append(death._replace(routing_keys=keys) if lost else death)
    return tuple(whole)


def _declared(
    facts: Facts, declaration: Declaration, is_own: Callable[[str], bool], new_id: Callable[[str], str]
) -> Letter:
    """A letter whose newest death was declared: a rejection in x-death, and to us with a reason of its own."""
    keys = declaration.routing_keys
    death = Death(
        declaration.queue,
        REJECTED,
        1,
        facts.now_ms // 1000,
        declaration.exchange,
        keys,
        declaration.original_expiration,
    )
    record = facts.record
    if record is None or not facts.belongs:
        letter = _new(replace(facts, deaths=(death,), first=None, native=False), record, new_id, is_own)
    else:
        merged = merge((death,), record.deaths, native=False, restarted=True, cut=record.cut)
        letter = _known(facts, _homely(merged, record, is_own), record, is_own)
    fresh = (death._replace(reason=declaration.reason),)
    error = declaration.error or letter.error
    return replace(letter, reason=declaration.reason, fresh=fresh, error=error, declared=declaration.declared)


def _restarted(deaths: History, record: Record) -> bool:
    """Whether the broker began anew: it tells an entry that we know, yet by another exchange than we wrote there."""
    known = {death.key: death.exchange for death in record.deaths}
    return any(known.get(death.key, death.exchange) != death.exchange for death in deaths)


def _homely(merged: Merged, record: Record, is_own: Callable[[str], bool]) -> Merged:
    """Own exchanges never appear in an entry that leaves us: a retried letter came by its first exchange."""
    if not any(is_own(death.exchange) for death in merged.history):
        return merged
    known = {death.queue: death.exchange for death in reversed(record.deaths)}
    history = tuple(
        death._replace(exchange=known.get(death.queue, "")) if is_own(death.exchange) else death
        for death in merged.history
    )
    return Merged(history, merged.fresh)


def _new(facts: Facts, copied: Record | None, new_id: Callable[[str], str], is_own: Callable[[str], bool]) -> Letter:
    key = facts.deaths, facts.first, is_own
    fresh, deaths, first = _ORIGINS[key] if len(facts.deaths) <= SHARED_DEATHS else _origin(*key)
    if copied is not None:
        fresh = _beyond(copied, fresh, native=facts.native)
    failed = deaths[0].queue if deaths else facts.source
    return Letter(
        id=new_id(failed),
        vhost=facts.vhost,
        source=facts.source,
        arrival=facts.arrival,
        exchange=facts.exchange,
        routing_key=facts.routing_key,
        history=deaths,
        first=first,
        failed_queue=failed,
        reason=deaths[0].reason if deaths else UNKNOWN,
        fresh=fresh,
        base_attempts=0,
        redrives=0,
        tries=0,
        first_death_ms=min(map(_time, deaths)) * 1000 if deaths else facts.now_ms,
        last_death_ms=facts.now_ms,
        parent=None if copied is None else copied.id,
        serial=facts.serial,
        possible_copy=facts.redelivered,
        error=facts.error,
        header=facts.header,
        body=facts.body,
        content_type=facts.content_type,
        size=facts.size,
    )


def _beyond(copied: Record, deaths: History, *, native: bool) -> History:
    """The deaths less those of a copied record: 3.10 continues a copied x-death, 4.x does not."""
    if not continues(deaths, copied.deaths) and not same_deaths(deaths, copied.deaths, cut=copied.cut):
        return deaths
    return merge(deaths, copied.deaths, native=native, cut=copied.cut).fresh


def _origin(
    history: History, first: First | None, is_own: Callable[[str], bool]
) -> tuple[History, History, First | None]:
    """The broker's deaths, the same as they may leave us, and the first failure."""
    deaths = fold(without_own(history, is_own))
    clean = deaths
    if any(is_own(death.exchange) for death in deaths):
        clean = tuple(death._replace(exchange="") if is_own(death.exchange) else death for death in deaths)
    return deaths, clean, _first(first, deaths, is_own)


# Letters that died at one place in one second share it.
_ORIGINS: Final = Remembered[
    tuple[History, First | None, Callable[[str], bool]], tuple[History, History, First | None]
](lambda key: _origin(*key), most=HISTORIES, most_bytes=4 * MIB)


def _first(recorded: First | None, deaths: History, is_own: Callable[[str], bool]) -> First | None:
    """x-first-death-* where the broker wrote it about a death we know; else the entry with the earliest first time."""
    if not deaths:
        return None
    if recorded is not None:
        for death in deaths:
            if (death.queue, death.reason) == (recorded.queue, recorded.reason) and not is_own(recorded.exchange):
                return First(recorded.queue, recorded.exchange, death.routing_keys, recorded.reason)
    oldest = min(reversed(deaths), key=_time)
    return First(oldest.queue, oldest.exchange, oldest.routing_keys, oldest.reason)


def _time(death: Death) -> int:
    return death.time_s


def _known(facts: Facts, merged: Merged, record: Record, is_own: Callable[[str], bool]) -> Letter:
    history, fresh = merged
    failed = history[0].queue if history else record.failed_queue
    settled = record.state in {State.DEAD, State.PARKED}
    back = bool(fresh) and settled and any(death.queue == failed for death in record.deaths)
    same_stay = failed == record.failed_queue and not (settled and fresh)
    redriven = bool(fresh) and record.redrive_id is not None  # no decision keeps that: none was made since
    return Letter(
        id=record.id,
        vhost=facts.vhost,
        source=facts.source,
        arrival=facts.arrival,
        exchange=facts.exchange,
        routing_key=facts.routing_key,
        history=history,
        first=record.first or _first(None, history, is_own),
        failed_queue=failed,
        reason=history[0].reason if fresh else record.reason,
        fresh=fresh,
        base_attempts=record.attempts if same_stay else 0,
        redrives=record.redrives + (back and fresh[0].reason == "rejected"),
        tries=record.tries if not fresh else 0,
        state=record.state,
        cause=record.cause,
        due_ms=record.due_ms or 0,
        first_death_ms=record.first_death_ms,
        last_death_ms=facts.now_ms if fresh else record.last_death_ms,
        parent=record.parent,
        serial=facts.serial if record.serial is None else record.serial,
        possible_copy=record.serial is None,
        error=(facts.error if fresh else None) or record.error,
        shadowed=dict(record.shadowed) if record.shadowed is not None else None,
        known_before=back,
        rejected_since=back and _rejected_since(fresh, record.deaths, failed),
        since_ms=(record.since_ms or 0) if same_stay and not redriven else facts.now_ms,
        header=facts.header,
        body=facts.body,
        content_type=facts.content_type,
        size=facts.size,
        declared=None if fresh else record.declared,
        more=record.more,
        refusals=record.refusals if not fresh else 0,
    )


def _rejected_since(fresh: History, before: History, failed: str) -> bool:
    """Whether anything was `rejected` since that queue's earlier death; RabbitMQ calls a cycle without one a loop."""
    since = takewhile(lambda death: death.queue != failed, before)
    return any(death.reason == "rejected" for death in (*fresh, *since))
