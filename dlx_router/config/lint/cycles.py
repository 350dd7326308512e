"""Dead letters that go round, as far as the policies alone show it, and keys for queues of another type.

Only names that are written count: a target whose key holds a letter's own words, or that only a wildcard names as a
source, may never be one.
"""

from collections.abc import Iterator
from typing import Final

from dlx_router.config.findings import CLASSIC_ONLY, CYCLE, Finding, Severity, shown
from dlx_router.config.lint.key_conflicts import KEY
from dlx_router.core.policy import Effective, Policy, PolicySet, SelectorKind
from dlx_router.core.target import dead_letter_queue

MAX_STEPS: Final = 20
_QUORUM_KEYS: Final = ("delivery-limit", "requeue-is-death")


def findings_of(policies: PolicySet) -> Iterator[Finding]:
    """Cycles among the queues that policies name by `queue:`, each once, and keys for another type."""
    named = {policy.selector.text: policy for policy in policies.policies if policy.selector.kind is SelectorKind.QUEUE}
    in_cycle: set[str] = set()
    for name, policy in named.items():
        yield from _to_itself(name, policy, policies)
        way = _way(name, policies, named, policy.vhost or "/")
        if len(way) > 1 and way[-1] == name:
            if name not in in_cycle:
                yield _cycle(policy, way)
            in_cycle.update(way)
    for policy in policies.policies:
        yield from _classic(policy)


def _way(start: str, policies: PolicySet, named: dict[str, Policy], vhost: str) -> list[str]:
    """The queues that follow each other from `start`, up to the first that comes twice or that no policy names."""
    way = [start]
    while len(way) < MAX_STEPS:
        kind = named[way[-1]].queue_type
        target = _target(policies.resolve(vhost=vhost, queue=way[-1], reason="rejected", queue_type=kind), way[-1])
        if target is None or target not in named or target == way[-1]:
            return way
        way.append(target)
        if target in way[:-1]:
            return way
    return way


def _target(policy: Effective | None, queue: str) -> str | None:
    """The queue that surely gets the dead letters of `queue`, where the policies alone tell it."""
    if policy is None or policy.discard:
        return None
    if policy.auto_create:
        return dead_letter_queue(policy, queue)
    if policy.dead_letter_exchange or policy.routing_key is None:
        return None
    parts = policy.routing_key.parts
    if any(isinstance(part, tuple) and part != ("value", "queue") for part in parts):
        return None
    return "".join(part if isinstance(part, str) else queue for part in parts)


def written_targets(policies: PolicySet) -> dict[str, str]:
    """The queues that surely get dead letters, by names that are written → a policy that sends them there."""
    senders: dict[str, str] = {}
    for policy in policies.policies:
        queue = policy.selector.text if policy.selector.kind is SelectorKind.QUEUE else ""
        effective = _of_queue(policies, policy, queue, "rejected") if queue else None
        target = _target(effective or policies.effective((policy,), "rejected"), queue)
        if target is not None and (queue or effective is None) and _is_written(policy, queue):
            senders.setdefault(target, policy.name)
    return senders


def _is_written(policy: Policy, queue: str) -> bool:
    """Whether the target of a policy for many queues stands in it, rather than being made of a queue's name."""
    key = policy.definition.get(KEY)
    return bool(queue) or (key is not None and all(isinstance(part, str) for part in key.value.parts))


def _of_queue(policies: PolicySet, policy: Policy, queue: str, reason: str) -> Effective | None:
    """What holds for a queue where this policy does: of the type that it is for."""
    return policies.resolve(vhost=policy.vhost or "/", queue=queue, reason=reason, queue_type=policy.queue_type)


def _to_itself(queue: str, policy: Policy, policies: PolicySet) -> Iterator[Finding]:
    """A target that is the queue where the letter failed: RabbitMQ takes it, so it is a doubt and no error."""
    for reason in ("rejected", *sorted(policy.on)):
        effective = _of_queue(policies, policy, queue, reason)
        if effective is None or effective.auto_create or _target(effective, queue) != queue:
            continue
        source = effective.settings[KEY].source
        where = source if source.policy == policy.name else policy.source
        message = (
            f"dead letters of {shown(queue)} go to {shown(queue)} itself; write {KEY}: with the name of another queue, "
            f'"{{queue}}.dead" say'
        )
        yield Finding(where.file, where.line, CYCLE, Severity.WARNING, message)
        return


def _cycle(policy: Policy, way: list[str]) -> Finding:
    message = (
        f"dead letters go round: {' → '.join(map(shown, way))}; the router parks a letter that comes back; "
        f"let one of them end elsewhere"
    )
    return Finding(policy.source.file, policy.source.line, CYCLE, Severity.WARNING, message)


def _classic(policy: Policy) -> Iterator[Finding]:
    if policy.apply_to != "classic_queues":
        return
    for key in _QUORUM_KEYS:
        if key in policy.definition:
            source = policy.definition[key].source
            message = f"{key} is for quorum queues; RabbitMQ would skip a policy with it on classic queues; take it out"
            yield Finding(source.file, source.line, CLASSIC_ONLY, Severity.WARNING, message)
