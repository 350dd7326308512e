"""Which RabbitMQ policies are ours, by their names and by the ledger, so that nothing else is ever changed or removed.

The ledger is a global parameter of the broker, one a vhost: durable, replicated, seen in definitions exports, and there
for a command that runs beside routers. (The state queue cannot serve: the active router holds its messages, and a
single active consumer refuses everybody else.) It is written before the policies that it names, so that a command that
is killed in between leaves nothing without an owner.
"""

from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from json import dumps
from typing import Any, Final

from dlx_router.broker.management import Snapshot
from dlx_router.broker.policies import Rule
from dlx_router.core.names import Names

# A policy needs a key, and this one is only looked at when a queue is declared.
HARMLESS: Final = {"queue-leader-locator": "client-local"}
EVERYTHING: Final = "all"  # apply-to: queues and exchanges
PARAMETERS: Final = "global-parameters"  # of the management API


def ledger_name(names: Names, vhost: str) -> str:
    """The name of the parameter."""
    return f"{names.prefix}.ledger {vhost}"


def read_ledger(value: Any) -> frozenset[str]:  # noqa: ANN401 - somebody else may have written it
    """The names of our policies; what cannot be read names none, so that nothing is taken for ours."""
    policies = value.get("policies") if isinstance(value, dict) else None
    return frozenset(name for name in policies if isinstance(name, str)) if isinstance(policies, list) else frozenset()


def ledger_value(policies: Iterable[str]) -> dict[str, Any]:
    """The value that names these policies."""
    return {"v": 1, "policies": sorted(set(policies))}


def own_name(names: Names) -> str:
    """The policy that shadows everybody's catch-all on our own queues and exchanges."""
    return f"{names.prefix}.own"


def own_rule(names: Names, priority: int) -> Rule:
    """That policy. Its keys say nothing of exchanges: it keeps others from being in force there."""
    return Rule(own_name(names), f"^{_escaped(names)}", HARMLESS, priority, EVERYTHING)


def is_own_rule(rule: Rule, names: Names) -> bool:
    """Whether it is that policy; an apply of before made it for queues only."""
    own = own_rule(names, rule.priority)
    return any(rule == replace(own, apply_to=apply_to) for apply_to in (EVERYTHING, "queues"))


def name_of(rule: Rule, names: Names) -> str:
    """`<prefix>.<hash8>` of all but the priority, so that a policy of ours is known by its own content."""
    content = dumps([rule.pattern, dict(rule.definition), rule.apply_to], sort_keys=True).encode()
    return f"{names.prefix}.{blake2b(content, digest_size=4).hexdigest()}"


def recognised(rules: Iterable[Rule], names: Names) -> frozenset[str]:
    """The policies that are surely ours, whatever the ledger says: name and content belong together."""
    return frozenset(rule.name for rule in rules if rule.name == name_of(rule, names) or is_own_rule(rule, names))


def made_for(rule: Rule) -> str | None:
    """The prefix of the router whose apply made the policy; None for a policy of people."""
    prefix = rule.name.rpartition(".")[0]
    return prefix if prefix and recognised([rule], Names(prefix)) else None


def other_routers(snapshot: Snapshot, names: Names) -> list[Names]:
    """Routers of another prefix in the vhost, known by the policies that apply made, and by their queues."""
    prefixes = {prefix for rule in snapshot.policies if (prefix := made_for(rule)) is not None}
    there = {queue.name for queue in snapshot.queues}
    for router in (Names(queue.removesuffix(".inbox")) for queue in there if queue.endswith(".inbox")):
        if router.prefix and {router.release, router.parking, router.quarantine} <= there:
            prefixes.add(router.prefix)
    return [Names(prefix) for prefix in sorted(prefixes - {names.prefix})]


def _escaped(names: Names) -> str:
    return names.prefix.replace(".", r"\.") + r"\."
