"""The RabbitMQ policies that carry our policies out: one for each selector, two where quorum queues take more keys.

RabbitMQ applies the policy of highest priority to a queue, so a narrower selector gets a higher one. A queue that would
get other keys than its policies say is a conflict, with the way out: nothing is merged, and no queue is named that no
policy names.
"""

from collections.abc import Container, Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

from dlx_router.broker.management import Snapshot, Standing
from dlx_router.broker.policies import Rule, unsupported
from dlx_router.config.lint.policy_conflicts import Covering
from dlx_router.core.created_queues import Affixes
from dlx_router.core.names import Names
from dlx_router.core.policy import TYPES, Policy, PolicySet, SelectorKind
from dlx_router.provisioning import selector_regex
from dlx_router.provisioning.broker_rules import TYPES_FROM, may_take, named
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

OWN_PRIORITY: Final = 1_000_000
MAX_EXPRESSION: Final = 1024  # bytes; RabbitMQ 4.3 takes no more
_SHOWN: Final = 5
_UNREADABLE: Final = (
    "RabbitMQ may read its pattern otherwise than the router; write it plainly (docs/provisioning.md says how)"
)


@dataclass(frozen=True, slots=True)
class Written:
    """A RabbitMQ policy to be: the rule, why its keys are as they are, and which queues have it now."""

    rule: Rule
    keys: Definition = field(default_factory=dict)
    queues: tuple[str, ...] = ()


class Conflict(NamedTuple):
    """Why a queue cannot get what its policies say, and the way out."""

    code: str
    text: str


@dataclass(frozen=True, slots=True)
class Desired:
    """All policies of a vhost that should be ours, the queues attended, and those that cannot be caught.

    `foreign`: the policies that are not ours.
    """

    policies: tuple[Written, ...]
    attended: tuple[Standing, ...]
    uncatchable: tuple[tuple[Standing, str], ...]
    foreign: tuple[Rule, ...] = ()
    conflicts: tuple[Conflict, ...] = ()

    @property
    def is_catching(self) -> bool:
        """Whether there is more than the policy on our own queues."""
        return len(self.policies) > 1


def desired(policies: PolicySet, snapshot: Snapshot, names: Names, *, owned: Iterable[str] = ()) -> Desired:
    """What should be. `owned`: names of RabbitMQ policies that are ours; all others are never touched."""
    mine = frozenset(owned)
    foreign = tuple(rule for rule in snapshot.policies if rule.name not in mine)
    # What other routers made counts for nothing in our priorities: else two would outbid each other for ever.
    people = [rule for rule in foreign if made_for(rule) is None]
    planner = _Planner(policies, snapshot, names, people)
    attended = [queue for queue in snapshot.queues if planner.chain(queue)]
    written = planner.written()
    conflicts = tuple(planner.conflicts(written))
    top = max((rule.priority for rule in (*people, *(policy.rule for policy in written))), default=0)
    own = own_rule(names, max(OWN_PRIORITY, top + 1))
    uncatchable = [(queue, target) for queue in attended if (target := foreign_target(queue, names)) is not None]
    served = planner.served(written, attended)
    return Desired((Written(own), *served), tuple(attended), tuple(uncatchable), foreign, conflicts)


