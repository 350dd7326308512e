"""The RabbitMQ policies that carry our policies out: one for each selector.

RabbitMQ applies the policy of highest priority, so a narrower selector gets a higher one. Selectors that say the same
of the same rank share an expression as far as RabbitMQ's limit allows. A queue that stands and would get anything else
than its policies say (selectors that cross, an argument, an expression that only RabbitMQ can read) is named exactly.
Policies of people are never merged into ours: see foreign_policies.py.
"""

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import groupby
from typing import Final

from dlx_router.broker.management import Snapshot, Standing
from dlx_router.broker.policies import Rule, unsupported
from dlx_router.config.lint.policy_conflicts import Covering
from dlx_router.core.created_queues import Affixes
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet, SelectorKind
from dlx_router.provisioning import selector_regex
from dlx_router.provisioning.broker_rules import TYPES_FROM, at_top, in_force, may_take, named
from dlx_router.provisioning.operator_policies import KINDS, Operators
from dlx_router.provisioning.ownership import made_for, name_of, other_routers, own_rule
from dlx_router.provisioning.queue_definition import (
    Definition,
    Wanted,
    bounded,
    foreign_target,
    leads_to_inbox,
    plain,
    wanted,
)

__all__ = ["MOST_EXPRESSION", "Desired", "Written", "desired", "size"]

OWN_PRIORITY: Final = 1_000_000
EVERY_KIND: Final = "queues"  # apply-to: of any type
MOST_EXPRESSION: Final = 1024  # bytes; RabbitMQ 4.3 takes no more, those before what PCRE compiles to 64 KiB


@dataclass(frozen=True, slots=True)
class Written:
    """A RabbitMQ policy to be: the rule, why its keys are as they are, and which queues have it now."""

    rule: Rule
    keys: Definition = field(default_factory=dict)
    queues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Desired:
    """All policies of a vhost that should be ours, the queues attended, and those that cannot be caught.

    `foreign`: the policies that are not ours.
    """

    policies: tuple[Written, ...]
    attended: tuple[Standing, ...]
    uncatchable: tuple[tuple[Standing, str], ...]
    foreign: tuple[Rule, ...] = ()

    @property
    def is_catching(self) -> bool:
        """Whether there is more than the policy on our own queues."""
        return len(self.policies) > 1


def desired(policies: PolicySet, snapshot: Snapshot, names: Names, *, owned: Iterable[str] = ()) -> Desired:
    """What should be. `owned`: names of RabbitMQ policies that are ours; all others are never touched."""
    mine = frozenset(owned)
    foreign = tuple(rule for rule in snapshot.policies if rule.name not in mine)
    # What other routers made counts for nothing in our priorities: else two would outbid each other for ever.
    plan = _Planner(policies, snapshot, names, [rule for rule in foreign if made_for(rule) is None])
    attended = [queue for queue in snapshot.queues if plan.chain(queue)]
    written = plan.written(attended) if policies.policies else []
    top = max((rule.priority for rule in (*plan.foreign, *(policy.rule for policy in written))), default=0)
    own = own_rule(names, max(OWN_PRIORITY, top + 1))
    uncatchable = [(queue, target) for queue in attended if (target := foreign_target(queue, names)) is not None]
    return Desired((Written(own), *written), tuple(attended), tuple(uncatchable), foreign)


@dataclass(frozen=True, slots=True)
class _Region:
    """What one RabbitMQ policy, or the pair for both types of queues, is about.

    `rank`: a higher one gets a higher priority. `members`: what names the queues; of two regions one with fewer of the
    same is the wider.
    """

    expression: str
    wanted: Wanted
    kind: str | None
    rank: tuple[int, ...]
    members: frozenset[object] = frozenset()


