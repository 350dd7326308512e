"""Removing: what the router has in a vhost, what keeps it from being removed, and the ways to it closed in order.

Nothing goes with its queue: `destroy` removes what leads to a queue first, and counts again before the queue goes. What
does not exist any more is no error, so the command can be killed and run again.
"""

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dlx_router.broker.definitions import ALTERNATE
from dlx_router.broker.management import Bound, Management, Snapshot, Standing
from dlx_router.core.names import RUNGS, Names
from dlx_router.core.policy import PolicySet
from dlx_router.provisioning import delayed_exchanges, ownership
from dlx_router.provisioning.broker_rules import may_take
from dlx_router.provisioning.ownership import own_name, recognised
from dlx_router.provisioning.queue_definition import EXCHANGE, STRATEGY

_UNKNOWN: Final = (
    "the broker does not tell it (its statistics are off, it has not counted yet, a node starts or has no majority)"
)
LETTERS: Final = f"{_UNKNOWN}; `rabbitmqctl list_queues -p VHOST name state messages` asks the queues themselves"
DEATHS: Final = f"{_UNKNOWN}; docs/provisioning.md says how to ask the queues themselves"
Counts = Mapping[str, tuple[int, int]]  # queue → letters, consumers
Count = Callable[[Sequence[str]], Awaitable[Counts]]


@dataclass(frozen=True, slots=True)
class Remains:
    """What the router has in a vhost, and what keeps it from being removed."""

    vhost: str
    policies: tuple[str, ...]
    exchanges: tuple[str, ...]
    queues: tuple[str, ...]
    blockers: tuple[str, ...]
    kept: tuple[str, ...]
    ledger: bool
    inlets: tuple[Bound, ...] = ()  # by which clients publish to internal queues: delayed exchanges
    delayed: tuple[str, ...] = ()  # of the exchanges those that clients publish to
    passing: int = 0  # how many of the blockers may go by themselves: consumers, deaths on their way, old counts

    @property
    def may_pass(self) -> bool:
        """Whether there are blockers, and another look may find none."""
        return 0 < len(self.blockers) == self.passing

    @property
    def is_empty(self) -> bool:
        """Whether the router has nothing there."""
        return not (self.policies or self.exchanges or self.queues or self.ledger)

    def as_row(self) -> Mapping[str, Any]:
        """For programs."""
        return {
            "vhost": self.vhost,
            "remove": {"policies": list(self.policies), "exchanges": list(self.exchanges), "queues": list(self.queues)},
            "refused_because": list(self.blockers),
            "kept": list(self.kept),
        }


def known_names(names: Names) -> frozenset[str]:
    """Every name under the prefix that the router gives to an exchange or a queue."""
    core = (names.declared, names.release, names.return_, names.parking, names.quarantine, names.retired)
    return names.inlets | {*core, names.observe, names.state, names.journal, *map(names.delay, RUNGS)}


def has_made(queue: str, names: Names, known: frozenset[str]) -> bool:
    """Whether the router gives this name to a queue: one of `known`, a delayed exchange's, a guard's lock."""
    return queue in known or names.is_delayed(queue) or names.is_guard(queue)