class _Planner:
    """One vhost at one moment."""

    def __init__(self, policies: PolicySet, snapshot: Snapshot, names: Names, people: Sequence[Rule]) -> None:
        self._policies, self._snapshot, self._names = policies, snapshot, names
        self._version, self._is_typed = snapshot.version, snapshot.version >= TYPES_FROM
        self._routers = other_routers(snapshot, names)
        self._leading = [rule for rule in people if leads_to_inbox(rule, names)]
        self._above = max((0, *(rule.priority for rule in people if rule not in self._leading)))
        self._affixes = [*_affixes(policies, snapshot.vhost), *((f"{router.prefix}.", "") for router in self._routers)]
        self._covering = Covering(policies)
        self._there = {queue.name: queue for queue in snapshot.queues}

    def chain(self, queue: Standing) -> tuple[Policy, ...]:
        """The policies of a queue; none for one of another type, a router's own, or the broker's."""
        if self._is_left_out(queue):
            return ()
        return self._policies.chain(vhost=self._snapshot.vhost, queue=queue.name, queue_type=queue.kind)

    def _is_left_out(self, queue: Standing) -> bool:
        if queue.kind not in TYPES or queue.name.startswith("amq."):
            return True
        return any(router.is_own(queue.name) for router in (self._names, *self._routers))

    def _is_led(self, queue: Standing) -> bool:
        """Whether a policy that somebody made leads, or may lead, its dead letters to our inbox."""
        return bool(may_take(self._leading, queue.name, queue.kind, self._version))

    def written(self) -> list[Written]:
        """The policies, highest priority first; ranks are two priorities apart, for the two types of queues."""
        ranked: dict[tuple[int, int], list[tuple[Policy, Wanted]]] = {}
        for policy in self._policies.policies:
            is_one = policy.selector.kind is SelectorKind.QUEUE
            if policy.vhost not in {None, self._snapshot.vhost} or not (
                policy.queue_type is None or self._is_typed or is_one
            ):
                continue
            covering = [other for other in self._covering.of(policy) if other.apply_to in {"queues", policy.apply_to}]
            if policy in (chain := self._chain_of(policy, covering)):
                want = wanted(chain, self._names, bounded=is_one and self._is_bounded(policy.selector.text))
                ranked.setdefault((int(is_one), len(covering)), []).append((policy, want))
        once: dict[str, Written] = {}  # what one of higher priority repeats would never be in force
        for step, rank in reversed([*enumerate(sorted(ranked))]):
            for policy, want in ranked[rank]:
                for each in self._pair(policy, want, self._above + 2 * step + 1):
                    once.setdefault(each.rule.name, each)
        return sorted(once.values(), key=lambda each: -each.rule.priority)

    def _chain_of(self, policy: Policy, covering: Sequence[Policy]) -> Sequence[Policy]:
        """What holds for all queues that the policy names, those to come too."""
        if policy.selector.kind is not SelectorKind.QUEUE:
            return until_cut(covering)
        queue = self._there.get(policy.selector.text)
        kind = policy.queue_type or (None if queue is None else queue.kind)
        return self._policies.chain(vhost=self._snapshot.vhost, queue=policy.selector.text, queue_type=kind)

    def _is_bounded(self, queue: str) -> bool:
        """Whether an argument or an operator policy limits its length, and refuses no publishes by itself."""
        arguments = self._there[queue].arguments if queue in self._there else {}
        operators = may_take(self._snapshot.operator_policies, queue, "quorum", self._version)
        return any(bounded(arguments, operator) for operator in operators or (None,))

    def _pair(self, policy: Policy, want: Wanted, priority: int) -> Iterator[Written]:
        """The lower one is what every type takes, the higher one what only quorum queues take."""
        expression = selector_regex.of_selector(policy.selector)
        expression = selector_regex.except_for(expression, _guards(policy, self._affixes))
        kind = policy.queue_type
        if kind != "quorum":
            yield self._policy(expression, want.common, priority, kind)
        if kind == "quorum" or (kind is None and plain(want.full) != plain(want.common)):
            # Where no key makes RabbitMQ skip the higher one for classic queues, its type does.
            may_mix = not unsupported(want.full, "classic", self._version)
            yield self._policy(expression, want.full, priority + 1, "quorum" if may_mix else kind)

    def _policy(self, expression: str, keys: Definition, priority: int, kind: str | None) -> Written:
        apply_to = f"{kind}_queues" if kind and self._is_typed else "queues"
        rule = Rule("", expression, dict(plain(keys)), priority, apply_to)
        return Written(replace(rule, name=name_of(rule, self._names)), keys)

    # -- what one policy for each selector cannot express -----------------------------------------------------------

    def conflicts(self, written: Sequence[Written]) -> Iterator[Conflict]:
        """Queues that would not get what their policies say, and selectors that operator policies limit in part."""
        for policy in self._policies.policies if written else ():
            if not selector_regex.is_readable(selector_regex.of_selector(policy.selector)):
                yield Conflict("expression", f"policy {policy.name} ({policy.source}): {_UNREADABLE}")
        rules = _Rules(written, self._version)
        wrong: dict[tuple[tuple[str, ...], bool], tuple[Sequence[Policy], list[str]]] = {}
        for queue in self._snapshot.queues:
            if self._is_left_out(queue) or self._is_led(queue):
                continue
            chain, given = self.chain(queue), rules.may_take(queue)
            is_bounded = self._is_bounded(queue.name)
            want = _keys(wanted(chain, self._names, bounded=is_bounded), queue.kind) if chain else None
            is_sure = any(named(rule, queue.name, queue.kind) for rule in given)
            if any(rule.definition != want for rule in given) or is_sure is not bool(chain):
                is_limited = is_bounded and want != _keys(wanted(chain, self._names), queue.kind)
                key = tuple(policy.name for policy in chain), is_limited
                wrong.setdefault(key, (chain, []))[1].append(queue.name)
        for (_, is_limited), (policies, queues) in wrong.items():
            yield _limited(policies, listed(queues)) if is_limited else _crossing(policies, listed(queues))
        yield from self._limited_to_come({policies[0].name for policies, _ in wrong.values() if policies})

    def _limited_to_come(self, reported: Container[str]) -> Iterator[Conflict]:
        """Selectors of which queues to come would refuse publishes where an operator policy limits their length."""
        operators = [rule for rule in self._snapshot.operator_policies if rule.apply_to != "classic_queues"]
        operators = [rule for rule in operators if bounded({}, rule) and selector_regex.name_in(rule.pattern) is None]
        for policy in self._policies.policies if operators else ():
            is_here = policy.vhost in {None, self._snapshot.vhost} and policy.name not in reported
            if policy.selector.kind is SelectorKind.QUEUE or not is_here:
                continue
            chain = until_cut(self._covering.of(policy))
            if wanted(chain, self._names).content == wanted(chain, self._names, bounded=True).content:
                continue
            meets = (rule for rule in operators if _may_limit(rule, policy))
            if (operator := next(meets, None)) is not None:
                yield _limited((policy,), f'queues of operator policy "{operator.name}" ({operator.pattern[:80]})')

    def served(self, written: Sequence[Written], attended: Iterable[Standing]) -> list[Written]:
        """Each with the queues that it is in force for."""
        rules, serves = _Rules(written, self._version), dict[str, list[str]]()
        for queue in attended:
            if (given := rules.may_take(queue)) and not self._is_led(queue):
                serves.setdefault(given[0].name, []).append(queue.name)
        return [replace(policy, queues=tuple(sorted(serves.get(policy.rule.name, ())))) for policy in written]


