"""The RabbitMQ policies that carry our policies out, for the queues that stand and for those that will.

A region is what some of our selectors name together; the broker takes the policy of highest priority, so a region of
more selectors gets a higher one. What the broker would then do is computed for every queue that stands, and where the
regions alone would be wrong, the queue is named exactly: so the result is right for all that stand, whatever the
selectors are, and as good as their patterns for all to come.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any, Final

from dlx_router.broker.administration import Rule, Snapshot, Standing
from dlx_router.config.lint.policy_conflicts import Covering
from dlx_router.core.inbox_shards import shard_of
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet, SelectorKind
from dlx_router.provisioning import selector_regex
from dlx_router.provisioning.broker_rules import at_top, in_force
from dlx_router.provisioning.dead_letter_names import affixes
from dlx_router.provisioning.other_routers import Others, others
from dlx_router.provisioning.ownership import own_rule
from dlx_router.provisioning.queue_definition import OVERFLOW, Wanted, bounded, foreign_target, in_order, plain, wanted
from dlx_router.provisioning.rabbit_policies import PolicyWriter, Written
from dlx_router.provisioning.regions import Region, kind_of, may_share, together, until_cut

__all__ = ["Desired", "Written", "desired"]

OWN_PRIORITY: Final = 1_000_000
EVERY_KIND: Final = "queues"  # apply-to: of any type
KINDS: Final = ("classic", "quorum")
_OF_QUORUM: Final = frozenset({"all", "queues", "quorum_queues"})

Displaced = tuple[Rule | None, Rule | None]  # for quorum queues, for others


@dataclass(frozen=True, slots=True)
class Desired:
    """All policies of a vhost that should be ours, the queues attended, and those that cannot be caught."""

    policies: tuple[Written, ...]
    attended: tuple[Standing, ...]
    uncatchable: tuple[tuple[Standing, str], ...]
    others: Others = field(default_factory=Others)


def desired(policies: PolicySet, snapshot: Snapshot, names: Names, *, owned: Iterable[str] = ()) -> Desired:
    """What should be. `owned`: names of RabbitMQ policies that are ours; all others are displaced, never touched.

    But for those of other routers: what they catch is theirs.
    """
    mine, routers = frozenset(owned), others(snapshot, names, frozenset(owned))
    plan = _Planner(policies, snapshot, names, routers, mine)
    attended = plan.attended()
    written = plan.written(attended) if policies.policies else []
    above = (*plan.foreign, *(policy.rule for policy in written), *(rule for rule, _ in routers.catching))
    top = max((rule.priority for rule in above), default=0)
    own = own_rule(names, max(OWN_PRIORITY, top + 1))
    uncatchable = [(queue, target) for queue in attended if (target := foreign_target(queue, names)) is not None]
    return Desired((Written(own), *written), tuple(attended), tuple(uncatchable), routers)


class _Planner:
    """One vhost at one moment."""

    def __init__(
        self, policies: PolicySet, snapshot: Snapshot, names: Names, routers: Others, mine: frozenset[str]
    ) -> None:
        self._policies, self._names, self._others, self._mine = policies, names, routers, mine
        self._vhost, self._snapshot, self._version = snapshot.vhost, snapshot, snapshot.version
        self.foreign = [rule for rule in snapshot.policies if rule.name not in mine | routers.policies]
        above = max((0, *(rule.priority for rule in self.foreign)))
        self._writer = PolicyWriter(names, snapshot.version, affixes(policies, snapshot.vhost), above)
        operators = [rule for rule in snapshot.operator_policies if rule.apply_to in _OF_QUORUM]
        matter = any(OVERFLOW in rule.definition or _is_limiting(rule) for rule in operators)
        self._operators = operators if matter else []
        self._cut_off: dict[tuple[str, ...], int] = {}

    # -- which queues ---------------------------------------------------------------------------------------------

    def attended(self) -> list[Standing]:
        """The queues that some policy names and that can have dead letters of ours."""
        return [queue for queue in self._snapshot.queues if self._chain(queue)]

    def _chain(self, queue: Standing) -> tuple[Policy, ...]:
        if queue.kind not in KINDS or self._names.is_own(queue.name) or queue.name.startswith("amq."):
            return ()
        if self._others.owns(queue.name):
            return ()
        return self._policies.chain(vhost=self._vhost, queue=queue.name, queue_type=queue.kind)

    # -- regions --------------------------------------------------------------------------------------------------

    def written(self, attended: Sequence[Standing]) -> list[Written]:
        """The policies, highest priority first."""
        wanted_of = {queue.name: self._region(queue) for queue in attended}
        regions = self._kept([*self._general(), *(region for region in wanted_of.values() if not region.names)])
        exact = [region for region in wanted_of.values() if region.names]
        written = self._writer.policies([*together(exact), *regions])
        wrong = [queue for queue in attended if not self._right(queue, wanted_of[queue.name], written)]
        if wrong:
            exact += [self._exactly(queue, wanted_of[queue.name]) for queue in wrong]
            written = self._writer.policies([*together(exact), *regions])
        return self._served(wanted_of, written)

    def _region(self, queue: Standing) -> Region:
        chain, operator = self._chain(queue), self._operator(queue.name, self._operators)
        shard, kind = self._shard(chain, queue.name), kind_of(chain)
        displaced = self._displaced(queue, chain, shard)
        limits = self._limits(chain, displaced, operator)
        want = self._wanted(chain, displaced, shard, is_bounded=bounded(queue.arguments, operator))
        differs = want.content != self._wanted(chain, displaced, shard, is_bounded=bounded({}, limits)).content
        alone = differs or (kind is not None and not self._writer.is_typed)
        exact = frozenset({queue.name}) if alone else frozenset[str]()
        return Region(chain, displaced, want, kind, exact, shard, limits, self._behind(chain))

    def _exactly(self, queue: Standing, region: Region) -> Region:
        """By its name; for its type only, where one of another type would take what it should not."""
        is_mixed = not self._writer.is_typed and self._writer.may_mix(region.wanted)
        return replace(region, names=frozenset({queue.name}), kind=queue.kind if is_mixed else region.kind)

    def _wanted(
        self,
        chain: Sequence[Policy],
        displaced: Displaced,
        shard: int | None,
        *,
        is_bounded: bool = False,
    ) -> Wanted:
        return wanted(chain, displaced, self._names, bounded=is_bounded, shard=shard or 0)

    def _shard(self, chain: Sequence[Policy], queue: str) -> int | None:
        """The inbox shard of a queue; None where there is one inbox for all that the chain names."""
        shards = self._names.shards
        return None if shards == 1 or in_order(chain, self._names) else shard_of(queue, shards)

    def _general(self) -> Iterator[Region]:
        """What each policy means for queues that do not stand yet."""
        for policy in self._policies.policies:
            if policy.vhost not in {None, self._vhost}:
                continue
            kind = policy.queue_type
            if kind is not None and not self._writer.is_typed:
                continue
            chain = until_cut(self._covering_of(policy))
            if policy in chain:
                yield from self._of_all(policy, chain)

    def _of_all(self, policy: Policy, chain: Sequence[Policy]) -> Iterator[Region]:
        """Of all queues that the policy names; those apart that an operator limits."""
        is_one = policy.selector.kind is SelectorKind.QUEUE
        name = policy.selector.text if is_one else "\0"
        rules = self.foreign if is_one else _trivial(self.foreign)
        displaced = in_force(rules, name, "quorum", self._version), in_force(rules, name, "classic", self._version)
        first, behind = self._shard(chain, name), self._behind(chain)
        for operator in self._operators_of(name, is_one=is_one):
            limits = self._limits(chain, displaced, operator)
            for shard in (first,) if is_one or first is None else range(self._names.shards):
                want = self._wanted(chain, displaced, shard, is_bounded=bounded({}, limits))
                kind = policy.queue_type
                yield Region(tuple(chain), displaced, want, kind, shard=shard, limits=limits, behind=behind)

    def _covering_of(self, policy: Policy) -> list[Policy]:
        return [member for member in self._covering.of(policy) if member.apply_to in {EVERY_KIND, policy.apply_to}]

    def _behind(self, chain: Sequence[Policy]) -> int:
        """How many more policies name all that these do, and are cut off by the last of them."""
        if not chain or chain[-1].inherit:
            return 0
        names = tuple(policy.name for policy in chain)
        if names not in self._cut_off:
            every = {member.name for policy in chain for member in self._covering_of(policy)}
            self._cut_off[names] = len(every.difference(names))
        return self._cut_off[names]

    def _kept(self, regions: Sequence[Region]) -> list[Region]:
        """Without those that a wider region of equal content serves."""
        by_rank = sorted(
            {(region.members, region.shard): region for region in regions}.items(),
            key=lambda item: (len(item[0][0]), item[1].pattern(), item[0][1] or 0),
        )
        kept: list[Region] = []
        by_member: dict[object, list[tuple[frozenset[object], Region]]] = {}  # each by one of its members
        for (members, _), region in by_rank:
            near = [entry for member in members for entry in by_member.get(member, ())]
            wider = [(its, other) for its, other in near if its < members and may_share(region, other)]
            best = max((len(its) for its, _ in wider), default=-1)
            over = [other for its, other in wider if len(its) == best]
            if not over or any(other.wanted.content != region.wanted.content for other in over):
                kept.append(region)
                by_member.setdefault(next(iter(members)), []).append((members, region))
        return kept

    # -- what others say ------------------------------------------------------------------------------------------

    def _displaced(self, queue: Standing, chain: Sequence[Policy], shard: int | None) -> Displaced:
        """The policies of people that ours would displace."""
        tied = {kind: at_top(self.foreign, queue.name, kind, self._version) for kind in KINDS}
        own = tied[queue.kind]
        if len(own) > 1:
            tied[queue.kind] = [self._taken(own, queue, chain, shard)]
        quorum, other = (next(iter(tied[kind]), None) for kind in ("quorum", "classic"))
        return quorum, other

    def _taken(self, tied: Sequence[Rule], queue: Standing, chain: Sequence[Policy], shard: int | None) -> Rule:
        """Which of several of one priority the broker took: it says so, or ours that is in force now has its keys."""
        is_bounded = bounded(queue.arguments, self._operator(queue.name, self._operators))

        def content(rule: Rule) -> set[tuple[str, str]]:
            want = self._wanted(chain, (rule, rule), shard, is_bounded=is_bounded)
            return _items(dict(plain(want.full if queue.kind == "quorum" else want.common)))

        now = next((rule for rule in (*tied, *self._standing_rules) if rule.name == queue.policy), None)
        if now is None:
            return tied[0]
        keys = content(now) if now in tied else _items(now.definition)
        return min(tied, key=lambda rule: len(content(rule) ^ keys))

    def _operator(self, name: str, rules: Iterable[Rule]) -> Rule | None:
        """The operator policy that a quorum queue has or would have; of several of one priority, the strictest."""
        tied = at_top(rules, name, "quorum", self._version)
        return min(tied, key=lambda rule: (not _is_limiting(rule), OVERFLOW in rule.definition), default=None)

    def _operators_of(self, name: str, *, is_one: bool) -> list[Rule | None]:
        """Those that queues to come may have."""
        if is_one:
            return [self._operator(name, self._operators)]
        every = self._operator(name, _trivial(self._operators))
        least = every.priority if every is not None else None
        some = [rule for rule in self._operators if _is_limiting(rule) and not selector_regex.is_every(rule.pattern)]
        return [every, *(rule for rule in some if least is None or rule.priority >= least)]

    def _limits(self, chain: Sequence[Policy], displaced: Displaced, operator: Rule | None) -> Rule | None:
        """The operator policy, where a limit of it would decide what these mean."""
        if operator is None:
            return None
        free, limited = (self._wanted(chain, displaced, None, is_bounded=so) for so in (False, True))
        return None if free.content == limited.content else operator

    # -- proof ----------------------------------------------------------------------------------------------------

    def _rules(self, written: Sequence[Written]) -> list[Rule]:
        return [*(policy.rule for policy in written), *self.foreign]

    def _right(self, queue: Standing, region: Region, written: Sequence[Written]) -> bool:
        """Whether whatever the broker may take is what the queue should have."""
        rules = at_top(self._rules(written), queue.name, queue.kind, self._version)
        keys = dict(plain(region.wanted.full if queue.kind == "quorum" else region.wanted.common))
        return bool(rules) and all(rule.definition == keys for rule in rules)

    def _served(self, wanted_of: dict[str, Region], written: Sequence[Written]) -> list[Written]:
        """Each with the queues that it is in force for."""
        kinds = {queue.name: queue.kind for queue in self._snapshot.queues}
        rules, serves = self._rules(written), dict[int, list[str]]()
        for name in wanted_of:
            serves.setdefault(id(in_force(rules, name, kinds[name], self._version)), []).append(name)
        return [replace(policy, queues=tuple(sorted(serves.get(id(policy.rule), ())))) for policy in written]

    @cached_property
    def _covering(self) -> Covering:
        return Covering(self._policies)

    @cached_property
    def _standing_rules(self) -> list[Rule]:
        """Ours that stand."""
        return [rule for rule in self._snapshot.policies if rule.name in self._mine]


def _trivial(rules: Iterable[Rule]) -> list[Rule]:
    return [rule for rule in rules if selector_regex.is_every(rule.pattern)]


def _is_limiting(operator: Rule) -> bool:
    return bounded({}, operator)


def _items(definition: Mapping[str, Any]) -> set[tuple[str, str]]:
    return {(key, repr(value)) for key, value in definition.items()}
