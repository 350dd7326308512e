"""The merge law: what a letter has been through, although RabbitMQ 4 starts x-death anew at each republish.

Rule for whoever edits this: after n deaths at a queue its count is n, on every broker version and every mix of them.
RabbitMQ 3.10 continues a client's x-death, 4.x replaces it at the next death; shovels and mixed clusters make any
rule by version wrong, so the headers alone decide. Order: most recent first (3.10 misorders a tail of three or more).
Both sides may be short: a record is cut to its size, an x-death towards a failed queue to its newest eight.
See docs/architecture.md ("Life of a letter"); rabbit_dead_letter.erl 3.10; mc.erl 4.x `record_death`.
"""

from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from dlx_router.core.letter import Death, History

NEWEST: Final = 8  # entries of an x-death that had to be cut


class Merged(NamedTuple):
    """The whole history, and the deaths that are new since the record (counts since then)."""

    history: History
    fresh: History


def without_own(deaths: Iterable[Death], is_own: Callable[[str], bool]) -> History:
    """The deaths that are not ours: waits in a rung are no deaths of the letter."""
    return tuple(death for death in deaths if not is_own(death.queue))


def fold(deaths: Iterable[Death]) -> History:
    """One entry for each (queue, reason); duplicates add up, the first keeps its place, as the broker folds them."""
    seen: dict[tuple[str, str], Death] = {}
    for death in deaths:
        known = seen.get(death.key)
        seen[death.key] = death if known is None else known._replace(times=known.times + death.times)
    return tuple(seen.values())


def merge(  # noqa: PLR0911 - the cases of the law, one a line
    broker: History, record: History, *, native: bool, restarted: bool = False, cut: bool = False
) -> Merged:
    """The history of a letter from the broker's x-death and our record, both without own queues.

    `native`: the delivery came through a native exchange of ours, hence by a death and not by a publish. `restarted`:
    the broker is known to have begun anew after our publication. `cut`: the record has lost its oldest deaths.
    """
    if not record:
        return Merged(broker, broker)
    if not broker:
        return Merged(record, ())
    if restarted:
        return _restarted(broker, record, cut=cut)
    if same_deaths(broker, record, cut=cut):
        if native and _single(broker):
            return _repeated(broker, record)
        return Merged(broker if cut and len(broker) > len(record) else record, ())
    if continues(broker, record):
        return _continued(broker, record, cut=cut)
    return _restarted(broker, record, cut=cut)


def uncut(broker: History, record: History, *, cut: bool) -> Merged:
    """The record's history at the end of a wait, where nothing dies; what it lost when it was cut is told by x-death.

    Nobody but us writes there. Whoever does so all the same adds no death: the newest is the record's.
    """
    longer = cut and len(broker) > len(record) and broker[0].key == record[0].key if record else False
    return Merged(broker if longer and same_deaths(broker, record, cut=True) else record, ())


def same_deaths(broker: History, record: History, *, cut: bool = False) -> bool:
    """Whether both tell the same deaths, in any order (3.10 misorders tails); what was cut on either side may lack."""
    reported, known = _facts(broker), _facts(record)
    if reported == known:
        return True
    if len(reported) < len(known):
        return len(reported) >= NEWEST and reported < known
    return cut and known < reported and _facts(broker[:1]) <= known


def continues(broker: History, record: History) -> bool:
    """Whether the broker's history grew out of the record's: same first times, no count lower, the sum higher."""
    known = {death.key: death for death in broker}
    before = 0
    for death in record:
        grown = known.get(death.key)
        if grown is None:
            if len(broker) < NEWEST:
                return False
        elif grown.time_s != death.time_s or grown.times < death.times:
            return False
        else:
            before += death.times
    return record == () or 0 < before < _total(broker)


def _facts(deaths: History) -> set[tuple[str, str, int, int]]:
    return {(death.queue, death.reason, death.times, death.time_s) for death in deaths}


def _total(deaths: History) -> int:
    return sum(death.times for death in deaths)


def _single(deaths: History) -> bool:
    return len(deaths) == 1 and deaths[0].times == 1


def _repeated(broker: History, record: History) -> Merged:
    # Restarted by a 4.x broker within the same second as the first death: equal to the eye, one death more in truth.
    again = record[0]._replace(times=record[0].times + 1)
    return Merged((again,), broker)


def _continued(broker: History, record: History, *, cut: bool) -> Merged:
    known = {death.key: death for death in record}
    grown: list[Death] = []
    fresh: list[Death] = []
    older: list[Death] = []
    for death in broker:
        old = known.get(death.key)
        if old is None and cut and death is not broker[0]:
            older.append(death)  # the head is always new; the others are those that our record lost
        elif old is None or death.times > old.times:
            grown.append(death if old is None else _grown(old, death, death.times, cut=cut))
            fresh.append(death if old is None else death._replace(times=death.times - old.times))
    moved = {death.key for death in grown}
    return Merged((*grown, *(death for death in record if death.key not in moved), *older), tuple(fresh))


def _restarted(broker: History, record: History, *, cut: bool) -> Merged:
    known = {death.key: death for death in record}
    newest = tuple(
        death if (old := known.get(death.key)) is None else _grown(old, death, old.times + death.times, cut=cut)
        for death in broker
    )
    moved = {death.key for death in broker}
    return Merged((*newest, *(death for death in record if death.key not in moved)), broker)


def _grown(old: Death, death: Death, times: int, *, cut: bool) -> Death:
    """The entry as it began, with its new count; keys that a cut record lost are those that the broker still tells."""
    keys = death.routing_keys if cut and len(death.routing_keys) > len(old.routing_keys) else old.routing_keys
    return old._replace(times=times, routing_keys=keys)
