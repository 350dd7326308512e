"""What a queue should get from the broker: the definition of its RabbitMQ policy, for quorum queues and for all others.

Each key says where it comes from: the router's own, or a policy file. See docs/provisioning.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

from dlx_router.broker.definitions import Exchange, core
from dlx_router.broker.management import Standing
from dlx_router.broker.policies import Rule, unsupported
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, Setting

HANDED_OVER: Final = ("message-ttl", "max-length", "max-length-bytes", "overflow", "delivery-limit", "expires")
LENGTHS: Final = ("max-length", "max-length-bytes")
EXCHANGE: Final = "dead-letter-exchange"
STRATEGY: Final = "dead-letter-strategy"
OVERFLOW: Final = "overflow"
LIMIT: Final = "delivery-limit"
REFUSE: Final = "reject-publish"
_OURS: Final = "the router"


class Key(NamedTuple):
    """A key of a RabbitMQ policy: its value, and who said so."""

    value: Any
    by: str


Definition = Mapping[str, Key]


@dataclass(frozen=True, slots=True)
class Wanted:
    """`full` is for quorum queues; `common` is what classic queues take."""

    full: Definition
    common: Definition

    @property
    def content(self) -> tuple[object, ...]:
        """What two queues must have in common to share a policy."""
        return (plain(self.full), plain(self.common))


def plain(definition: Definition) -> tuple[tuple[str, Any], ...]:
    """Keys and values, in order."""
    return tuple(sorted((key, setting.value) for key, setting in definition.items()))


def wanted(chain: Sequence[Policy], names: Names, *, bounded: bool = False) -> Wanted:
    """What the chain asks for.

    `bounded`: an argument of the queue or an operator limits its length, so that refusing publishes would reach its
    producers.
    """
    full = {key: Key(setting.value, str(setting.source)) for key, setting in _settings(chain).items()}
    full[EXCHANGE] = Key(names.fifo if in_order(chain, names) else names.inbox, _OURS)
    common = {key: setting for key, setting in full.items() if not unsupported([key], "classic")}
    if (full[OVERFLOW].value == REFUSE) if OVERFLOW in full else not (bounded or any(key in full for key in LENGTHS)):
        full[STRATEGY] = Key("at-least-once", _OURS)
        full.setdefault(OVERFLOW, Key(REFUSE, _OURS))
    return Wanted(full, common)


def in_order(chain: Sequence[Policy], names: Names) -> bool:
    """Whether its letters come by the inbox of those whose order counts; where the router has one."""
    orders = next((policy.definition["ordering"] for policy in chain if "ordering" in policy.definition), None)
    has = any(isinstance(definition, Exchange) and definition.name == names.fifo for definition in core(names))
    return has and orders is not None and orders.value == "fifo"


def _settings(chain: Sequence[Policy]) -> dict[str, Setting]:
    """The keys of the chain that the broker obeys; reasons do not matter there."""
    merged: dict[str, Setting] = {}
    for policy in chain:
        for key, setting in policy.definition.items():
            merged.setdefault(key, setting)
    settings: dict[str, Setting] = {key: merged[key] for key in HANDED_OVER if key in merged}
    requeue = merged.get("requeue-is-death")
    delay = merged.get("redelivery-delay")
    if requeue is not None and requeue.value and delay is not None and delay.value:
        settings[LIMIT] = Setting(0, requeue.source)
    return settings


def bounded(arguments: Mapping[str, Any], operator: Rule | None) -> bool:
    """Whether an argument or an operator policy limits a queue's length, and it does not refuse publishes by itself.

    Also where an operator says what happens at the limit: it is said over ours, and refusing would not take place.
    """
    limits: Mapping[str, Any] = {} if operator is None else operator.definition
    if OVERFLOW in limits:
        return bool(limits[OVERFLOW] != REFUSE)
    return any(f"x-{key}" in arguments or key in limits for key in LENGTHS) and arguments.get("x-overflow") != REFUSE


def hop(definition: Definition) -> str:
    """How surely a dead letter comes from the queue to the inbox: the broker's own promise."""
    if STRATEGY in definition:
        return "quorum queues at least once; classic queues at most once"
    bound = next((key for key in LENGTHS if key in definition), None)
    why = f" ({bound} without overflow: {REFUSE})" if bound and OVERFLOW not in definition else ""
    return f"at most once{why}"


def foreign_target(queue: Standing, names: Names) -> str | None:
    """The exchange that its argument names and no policy can change; None where there is none or it is ours."""
    exchange = queue.arguments.get("x-dead-letter-exchange")
    if not isinstance(exchange, str) or exchange in names.inlets:
        return None
    return exchange


def leads_to_inbox(rule: Rule, names: Names) -> bool:
    """Whether a RabbitMQ policy leads dead letters to an inbox of ours, with the keys by which they came."""
    return rule.definition.get(EXCHANGE) in names.inlets and "dead-letter-routing-key" not in rule.definition
