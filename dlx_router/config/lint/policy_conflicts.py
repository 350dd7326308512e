"""What is wrong with a set of policies although each key is right: what they mean together.

Each policy is judged by what surely holds for every queue that it names: itself and the policies whose selector covers
its own. So an error is one for real queues, and a key that another policy supplies is not missed.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import combinations, groupby
from typing import Final

from dlx_router.config.findings import (
    AMBIGUOUS,
    CHAIN,
    UNREACHABLE,
    VHOST_NOT_SERVED,
    WITHOUT_EFFECT,
    Finding,
    Severity,
    shown,
)
from dlx_router.config.language.keys import REASONS
from dlx_router.config.lint.key_conflicts import KEY, of_effective, without_effect
from dlx_router.core.names import Names
from dlx_router.core.policy import Effective, Policy, PolicySet, Selector, SelectorKind, Setting, Source
from dlx_router.core.target import dead_letter_queue

# A word that no queue has, for what a wildcard may stand for.
_ANY: Final = "\x00any"
# For an expression, which may ask for what is in that word: the empty word, and some that have nothing in common.
_ODD: Final = ("", "7", "Q", "~x", "\x7f")


def findings_of(policies: PolicySet) -> list[Finding]:
    """All findings about the set, each once, in order of file and line."""
    findings: set[Finding] = set()
    effectives: list[Effective] = []
    covering = Covering(policies)
    for policy in policies.policies:
        chain = _until_cut(covering.of(policy), policy.queue_type)
        if policy in chain:
            effectives += _for_each_reason(chain, policies.ours)
        else:
            findings.add(_unreachable(policy, chain[-1]))
    for effective in effectives:
        findings.update(of_effective(effective))
    findings.update(_chained(policies))
    return sorted(findings.union(_without_effect(effectives), _ambiguous(policies.policies)))


def not_served(places: Sequence[tuple[str, str | None, Source]], vhosts: Sequence[str]) -> list[Finding]:
    """Errors for what names a vhost that the router does not serve; a place is (what, vhost, where written)."""
    message = "{} is for vhost {}, which is not served ({}); add it to DLX_ROUTER_VHOSTS or take it out"
    served = ", ".join(vhosts)
    return [
        Finding(source.file, source.line, VHOST_NOT_SERVED, Severity.ERROR, message.format(what, shown(vhost), served))
        for what, vhost, source in places
        if vhost is not None and vhost not in vhosts
    ]


def _for_each_reason(chain: Sequence[Policy], ours: Names) -> Iterator[Effective]:
    """What the chain says for every reason that can make a difference."""
    wide = Selector(SelectorKind.MATCH, "#")
    policies = tuple(replace(policy, vhost=None, apply_to="queues", selector=wide) for policy in chain)
    merged = PolicySet(policies, ours=ours)
    for reason in sorted({*REASONS, *(reason for policy in chain for reason in policy.on)}):
        effective = merged.resolve(vhost="", queue="", reason=reason, queue_type=None)
        assert effective is not None
        yield effective


def _without_effect(effectives: Sequence[Effective]) -> Iterator[Finding]:
    """Keys that change nothing wherever they are in force."""
    useful: set[tuple[str, Source]] = set()
    useless: dict[tuple[str, Source], str] = {}
    for effective in effectives:
        idle = dict(without_effect(effective))
        for key, setting in effective.settings.items():
            if key in idle:
                useless[key, setting.source] = idle[key]
            else:
                useful.add((key, setting.source))
    for (key, source), why in useless.items():
        if (key, source) not in useful:
            yield Finding(source.file, source.line, WITHOUT_EFFECT, Severity.WARNING, f"{key} {why}")


def _until_cut(policies: Iterator[Policy], queue_type: str | None) -> list[Policy]:
    """Up to the one that ends the chain for every queue of the type; one for another type ends it for some only."""
    out: list[Policy] = []
    for policy in policies:
        out.append(policy)
        if not policy.inherit and policy.queue_type in {None, queue_type}:
            break
    return out


def _chained(policies: PolicySet) -> Iterator[Finding]:
    """A queue that a policy names exactly and that is another's dead-letter queue: its letters would go in circles."""
    named: dict[str, list[Policy]] = {}
    for policy in policies.policies:
        if policy.selector.kind is SelectorKind.QUEUE:
            named.setdefault(policy.selector.text, []).append(policy)
    for queue, policy in ((queue, policy) for queue, same in named.items() for policy in same):
        for source in named.get(_grave_in(policies, policy, policy.vhost) or "", ()):
            if source.selector == policy.selector or not _leads_to(policies, policy, source):
                continue
            grave = source.selector.text
            message = (
                f"policy {shown(source.name)} is about {shown(grave)}, the dead-letter queue of {shown(queue)}; "
                f"write allow-chain: true there if its letters shall be judged again, else take the policy out"
            )
            yield Finding(source.source.file, source.source.line, CHAIN, Severity.ERROR, message)


