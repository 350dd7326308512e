"""The rules in force: one revision of policies, and which of them hold for a queue and a reason."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from dlx_router.core.names import Names
from dlx_router.core.policy import Effective, PolicySet
from dlx_router.core.words import BROKER_REASONS, UNKNOWN

MAX_CACHED: Final = 10_000


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
        self._found: dict[tuple[str, str], Effective | None] = {}

    def policy_of(self, queue: str, reason: str) -> Effective | None:
        """What holds; None: nothing does."""
        key = (queue, reason)
        try:
            return self._found[key]
        except KeyError:
            if len(self._found) >= MAX_CACHED:
                self._found.clear()
            own = self._rules.names.is_own(queue)
            found = self._rules.policies.resolve(
                vhost=self._vhost, queue=queue, reason=reason, own=own, kind=self._kinds.get(queue)
            )
            self._found[key] = found
            return found

    def policies_of(self, queue: str) -> list[Effective]:
        """What holds for a queue's letters, one for each reason that is the broker's or has a policy of its own."""
        reasons = {UNKNOWN, *BROKER_REASONS, *(reason for one in self._rules.policies.policies for reason in one.on)}
        found = (self.policy_of(queue, reason) for reason in sorted(reasons))
        return [one for one in found if one is not None]
