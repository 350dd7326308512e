"""What ours displace or stand beside: the policies of people, and those of operators that limit queues.

No expression is built on a policy of which only the broker knows which queues it names. Its keys are copied only to a
queue for which the broker says that it is in force, or that has them since, by a policy of ours that names it exactly.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, TypeVar

from dlx_router.broker.administration import Rule, Snapshot, Standing
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy
from dlx_router.provisioning import selector_regex
from dlx_router.provisioning.broker_rules import at_top, may_take
from dlx_router.provisioning.pcre import fits, is_readable
from dlx_router.provisioning.queue_definition import OVERFLOW, Wanted, bounded, plain, wanted
from dlx_router.provisioning.unread_policies import unread

KINDS: Final = ("classic", "quorum")
_OF_QUORUM: Final = frozenset({"all", "queues", "quorum_queues"})

Displaced = tuple[Rule | None, Rule | None]  # for quorum queues, for others
AnyRule = TypeVar("AnyRule", Rule, Rule | None)


class Displacing:
    """Of one vhost at one moment. `foreign`: the policies that ours displace; `ours`: those of ours that stand."""

    def __init__(self, snapshot: Snapshot, names: Names, foreign: Sequence[Rule], ours: Sequence[Rule]) -> None:
        self._version, self._names = snapshot.version, names
        self.foreign, self._ours = foreign, ours
        self._operators = _operators(snapshot.operator_policies)

    def wanted(
        self, chain: Sequence[Policy], displaced: Displaced, shard: int | None, *, is_bounded: bool = False
    ) -> Wanted:
        """What the chain asks for on top of these."""
        return wanted(chain, displaced, self._names, bounded=is_bounded, shard=shard or 0)

    # -- people -------------------------------------------------------------------------------------------------------

    def by(self, queue: Standing, chain: Sequence[Policy], shard: int | None) -> Displaced:
        """The policies that ours would displace on a queue."""
        stated = self._unread(queue, chain, shard)
        tied = {kind: at_top(self.foreign, queue.name, kind, self._version, stated=stated) for kind in KINDS}
        if len(tied[queue.kind]) > 1:
            tied[queue.kind] = [self._taken(tied[queue.kind], queue, chain, shard)]
        quorum, other = (next(iter(tied[kind]), None) for kind in ("quorum", "classic"))
        return quorum, other

    def _unread(self, queue: Standing, chain: Sequence[Policy], shard: int | None) -> str:
        """The policy that only the broker can read and that is displaced here; "": none whose keys matter."""
        several = may_take(self.foreign, queue.name, queue.kind, self._version)
        hidden = [rule for rule in several if fits(rule.pattern, queue.name) is None]
        if not hidden:
            return ""
        now = next((rule for rule in (*hidden, *self._ours) if rule.name == queue.policy), None)
        if now is None or (now not in hidden and not selector_regex.names_exactly(now.pattern, queue.name)):
            return ""
        known = [rule for rule in several if rule not in hidden]
        candidates: list[Rule | None] = [*known, *hidden] if known else [None, *hidden]
        rule = self._nearest(candidates, now, queue, chain, shard)
        return rule.name if rule is not None and rule in hidden else ""

    def _taken(self, tied: Sequence[Rule], queue: Standing, chain: Sequence[Policy], shard: int | None) -> Rule:
        """Which of several of one priority the broker took: it says so, or ours that is in force now has its keys."""
        now = next((rule for rule in (*tied, *self._ours) if rule.name == queue.policy), None)
        return tied[0] if now is None else self._nearest(tied, now, queue, chain, shard)

    def _nearest(
        self, rules: Sequence[AnyRule], now: Rule, queue: Standing, chain: Sequence[Policy], shard: int | None
    ) -> AnyRule:
        """That of which a policy of ours would be the most like `now`, or would be the same as of `now`."""
        is_bounded = bounded(queue.arguments, self.operator(queue.name))

        def content(rule: Rule | None) -> set[tuple[str, str]]:
            want = self.wanted(chain, (rule, rule), shard, is_bounded=is_bounded)
            return _items(dict(plain(want.full if queue.kind == "quorum" else want.common)))

        keys = content(now) if now in rules else _items(now.definition)
        return min(rules, key=lambda rule: len(content(rule) ^ keys))

    # -- operators ----------------------------------------------------------------------------------------------------

    def operator(self, name: str) -> Rule | None:
        """The operator policy that a quorum queue has or would have; of several of one priority, the strictest."""
        return self._strictest(name, self._operators)

    def operators_of(self, name: str, *, is_one: bool) -> list[Rule | None]:
        """Those that queues to come may have."""
        if is_one:
            return [self.operator(name)]
        every = self._strictest(name, trivial(self._operators))
        least = every.priority if every is not None else None
        some = [rule for rule in self._operators if _is_limiting(rule) and not selector_regex.is_every(rule.pattern)]
        return [every, *(rule for rule in some if least is None or rule.priority >= least)]

    def limits(self, chain: Sequence[Policy], displaced: Displaced, operator: Rule | None) -> Rule | None:
        """The operator policy, where a limit of it would decide what these mean."""
        if operator is None:
            return None
        free, limited = (self.wanted(chain, displaced, None, is_bounded=so) for so in (False, True))
        return None if free.content == limited.content else operator

    def _strictest(self, name: str, rules: Iterable[Rule]) -> Rule | None:
        tied = at_top(rules, name, "quorum", self._version)
        return min(tied, key=lambda rule: (not _is_limiting(rule), OVERFLOW in rule.definition), default=None)


def trivial(rules: Iterable[Rule]) -> list[Rule]:
    """Those that surely name everything."""
    return [rule for rule in rules if selector_regex.is_every(rule.pattern)]


def _operators(every: Iterable[Rule]) -> list[Rule]:
    """Those that can matter. One that only the broker can read is taken to limit every queue, where it limits any."""
    some = [rule for rule in every if rule.apply_to in _OF_QUORUM]
    limiting = [replace(rule, pattern=selector_regex.EVERY) for rule in unread(some) if _is_limiting(rule)]
    operators = [*(rule for rule in some if is_readable(rule.pattern)), *limiting]
    return operators if any(OVERFLOW in rule.definition or _is_limiting(rule) for rule in operators) else []


def _is_limiting(operator: Rule) -> bool:
    return bounded({}, operator)


def _items(definition: Mapping[str, Any]) -> set[tuple[str, str]]:
    return {(key, repr(value)) for key, value in definition.items()}