def _leads_to(policies: PolicySet, policy: Policy, source: Policy) -> bool:
    """Whether in some vhost dead letters of the one queue come to the other, which does not allow it."""
    if None not in {policy.vhost, source.vhost} and policy.vhost != source.vhost:
        return False
    vhost = policy.vhost or source.vhost
    return _grave_in(policies, policy, vhost) == source.selector.text and not _allows_chain(policies, source, vhost)


def _grave_in(policies: PolicySet, policy: Policy, vhost: str | None) -> str | None:
    queue = policy.selector.text
    effective = policies.resolve(vhost=vhost or "/", queue=queue, reason=REASONS[0], queue_type=policy.queue_type)
    return _target(effective, queue)


def _target(policy: Effective | None, queue: str) -> str | None:
    """The queue that surely gets the dead letters of `queue`, where the policies alone tell it."""
    if policy is None or policy.discard:
        return None
    if policy.auto_create:
        return dead_letter_queue(policy, queue)
    if policy.dead_letter_exchange or policy.routing_key is None:
        return None
    parts = policy.routing_key.parts
    if any(isinstance(part, tuple) and part != ("value", "queue") for part in parts):
        return None
    return "".join(part if isinstance(part, str) else queue for part in parts)


def written_targets(policies: PolicySet) -> dict[str, str]:
    """The queues that surely get dead letters, by names that are written → a policy that sends them there."""
    senders: dict[str, str] = {}
    for policy in policies.policies:
        key = policy.definition.get(KEY)
        if policy.selector.kind is SelectorKind.QUEUE:
            target = _grave_in(policies, policy, policy.vhost)
        elif key is not None and all(isinstance(part, str) for part in key.value.parts):
            target = _target(policies.effective((policy,), REASONS[0]), "")
        else:
            continue
        if target is not None:
            senders.setdefault(target, policy.name)
    return senders


def _allows_chain(policies: PolicySet, policy: Policy, vhost: str | None) -> bool:
    """Also where a policy for all queues says it, which else says nothing of dead-letter queues."""
    effective = policies.resolve(
        vhost=vhost or "/", queue=policy.selector.text, reason=REASONS[0], queue_type=policy.queue_type, own=False
    )
    setting = None if effective is None else effective.settings.get("allow-chain")
    return setting is not None and bool(setting.value)


def _unreachable(policy: Policy, by: Policy) -> Finding:
    message = (
        f"policy {shown(policy.name)} is never used: {shown(by.name)} ({by.source}) comes first with inherit: false; "
        f"give this one a higher priority, or remove it"
    )
    return Finding(policy.source.file, policy.source.line, UNREACHABLE, Severity.WARNING, message)


def covers(wide: Policy, narrow: Policy) -> bool:
    """Whether every queue that `narrow` names is surely named by `wide` too."""
    if wide.vhost not in {None, narrow.vhost} or not _types_meet(wide, narrow):
        return False
    if wide.selector == narrow.selector:
        return True
    if wide.selector.kind is SelectorKind.QUEUE:
        return False
    if narrow.selector.kind is SelectorKind.PATTERN:
        return wide.selector.kind is SelectorKind.MATCH and wide.selector.text == "#"
    if _begin_apart(wide.selector, narrow.selector):
        return False
    words = (_ANY, *_ODD) if wide.selector.kind is SelectorKind.PATTERN else (_ANY,)
    return all(wide.selector.fits(name) for word in words for name in _witnesses(narrow.selector, word))


class Covering:
    """Which policies cover another, without asking each of them: ten thousand policies are a hundred million pairs."""

    def __init__(self, policies: PolicySet) -> None:
        self._policies = policies
        self._same: dict[Selector, set[int]] = {}
        for at, policy in enumerate(policies.policies):
            self._same.setdefault(policy.selector, set()).add(at)
        self._all = self._same.get(Selector(SelectorKind.MATCH, "#"), set())

    def of(self, policy: Policy) -> Iterator[Policy]:
        """The policy and those that cover it, in order of precedence."""
        places = self._same[policy.selector] | self._all
        if policy.selector.kind is not SelectorKind.PATTERN:
            named = [set(self._policies.fitting(queue)) for queue in _witnesses(policy.selector)]
            places |= set.intersection(*named)
        for at in sorted(places):
            candidate = self._policies.policies[at]
            if candidate is policy or covers(candidate, policy):
                yield candidate


