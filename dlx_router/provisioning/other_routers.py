"""Routers of another prefix in the same vhost, and what is theirs.

Their policies count for nothing in our priorities: these depend on those of people only, and stay as they are whatever
another router does. What both would catch is refused: see `meetings`.
"""

from dataclasses import dataclass
from typing import Final

from dlx_router.broker.administration import Rule, Snapshot
from dlx_router.core.names import Names
from dlx_router.provisioning.ownership import is_own_rule, name_of

_EXCHANGE: Final = "dead-letter-exchange"


@dataclass(frozen=True, slots=True)
class Others:
    """The other routers of a vhost. `catching`: RabbitMQ policies → the prefix of the router that they lead to."""

    routers: tuple[Names, ...] = ()
    shields: frozenset[str] = frozenset()  # the policies on their own queues
    catching: tuple[tuple[Rule, str], ...] = ()

    def owns(self, name: str) -> bool:
        """Whether a queue is another router's own."""
        return any(router.is_own(name) for router in self.routers)

    @property
    def policies(self) -> frozenset[str]:
        """The names of all RabbitMQ policies that are theirs."""
        return self.shields | {rule.name for rule, _ in self.catching}


def others(snapshot: Snapshot, names: Names, owned: frozenset[str]) -> Others:
    """Known by the policies that their apply made, and by their queues. `owned`: names of policies that are ours."""
    there = {queue.name for queue in snapshot.queues}
    rules = [rule for rule in snapshot.policies if rule.name not in owned]
    shields = {rule.name: prefix for rule in rules if (prefix := _shielded(rule)) is not None}
    prefixes = {*shields.values(), *(prefix for rule in rules if (prefix := _maker(rule)) is not None)}
    prefixes |= {prefix for queue in there if (prefix := _by_queues(queue, there)) is not None}
    routers = tuple(Names(prefix) for prefix in sorted(prefixes - {names.prefix}))
    inboxes = {inbox: router.prefix for router in routers for inbox in router.inlets}
    catching = [(rule, inboxes.get(str(rule.definition.get(_EXCHANGE)))) for rule in rules]
    return Others(
        routers,
        frozenset(name for name, prefix in shields.items() if prefix != names.prefix),
        tuple((rule, prefix) for rule, prefix in catching if prefix is not None),
    )


def _shielded(rule: Rule) -> str | None:
    """The prefix whose own queues the policy keeps from everybody's catch-all; None for any other policy."""
    prefix = rule.name.removesuffix(".own")
    return prefix if prefix not in {rule.name, ""} and is_own_rule(rule, Names(prefix)) else None


def _maker(rule: Rule) -> str | None:
    prefix = rule.name.rpartition(".")[0]
    return prefix if prefix and rule.name == name_of(rule, Names(prefix)) else None


def _by_queues(queue: str, there: set[str]) -> str | None:
    """The prefix of the router whose inbox this is: the queues without which none starts stand beside it."""
    prefix = queue.removesuffix(".inbox")
    if prefix in {queue, ""}:
        return None
    names = Names(prefix)
    return prefix if {names.release, names.parking, names.quarantine} <= there else None
