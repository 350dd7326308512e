"""Dead-letter queues: which queues the policies have made, or send dead letters to. Pure."""

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import product
from typing import Any, Final, NamedTuple

from dlx_router.core.policy import DEFAULTS, Effective, Policy, PolicySet, Setting
from dlx_router.core.target import MAX_NAME_BYTES, dead_letter_queue
from dlx_router.core.template import Template

TRANSIENT: Final = "transient"
_CUT: Final = re.compile(r"-[0-9a-f]{16}\Z")  # what ends the name of a dead-letter queue that would have been too long
_NEAR: Final = MAX_NAME_BYTES - 8  # a character that is cut in the middle is left out


class Aim(NamedTuple):
    """Where a policy sends dead letters: `key` None where it is not the same for all of them."""

    exchange: str
    key: str | None


def is_made(queue: str, policies: PolicySet, policies_of: Callable[[str], Iterable[Effective]]) -> bool:
    """Whether a policy in force makes this queue. `policies_of`: what holds for a failed queue's letters."""
    affixes = product(_values(policies, "dead-letter-queue-prefix"), _values(policies, "dead-letter-queue-suffix"))
    return any(_is_made(queue, prefix, suffix, policies_of) for prefix, suffix in affixes if policies.policies)


def deletes(policies: PolicySet) -> bool:
    """Whether any of them has idle dead-letter queues deleted."""
    layers = (layer for policy in policies.policies for layer in (policy.definition, *policy.on.values()))
    return any("auto-delete-dead-letter-queue-after" in layer for layer in layers)


def _is_made(queue: str, prefix: str, suffix: str, policies_of: Callable[[str], Iterable[Effective]]) -> bool:
    if not queue.startswith(prefix):
        return False
    if len(queue.encode(errors="surrogateescape")) >= _NEAR and _CUT.search(queue):
        return True
    failed = queue[len(prefix) : len(queue) - len(suffix)]
    if not queue.endswith(suffix) or not failed or failed == queue:
        return False
    if failed == TRANSIENT:
        return True
    return any(_makes(policy) and dead_letter_queue(policy, failed) == queue for policy in policies_of(failed))


def _makes(policy: Effective) -> bool:
    return policy.auto_create or (policy.dead_letter_exchange is None and policy.routing_key is None)


def is_named(queue: str, policies: PolicySet, vhost: str) -> bool:
    """Whether a policy sends dead letters to this queue by its name, through the default exchange."""
    return any(not exchange and _fits(key, queue) for exchange, key in _destinations(policies, vhost))


def aims(policies: PolicySet, vhost: str) -> set[Aim]:
    """The exchanges to which policies send dead letters; which queues they lead to only the broker knows."""
    return {Aim(exchange, _literal(key)) for exchange, key in _destinations(policies, vhost) if exchange}


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


def _values(policies: PolicySet, key: str) -> set[str]:
    """Every value that a key has anywhere, and its default."""
    layers = (layer for policy in policies.policies for layer in (policy.definition, *policy.on.values()))
    return {DEFAULTS[key], *(layer[key].value for layer in layers if key in layer)}
