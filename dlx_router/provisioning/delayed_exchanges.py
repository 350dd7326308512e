"""What provisioning makes of delayed exchanges, and what of them destroy may take away.

The queue of a delayed exchange is ours by its name. The exchange has a name of the user's, and a client may have
declared it first; so ours carries a mark, an argument that RabbitMQ does not compare when it is declared once more.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from dlx_router.broker.definitions import Definition, delayed
from dlx_router.broker.management import Bound, Snapshot
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.core.names import Names

TYPES: Final = frozenset({"fanout", "topic"})


def here(entries: Iterable[Delayed], vhost: str) -> list[Delayed]:
    """The entries for one vhost."""
    return [entry for entry in entries if entry.vhost in {None, vhost}]


def definitions_of(entries: Iterable[Delayed], names: Names) -> list[Definition]:
    """What the entries need."""
    return [definition for entry in entries for definition in delayed(names, entry.exchange)]


def unfit(entries: Iterable[Delayed], snapshot: Snapshot) -> dict[str, str]:
    """The exchanges that stand and cannot be delayed by us → why; a binding would not bring every message."""
    reasons: dict[str, str] = {}
    for name in (entry.exchange for entry in entries if entry.exchange in snapshot.exchanges):
        kind = snapshot.exchanges[name]
        durable = name in snapshot.durable_exchanges and name not in snapshot.auto_delete
        if kind not in TYPES or not durable:
            reasons[name] = f"is of type {kind}" if kind not in TYPES else "is not durable"
    return reasons


def removable(snapshot: Snapshot, names: Names) -> tuple[str, ...]:
    """Delayed exchanges that the router or apply declared, and that nobody else has bound anything to."""
    ours = sorted(name for name, prefix in snapshot.marks.items() if prefix == names.prefix)
    return tuple(name for name in ours if not _others(snapshot, names, name))


def _others(snapshot: Snapshot, names: Names, exchange: str) -> list[str]:
    bound = (binding.destination for binding in snapshot.bindings if exchange in {binding.source, _exchange(binding)})
    return sorted(destination for destination in bound if destination != names.delayed(exchange))


def _exchange(binding: Bound) -> str | None:
    return None if binding.to_queue else binding.destination


def bindings(snapshot: Snapshot, names: Names) -> tuple[Bound, ...]:
    """By which messages come into queues of delayed exchanges; the default exchange's cannot be taken away."""
    return tuple(
        binding
        for binding in snapshot.bindings
        if binding.to_queue and names.is_delayed(binding.destination) and binding.source
    )


def kept(snapshot: Snapshot, names: Names, removed: Sequence[str]) -> Iterator[str]:
    """Exchanges that stay, and what is published to them then."""
    marked = {name for name, prefix in snapshot.marks.items() if prefix == names.prefix}
    sources = {binding.source for binding in bindings(snapshot, names)} | marked
    for name in sorted(sources - set(removed)):
        others = _others(snapshot, names, name)
        if name in marked:
            yield f"exchange {name}: the router made it, but {', '.join(others[:3])} is bound to it; delete it by hand"
        elif others:
            yield f"exchange {name}: not made by the router; what is published to it is not delayed any more"
        else:
            yield f"exchange {name}: not made by the router; what is published to it reaches no queue any more"