class _Planner:
    """One vhost at one moment."""

    def __init__(self, policies: PolicySet, snapshot: Snapshot, names: Names, foreign: Sequence[Rule]) -> None:
        self._policies, self._snapshot, self._names, self.foreign = policies, snapshot, names, foreign
        self._version, self._is_typed = snapshot.version, snapshot.version >= TYPES_FROM
        self._routers = other_routers(snapshot, names)
        self._leading = [rule for rule in foreign if leads_to_inbox(rule, names)]
        self._above = max((0, *(rule.priority for rule in foreign if rule not in self._leading)))
        self._operators = Operators(snapshot, names)
        self._affixes = [*_affixes(policies, snapshot.vhost), *((f"{router.prefix}.", "") for router in self._routers)]

    def chain(self, queue: Standing) -> tuple[Policy, ...]:
        """The policies of a queue; none for one of another type, a router's own, or the broker's."""
        if self._is_left_out(queue):
            return ()
        return self._policies.chain(vhost=self._snapshot.vhost, queue=queue.name, queue_type=queue.kind)

    def written(self, attended: Sequence[Standing]) -> list[Written]:
        """The policies, highest priority first."""
        want = {queue.name: self._wanted(queue) for queue in attended if not self._is_led(queue)}
        regions = self._kept([*self._general()])
        written = self._written(regions)
        if caught := self._caught(want, written):
            regions = [replace(region, expression=_sparing(region.expression, caught)) for region in regions]
            written = self._written(regions)
        ours = [queue for queue in attended if queue.name in want]
        if wrong := [queue for queue in ours if not self._is_right(queue, want[queue.name], written)]:
            exact = (
                _Region(selector_regex.exactly(queue.name), want[queue.name], queue.kind, (2, 0, 0)) for queue in wrong
            )
            written = self._written([*regions, *exact])
        return self._served(want, written)

    def _is_left_out(self, queue: Standing) -> bool:
        if queue.kind not in KINDS or queue.name.startswith("amq."):
            return True
        return any(router.is_own(queue.name) for router in (self._names, *self._routers))

    def _is_led(self, queue: Standing) -> bool:
        """Whether a policy that somebody made leads its dead letters to our inbox."""
        return any(named(rule, queue.name, queue.kind, stated=queue.policy) for rule in self._leading)

    def _wanted(self, queue: Standing) -> Wanted:
        limited = bounded(queue.arguments, self._operators.operator(queue.name))
        return wanted(self.chain(queue), self._names, bounded=limited)

    # -- a region for each selector -------------------------------------------------------------------------------

    def _general(self) -> Iterator[_Region]:
        """What each policy means, for queues that do not stand yet too; apart for those that an operator limits."""
        for policy in self._policies.policies:
            kind = policy.queue_type
            if policy.vhost not in {None, self._snapshot.vhost} or (kind is not None and not self._is_typed):
                continue
            is_one = policy.selector.kind is SelectorKind.QUEUE
            covering = self._covering_of(policy)
            chain = until_cut(covering)
            if is_one:
                queue = policy.selector.text
                chain = [*self._policies.chain(vhost=self._snapshot.vhost, queue=queue, queue_type=kind)]
            if policy not in chain:
                continue
            for operator in self._operators.operators_of(policy.selector.text if is_one else "\0", is_one=is_one):
                limits = self._operators.limits(chain, operator)
                want = wanted(chain, self._names, bounded=bounded({}, limits))
                narrower = limits is not None and not selector_regex.is_every(limits.pattern)
                members = frozenset({
                    *(member.name for member in chain), *([("kind", kind)] if kind else []),
                    *([("operator", limits.name)] if limits is not None and narrower else []),
                })  # fmt: skip
                cut_off = {member.name for member in covering} - members
                rank = (int(is_one), len(members) + len(cut_off), limits.priority if limits is not None else 0)
                yield _Region(self._expression(policy, limits), want, kind, rank, members)

    def _covering_of(self, policy: Policy) -> list[Policy]:
        return [member for member in self._covering.of(policy) if member.apply_to in {EVERY_KIND, policy.apply_to}]

    @cached_property
    def _covering(self) -> Covering:
        return Covering(self._policies)

    def _expression(self, policy: Policy, limits: Rule | None) -> str:
        """Of the queues that the policy names and the operator policy limits; dead-letter queues are left out."""
        operator = [] if limits is None else [selector_regex.closed(limits.pattern)]
        expression = selector_regex.both([selector_regex.of_selector(policy.selector), *operator])
        return selector_regex.except_for(expression, _guards(policy, self._affixes))

    def _kept(self, regions: Sequence[_Region]) -> list[_Region]:
        """Without those that a wider region of equal content serves."""
        by_rank = sorted(
            {region.members: region for region in reversed(regions)}.items(),
            key=lambda item: (len(item[0]), item[1].expression),
        )
        kept: list[_Region] = []
        by_member: dict[object, list[_Region]] = {}  # each by one of its members
        for members, region in by_rank:
            wider = [other for member in members for other in by_member.get(member, ()) if other.members < members]
            best = max((len(other.members) for other in wider), default=-1)
            over = [other for other in wider if len(other.members) == best]
            if not over or any(other.wanted.content != region.wanted.content for other in over):
                kept.append(region)
                by_member.setdefault(next(iter(members)), []).append(region)
        return kept

    # -- regions as RabbitMQ policies -----------------------------------------------------------------------------

    def _written(self, regions: Iterable[_Region]) -> list[Written]:
        """The policies, highest priority first; ranks are two priorities apart, for the two types of queues."""
        ranked = sorted(regions, key=lambda region: (region.rank, repr(region.wanted.content), region.kind or ""))
        out: list[Written] = []
        for step, (_, group) in enumerate(groupby(ranked, key=lambda region: region.rank)):
            for _, same in groupby(group, key=lambda region: (repr(region.wanted.content), region.kind)):
                first, *others = same
                for expression in _joined(region.expression for region in (first, *others)):
                    out += self._pair(first, expression, self._above + 2 * step + 1)
        once: dict[str, Written] = {}  # what one of higher priority repeats would never be in force
        for policy in reversed(out):
            once.setdefault(policy.rule.name, policy)
        return [*once.values()]

    def _pair(self, region: _Region, expression: str, priority: int) -> Iterator[Written]:
        """The lower one is what every type takes, the higher one what only quorum queues take."""
        want, kind = region.wanted, region.kind
        if kind != "quorum":
            yield self._policy(expression, want.common, priority, kind)
        if kind == "quorum" or (kind is None and plain(want.full) != plain(want.common)):
            # Where no key makes RabbitMQ skip the higher one for classic queues, its type does.
            may_mix = not unsupported(want.full, "classic", self._version)
            yield self._policy(expression, want.full, priority + 1, "quorum" if may_mix else kind)

    def _policy(self, expression: str, keys: Definition, priority: int, kind: str | None) -> Written:
        apply_to = f"{kind}_queues" if kind and self._is_typed else EVERY_KIND
        rule = Rule("", expression, dict(plain(keys)), priority, apply_to)
        return Written(replace(rule, name=name_of(rule, self._names)), keys)

    # -- proof ----------------------------------------------------------------------------------------------------

    def _is_right(self, queue: Standing, want: Wanted, written: Sequence[Written]) -> bool:
        """Whether all that the broker may take is what the queue should have."""
        rules = may_take(self._rules(written), queue.name, queue.kind, self._version)
        keys = dict(plain(want.full if queue.kind == "quorum" else want.common))
        is_sure = any(named(rule, queue.name, queue.kind) for rule in rules)
        return is_sure and all(rule.definition == keys for rule in rules)

    def _rules(self, written: Sequence[Written]) -> list[Rule]:
        return [*(policy.rule for policy in written), *self.foreign]

    def _caught(self, want: Container[str], written: Sequence[Written]) -> list[str]:
        """The queues that stand, that no policy is about, and that one of these would be in force for."""
        rules = [policy.rule for policy in written]
        others = (queue for queue in self._snapshot.queues if queue.name not in want)
        return [
            queue.name
            for queue in others
            if not (self._is_left_out(queue) or self._is_led(queue))
            and at_top(rules, queue.name, queue.kind, self._version)
        ]

    def _served(self, want: Mapping[str, Wanted], written: Sequence[Written]) -> list[Written]:
        """Each with the queues that it is in force for."""
        kinds = {queue.name: queue.kind for queue in self._snapshot.queues}
        rules, serves = self._rules(written), dict[int, list[str]]()
        for name in want:
            serves.setdefault(id(in_force(rules, name, kinds[name], self._version)), []).append(name)
        return [replace(policy, queues=tuple(sorted(serves.get(id(policy.rule), ())))) for policy in written]


