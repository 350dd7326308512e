"""What `policy lint --broker` says: policies that are right by themselves, and a broker that does not fit them.

Findings about a key stand where the key was written; findings about the broker name the vhost and the thing in it.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

from dlx_router.broker.management import Snapshot, Standing, may
from dlx_router.config import findings as codes
from dlx_router.config.findings import Finding, Severity, shown
from dlx_router.config.language.keys import REASONS
from dlx_router.config.lint import selector_scope
from dlx_router.config.lint.key_conflicts import EXCHANGE, KEY
from dlx_router.config.policy_files.attachments import GUARD, Attachment
from dlx_router.core.attending import QueueFacts, deadly_limit, vanishes
from dlx_router.core.names import Names
from dlx_router.core.policy import Effective, PolicySet, SelectorKind, Source
from dlx_router.provisioning.broker_rules import merged
from dlx_router.provisioning.desired_policies import desired
from dlx_router.provisioning.ownership import recognised
from dlx_router.provisioning.queue_definition import STRATEGY
from dlx_router.provisioning.routing import Routes, static, uncaught

DEFAULT_EXCHANGE: Final = "amq.default"
EXAMPLES: Final = 3
MANY_QUEUES: Final = 100  # nobody has thought of each of them
SPREADING: Final = frozenset({"fanout", "headers"})


class Checks:
    """The checks of one vhost. `rights`: what the router's user may do there, None where that is not known."""

    def __init__(
        self,
        policies: PolicySet,
        attachments: Iterable[Attachment],
        snapshot: Snapshot,
        names: Names,
        rights: Mapping[str, str] | None,
    ) -> None:
        self._policies, self._snapshot, self._names, self._rights = policies, snapshot, names, rights
        self._attachments = [attachment for attachment in attachments if attachment.vhost in {None, snapshot.vhost}]
        self._routes = Routes(snapshot)
        self._queues = {queue.name: queue for queue in snapshot.queues}
        self._ours = recognised(snapshot.policies, names)
        self._desired = desired(policies, snapshot, names, owned=self._ours)
        self._uncaught = [*uncaught(self._desired.uncatchable, self._attachments, snapshot, names)]

    def findings(self) -> list[Finding]:
        """All of them, each once."""
        findings: set[Finding] = set()
        dropping: dict[Source, set[str]] = {}
        for queue in self._desired.attended:
            findings.update(self._of_source(queue))
            reasons = {*REASONS, *(reason for policy in self._policies.policies for reason in policy.on)}
            for reason in sorted(reasons):
                policy = self._policies.resolve(
                    vhost=self._snapshot.vhost, queue=queue.name, reason=reason, own=True, queue_type=queue.kind
                ) or self._policies.resolve(
                    vhost=self._snapshot.vhost, queue=queue.name, reason=reason, own=False, queue_type=queue.kind
                )
                if policy is not None and policy.discard:
                    dropping.setdefault(policy.settings["discard"].source, set()).add(queue.name)
                elif policy is not None:
                    findings.update(self._of_target(policy, queue, reason))
        findings.update(self._of_discards(dropping))
        findings.update(self._of_wide_policies())
        findings.update(self._of_streams())
        findings.update(self._of_guards())
        findings.update(self._of_attachments())
        findings.update(self._of_relays())
        return sorted(findings)

    # -- what a policy's letters need -----------------------------------------------------------------------------

    def _of_target(self, policy: Effective, queue: Standing, reason: str) -> Iterator[Finding]:
        exchange = policy.dead_letter_exchange
        source = policy.settings[EXCHANGE].source if EXCHANGE in policy.settings else None
        yield from self._write(exchange or "", source, policy, queue)
        if source is None or exchange is None:
            return
        if exchange and exchange not in self._snapshot.exchanges:
            if not policy.auto_create:
                yield at(
                    source,
                    codes.MISSING_EXCHANGE,
                    f"exchange {shown(exchange)} does not exist in vhost "
                    f"{shown(self._snapshot.vhost)}; declare it, or write the name of one that does",
                )
            return
        yield from self._internal(source, exchange)
        kind = self._snapshot.exchanges.get(exchange, "direct")
        if kind == "x-delayed-message":
            yield at(
                source,
                codes.DELAYED_EXCHANGE,
                f"exchange {shown(exchange)} is of type x-delayed-message: it "
                f"returns mandatory publishes and delivers them later; write an exchange of another type",
            )
        if policy.auto_create and kind in SPREADING:
            yield at(
                source,
                codes.SPREADING_EXCHANGE,
                f"{EXCHANGE} {shown(exchange)} is a {kind} exchange: each "
                f"dead-letter queue on it would get the letters of all; write a direct or topic exchange",
                error=True,
            )
        if exchange and exchange not in self._snapshot.durable_exchanges:
            yield at(
                source,
                codes.NOT_DURABLE,
                f"exchange {shown(exchange)} is not durable: after a restart of the "
                f"broker it is gone, and letters are parked; declare a durable one",
            )
        if not policy.auto_create:
            yield from self._reached(policy, queue, reason, exchange)

    def _reached(self, policy: Effective, queue: Standing, reason: str, exchange: str) -> Iterator[Finding]:
        """What the computed key leads to, where a letter need not be known to compute it."""
        key = static(policy.routing_key, queue.name, reason, self._snapshot.vhost)
        if key is None:
            return
        source = policy.settings[KEY].source
        reached = self._routes.queues(exchange, key)
        if not reached and not exchange:
            yield at(
                source,
                codes.NO_BINDING,
                f"queue {shown(key)}, where dead letters of {shown(queue.name)} go, "
                f"does not exist: they are parked; declare it, or leave {EXCHANGE} out",
            )
        elif not reached and self._snapshot.exchanges.get(exchange) in {"direct", "topic", "fanout"}:
            yield at(
                source,
                codes.NO_BINDING,
                f"no queue is bound to exchange {shown(exchange)} for key {shown(key)} "
                f"(dead letters of {shown(queue.name)}): they are parked; bind one",
            )
        for target in (self._queues[name] for name in sorted(reached) if name in self._queues):
            yield from target_queue(source, target)

    def _write(self, exchange: str, source: Source | None, policy: Effective, queue: Standing) -> Iterator[Finding]:
        if self._rights is None or may(self._rights.get("write", ""), exchange or DEFAULT_EXCHANGE):
            return
        where = source or next(
            (candidate.source for candidate in self._policies.policies if candidate.name == policy.policy), None
        )
        if where is not None:
            yield at(
                where,
                codes.NO_RIGHT,
                f"the router's user may not write to exchange "
                f"{shown(exchange or DEFAULT_EXCHANGE)}, where dead letters of {shown(queue.name)} go; grant it "
                f"(dlx-router permissions prints how)",
            )

    def _internal(self, source: Source, exchange: str) -> Iterator[Finding]:
        if exchange in self._snapshot.internal_exchanges:
            yield at(
                source,
                codes.NO_RIGHT,
                f"exchange {shown(exchange)} is internal: RabbitMQ refuses what clients publish to it, the router "
                "too; write an exchange that is not, and bind it to this one",
                error=True,
            )

    def _of_discards(self, dropping: Mapping[Source, set[str]]) -> Iterator[Finding]:
        """What drops letters of more queues than somebody may have thought of."""
        for source, queues in dropping.items():
            if len(queues) > MANY_QUEUES:
                some = ", ".join(map(shown, sorted(queues)[:3]))
                message = f"discard: true drops what dies in {len(queues)} queues ({some} …); {selector_scope.NARROW}"
                yield selector_scope.dropped(source, message)

    def _of_wide_policies(self) -> Iterator[Finding]:
        """Policies that select every queue, where they are the only ones that select some."""
        here = [policy for policy in self._policies.policies if policy.vhost in {None, self._snapshot.vhost}]
        wide = [policy for policy in here if selector_scope.is_wide(policy.selector)]
        narrow = [policy.selector for policy in here if policy not in wide]
        names = sorted(queue.name for queue in self._desired.attended)
        alone = [name for name in names if not any(selector.fits(name) for selector in narrow)]
        for policy in wide if alone else []:
            some = ", ".join(map(shown, alone[:EXAMPLES])) + (" …" if len(alone) > EXAMPLES else "")
            yield at(
                policy.source,
                codes.EVERY_QUEUE,
                f"policy {shown(policy.name)}, {selector_scope.written(policy.selector)}, selects every queue of vhost "
                f"{shown(self._snapshot.vhost)}, also those to come; no other policy selects {len(alone)} of them "
                f"({some}); name the queues that are yours by queue: or a longer match:",
            )

    # -- what a source is -----------------------------------------------------------------------------------------

    def _of_source(self, queue: Standing) -> Iterator[Finding]:
        holds = merged(queue, self._snapshot)
        for candidate, message in self._uncaught:
            if candidate is queue:
                yield self._about(f"queue {queue.name}", codes.NOT_CATCHABLE, message)
        if "max-priority" in holds:
            yield self._about(
                f"queue {queue.name}",
                codes.SPECIAL_QUEUE,
                "it is a priority queue: a retried letter keeps "
                "its priority, but not its place; exclude it, or bear that",
            )
        if queue.kind == "classic" and queue.redelivered:
            yield self._about(
                f"queue {queue.name}",
                codes.REQUEUED,
                "its consumers requeue, and classic queues do not "
                "count that: attempts would never end; reject without requeue, or use a quorum queue",
            )
        if queue.kind == "quorum":
            yield from self._of_quorum(queue, holds)

    def _of_quorum(self, queue: Standing, holds: Mapping[str, Any]) -> Iterator[Finding]:
        has_exchange = "dead-letter-exchange" in holds
        limit = deadly_limit(QueueFacts(queue.kind, policy=holds), self._snapshot.version)
        if limit is not None:
            yield self._about(
                f"queue {queue.name}",
                codes.LIMIT_DELETES,
                f"after {limit} returns the broker deletes a "
                f"letter, because no dead-letter-exchange is set; dlx-router apply sets it",
            )
        if has_exchange and holds.get(STRATEGY) == "at-least-once" and holds.get("overflow") != "reject-publish":
            yield self._about(
                f"queue {queue.name}",
                codes.SILENTLY_ONCE,
                "at-least-once without overflow: reject-publish "
                "is silently at-most-once; set overflow: reject-publish too",
            )

    def _of_streams(self) -> Iterator[Finding]:
        for policy in self._policies.policies:
            queue = self._queues.get(policy.selector.text)
            if policy.selector.kind is SelectorKind.QUEUE and queue is not None and queue.kind == "stream":
                yield at(
                    policy.source,
                    codes.SPECIAL_QUEUE,
                    f"queue {shown(queue.name)} is a stream: it keeps what "
                    f"consumers reject, so nothing dies there; take the policy out",
                )

    # -- what stands in the broker --------------------------------------------------------------------------------

    def _of_guards(self) -> Iterator[Finding]:
        for attachment in self._attachments:
            if attachment.mode != GUARD:
                continue
            for queue in self._snapshot.queues:
                why = unguardable(queue, self._snapshot.version) if attachment.selector.fits(queue.name) else ""
                if why:
                    yield at(
                        attachment.source,
                        codes.NOT_GUARDED,
                        f"queue {shown(queue.name)} cannot be guarded: {why}; "
                        f"let the broker enforce its limits (dlx-router apply), or use a relay",
                        error=True,
                    )

    def _of_attachments(self) -> Iterator[Finding]:
        for attachment in self._attachments:
            for queue in self._snapshot.queues:
                why = unreadable(queue, merged(queue, self._snapshot)) if attachment.selector.fits(queue.name) else ""
                if why and not self._names.is_own(queue.name):
                    message = f"queue {shown(queue.name)} is not attached: {why}"
                    yield at(attachment.source, codes.NOT_READ, message, error=attachment.named)

    def _of_relays(self) -> Iterator[Finding]:
        for attachment in self._attachments:
            if attachment.forward is not None:
                yield from self._internal(attachment.source, attachment.forward.exchange)

    def _about(self, what: str, code: str, message: str) -> Finding:
        return Finding(f"vhost {self._snapshot.vhost}, {what}", 1, code, Severity.WARNING, message)


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


def at(source: Source, code: str, message: str, *, error: bool = False) -> Finding:
    """A finding at the line that causes it."""
    return Finding(source.file, source.line, code, Severity.ERROR if error else Severity.WARNING, message)
