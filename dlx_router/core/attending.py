"""Which queues can be attended how, and why not. Pure: what the broker said of a queue → a refusal, or none.

See docs/modes.md.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any, Final, NamedTuple

CODE: Final = "DLX208"
NEAR: Final = 3
Version = tuple[int, ...]
_LIMIT_SINCE: Final = (4, 0)
DEFAULT_LIMIT: Final = 20
RETURNS_FREE_SINCE: Final = (4, 3)  # by basic.nack
NO_LIMIT: Final = 1 << 30  # nothing is returned so often
RAISE: Final = "raise its delivery-limit by a policy"
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})


class QueueFacts(NamedTuple):
    """What the management API says of a queue. `policy`: what its user and operator policies come to."""

    kind: str = "classic"
    arguments: Mapping[str, Any] = _NOTHING
    policy: Mapping[str, Any] = _NOTHING
    exclusive: bool = False
    ready: int = 0
    ready_bytes: int = 0
    auto_delete: bool = False

    @property
    def single(self) -> bool:
        """Whether only one consumer is served at a time: a FIFO queue."""
        return self.arguments.get("x-single-active-consumer") is True

    @property
    def has_dlx(self) -> bool:
        """Whether what dies goes anywhere."""
        return "x-dead-letter-exchange" in self.arguments or "dead-letter-exchange" in self.policy


def facts_of(answer: Mapping[str, Any]) -> QueueFacts:
    """Read a queue as the management API describes it."""
    arguments, policy = answer.get("arguments") or {}, answer.get("effective_policy_definition") or {}
    return QueueFacts(
        answer.get("type") or arguments.get("x-queue-type") or "classic",
        dict(arguments),
        dict(policy),
        bool(answer.get("exclusive")),
        answer.get("messages_ready") or 0,
        answer.get("message_bytes_ready") or 0,
        bool(answer.get("auto_delete")),
    )


def vanishes(facts: QueueFacts) -> str:
    """Explain why reading a queue may delete it with all its messages, and how to change that; "" if it cannot.

    RabbitMQ dead-letters nothing of a queue that it deletes. basic.get is no consumer, but it restarts x-expires.
    """
    if facts.exclusive:
        return "it is exclusive to the connection that declared it; declare it without exclusive"
    if facts.auto_delete:
        return (
            "it is auto-delete: RabbitMQ deletes it with all its messages when its last consumer leaves; declare it "
            "without auto-delete, or move its messages to another queue"
        )
    if facts.arguments.get("x-expires") is not None or facts.policy.get("expires") is not None:
        return (
            "it expires: RabbitMQ deletes it with all its messages some time after its last consumer has left; remove "
            "x-expires (argument) or expires (policy), or move its messages to another queue"
        )
    return ""


def delivery_limit(facts: QueueFacts, version: Version) -> int | None:
    """How many returns a message survives; None: any number. Argument and policy are taken together as by the broker.

    It takes the smaller, and from 4.0 on the larger where either is negative (`resolve_delivery_limit`): so -1 lifts
    nothing that the other one sets. Before 4.0 a negative one is none: the first return ends a message.
    """
    if facts.kind != "quorum":
        return None
    settings = (facts.arguments.get("x-delivery-limit"), facts.policy.get("delivery-limit"))
    limits = [limit for limit in settings if isinstance(limit, int)]
    if not limits:
        return DEFAULT_LIMIT if version >= _LIMIT_SINCE else None
    is_lifted = version >= _LIMIT_SINCE and min(limits) < 0
    limit = max(limits) if is_lifted else max(min(limits), 0)
    return None if limit < 0 or limit >= NO_LIMIT else limit


def remedy(facts: QueueFacts, version: Version) -> str:
    """What an operator can do so that messages of a queue survive more returns."""
    raised = facts._replace(policy={"delivery-limit": NO_LIMIT})
    if delivery_limit(raised, version) is None:
        return RAISE
    return "no policy raises what its argument x-delivery-limit says, so send its letters to another queue"


def deadly_limit(facts: QueueFacts, version: Version) -> int | None:
    """After how many returns the next one deletes a message; None: never, or a dead-letter exchange catches it."""
    return None if facts.has_dlx else delivery_limit(facts, version)


def unknown_limit(version: Version) -> int | None:
    """As `deadly_limit`, of a queue that nobody has told of: quorum, maybe, and as the broker makes it."""
    return DEFAULT_LIMIT if version >= _LIMIT_SINCE else None


def is_near(returns: int, limit: int) -> bool:
    """Whether a message has so few returns left that it must not be given back: it goes to parking."""
    return returns > 0 and returns >= limit - NEAR


def refusal(mode: str, facts: QueueFacts, version: Version, *, accepts_limit: bool) -> str:
    """Why this queue cannot be attended so, and what now; "" where it can."""
    if facts.kind == "stream":
        return "it is a stream, and what is read stays there; attach a queue that is bound beside it"
    if why := vanishes(facts):
        return why
    if mode != "inbox" and (why := _disordered(mode, facts, version)):
        return why
    limit = delivery_limit(facts, version)
    if limit is not None and not facts.has_dlx and not accepts_limit:
        return (
            f"it deletes a message at its return number {limit + 1}, and every lost connection is a return; give it a "
            "dead-letter exchange or a higher delivery-limit, or write accept-delivery-limit: true in the attachment"
        )
    return ""


def _disordered(mode: str, facts: QueueFacts, version: Version) -> str:
    """Limits need a head that is the oldest; a guard needs to take from it without harm to the consumers."""
    if facts.arguments.get("x-max-priority"):
        return f"it is a priority queue, whose head is not the oldest message: a {mode} cannot keep its limits"
    if mode != "guard":
        return ""
    if facts.single:
        return "it has a single active consumer, and nobody else may take from it; let a relay stand before it"
    if facts.kind == "quorum" and version < RETURNS_FREE_SINCE:
        number = ".".join(map(str, version)) or "?"
        return (
            f"it is a quorum queue of RabbitMQ {number}, where giving back what was looked at counts as a failure "
            "(3.10 puts it at the end); set the limits by a RabbitMQ policy, or let a relay stand before it"
        )
    return ""