def size(expression: str) -> int:
    """Of an expression, in bytes."""
    return len(expression.encode(errors="surrogateescape"))


def until_cut(chain: Iterable[Policy]) -> list[Policy]:
    """Without what stands behind a policy that does not inherit."""
    out: list[Policy] = []
    for policy in chain:
        out.append(policy)
        if not policy.inherit:
            break
    return out


def _joined(expressions: Iterable[str]) -> Iterator[str]:
    """As few expressions as RabbitMQ's limit allows. What is not anchored, or has branches, stays by itself."""
    portion: list[str] = []
    used = 0
    for expression in dict.fromkeys(expressions):
        if not selector_regex.is_joinable(expression):
            yield expression
            continue
        if portion and used + size(expression) > MOST_EXPRESSION - len("^(?:)"):
            yield selector_regex.of_many(portion)
            portion, used = [], 0
        portion.append(expression)
        used += size(expression)  # its ^ becomes a |
    if portion:
        yield selector_regex.of_many(portion)


def _sparing(expression: str, queues: Iterable[str]) -> str:
    """The expression without queues that no policy is about."""
    caught = [selector_regex.exactly(name) for name in queues if selector_regex.fits(expression, name) is not False]
    return selector_regex.except_for(expression, caught)


# -- auto-created dead-letter queues: `queue:` alone names them ------------------------------------------------------


