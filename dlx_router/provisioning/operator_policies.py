"""Operator policies that limit queues: they decide how surely dead letters come, and whether producers are refused.

One that only the broker can read is taken to limit every queue.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Final

from dlx_router.broker.management import Snapshot
from dlx_router.broker.policies import Rule
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy
from dlx_router.provisioning import selector_regex
from dlx_router.provisioning.broker_rules import at_top
from dlx_router.provisioning.queue_definition import OVERFLOW, bounded, wanted
from dlx_router.provisioning.selector_regex import is_readable

KINDS: Final = ("classic", "quorum")
_OF_QUORUM: Final = frozenset({"all", "queues", "quorum_queues"})


class Operators:
    """The operator policies of one vhost at one moment."""

    def __init__(self, snapshot: Snapshot, names: Names) -> None:
        self._version, self._names = snapshot.version, names
        self._operators = _operators(snapshot.operator_policies)

    def operator(self, name: str) -> Rule | None:
        """The operator policy that a quorum queue has or would have; of several of one priority, the strictest."""
        return self._strictest(name, self._operators)

    def operators_of(self, name: str, *, is_one: bool) -> list[Rule | None]:
        """Those that queues to come may have."""
        if is_one:
            return [self.operator(name)]
        every = self._strictest(name, [rule for rule in self._operators if selector_regex.is_every(rule.pattern)])
        least = every.priority if every is not None else None
        some = [rule for rule in self._operators if _is_limiting(rule) and not selector_regex.is_every(rule.pattern)]
        return [every, *(rule for rule in some if least is None or rule.priority >= least)]

    def limits(self, chain: Sequence[Policy], operator: Rule | None) -> Rule | None:
        """The operator policy, where a limit of it would decide what these mean."""
        if operator is None:
            return None
        free, limited = (wanted(chain, self._names, bounded=so) for so in (False, True))
        return None if free.content == limited.content else operator

    def _strictest(self, name: str, rules: Iterable[Rule]) -> Rule | None:
        tied = at_top(rules, name, "quorum", self._version)
        return min(tied, key=lambda rule: (not _is_limiting(rule), OVERFLOW in rule.definition), default=None)


def _operators(every: Iterable[Rule]) -> list[Rule]:
    """Those that can matter. One that only the broker can read is taken to limit every queue, where it limits any."""
    some = [rule for rule in every if rule.apply_to in _OF_QUORUM]
    limiting = [
        replace(rule, pattern=selector_regex.EVERY)
        for rule in some
        if not is_readable(rule.pattern) and _is_limiting(rule)
    ]
    operators = [*(rule for rule in some if is_readable(rule.pattern)), *limiting]
    return operators if any(OVERFLOW in rule.definition or _is_limiting(rule) for rule in operators) else []


def _is_limiting(operator: Rule) -> bool:
    return bounded({}, operator)
