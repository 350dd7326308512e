"""The rules in force: one revision of policies, and which of them hold for a queue and a reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dlx_router.core.bounded import MIB, Bounded
from dlx_router.core.names import Names
from dlx_router.core.policy import Effective, PolicySet, overlays
from dlx_router.core.words import BROKER_REASONS, UNKNOWN

MAX_CACHED: Final = 10_000
MAX_CHAINS: Final = 1000
_EFFECTIVE_BYTES: Final = 4096  # without what is the policies' own


@dataclass(frozen=True, slots=True)
class Rules:
    """What is in force: one revision of policies and the settings that decisions depend on."""

    policies: PolicySet
    names: Names
    grace_ms: int
    router_id: str = "test"
    observes: bool = False


class Resolved:
    """Each (queue, reason) is worked out once. `kinds`: the types of queues, where policies ask for them."""

    def __init__(self, rules: Rules, vhost: str, kinds: Mapping[str, str]) -> None:
        self._rules, self._vhost, self._kinds = rules, vhost, kinds
        self._found: Bounded[tuple[str, str], Effective | None] = Bounded(
            most=MAX_CACHED, most_bytes=8 * MIB, weigh=lambda _: 0
        )
        self._shared: Bounded[tuple[object, ...], Effective | None] = Bounded(
            most=MAX_CHAINS, most_bytes=8 * MIB, weigh=lambda _: _EFFECTIVE_BYTES
        )

    def policy_of(self, queue: str, reason: str) -> Effective | None:
        """What holds; None: nothing does."""
        key = (queue, reason)
        try:
            return self._found[key]
        except KeyError:
            found = self._found[key] = self._resolved(queue, reason)
            return found

    def _resolved(self, queue: str, reason: str) -> Effective | None:
        """Queues are many and come and go, chains of policies are few: queues of one chain share what it says."""
        policies, own = self._rules.policies, self._rules.names.is_own(queue)
        chain = policies.chain(vhost=self._vhost, queue=queue, own=own, queue_type=self._kinds.get(queue))
        key = (*map(id, chain), *overlays(chain, reason))  # the policies live as long as this does
        try:
            return self._shared[key]
        except KeyError:
            found = self._shared[key] = policies.effective(chain, reason)
            return found

    def policies_of(self, queue: str) -> list[Effective]:
        """What holds for a queue's letters, one for each reason that is the broker's or has a policy of its own."""
        reasons = {UNKNOWN, *BROKER_REASONS, *(reason for one in self._rules.policies.policies for reason in one.on)}
        found = (self.policy_of(queue, reason) for reason in sorted(reasons))
        return [one for one in found if one is not None]
