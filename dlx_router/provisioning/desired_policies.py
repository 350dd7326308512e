"""The RabbitMQ policies that carry our policies out, for the queues that stand and for those that will.

A region is what some of our selectors name together; the broker takes the policy of highest priority, so a region of
more selectors gets a higher one. What the broker would then do is computed for every queue that stands, and where the
regions alone would be wrong, the queue is named exactly: so the result is right for all that stand, whatever the
selectors are, and as good as their patterns for all to come.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Final

from dlx_router.broker.administration import Rule, Snapshot, Standing
from dlx_router.config.lint.policy_conflicts import Covering
from dlx_router.core.created_queues import Affixes
from dlx_router.core.inbox_shards import shard_of
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet, SelectorKind
from dlx_router.provisioning import selector_regex
from dlx_router.provisioning.broker_rules import TYPES_FROM, in_force
from dlx_router.provisioning.dead_letter_names import affixes, guards_of
from dlx_router.provisioning.other_routers import Others, others
from dlx_router.provisioning.ownership import name_of, own_rule
from dlx_router.provisioning.queue_definition import (
    Definition,
    Wanted,
    bounded,
    foreign_target,
    in_order,
    plain,
    wanted,
)
from dlx_router.provisioning.regions import (
    MOST_EXPRESSION,
    Region,
    kind_of,
    may_share,
    parts,
    rank,
    size,
    together,
    until_cut,
)

OWN_PRIORITY: Final = 1_000_000
EVERY_KIND: Final = "queues"  # apply-to: of any type
FEW: Final = 8  # selectors in one expression: it is as it was before there was a limit
KINDS: Final = ("classic", "quorum")


@dataclass(frozen=True, slots=True)
class Written:
    """A RabbitMQ policy to be: the rule, why its keys are as they are, and which queues have it now."""

    rule: Rule
    keys: Definition = field(default_factory=dict)
    queues: tuple[str, ...] = ()


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
    foreign = [rule for rule in snapshot.policies if rule.name not in mine | routers.policies]
    plan = _Planner(policies, snapshot, names, foreign, routers)
    attended = plan.attended()
    written = plan.written(attended) if policies.policies else []
    above = (*foreign, *(policy.rule for policy in written), *(rule for rule, _ in routers.catching))
    top = max((rule.priority for rule in above), default=0)
    own = own_rule(names, max(OWN_PRIORITY, top + 1))
    uncatchable = [(queue, target) for queue in attended if (target := foreign_target(queue, names)) is not None]
    return Desired((Written(own), *written), tuple(attended), tuple(uncatchable), routers)


class _Planner:
    """One vhost at one moment."""

    def __init__(
        self, policies: PolicySet, snapshot: Snapshot, names: Names, foreign: Sequence[Rule], routers: Others
    ) -> None:
        self._policies, self._names, self._foreign, self._others = policies, names, foreign, routers
        self._vhost, self._snapshot = snapshot.vhost, snapshot
        self._typed = snapshot.version >= TYPES_FROM

    # -- which queues ---------------------------------------------------------------------------------------------

    def attended(self) -> list[Standing]:
        """The queues that some policy names and that can have dead letters of ours."""
        return [queue for queue in self._snapshot.queues if self._chain(queue)]

    def _chain(self, queue: Standing) -> tuple[Policy, ...]:
        if queue.kind not in KINDS or self._names.is_own(queue.name) or queue.name.startswith("amq."):
            return ()
        if self._others.owns(queue.name):
            return ()
        by_name_only = self._policies.creates(queue.name, self._vhost)
        return self._policies.chain(vhost=self._vhost, queue=queue.name, own=by_name_only, queue_type=queue.kind)

    # -- regions --------------------------------------------------------------------------------------------------

    def written(self, attended: Sequence[Standing]) -> list[Written]:
        """The policies, highest priority first."""
        wanted_of = {queue.name: self._region(queue) for queue in attended}
        regions = self._kept([*self._general(), *(region for region in wanted_of.values() if not region.names)])
        exact = [region for region in wanted_of.values() if region.names]
        numbered = self._numbered([*together(exact), *regions], wanted_of)
        wrong = [queue for queue in attended if not self._right(queue, wanted_of[queue.name], numbered)]
        if not wrong:
            return numbered
        exact += [self._exactly(queue, wanted_of[queue.name]) for queue in wrong]
        return self._numbered([*together(exact), *regions], wanted_of)

    def _region(self, queue: Standing) -> Region:
        chain, displaced = self._chain(queue), self._displaced(queue.name)
        shard, kind = self._shard(chain, queue.name), kind_of(chain)
        want = self._wanted(chain, displaced, shard, is_bounded=bounded(queue))
        differs = want.content != self._wanted(chain, displaced, shard).content
        alone = differs or (kind is not None and not self._typed)
        return Region(chain, displaced, want, kind, frozenset({queue.name}) if alone else frozenset(), shard)

    def _exactly(self, queue: Standing, region: Region) -> Region:
        return replace(region, names=frozenset({queue.name}))

    def _wanted(
        self,
        chain: Sequence[Policy],
        displaced: tuple[Rule | None, Rule | None],
        shard: int | None,
        *,
        is_bounded: bool = False,
    ) -> Wanted:
        return wanted(chain, displaced, self._names, bounded=is_bounded, shard=shard or 0)

    def _shard(self, chain: Sequence[Policy], queue: str) -> int | None:
        """The inbox shard of a queue; None where there is one inbox for all that the chain names."""
        shards = self._names.shards
        return None if shards == 1 or in_order(chain, self._names) else shard_of(queue, shards)

    def _general(self) -> Iterable[Region]:
        """What each policy means for queues that do not stand yet."""
        covering = Covering(self._policies)
        trivial = [rule for rule in self._foreign if selector_regex.is_every(rule.pattern)]
        for policy in self._policies.policies:
            if policy.vhost not in {None, self._vhost}:
                continue
            kind = policy.queue_type
            if kind is not None and not self._typed:
                continue
            chain = [*covering.of(policy)]
            chain = until_cut(member for member in chain if member.apply_to in {EVERY_KIND, policy.apply_to})
            if policy in chain:
                is_one = policy.selector.kind is SelectorKind.QUEUE
                name = policy.selector.text if is_one else "\0"
                rules = self._foreign if is_one else trivial
                displaced = (in_force(rules, name, "quorum"), in_force(rules, name, "classic"))
                first = self._shard(chain, name)
                for shard in (first,) if is_one or first is None else range(self._names.shards):
                    want = self._wanted(chain, displaced, shard)
                    yield Region(tuple(chain), displaced, want, kind, shard=shard)

    def _displaced(self, queue: str) -> tuple[Rule | None, Rule | None]:
        return in_force(self._foreign, queue, "quorum"), in_force(self._foreign, queue, "classic")

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

    # -- numbers --------------------------------------------------------------------------------------------------

    def _numbered(self, regions: Sequence[Region], wanted_of: dict[str, Region]) -> list[Written]:
        """Regions of one rank and content share a policy; ranks are two priorities apart, for the two policies."""
        base = max((rule.priority for rule in self._foreign), default=0)
        ranked = sorted(regions, key=lambda region: (rank(region), repr(region.wanted.content), region.kind or ""))
        out: list[Written] = []
        grouped = [[*group] for _, group in groupby(ranked, key=rank)]
        for step, group in enumerate(grouped):
            for _, same in groupby(group, key=lambda region: (repr(region.wanted.content), region.kind)):
                for some in self._portions(same):
                    out += self._pair(some, max(base, 0) + 2 * step + 1)
        out = _once(reversed(out))
        serves = self._serves(wanted_of, out)
        return [Written(policy.rule, policy.keys, tuple(sorted(serves.get(id(policy.rule), ())))) for policy in out]

    def _portions(self, same: Iterable[Region]) -> Iterable[list[Region]]:
        """As many in one policy as its expression has room for."""
        portion: list[Region] = []
        for region in same:
            for part in parts(region) if region.names else (region,):
                if portion and size(self._expression([*portion, part])) > MOST_EXPRESSION:
                    yield portion
                    portion = []
                portion.append(part)
        if portion:
            yield portion

    def _expression(self, same: Sequence[Region]) -> str:
        """Of regions of one content, and so of one shard."""
        shard, patterns = same[0].shard, [region.pattern() for region in same]
        if shard is not None and not all(region.is_exact for region in same):
            looks = selector_regex.of_shard(shard, self._names.shards)
            expression = selector_regex.of_many(patterns, looks)
        elif len(patterns) > FEW:
            expression = selector_regex.of_many(patterns)
        else:
            expression = selector_regex.either(patterns)
        guards = [guard for region in same if not region.names for guard in guards_of(region.chain, self._affixes)]
        return selector_regex.except_for(expression, guards)

    def _pair(self, same: Sequence[Region], priority: int) -> list[Written]:
        """The lower one is what every type takes, the higher one what only quorum queues take."""
        first, expression = same[0], self._expression(same)
        apply_to = f"{first.kind}_queues" if first.kind and self._typed else "queues"
        lower = (first.wanted.common, priority) if first.kind != "quorum" else None
        higher = (first.wanted.full, priority + 1) if first.kind != "classic" else None
        if lower and higher and plain(lower[0]) == plain(higher[0]):
            higher = None
        return [self._rabbit_policy(expression, keys, at, apply_to) for keys, at in filter(None, (lower, higher))]

    def _rabbit_policy(self, expression: str, keys: Definition, priority: int, apply_to: str) -> Written:
        rule = Rule("", expression, dict(plain(keys)), priority, apply_to)
        return Written(replace(rule, name=name_of(rule, self._names)), keys)

    @cached_property
    def _affixes(self) -> Sequence[Affixes]:
        """Looked for once: each region asks, and there is one for each policy."""
        return affixes(self._policies, self._vhost)

    # -- proof ----------------------------------------------------------------------------------------------------

    def _rules(self, written: Sequence[Written]) -> list[Rule]:
        return [*(policy.rule for policy in written), *self._foreign]

    def _right(self, queue: Standing, region: Region, written: Sequence[Written]) -> bool:
        rule = in_force(self._rules(written), queue.name, queue.kind)
        keys = region.wanted.full if queue.kind == "quorum" else region.wanted.common
        return rule is not None and rule.definition == dict(plain(keys))

    def _serves(self, wanted_of: dict[str, Region], written: Sequence[Written]) -> dict[int, list[str]]:
        """Which queues each rule is in force for."""
        kinds = {queue.name: queue.kind for queue in self._snapshot.queues}
        rules, out = self._rules(written), dict[int, list[str]]()
        for name in wanted_of:
            out.setdefault(id(in_force(rules, name, kinds[name])), []).append(name)
        return out


def _once(highest_first: Iterable[Written]) -> list[Written]:
    """Without those that one of higher priority repeats: they would never be in force, and have its name."""
    kept: dict[str, Written] = {}
    for policy in highest_first:
        kept.setdefault(policy.rule.name, policy)
    return [*kept.values()]