async def remaining(  # noqa: PLR0913 - what a look is made of, by its names
    api: Management,
    policies: PolicySet,
    names: Names,
    vhost: str,
    count: Count,
    *,
    with_journal: bool = True,
    uncounted: bool = False,
) -> Remains:
    """What destroy would remove. `count`: letters and consumers of queues now; the API's numbers are 5 s old.

    Without `with_journal` the journal stays, but where it is surely empty. `uncounted`: where the API tells no number,
    that of `count` is enough, and deaths that nobody counts are none.
    """
    value = await api.parameter(ownership.ledger_name(names, vhost))
    snapshot = await api.snapshot(vhost)
    mine = (ownership.read_ledger(value) | recognised(snapshot.policies, names)) & {
        rule.name for rule in snapshot.policies
    }
    known = known_names(names)
    queues = [queue for queue in snapshot.queues if has_made(queue.name, names, known)]
    delayed = delayed_exchanges.removable(snapshot, names)
    own = {own_name(names)}
    now = await count([queue.name for queue in queues if not _is_lock(queue, names)])
    journal = (
        [] if with_journal else [queue for queue in queues if queue.name == names.journal and _written(queue, now)]
    )
    queues = [queue for queue in queues if queue not in journal]
    blockers = [
        *_leading(snapshot, mine, known),
        *_full(snapshot, names, now, uncounted=uncounted),
        *_held(snapshot, names, now),
        *_underway(snapshot, mine, uncounted=uncounted),
    ]
    return Remains(
        vhost=vhost,
        policies=(*sorted(mine - own), *sorted(mine & own)),
        exchanges=(*delayed, *sorted(exchange for exchange in snapshot.exchanges if exchange in known)),
        queues=tuple(queue.name for queue in queues),
        blockers=tuple(blocker.text for blocker in blockers),
        kept=(
            *(
                f"queue {queue.name}: the journal, which explains every letter; --with-journal removes it"
                for queue in journal
            ),
            *_kept(snapshot, policies, names, mine),
            *delayed_exchanges.kept(snapshot, names, delayed),
        ),
        ledger=value is not None,
        inlets=delayed_exchanges.bindings(snapshot, names),
        delayed=delayed,
        passing=sum(blocker.may_pass for blocker in blockers),
    )


def _is_lock(queue: Standing, names: Names) -> bool:
    """Whether a guard has it now: the broker lets nobody else look at it."""
    return queue.exclusive and names.is_guard(queue.name)


def _written(journal: Standing, now: Counts) -> bool:
    """Whether it may hold events: only what is surely empty does not."""
    return journal.messages != 0 or now.get(journal.name, (1, 0))[0] > 0


class _Blocker(NamedTuple):
    """What keeps destroy from going on; `may_pass`: another look may not find it."""

    text: str
    may_pass: bool = True


def _leading(snapshot: Snapshot, mine: frozenset[str], known: frozenset[str]) -> Iterator[_Blocker]:
    """What dies in their queues the broker would drop."""
    there = known & snapshot.exchanges.keys()
    for rule in snapshot.policies:
        leads = sorted(there & {rule.definition.get(key) for key in (EXCHANGE, ALTERNATE)})
        if leads and rule.name not in mine:
            yield _Blocker(
                f"policy {rule.name} leads to {', '.join(leads)}, and apply did not make it: without that exchange the "
                f"broker drops what comes; change or remove the policy",
                may_pass=False,
            )


def _full(snapshot: Snapshot, names: Names, now: Counts, *, uncounted: bool) -> Iterator[_Blocker]:
    """A queue is empty where AMQP says so now and the API said so of a running queue.

    AMQP says 0 of a queue without a leader, and does not count what was taken and is not settled; the API is late.
    """
    known = known_names(names) - {names.state, names.journal}
    for queue in snapshot.queues:
        is_late = names.is_delayed(queue.name)
        if not (is_late or queue.name in known or names.is_guard(queue.name)):
            continue
        ready = now[queue.name][0] if queue.name in now else None
        if letters := ready or queue.messages:
            what = f"{'delayed message' if is_late else 'letter'}{'' if letters == 1 else 's'}"
            yield _Blocker(f"queue {queue.name} holds {letters} {what}", may_pass=ready == 0)
        elif (ready is None and not _is_lock(queue, names)) or (
            queue.messages is None and not (uncounted and ready == 0 and not queue.is_down)
        ):
            yield _Blocker(
                f"queue {queue.name}: what lies in it is not known: {LETTERS}; where it runs and is "
                f"empty, destroy --uncounted goes on"
            )


def _held(snapshot: Snapshot, names: Names, now: Counts) -> Iterator[_Blocker]:
    known = known_names(names) - {names.journal}
    for queue in snapshot.queues:
        consumers = now[queue.name][1] if queue.name in now else queue.consumers
        if (queue.name in known or names.is_delayed(queue.name)) and consumers:
            yield _Blocker(f"queue {queue.name} has a consumer: a router runs; stop it")


