"""What copies need in the broker, as names; and routes, which letters that died the same way share: see compiled.py."""

from collections.abc import Mapping
from typing import Any, Final, NamedTuple

from dlx_router.core.limits import Retention
from dlx_router.core.policy import Effective
from dlx_router.core.target import transient_queue
from dlx_router.core.words import Action
from dlx_router.journal.events import Fragments
from dlx_router.journal.privacy import Rule

Resource = tuple[str, ...]
Known = Mapping[Resource, str] | None
DECLARED: Final = "declared"
Key = tuple[Any, ...]
Spans = tuple[tuple[int, int], ...]  # from, to


class Route(NamedTuple):
    """All that such letters share. `wait_ms` None: dead-lettered; else retried after it, always by the same rung."""

    failed_queue: str
    where: tuple[bytes, bytes]
    action: Action
    decided: tuple[str, str, str]
    resource: Resource | None
    exchange: bytes
    routing_key: bytes
    standing: str
    deaths: str
    first_ms: int
    wait_ms: int | None
    keeps_priority: bool
    longest: int
    told: Fragments | None
    rule: Rule


class Shape(NamedTuple):
    """What is equal in the header tables of such letters, as (from, to, bytes); the rest is values of their own.

    Same length, same names, types and lengths, same deaths: a walk over such a table would find what it found before.
    `counts`: where the broker wrote how often it was delivered, which is no part of the letter.
    """

    fixed: tuple[tuple[int, int, bytes], ...]
    route: Route
    counts: Spans = ()


def dead_letter_resource(policy: Effective, name: str, exchange: str, failed_queue: str) -> Resource:
    """An auto-created dead-letter queue, and how it is made, as a resource."""
    limits = ",".join("" if limit is None else str(limit) for limit in policy.retention)
    kept = f"{limits},{'fifo' if policy.fifo else ''},{reap_ms(policy) or ''}"
    return ("dlq", name, exchange, failed_queue, policy.dlq_type, transient_queue(policy), kept)


def called(resource: Resource) -> Resource:
    """By which name a dead-letter queue would be made, as a resource of its own: nothing is made for it."""
    _, name, _, failed_queue, _, shared, _ = resource
    return ("called", name, failed_queue, shared)


def reap_ms(policy: Effective) -> int:
    """After how long without letters a dead-letter queue is deleted; 0: never."""
    return policy.auto_delete_ms or 0 if policy.dlq_type == "classic" else 0


def how_made(kept: str) -> tuple[Retention, bool, int]:
    """As `dead_letter_resource` wrote it: what leaves the queue, whether it is in order, and `reap_ms`."""
    *limits, order, reap = kept.split(",")
    return Retention(*(int(limit) if limit else None for limit in limits)), order == "fifo", int(reap or 0)
