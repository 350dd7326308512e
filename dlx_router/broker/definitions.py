"""What the router owns in the broker, as values: which exchanges, queues and bindings, and with which arguments.

Every quorum queue has a delivery limit that no letter reaches: −1 deletes at the first return on RabbitMQ 3.10, and a
queue made without a limit cannot be given one by a later declaration. Every one refuses publishes instead of dropping
letters. See docs/architecture.md ("In the broker").
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from dlx_router.core.limits import KEEP, Retention
from dlx_router.core.names import Names

NO_LIMIT: Final = 2_147_483_647
COPIES: Final = 100_000
MARK: Final = "x-dlx-router-prefix"  # on an exchange of another name than ours: who made it
COPIES_MS: Final = 6 * 3_600_000  # without a consumer
LOCATOR: Final = "x-queue-leader-locator"  # obeyed only when a queue is declared
ALTERNATE: Final = "alternate-exchange"  # of an exchange: as an argument, and as a key of a policy
Arguments = Mapping[str, str | int | bool]
_QUORUM: Final[Arguments] = {"x-queue-type": "quorum", "x-delivery-limit": NO_LIMIT, "x-overflow": "reject-publish"}
_CLASSIC: Final[Arguments] = {"x-queue-type": "classic", "x-overflow": "reject-publish"}


@dataclass(frozen=True, slots=True)
class Exchange:
    """A durable exchange."""

    name: str
    kind: str
    arguments: Arguments = field(default_factory=dict)

    def __str__(self) -> str:
        return f"exchange {self.name}: {self.kind}, durable"


@dataclass(frozen=True, slots=True)
class Queue:
    """A durable queue."""

    name: str
    arguments: Arguments

    def __str__(self) -> str:
        return f"queue {self.name}: durable, arguments {json.dumps(dict(self.arguments), ensure_ascii=False)}"


@dataclass(frozen=True, slots=True)
class Binding:
    """A binding of a queue to an exchange."""

    queue: str
    exchange: str
    key: str = ""

    def __str__(self) -> str:
        return f"binding of queue {self.queue} to exchange {self.exchange}, routing key {self.key!r}"


Definition = Exchange | Queue | Binding


def core(names: Names) -> tuple[Definition, ...]:
    """All that is there before the first letter, in the order of declaration: a place to fall to before what falls."""
    single = {**_QUORUM, "x-single-active-consumer": True}
    return (
        Queue(names.quarantine, _QUORUM),
        Queue(names.parking, rescued(names)),
        *release(names),
        *_caught(names.inbox, rescued(names)),
        *_caught(names.fifo, {**rescued(names), "x-single-active-consumer": True}),
        Queue(names.retired, _QUORUM),
        Exchange(names.declared, "fanout"),
        Binding(names.inbox, names.declared),
        Exchange(names.return_, "direct"),
        Queue(names.state, single),
    )


def release(names: Names) -> tuple[Definition, ...]:
    """Where waits end. It stands before any rung: an expiry without a route stalls its rung for 180 s."""
    return _caught(names.release, rescued(names))


def observe(names: Names) -> tuple[Definition, ...]:
    """Where copies come for `run --observe`. They are worth nothing by themselves: the oldest go, and then the queue.

    It drops instead of refusing, because who refuses a copy stalls an at-least-once death of the letter itself.
    """
    arguments = {**_QUORUM, "x-overflow": "drop-head", "x-max-length": COPIES, "x-expires": COPIES_MS}
    bindings = (Binding(names.observe, exchange) for exchange in (names.inbox, names.fifo, names.declared))
    return (*_caught(names.observe, arguments), *bindings)


def rung(names: Names, rung_ms: int) -> tuple[Definition, ...]:
    """Where a letter waits `rung_ms`; at-least-once needs reject-publish too, else it is silently at-most-once."""
    arguments = {
        **_QUORUM,
        "x-message-ttl": rung_ms,
        "x-dead-letter-exchange": names.release,
        "x-dead-letter-strategy": "at-least-once",
    }
    return _caught(names.delay(rung_ms), arguments)


def delayed(names: Names, exchange: str) -> tuple[Definition, ...]:
    """An exchange that clients publish to, and the queue that all of it comes to.

    The key of the binding means everything on a topic exchange too, where a client declared one first.
    """
    queue = names.delayed(exchange)
    made = Exchange(exchange, "fanout", {MARK: names.prefix})
    return (Queue(queue, rescued(names)), made, Binding(queue, exchange, "#"))


def dead_letter_queue(
    name: str, kind: str, exchange: str | None, retention: Retention = KEEP, *, fifo: bool = False, retired: str = ""
) -> tuple[Definition, ...]:
    """A final resting place, `quorum` or `classic`; with an exchange given, bound to it by its own name.

    What its retention does not keep falls into the queue `retired`, at most once. `fifo`: for one consumer at a time.
    """
    arguments = {**(_QUORUM if kind == "quorum" else _CLASSIC), **_kept(retention, retired)}
    if fifo:
        arguments["x-single-active-consumer"] = True
    queue = Queue(name, arguments)
    return (queue,) if exchange is None else (queue, Exchange(exchange, "direct"), Binding(name, exchange, name))


def _kept(retention: Retention, retired: str) -> Arguments:
    """Drop-head: a dead-letter queue with limits that refused letters would hold all the others up."""
    if not retention.is_set:
        return {}
    limits = {
        "x-message-ttl": retention.ttl_ms,
        "x-max-length": retention.max_length,
        "x-max-length-bytes": retention.max_bytes,
    }
    leads = {"x-overflow": "drop-head", "x-dead-letter-exchange": "", "x-dead-letter-routing-key": retired}
    return {**{key: value for key, value in limits.items() if value is not None}, **leads}


def _caught(name: str, arguments: Arguments) -> tuple[Definition, ...]:
    return Queue(name, arguments), Exchange(name, "fanout"), Binding(name, name)


def rescued(names: Names) -> Arguments:
    """A letter that has to leave falls into quarantine, confirmed."""
    return {
        **_QUORUM,
        "x-dead-letter-exchange": "",
        "x-dead-letter-routing-key": names.quarantine,
        "x-dead-letter-strategy": "at-least-once",
    }