def _may_limit(operator: Rule, policy: Policy) -> bool:
    pattern = operator.pattern
    return not selector_regex.is_readable(pattern) or selector_regex.may_meet(policy.selector, pattern)


class _Rules:
    """Ours: those that name one queue are found by its name, the others are tried."""

    def __init__(self, written: Iterable[Written], version: tuple[int, ...]) -> None:
        self._version = version
        self._by_name: dict[str | None, list[Rule]] = {None: []}
        for policy in written:
            self._by_name.setdefault(selector_regex.name_in(policy.rule.pattern), []).append(policy.rule)

    def may_take(self, queue: Standing) -> list[Rule]:
        rules = [*self._by_name.get(queue.name, ()), *self._by_name[None]]
        return may_take(rules, queue.name, queue.kind, self._version)


def _keys(want: Wanted, kind: str) -> dict[str, object]:
    return dict(plain(want.full if kind == "quorum" else want.common))


def listed(queues: Sequence[str]) -> str:
    """The first few of these queues."""
    more = f" and {len(queues) - _SHOWN} more" if len(queues) > _SHOWN else ""
    return f"{'queue' if len(queues) == 1 else 'queues'} {', '.join(sorted(queues)[:_SHOWN])}{more}"


def _limited(chain: Sequence[Policy], queues: str) -> Conflict:
    policy = f"policy {chain[0].name} ({chain[0].source})"
    return Conflict(
        "limit",
        f"{queues}: an argument or an operator policy limits their length, and RabbitMQ would refuse publishes at the "
        f"limit, because dead letters of {policy} come at least once; write overflow: drop-head into it (they come at "
        f"most once then) or overflow: reject-publish, or give each of these queues a policy of its own (queue:)",
    )


def _crossing(chain: Sequence[Policy], queues: str) -> Conflict:
    if not chain:
        text = (
            "no policy selects them, but RabbitMQ, which compares bytes, would apply one; write its pattern: as match:"
        )
    elif len(chain) == 1:
        text = (
            f"policy {chain[0].name} ({chain[0].source}) selects them, but RabbitMQ would not apply it: it reads the "
            f"expression otherwise, or knows no types of queues; give each of them a policy of its own (queue:)"
        )
    else:
        policies = ", ".join(f"{policy.name} ({policy.source})" for policy in chain)
        text = (
            f"policies {policies} select them, and RabbitMQ applies one policy to a queue, which would not be what "
            f"all of these say; give each of the queues a policy of its own (queue:), which may be empty"
        )
    return Conflict("crossing", f"{queues}: {text}")


def until_cut(chain: Iterable[Policy]) -> list[Policy]:
    """Without what stands behind a policy that does not inherit."""
    out: list[Policy] = []
    for policy in chain:
        out.append(policy)
        if not policy.inherit:
            break
    return out


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