def _begin_apart(first: Selector, second: Selector) -> bool:
    """Whether the first words alone tell that no queue fits both; cheap, because every pair of policies is asked."""
    words = first.text.partition(".")[0], second.text.partition(".")[0]
    return words[0] != words[1] and first.kind is not SelectorKind.PATTERN and not {"*", "#"}.intersection(words)


def _witnesses(selector: Selector, any_word: str = _ANY) -> list[str]:
    """Queue names that stand for all that a `queue:` or `match:` fits: no, one and two words for each `#`."""
    if selector.kind is SelectorKind.QUEUE:
        return [selector.text]
    fills = ({"*": [any_word], "#": [any_word] * many} for many in range(3))
    words = selector.text.split(".")
    return [".".join(part for word in words for part in fill.get(word, [word])) for fill in fills]


def _ambiguous(policies: Sequence[Policy]) -> Iterator[Finding]:
    """Pairs that tie in precedence, may name one queue, and disagree: only the order of the files decides."""

    def precedence(policy: Policy) -> tuple[object, ...]:
        exact = "" if policy.selector.kind is SelectorKind.MATCH else policy.selector.text
        return (-policy.priority, *policy.selector.rank, exact)

    for _, tied in groupby(sorted(policies, key=precedence), key=precedence):
        for first, second in _pairs([*tied]):
            if _may_meet(first, second):
                yield from _disagreements(first, second)


def _pairs(tied: Sequence[Policy]) -> Iterator[tuple[Policy, Policy]]:
    """Every pair whose first words do not keep them apart, the earlier first."""
    begins: dict[str, list[int]] = {}
    for at, policy in enumerate(tied):
        word = policy.selector.text.partition(".")[0]
        begins.setdefault("#" if policy.selector.kind is SelectorKind.PATTERN or word == "*" else word, []).append(at)
    wild = begins.pop("#", [])
    pairs = {pair for same in begins.values() for pair in combinations(same, 2)} | set(combinations(wild, 2))
    pairs |= {(min(left, right), max(left, right)) for left in wild for same in begins.values() for right in same}
    for first, second in sorted(pairs):
        yield tied[first], tied[second]


def _may_meet(first: Policy, second: Policy) -> bool:
    if (None not in {first.vhost, second.vhost} and first.vhost != second.vhost) or not _types_meet(first, second):
        return False
    return first.selector == second.selector or (
        first.selector.kind is SelectorKind.MATCH
        and not _begin_apart(first.selector, second.selector)
        and words_meet(first.selector.text.split("."), second.selector.text.split("."))
    )


def _types_meet(first: Policy, second: Policy) -> bool:
    """Whether both may hold for one queue: it has one type."""
    return first.queue_type == second.queue_type or None in {first.queue_type, second.queue_type}


def words_meet(first: Sequence[str], other: Sequence[str]) -> bool:
    """Whether some queue name fits both word patterns. O(len(first) × len(other)), from the ends backwards."""
    meets: dict[tuple[int, int], bool] = {}
    for at in range(len(first), -1, -1):
        for there in range(len(other), -1, -1):
            mine, theirs = first[at : at + 1], other[there : there + 1]
            skip_mine = bool(mine) and meets[at + 1, there]
            skip_theirs = bool(theirs) and meets[at, there + 1]
            if "#" in (*mine, *theirs):
                meets[at, there] = skip_mine or skip_theirs  # a # takes no word more, or one more of the other's
            elif mine and theirs:
                meets[at, there] = (mine == theirs or "*" in (*mine, *theirs)) and meets[at + 1, there + 1]
            else:
                meets[at, there] = not mine and not theirs
    return meets[0, 0]


def _disagreements(first: Policy, second: Policy) -> Iterator[Finding]:
    if first.inherit != second.inherit:
        yield _tie("inherit", first.source, second, second.source)
    layers: list[tuple[Mapping[str, Setting], Mapping[str, Setting]]] = [(first.definition, second.definition)]
    layers += [(first.on[reason], second.on[reason]) for reason in first.on if reason in second.on]
    for mine, theirs in layers:
        for key in mine:
            if key in theirs and mine[key].value != theirs[key].value:
                yield _tie(key, mine[key].source, second, theirs[key].source)


def _tie(key: str, winner: Source, loser: Policy, where: Source) -> Finding:
    message = (
        f"{key} of policy {shown(loser.name)} ties with policy {shown(winner.policy)} ({winner}), which wins only by "
        f"the order of the files; give one of them a higher priority"
    )
    return Finding(where.file, where.line, AMBIGUOUS, Severity.WARNING, message)
