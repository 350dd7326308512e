"""What provisioning makes of delayed exchanges, and what of them destroy may take away.

The queue of a delayed exchange is ours by its name. The exchange has a name of the user's, and a client may have
declared it first; so ours carries a mark, an argument that RabbitMQ does not compare when it is declared once more.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dlx_router.broker.administration import Bound, Snapshot
from dlx_router.broker.definitions import Definition, delayed
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.core.names import Names

TYPES: Final = frozenset({"fanout", "topic"})


def here(entries: Iterable[Delayed], vhost: str) -> list[Delayed]:
    """The entries for one vhost."""
    return [one for one in entries if one.vhost in {None, vhost}]


def definitions_of(entries: Iterable[Delayed], names: Names) -> list[Definition]:
    """What the entries need."""
    return [definition for one in entries for definition in delayed(names, one.exchange)]


def unfit(entries: Iterable[Delayed], snapshot: Snapshot) -> dict[str, str]:
    """The exchanges that stand and cannot be delayed by us → why; a binding would not bring every message."""
    found: dict[str, str] = {}
    for name in (one.exchange for one in entries if one.exchange in snapshot.exchanges):
        kind = snapshot.exchanges[name]
        durable = name in snapshot.durable_exchanges and name not in snapshot.auto_delete
        if kind not in TYPES or not durable:
            found[name] = f"is of type {kind}" if kind not in TYPES else "is not durable"
    return found


def removable(snapshot: Snapshot, names: Names) -> tuple[str, ...]:
    """Delayed exchanges that the router or apply declared, and that nobody else has bound anything to."""
    ours = sorted(name for name, prefix in snapshot.marks.items() if prefix == names.prefix)
    return tuple(name for name in ours if not _others(snapshot, names, name))


def _others(snapshot: Snapshot, names: Names, exchange: str) -> list[str]:
    bound = (one.destination for one in snapshot.bindings if exchange in {one.source, _exchange(one)})
    return sorted(one for one in bound if one != names.delayed(exchange))


def _exchange(one: Bound) -> str | None:
    return None if one.to_queue else one.destination


def bindings(snapshot: Snapshot, names: Names) -> tuple[Bound, ...]:
    """By which messages come into queues of delayed exchanges; the default exchange's cannot be taken away."""
    return tuple(one for one in snapshot.bindings if one.to_queue and names.is_delayed(one.destination) and one.source)


def kept(snapshot: Snapshot, names: Names, removed: Sequence[str]) -> Iterator[str]:
    """Exchanges that stay, and what is published to them then."""
    marked = {name for name, prefix in snapshot.marks.items() if prefix == names.prefix}
    sources = {one.source for one in bindings(snapshot, names)} | marked
    for name in sorted(sources - set(removed)):
        others = _others(snapshot, names, name)
        if name in marked:
            yield f"exchange {name}: the router made it, but {', '.join(others[:3])} is bound to it; delete it by hand"
        elif others:
            yield f"exchange {name}: not made by the router; what is published to it is not delayed any more"
        else:
            yield f"exchange {name}: not made by the router; what is published to it reaches no queue any more"
