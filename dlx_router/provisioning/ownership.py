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


def own_name(names: Names) -> str:
    """The policy that shadows everybody's catch-all on our own queues."""
    return f"{names.prefix}.own"


def own_rule(names: Names, priority: int) -> Rule:
    """That policy."""
    return Rule(own_name(names), f"^{_escaped(names)}", HARMLESS, priority)


def name_of(rule: Rule, names: Names) -> str:
    """`<prefix>.<hash8>` of all but the priority, so that a policy of ours is known by its own content."""
    said = dumps([rule.pattern, dict(rule.definition), rule.apply_to], sort_keys=True).encode()
    return f"{names.prefix}.{blake2b(said, digest_size=4).hexdigest()}"


def recognised(rules: Iterable[Rule], names: Names) -> frozenset[str]:
    """The policies that are surely ours, whatever the ledger says: name and content belong together."""
    own = own_rule(names, 0)
    return frozenset(one.name for one in rules if one.name == name_of(one, names) or replace(one, priority=0) == own)


def _escaped(names: Names) -> str:
    return names.prefix.replace(".", r"\.") + r"\."
