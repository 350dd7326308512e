"""Dead-letter queues: which queues the policies have made, or send dead letters to. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator
from typing import Any, NamedTuple

from dlx_router.core.created_queues import Affixes, is_created
from dlx_router.core.policy import Effective, Policy, PolicySet, Setting, Source
from dlx_router.core.template import Template


class Aim(NamedTuple):
    """Where a policy sends dead letters: `key` None where it is not the same for all of them."""

    exchange: str
    key: str | None


def is_made(queue: str, policies: PolicySet, policies_of: Callable[[str], Iterable[Effective]]) -> bool:
    """Whether a policy in force makes this queue. `policies_of`: what holds for a failed queue's letters."""

    def affixes_of(failed: str) -> Iterator[Affixes]:
        return (policy.affixes for policy in policies_of(failed) if policy.creates_queue)

    return is_created(queue, policies.prefixes, policies.suffixes, affixes_of)


def deletes(policies: PolicySet) -> bool:
    """Whether any of them has idle dead-letter queues deleted."""
    layers = (layer for policy in policies.policies for layer in (policy.definition, *policy.on.values()))
    return any("auto-delete-dead-letter-queue-after" in layer for layer in layers)


def is_named(queue: str, policies: PolicySet, vhost: str) -> bool:
    """Whether a policy sends dead letters to this queue by its name, through the default exchange."""
    return any(not exchange and _fits(key, queue) for exchange, key in _destinations(policies, vhost))


def aims(policies: PolicySet, vhost: str) -> set[Aim]:
    """The exchanges to which policies send dead letters; which queues they lead to only the broker knows."""
    return {Aim(exchange, _literal(key)) for exchange, key in _destinations(policies, vhost) if exchange}


def named_exchanges(policies: PolicySet, vhost: str) -> dict[str, Source]:
    """The exchanges that policies name and do not have created, and where each was written first."""
    sources: dict[str, Source] = {}
    for policy in policies.policies:
        for layer in _layers(policy) if policy.vhost in {None, vhost} else ():
            exchange = layer.get("dead-letter-exchange")
            if exchange is not None and exchange.value and not _value(layer, "auto-create-dead-letter-resources"):
                sources.setdefault(exchange.value, exchange.source)
    return sources


def _fits(key: Template | None, queue: str) -> bool:
    """Whether a key may be the queue's name. One that is all fields could be any name, and says nothing."""
    if key is None or not any(isinstance(part, str) for part in key.parts):
        return False
    pattern = "".join(re.escape(part) if isinstance(part, str) else ".+" for part in key.parts)
    return re.fullmatch(pattern, queue, re.DOTALL) is not None


def _literal(key: Template | None) -> str | None:
    if key is None or not all(isinstance(part, str) for part in key.parts):
        return None
    return "".join(part for part in key.parts if isinstance(part, str))


def _destinations(policies: PolicySet, vhost: str) -> Iterator[tuple[str, Template | None]]:
    """Exchange and key of each layer of each policy; "" is the default exchange, also where only a key is given."""
    for policy in policies.policies:
        if policy.vhost not in {None, vhost}:
            continue
        for layer in _layers(policy):
            exchange, key = _value(layer, "dead-letter-exchange"), _value(layer, "dead-letter-routing-key")
            if exchange is not None or key is not None:
                yield exchange or "", key


def _layers(policy: Policy) -> Iterator[dict[str, Setting]]:
    """What it says in general, and for each reason."""
    yield dict(policy.definition)
    for overlay in policy.on.values():
        yield {**policy.definition, **overlay}


def _value(layer: dict[str, Setting], key: str) -> Any:  # noqa: ANN401 - a key has the type that its parser gave it
    return layer[key].value if key in layer else None
