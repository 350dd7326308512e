"""Where the dead letters of a policy come to lie, as far as that can be told without a letter.

It can for dead-letter queues that are created, for keys that are the same for every letter, and for fanout exchanges.
"""

from collections.abc import Iterator

from dlx_router.broker.management import Snapshot, Standing
from dlx_router.config.language.keys import REASONS
from dlx_router.core.names import Names
from dlx_router.core.policy import Effective, PolicySet
from dlx_router.core.target import dead_letter_queue
from dlx_router.provisioning.routing import Routes, static

Resting = dict[str, frozenset[str]]


def watched(policies: PolicySet, snapshot: Snapshot, names: Names) -> Resting:
    """Each policy with a threshold of `depth` or `oldest` in force for a queue → the queues of its dead letters."""
    if not any("alert" in keys for policy in policies.policies for keys in (policy.definition, *policy.on.values())):
        return {}
    routes, resting = Routes(snapshot), dict[str, set[str]]()
    reasons = sorted({*REASONS, *(reason for policy in policies.policies for reason in policy.on)})
    for queue in snapshot.queues:
        for reason in reasons if not names.is_own(queue.name) else ():
            effective = policies.resolve(vhost=snapshot.vhost, queue=queue.name, reason=reason, queue_type=queue.kind)
            if effective is not None and effective.alert is not None and not effective.discard:
                resting.setdefault(effective.policy, set()).update(_targets(effective, queue, reason, routes, snapshot))
    return {policy: frozenset(queues) for policy, queues in resting.items()}


def _targets(policy: Effective, queue: Standing, reason: str, routes: Routes, snapshot: Snapshot) -> Iterator[str]:
    exchange = policy.dead_letter_exchange
    if policy.auto_create:
        yield from {dead_letter_queue(policy, queue.name)} & routes.names
    elif exchange is not None:
        key = static(policy.routing_key, queue.name, reason, snapshot.vhost)
        if key is not None or snapshot.exchanges.get(exchange) == "fanout":
            yield from routes.queues(exchange, key or "")


def letters(resting: Resting, snapshot: Snapshot) -> dict[str, int]:
    """How many lie there; what lies in a queue of several policies counts for each.

    A policy is left out where the count of any of its queues is not known: a part looks like few.
    """
    there = {queue.name: queue.messages for queue in snapshot.queues}
    by_policy = {policy: [there.get(queue) for queue in queues] for policy, queues in resting.items()}
    known = {policy: [n for n in counts if n is not None] for policy, counts in by_policy.items()}
    return {policy: sum(counts) for policy, counts in known.items() if len(counts) == len(by_policy[policy])}


def oldest(resting: Resting, snapshot: Snapshot) -> dict[str, float]:
    """The `timestamp` (epoch s) of the oldest first letter, where the broker tells any."""
    heads = {queue.name: queue.head_s for queue in snapshot.queues if queue.head_s is not None}
    by_policy = {policy: [heads[queue] for queue in queues if queue in heads] for policy, queues in resting.items()}
    return {policy: min(stamps) for policy, stamps in by_policy.items() if stamps}
