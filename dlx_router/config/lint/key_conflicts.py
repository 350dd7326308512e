"""What is wrong with keys that hold together for one queue and reason: they contradict or undo each other."""

from collections.abc import Iterator
from typing import Final

from dlx_router.config.findings import (
    BACK_TO_WORK,
    FIFO_WAITS,
    OPEN_TARGET,
    OWN_TARGET,
    SPREADING_EXCHANGE,
    Finding,
    Severity,
    shown,
)
from dlx_router.core.policy import Effective
from dlx_router.core.template import Template

EXCHANGE: Final = "dead-letter-exchange"
KEY: Final = "dead-letter-routing-key"
REWRITE: Final = "dead-letter-routing-key-rewrite"
PREFIX: Final = "dead-letter-queue-prefix"
SUFFIX: Final = "dead-letter-queue-suffix"
DELAY: Final = "redelivery-delay"
# The exchanges that every broker has whose bindings are not chosen by key; of others only a broker knows the type.
_SPREADING: Final = {"amq.fanout": "fanout", "amq.headers": "headers", "amq.match": "headers"}
_BACKOFF: Final = ("redelivery-delay-multiplier", "redelivery-collision-avoidance-factor")  # the cap bounds retry_after


def of_effective(policy: Effective) -> Iterator[Finding]:
    """The findings, each at the line of a key that causes it."""
    yield from _order(policy)
    if not policy.discard:
        yield from _target(policy)
        yield from _own_target(policy)


def without_effect(policy: Effective) -> Iterator[tuple[str, str]]:
    """Keys that change nothing here, and why. A finding only where they change nothing anywhere else either."""
    if DELAY not in policy.settings:
        for key in _BACKOFF:
            yield key, f"has no effect without {DELAY}: letters are tried again at once; write {DELAY}: too"
    if policy.auto_create:
        for key in (KEY, REWRITE):
            yield (
                key,
                (
                    f"has no effect while the dead-letter queue is auto-created, because letters reach it by its name; "
                    f"write {EXCHANGE}:, or auto-create-dead-letter-resources: false"
                ),
            )
    elif policy.routing_key is not None:
        yield REWRITE, f"has no effect beside {KEY}; keep one of them"


def _order(policy: Effective) -> Iterator[Finding]:
    """What would let one letter of a fifo queue overtake another."""
    if not policy.fifo:
        return
    for key, waits in ((DELAY, policy.delay_ms > 0), ("outage", policy.outage is not None)):
        if waits:
            message = f"{key} beside ordering: fifo: a letter that waits is overtaken by the next; take one of them out"
            yield _error(policy, key, FIFO_WAITS, message)


def _target(policy: Effective) -> Iterator[Finding]:
    """Targets on the default exchange name a queue by the key, so the key decides where letters really go."""
    if _has_own_queue(policy):
        if not policy.dlq_prefix and not policy.dlq_suffix:
            key = PREFIX if PREFIX in policy.settings else SUFFIX
            yield _error(
                policy,
                key,
                BACK_TO_WORK,
                f"{PREFIX} and {SUFFIX} are both empty: the dead-letter queue would be the work queue itself; "
                f"write one of them",
            )
        yield from _spread(policy)
        return
    if policy.dead_letter_exchange:
        return
    if policy.routing_key is None:
        yield _error(
            policy,
            EXCHANGE,
            BACK_TO_WORK,
            f'{EXCHANGE} "" (the default exchange) without {KEY} would return letters to their work queue; '
            f"write {KEY}:, or leave {EXCHANGE} out for an auto-created dead-letter queue",
        )
    elif policy.routing_key.parts == (("value", "queue"),):
        yield _error(
            policy,
            KEY,
            BACK_TO_WORK,
            f'{KEY} "{{queue}}" on the default exchange is the work queue itself; write "DLQ.{{queue}}" or the like',
        )
    elif policy.routing_key.uses_headers and "allow-queues" not in policy.settings:
        yield _error(
            policy,
            KEY,
            OPEN_TARGET,
            f"{KEY} takes a header on the default exchange, so whoever publishes may name any queue; "
            f'write allow-queues: ["failed.#"] with the queues that may be named',
        )


def _own_target(policy: Effective) -> Iterator[Finding]:
    """What is the router's own holds what it put there itself: a dead letter would be taken for that, or dropped."""
    exchange, key = policy.dead_letter_exchange or "", policy.routing_key
    advice = f"leave {EXCHANGE} out for an auto-created dead-letter queue"
    if policy.ours.is_own(exchange):
        what = f"{EXCHANGE} names {shown(exchange)}, an exchange of the router itself; write one of yours, or {advice}"
        yield _error(policy, EXCHANGE, OWN_TARGET, what)
    elif _has_own_queue(policy):
        if PREFIX in policy.settings and policy.ours.is_own(policy.dlq_prefix):
            what = f"{PREFIX} {shown(policy.dlq_prefix)} is what the router's own queues begin with; write another"
            yield _error(policy, PREFIX, OWN_TARGET, what)
    elif not exchange and key is not None and policy.ours.is_own(beginning(key)):
        what = f"{KEY} names {shown(key.text)}, a queue of the router itself; write one of yours, or {advice}"
        yield _error(policy, KEY, OWN_TARGET, what)


def beginning(key: Template) -> str:
    """What every key that is made of it begins with, as far as it is written out."""
    first = key.parts[0] if key.parts else ""
    return first if isinstance(first, str) else ""


def _has_own_queue(policy: Effective) -> bool:
    """Whether dead letters end in a queue that is named after the one where they failed."""
    return policy.auto_create or (policy.dead_letter_exchange is None and policy.routing_key is None)


def _spread(policy: Effective) -> Iterator[Finding]:
    kind = _SPREADING.get(policy.dead_letter_exchange or "")
    if kind is not None:
        yield _error(
            policy,
            EXCHANGE,
            SPREADING_EXCHANGE,
            f"{EXCHANGE} {policy.dead_letter_exchange} is a {kind} exchange: each dead-letter queue on it would get "
            f"the letters of all; write a direct or topic exchange, or auto-create-dead-letter-resources: false",
        )


def _error(policy: Effective, key: str, code: str, message: str) -> Finding:
    source = policy.settings[key].source
    return Finding(source.file, source.line, code, Severity.ERROR, message)
