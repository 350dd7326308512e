"""What is in force: one value for each revision of the policies, with all that was worked out by it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final

from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.core.attending import QueueFacts
from dlx_router.core.bounded import MIB, Bounded
from dlx_router.core.letter import Letter
from dlx_router.core.names import Names
from dlx_router.core.passing import Target
from dlx_router.core.policy import Effective, PolicySet, overlays
from dlx_router.core.selector import Selector
from dlx_router.core.words import BROKER_REASONS, UNKNOWN
from dlx_router.journal.event_factory import EventFactory
from dlx_router.service.inflight.moulds import CompiledRoutes

MAX_CACHED: Final = 10_000
MAX_CHAINS: Final = 1000
_EFFECTIVE_BYTES: Final = 4096  # without what is the policies' own


@dataclass(frozen=True, slots=True)
class Rules:
    """One revision of policies, and the settings that decisions depend on."""

    policies: PolicySet
    names: Names
    grace_ms: int
    router_id: str = "test"
    observes: bool = False


class Resolved:
    """Each (queue, reason) is worked out once. `kinds`: the types of queues, where policies ask for them."""

    def __init__(self, rules: Rules, vhost: str, kinds: Mapping[str, str]) -> None:
        self._rules, self._vhost, self._kinds = rules, vhost, kinds
        self._effective: Bounded[tuple[str, ...], Effective | None] = Bounded(
            most=MAX_CACHED, most_bytes=8 * MIB, weigh=lambda _: 0
        )
        self._shared: Bounded[tuple[object, ...], Effective | None] = Bounded(
            most=MAX_CHAINS, most_bytes=8 * MIB, weigh=lambda _: _EFFECTIVE_BYTES
        )

    def policy_of(self, queue: str, reason: str) -> Effective | None:
        """What letters that fail there are judged by; None: nothing holds, as where only `queue:` selects."""
        key = (queue, reason)
        try:
            return self._effective[key]
        except KeyError:
            own = self._rules.names.is_own(queue) or self._rules.policies.creates(queue, self._vhost)
            policy = self._effective[key] = self._resolved(queue, reason, own=own)
            return policy

    def disclosing(self, queue: str, reason: str) -> Effective | None:
        """What says how much of a letter may be told.

        What a policy for all queues hides is hidden where dead letters lie too, though it judges none that fail there.
        """
        policy = self.policy_of(queue, reason)
        if policy is not None:
            return policy
        key = (queue, reason, "disclosing")
        try:
            return self._effective[key]
        except KeyError:
            policy = self._effective[key] = self._resolved(queue, reason, own=self._rules.names.is_own(queue))
            return policy

    def _resolved(self, queue: str, reason: str, *, own: bool) -> Effective | None:
        """Queues are many and come and go, chains of policies are few: queues of one chain share what it says."""
        policies = self._rules.policies
        chain = policies.chain(vhost=self._vhost, queue=queue, own=own, queue_type=self._kinds.get(queue))
        key = (*map(id, chain), *overlays(chain, reason))  # the policies live as long as this does
        try:
            return self._shared[key]
        except KeyError:
            policy = self._shared[key] = policies.effective(chain, reason)
            return policy

    def policies_of(self, queue: str) -> list[Effective]:
        """What holds for a queue's letters, one for each reason that is the broker's or has a policy of its own.

        Of a dead-letter queue what once held: by that its letters may have got a dead-letter queue too.
        """
        reasons = {
            UNKNOWN,
            *BROKER_REASONS,
            *(reason for policy in self._rules.policies.policies for reason in policy.on),
        }
        effective = (self.disclosing(queue, reason) for reason in sorted(reasons))
        return [policy for policy in effective if policy is not None]


class Attended:
    """What the sources of a vhost found, whatever is in force; they fill it, and each revision refers to it."""

    def __init__(self) -> None:
        # Where each relayed queue leads; of queues that an attachment finds by a pattern, those that vanished too.
        self.relays: Bounded[str, Target] = Bounded(most=10_000, most_bytes=4 * MIB)
        self.delayed: dict[str, Delayed] = {}  # whose queue each is
        # What each attended queue was said to be last: it holds while nobody answers, in later sessions too.
        self.facts: Bounded[str, QueueFacts] = Bounded(most=10_000, most_bytes=2 * MIB, weigh=lambda _facts: 512)


@dataclass(frozen=True, slots=True, eq=False)
class InForce:
    """One revision in one vhost, and all that was worked out by it.

    A letter refers to the one that it came to until it is settled, so it is finished by its own policies. Another
    revision, or queues of other types, are another value: nothing of it is changed but what it remembers.
    """

    vhost: str
    rules: Rules
    queue_types: Mapping[str, str]  # where policies ask for them
    leads: Sequence[tuple[Selector, Target]]  # where relays lead whose queues were not looked for yet, by rank
    attended: Attended
    resolved: Resolved
    routes: CompiledRoutes
    event_factory: EventFactory

    @classmethod
    def of(
        cls,
        rules: Rules,
        vhost: str,
        *,
        queue_types: Mapping[str, str] = MappingProxyType({}),
        leads: Sequence[tuple[Selector, Target]] = (),
        attended: Attended | None = None,
    ) -> "InForce":
        """All that can fail about it is done here: to put it into force is one assignment."""
        return cls(
            vhost,
            rules,
            queue_types,
            leads,
            Attended() if attended is None else attended,
            Resolved(rules, vhost, queue_types),
            CompiledRoutes(),
            EventFactory(rules.router_id, rules.policies.revision, rules.observes),
        )

    def with_types(self, queue_types: Mapping[str, str]) -> "InForce":
        """The same policies, once other types of queues are told; itself where they are the same."""
        if queue_types == self.queue_types:
            return self
        leads, attended = self.leads, self.attended
        return InForce.of(self.rules, self.vhost, queue_types=queue_types, leads=leads, attended=attended)

    @property
    def policies(self) -> PolicySet:
        """The policies that letters are judged by."""
        return self.rules.policies

    def resolve(self, letter: Letter) -> Effective | None:
        """The effective policy of a letter: what it was judged by, or what says how much of it may be told."""
        queue, reason = letter.failed_queue, letter.reason
        policy = self.resolved.policy_of(queue, reason)
        return policy if policy is not None else self.resolved.disclosing(queue, reason)

    def policy_of(self, queue: str, reason: str) -> Effective | None:
        """What letters that fail in a queue for a reason are judged by."""
        return self.resolved.policy_of(queue, reason)

    def disclosing(self, queue: str, reason: str) -> Effective | None:
        """As `resolve`, of a queue and a reason."""
        return self.resolved.disclosing(queue, reason)

    def policies_of(self, queue: str) -> list[Effective]:
        """What holds for a queue's letters, one for each reason to die."""
        return self.resolved.policies_of(queue)

    def leads_to(self, queue: str) -> Target | None:
        """Where the relay of this queue leads; one found by a pattern may not have been seen since the last start."""
        target = self.attended.relays.get(queue)
        return next((to for selector, to in self.leads if selector.fits(queue)), None) if target is None else target
