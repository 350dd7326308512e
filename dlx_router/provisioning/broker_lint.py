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
        self._here = [policy for policy in policies.policies if policy.vhost in {None, snapshot.vhost}]
        self._attachments = [attachment for attachment in attachments if attachment.vhost in {None, snapshot.vhost}]
        self._routes = Routes(snapshot)
        self._queues = {queue.name: queue for queue in snapshot.queues}
        self._desired = desired(policies, snapshot, names, owned=recognised(snapshot.policies, names))

    def findings(self) -> list[Finding]:
        """All of them, each once."""
        findings = {*self._of_wide_policies(), *self._of_streams(), *self._of_attachments(), *self._of_uncaught()}
        reasons = sorted({*REASONS, *(reason for policy in self._policies.policies for reason in policy.on)})
        for queue in self._desired.attended:
            findings.update(self._of_source(queue))
            for reason in reasons:
                policy = self._resolve(queue, reason, own=True) or self._resolve(queue, reason, own=False)
                if policy is not None and not policy.discard:
                    findings.update(self._of_target(policy, queue, reason))
        return sorted(findings)

    def _resolve(self, queue: Standing, reason: str, *, own: bool) -> Effective | None:
        vhost = self._snapshot.vhost
        return self._policies.resolve(vhost=vhost, queue=queue.name, reason=reason, own=own, queue_type=queue.kind)

    # -- what a policy's letters need -----------------------------------------------------------------------------

    def _of_target(self, policy: Effective, queue: Standing, reason: str) -> Iterator[Finding]:
        exchange = policy.dead_letter_exchange
        source = policy.settings[EXCHANGE].source if EXCHANGE in policy.settings else None
        yield from self._write(exchange or "", source, policy, queue)
        if source is None or exchange is None:
            return
        name = shown(exchange)
        if exchange and exchange not in self._snapshot.exchanges:
            if not policy.auto_create:
                vhost = shown(self._snapshot.vhost)
                text = (
                    f"exchange {name} does not exist in vhost {vhost}; declare it, or write the name of one that does"
                )
                yield at(source, codes.MISSING_EXCHANGE, text)
            return
        yield from self._internal(source, exchange)
        kind = self._snapshot.exchanges.get(exchange, "direct")
        if kind == "x-delayed-message":
            text = (
                f"exchange {name} is of type x-delayed-message: it returns mandatory publishes and delivers them "
                f"later; write an exchange of another type"
            )
            yield at(source, codes.DELAYED_EXCHANGE, text)
        if policy.auto_create and kind in SPREADING:
            text = (
                f"{EXCHANGE} {name} is a {kind} exchange: each dead-letter queue on it would get the letters of all; "
                f"write a direct or topic exchange"
            )
            yield at(source, codes.SPREADING_EXCHANGE, text, error=True)
        if exchange and exchange not in self._snapshot.durable_exchanges:
            text = (
                f"exchange {name} is not durable: after a restart of the broker it is gone, and letters are parked; "
                f"declare a durable one"
            )
            yield at(source, codes.NOT_DURABLE, text)
        if not policy.auto_create:
            yield from self._reached(policy, queue, reason, exchange)

    def _reached(self, policy: Effective, queue: Standing, reason: str, exchange: str) -> Iterator[Finding]:
        """What the computed key leads to, where a letter need not be known to compute it."""
        key = static(policy.routing_key, queue.name, reason, self._snapshot.vhost)
        if key is None:
            return
        source, dead = policy.settings[KEY].source, f"dead letters of {shown(queue.name)}"
        reached = self._routes.queues(exchange, key)
        if not reached and not exchange:
            text = f"queue {shown(key)}, where {dead} go, does not exist: they are parked; declare it, or leave "
            yield at(source, codes.NO_BINDING, f"{text}{EXCHANGE} out")
        elif not reached and self._snapshot.exchanges.get(exchange) in {"direct", "topic", "fanout"}:
            text = f"no queue is bound to exchange {shown(exchange)} for key {shown(key)} ({dead}): they are parked; "
            yield at(source, codes.NO_BINDING, f"{text}bind one")
        for target in (self._queues[name] for name in sorted(reached) if name in self._queues):
            yield from target_queue(source, target)

    def _write(self, exchange: str, source: Source | None, policy: Effective, queue: Standing) -> Iterator[Finding]:
        if self._rights is None or may(self._rights.get("write", ""), exchange or DEFAULT_EXCHANGE):
            return
        named = (candidate.source for candidate in self._policies.policies if candidate.name == policy.policy)
        if (where := source or next(named, None)) is not None:
            text = (
                f"the router's user may not write to exchange {shown(exchange or DEFAULT_EXCHANGE)}, where dead "
                f"letters of {shown(queue.name)} go; grant it (dlx-router permissions prints how)"
            )
            yield at(where, codes.NO_RIGHT, text)

    def _internal(self, source: Source, exchange: str) -> Iterator[Finding]:
        if exchange in self._snapshot.internal_exchanges:
            text = (
                f"exchange {shown(exchange)} is internal: RabbitMQ refuses what clients publish to it, the router too; "
                f"write an exchange that is not, and bind it to this one"
            )
            yield at(source, codes.NO_RIGHT, text, error=True)

    def _of_wide_policies(self) -> Iterator[Finding]:
        """Policies that select every queue, where they are the only ones that select some."""
        wide = [policy for policy in self._here if selector_scope.is_wide(policy.selector)]
        narrow = [policy.selector for policy in self._here if policy not in wide]
        names = sorted(queue.name for queue in self._desired.attended)
        alone = [name for name in names if not any(selector.fits(name) for selector in narrow)]
        for policy in wide if alone else []:
            some = ", ".join(map(shown, alone[:EXAMPLES])) + (" …" if len(alone) > EXAMPLES else "")
            text = (
                f"policy {shown(policy.name)}, {selector_scope.written(policy.selector)}, selects every queue of vhost "
                f"{shown(self._snapshot.vhost)}, also those to come; no other policy selects {len(alone)} of them "
                f"({some}); name the queues that are yours by queue: or a longer match:"
            )
            yield at(policy.source, codes.EVERY_QUEUE, text)

    # -- what a source is -----------------------------------------------------------------------------------------

    def _of_uncaught(self) -> Iterator[Finding]:
        for queue, message in uncaught(self._desired.uncatchable, self._attachments, self._snapshot, self._names):
            yield self._about(queue, codes.NOT_CATCHABLE, message)

    def _of_source(self, queue: Standing) -> Iterator[Finding]:
        holds = merged(queue, self._snapshot)
        if queue.kind != "quorum":
            return
        limit = deadly_limit(QueueFacts(queue.kind, policy=holds), self._snapshot.version)
        if limit is not None:
            text = f"after {limit} returns the broker deletes a letter, because no dead-letter-exchange is set; "
            yield self._about(queue, codes.LIMIT_DELETES, f"{text}dlx-router apply sets it")
        is_claimed = EXCHANGE in holds and holds.get(STRATEGY) == "at-least-once"
        if is_claimed and holds.get("overflow") != "reject-publish":
            text = "at-least-once without overflow: reject-publish is silently at-most-once; "
            yield self._about(queue, codes.SILENTLY_ONCE, f"{text}set overflow: reject-publish too")

    def _of_streams(self) -> Iterator[Finding]:
        for policy in self._here:
            queue = self._queues.get(policy.selector.text)
            if policy.selector.kind is SelectorKind.QUEUE and queue is not None and queue.kind == "stream":
                text = f"queue {shown(queue.name)} is a stream: it keeps what consumers reject, so nothing dies there; "
                yield at(policy.source, codes.SPECIAL_QUEUE, f"{text}take the policy out")

    def _of_attachments(self) -> Iterator[Finding]:
        for attachment in self._attachments:
            if attachment.forward is not None:
                yield from self._internal(attachment.source, attachment.forward.exchange)
            for queue in filter(lambda queue: attachment.selector.fits(queue.name), self._snapshot.queues):
                if attachment.mode == GUARD and (why := unguardable(queue, self._snapshot.version)):
                    text = (
                        f"queue {shown(queue.name)} cannot be guarded: {why}; let the broker enforce its limits "
                        f"(dlx-router apply), or use a relay"
                    )
                    yield at(attachment.source, codes.NOT_GUARDED, text, error=True)
                why = unreadable(queue, merged(queue, self._snapshot))
                if why and not self._names.is_own(queue.name):
                    text = f"queue {shown(queue.name)} is not attached: {why}"
                    yield at(attachment.source, codes.NOT_READ, text, error=attachment.named)

    def _about(self, queue: Standing, code: str, message: str) -> Finding:
        return Finding(f"vhost {self._snapshot.vhost}, queue {queue.name}", 1, code, Severity.WARNING, message)


def target_queue(source: Source, target: Standing) -> Iterator[Finding]:
    """What is wrong with a queue as the place of dead letters."""
    name = f"queue {shown(target.name)}, where dead letters go,"
    if not target.durable:
        text = f"{name} is not durable: a restart of the broker loses them; declare a durable one"
        yield at(source, codes.NOT_DURABLE, text)
    if why := unreadable(target, target.arguments):
        yield at(source, codes.NOT_READ, f"{name} is never read: {why}")
    if target.kind == "stream" or "x-max-priority" in target.arguments:
        what = (
            "a stream, which drops the record" if target.kind == "stream" else "a priority queue, which reorders them"
        )
        yield at(source, codes.SPECIAL_QUEUE, f"{name} is {what}; write a plain quorum or classic queue")


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
