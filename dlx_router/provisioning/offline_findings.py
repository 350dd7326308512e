"""Parts of the checks: findings that need no snapshot."""

from collections.abc import Iterator, Mapping
from typing import Any

from dlx_router.broker.administration import Snapshot, Standing
from dlx_router.config import findings as codes
from dlx_router.config.findings import Finding, Severity, shown
from dlx_router.config.lint import selector_scope
from dlx_router.core.attending import QueueFacts, vanishes
from dlx_router.core.policy import Policy, PolicySet, Source
from dlx_router.core.template import Template


def without_queues(policies: PolicySet, snapshot: Snapshot) -> list[Policy]:
    """The policies for this vhost whose selector matches no queue there; a catch-all is for queues to come."""
    asked = [policy for policy in policies.policies if policy.vhost in {None, snapshot.vhost}]
    return [
        policy
        for policy in asked
        if not selector_scope.is_wide(policy.selector)
        and not any(policy.selector.fits(queue.name) for queue in snapshot.queues)
    ]


def target_queue(source: Source, target: Standing) -> Iterator[Finding]:
    """What is wrong with a queue as the place of dead letters."""
    if not target.durable:
        yield at(
            source,
            codes.NOT_DURABLE,
            f"queue {shown(target.name)}, where dead letters go, is not durable: a "
            f"restart of the broker loses them; declare a durable one",
        )
    if why := unreadable(target, target.arguments):
        yield at(source, codes.NOT_READ, f"queue {shown(target.name)}, where dead letters go, is never read: {why}")
    if target.kind == "stream" or "x-max-priority" in target.arguments:
        what = (
            "a stream, which drops the record" if target.kind == "stream" else "a priority queue, which reorders them"
        )
        yield at(
            source,
            codes.SPECIAL_QUEUE,
            f"queue {shown(target.name)}, where dead letters go, is {what}; write a plain quorum or classic queue",
        )


def unreadable(queue: Standing, holds: Mapping[str, Any]) -> str:
    """Explain why the router never reads the queue; "" if it does. `holds`: its arguments and policies, merged."""
    policy = {"expires": holds.get("expires")}
    facts = QueueFacts(queue.kind, queue.arguments, policy, queue.exclusive, auto_delete=queue.auto_delete)
    return vanishes(facts)


def unguardable(queue: Standing, version: tuple[int, ...]) -> str:
    """Why the queue cannot be guarded; empty where it can."""
    if queue.kind == "stream":
        return "it is a stream"
    if queue.exclusive or queue.arguments.get("x-single-active-consumer"):
        return "it is for one consumer only"
    return "it is a quorum queue, and RabbitMQ is older than 4.3" if queue.kind == "quorum" and version < (4, 3) else ""


def static(template: Template | None, queue: str, reason: str, vhost: str) -> str | None:
    """The key where it is the same for every letter, else None."""
    if template is None:
        return None
    values = {"queue": queue, "reason": reason, "vhost": vhost}
    if any(isinstance(part, tuple) and not (part[0] == "value" and part[1] in values) for part in template.parts):
        return None
    return "".join(part if isinstance(part, str) else values[part[1]] for part in template.parts)


def at(source: Source, code: str, message: str, *, error: bool = False) -> Finding:
    """A finding at the line that causes it."""
    return Finding(source.file, source.line, code, Severity.ERROR if error else Severity.WARNING, message)
