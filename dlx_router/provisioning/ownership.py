"""The names of our RabbitMQ policies, by which they are known."""

from collections.abc import Iterable
from dataclasses import replace
from hashlib import blake2b
from json import dumps
from typing import Final

from dlx_router.broker.administration import Rule
from dlx_router.core.names import Names

# A policy needs a key, and this one is only looked at when a queue is declared.
HARMLESS: Final = {"queue-leader-locator": "client-local"}
EVERYTHING: Final = "all"  # apply-to: queues and exchanges


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


def _escaped(names: Names) -> str:
    return names.prefix.replace(".", r"\.") + r"\."