def _underway(snapshot: Snapshot, mine: frozenset[str], *, uncounted: bool) -> Iterator[_Blocker]:
    for queue in snapshot.queues:
        if queue.pending == 0 or (queue.pending is None and uncounted and not queue.is_down):
            continue
        rules = may_take(snapshot.policies, queue.name, queue.kind, snapshot.version)
        if not any(rule.name in mine and STRATEGY in rule.definition for rule in rules):
            continue
        if queue.pending is None:
            yield _Blocker(
                f"queue {queue.name}: whether at-least-once deaths are on their way is not known, and they would be "
                f"deleted: {DEATHS}; where none waits, destroy --uncounted goes on"
            )
        else:
            text = f"queue {queue.name}: {queue.pending} at-least-once deaths are on their way, and would be deleted"
            yield _Blocker(text)


def _kept(snapshot: Snapshot, policies: PolicySet, names: Names, mine: frozenset[str]) -> list[str]:
    """What may look like ours, and is not touched."""
    known = known_names(names)
    strange = [
        queue.name for queue in snapshot.queues if names.is_own(queue.name) and not has_made(queue.name, names, known)
    ]
    out = [f"queue {name}: not made by the router" for name in strange]
    out += [
        f"exchange {exchange}: not made by the router"
        for exchange in snapshot.exchanges
        if _strange(exchange, names, known)
    ]
    out += [f"policy {rule.name}: not made by apply" for rule in snapshot.policies if _strange(rule.name, names, mine)]
    for queue in snapshot.queues:
        exchange = queue.arguments.get("x-dead-letter-exchange")
        if queue.name not in known and exchange in names.inlets:
            out.append(f"queue {queue.name} names {exchange} by its argument: its dead letters will be dropped")
    out += _other_ways(snapshot, names)
    if policies.policies:
        out.append("dead-letter queues: they hold your letters, and stay")
    return out


def _other_ways(snapshot: Snapshot, names: Names) -> Iterator[str]:
    """By which messages come to what is removed, without dying; delayed exchanges have lines of their own."""
    known = known_names(names)
    for exchange, leads in snapshot.alternates.items():
        if leads in known and exchange not in known:
            yield f"exchange {exchange} has {ALTERNATE} {leads}: what it cannot route will be dropped"
    for binding in snapshot.bindings:
        if binding.destination in known and binding.source and not names.is_own(binding.source):
            what = "queue" if binding.to_queue else "exchange"
            yield f"exchange {binding.source} is bound to {what} {binding.destination}: nothing reaches that any more"


def _strange(name: str, names: Names, known: frozenset[str]) -> bool:
    return names.is_own(name) and name not in known


async def close_inlets(api: Management, remains: Remains, names: Names) -> None:
    """Nothing comes any more: the broker's policies go, all but the one on our own queues, and delayed exchanges."""
    for name in remains.policies:
        if name != own_name(names):
            await api.remove(("policies", remains.vhost, name))
    for inlet in remains.inlets:
        await api.unbind(remains.vhost, inlet)
    for name in remains.delayed:
        await api.remove(("exchanges", remains.vhost, name))


async def remove_exchanges(api: Management, remains: Remains) -> None:
    """Delete the exchanges of the router; afterwards nothing arrives, and counts are final."""
    for name in remains.exchanges:
        await api.remove(("exchanges", remains.vhost, name))


async def remove_rest(api: Management, remains: Remains, names: Names) -> None:
    """Queues, then the last policy and the ledger."""
    for name in remains.queues:
        await api.remove(("queues", remains.vhost, name))
    if own_name(names) in remains.policies:
        await api.remove(("policies", remains.vhost, own_name(names)))
    await api.remove((ownership.PARAMETERS, ownership.ledger_name(names, remains.vhost)))
