"""The RabbitMQ policies that carry our policies out, for the queues that stand and for those that will.

Policies of people are never merged into ours: one on the same queues is a conflict (foreign_policies.py), unless it
leads to our inbox by itself, from above ours.

A region is what some of our selectors name together; the broker takes the policy of highest priority, so a region of
more selectors gets a higher one. What the broker would then do is computed for every queue that stands, and where the
regions alone would be wrong, the queue is named exactly: so the result is right for all that stand, whatever the
selectors are, and as good as their patterns for all to come.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Final

from dlx_router.broker.administration import Rule, Snapshot, Standing
from dlx_router.config.lint.policy_conflicts import Covering
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet, SelectorKind
from dlx_router.provisioning.broker_rules import at_top, in_force, may_take, named
from dlx_router.provisioning.dead_letter_names import affixes
from dlx_router.provisioning.operator_policies import KINDS, Operators
from dlx_router.provisioning.other_routers import Others, others
from dlx_router.provisioning.ownership import own_rule
from dlx_router.provisioning.queue_definition import bounded, foreign_target, leads_to_inbox, plain, wanted
from dlx_router.provisioning.rabbit_policies import PolicyWriter, Written
from dlx_router.provisioning.regions import Region, kind_of, together, until_cut

__all__ = ["Desired", "Written", "desired"]

OWN_PRIORITY: Final = 1_000_000
EVERY_KIND: Final = "queues"  # apply-to: of any type


@dataclass(frozen=True, slots=True)
class Desired:
    """All policies of a vhost that should be ours, the queues attended, and those that cannot be caught."""

    policies: tuple[Written, ...]
    attended: tuple[Standing, ...]
    uncatchable: tuple[tuple[Standing, str], ...]
    others: Others = field(default_factory=Others)

    @property
    def is_catching(self) -> bool:
        """Whether there is more than the policy on our own queues."""
        return len(self.policies) > 1


def desired(policies: PolicySet, snapshot: Snapshot, names: Names, *, owned: Iterable[str] = ()) -> Desired:
    """What should be. `owned`: names of RabbitMQ policies that are ours; all others are never touched."""
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
        self._policies, self._names, self._others = policies, names, routers
        self._vhost, self._snapshot, self._version = snapshot.vhost, snapshot, snapshot.version
        self.foreign = [rule for rule in snapshot.policies if rule.name not in mine | routers.policies]
        self._leading = [rule for rule in self.foreign if leads_to_inbox(rule, names)]
        above = max((0, *(rule.priority for rule in self.foreign if rule not in self._leading)))
        self._writer = PolicyWriter(names, snapshot.version, affixes(policies, snapshot.vhost), above)
        self._operators = Operators(snapshot, names)
        self._cut_off: dict[tuple[str, ...], int] = {}

    # -- which queues ---------------------------------------------------------------------------------------------

    def attended(self) -> list[Standing]:
        """The queues that some policy names and that can have dead letters of ours."""
        return [queue for queue in self._snapshot.queues if self._chain(queue)]

    def _is_left_out(self, queue: Standing) -> bool:
        """Whether no policy is asked about it: of another type, a router's own, or the broker's."""
        if queue.kind not in KINDS or queue.name.startswith("amq."):
            return True
        return self._names.is_own(queue.name) or self._others.owns(queue.name)

    def _chain(self, queue: Standing) -> tuple[Policy, ...]:
        if self._is_left_out(queue):
            return ()
        return self._policies.chain(vhost=self._vhost, queue=queue.name, queue_type=queue.kind)

    # -- regions --------------------------------------------------------------------------------------------------

    def written(self, attended: Sequence[Standing]) -> list[Written]:
        """The policies, highest priority first."""
        wanted_of = {queue.name: self._region(queue) for queue in attended if not self._is_led(queue)}
        regions = self._kept([*self._general(), *(region for region in wanted_of.values() if not region.names)])
        exact = [region for region in wanted_of.values() if region.names]
        written = self._writer.policies([*together(exact), *regions])
        if caught := self._caught(wanted_of, written):
            self._writer = replace(self._writer, spared=caught)
            written = self._writer.policies([*together(exact), *regions])
        ours = [queue for queue in attended if queue.name in wanted_of]
        wrong = [queue for queue in ours if not self._right(queue, wanted_of[queue.name], written)]
        if wrong:
            exact += [self._exactly(queue, wanted_of[queue.name]) for queue in wrong]
            written = self._writer.policies([*together(exact), *regions])
        return self._served(wanted_of, written)

    def _is_led(self, queue: Standing) -> bool:
        """Whether a policy that somebody made leads its dead letters to our inbox."""
        return any(named(rule, queue.name, queue.kind, stated=queue.policy) for rule in self._leading)

    def _region(self, queue: Standing) -> Region:
        chain, operator = self._chain(queue), self._operators.operator(queue.name)
        kind, limits = kind_of(chain), self._operators.limits(chain, operator)
        want = wanted(chain, self._names, bounded=bounded(queue.arguments, operator))
        general = wanted(chain, self._names, bounded=bounded({}, limits))
        alone = want.content != general.content or (kind is not None and not self._writer.is_typed)
        exact = frozenset({queue.name}) if alone else frozenset[str]()
        return Region(chain, want, kind, exact, limits, self._behind(chain))

    def _exactly(self, queue: Standing, region: Region) -> Region:
        """By its name; for its type only, where one of another type would take what it should not."""
        is_mixed = not self._writer.is_typed and self._writer.may_mix(region.wanted)
        return replace(region, names=frozenset({queue.name}), kind=queue.kind if is_mixed else region.kind)

    def _general(self) -> Iterator[Region]:
        """What each policy means for queues that do not stand yet."""
        for policy in self._policies.policies:
            if policy.vhost not in {None, self._vhost}:
                continue
            kind = policy.queue_type
            if kind is not None and not self._writer.is_typed:
                continue
            chain = self._chain_of(policy)
            if policy in chain:
                yield from self._of_all(policy, chain)

    def _chain_of(self, policy: Policy) -> Sequence[Policy]:
        """What names all that the policy does, up to what cuts off the rest; of one queue it is known to the letter."""
        if policy.selector.kind is SelectorKind.QUEUE:
            return self._policies.chain(vhost=self._vhost, queue=policy.selector.text, queue_type=policy.queue_type)
        return until_cut(self._covering_of(policy))

    def _of_all(self, policy: Policy, chain: Sequence[Policy]) -> Iterator[Region]:
        """Of all queues that the policy names; those apart that an operator limits."""
        is_one = policy.selector.kind is SelectorKind.QUEUE
        name = policy.selector.text if is_one else "\0"
        behind = self._behind(chain)
        for operator in self._operators.operators_of(name, is_one=is_one):
            limits = self._operators.limits(chain, operator)
            want = wanted(chain, self._names, bounded=bounded({}, limits))
            yield Region(tuple(chain), want, policy.queue_type, limits=limits, behind=behind)

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
            {region.members: region for region in regions}.items(),
            key=lambda item: (len(item[0]), item[1].pattern()),
        )
        kept: list[Region] = []
        by_member: dict[object, list[tuple[frozenset[object], Region]]] = {}  # each by one of its members
        for members, region in by_rank:
            near = [entry for member in members for entry in by_member.get(member, ())]
            wider = [(its, other) for its, other in near if its < members]
            best = max((len(its) for its, _ in wider), default=-1)
            over = [other for its, other in wider if len(its) == best]
            if not over or any(other.wanted.content != region.wanted.content for other in over):
                kept.append(region)
                by_member.setdefault(next(iter(members)), []).append((members, region))
        return kept

    # -- proof ----------------------------------------------------------------------------------------------------

    def _rules(self, written: Sequence[Written]) -> list[Rule]:
        return [*(policy.rule for policy in written), *self.foreign]

    def _right(self, queue: Standing, region: Region, written: Sequence[Written]) -> bool:
        """Whether whatever the broker may take is what the queue should have."""
        rules = may_take(self._rules(written), queue.name, queue.kind, self._version)
        keys = dict(plain(region.wanted.full if queue.kind == "quorum" else region.wanted.common))
        is_sure = any(named(rule, queue.name, queue.kind) for rule in rules)
        return is_sure and all(rule.definition == keys for rule in rules)

    def _caught(self, attended: Container[str], written: Sequence[Written]) -> tuple[str, ...]:
        """The queues that stand, that no policy is about, and that one of these would be in force for."""
        rules = [policy.rule for policy in written]
        others = (queue for queue in self._snapshot.queues if queue.name not in attended)
        return tuple(
            queue.name
            for queue in others
            if not (self._is_left_out(queue) or self._is_led(queue))
            and at_top(rules, queue.name, queue.kind, self._version)
        )

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