def _affixes(policies: PolicySet, vhost: str) -> list[Affixes]:
    """What stands before and behind their names, by the policies of this vhost, for any reason to die."""
    pairs: dict[Affixes, None] = {}
    for policy in policies.policies:
        if policy.vhost in {None, vhost}:
            pairs |= dict.fromkeys(_affixes_of(policy, policies, vhost))
    return [pair for pair in pairs if any(pair)]


def _affixes_of(policy: Policy, policies: PolicySet, vhost: str) -> Iterator[Affixes]:
    queue, kind = policy.selector.text, policy.queue_type
    chain = policies.chain(vhost=vhost, queue=queue, own=False, queue_type=kind)
    if not policy.selector.fits(queue):  # the text of a regular expression seldom fits itself
        chain = (policy, *chain) if policy.inherit else (policy,)
    for reason in ("", *sorted({reason for member in chain for reason in member.on})):
        effective = policies.effective(chain, reason)
        if effective is not None and effective.auto_create:
            yield effective.affixes


def _guards(policy: Policy, known: Sequence[Affixes]) -> Iterator[str]:
    """Expressions of the queues that a wide selector must not name."""
    if policy.selector.kind is SelectorKind.QUEUE:
        return
    word, dot, _ = policy.selector.text.partition(".")
    begin = "" if policy.selector.kind is SelectorKind.PATTERN or word in {"*", "#"} else word + dot
    for before, after in known:
        if before and begin and not (begin.startswith(before) or before.startswith(begin)):
            continue
        start, end = (selector_regex.exactly(text)[1:-1] if text else "" for text in (before, after))
        yield f"^{start}.*{end}$" if after else f"^{start}"
