"""Regions written as RabbitMQ policies: their expressions, keys, types of queues and priorities."""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import groupby
from typing import Final

from dlx_router.broker.administration import Rule
from dlx_router.broker.policy_keys import unsupported
from dlx_router.core.created_queues import Affixes
from dlx_router.core.names import Names
from dlx_router.provisioning import selector_regex
from dlx_router.provisioning.broker_rules import TYPES_FROM
from dlx_router.provisioning.dead_letter_names import guards_of
from dlx_router.provisioning.ownership import name_of
from dlx_router.provisioning.pcre import fits
from dlx_router.provisioning.queue_definition import Definition, Wanted, plain
from dlx_router.provisioning.regions import MOST_EXPRESSION, Region, parts, rank, size

FEW: Final = 8  # selectors in one expression: it is as it was before there was a limit


@dataclass(frozen=True, slots=True)
class Written:
    """A RabbitMQ policy to be: the rule, why its keys are as they are, and which queues have it now."""

    rule: Rule
    keys: Definition = field(default_factory=dict)
    queues: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class PolicyWriter:
    """How the policies of one vhost are written. `above`: the priority that all of them exceed.

    `spared`: queues that stand and that none of them may name.
    """

    names: Names
    version: tuple[int, ...]
    affixes: Sequence[Affixes]
    above: int
    spared: tuple[str, ...] = ()

    def policies(self, regions: Iterable[Region]) -> list[Written]:
        """The policies, highest priority first; of regions of one rank and content there is one.

        Ranks are two priorities apart, for the two policies.
        """
        ranked = sorted(regions, key=lambda region: (rank(region), repr(region.wanted.content), region.kind or ""))
        out: list[Written] = []
        for step, (_, group) in enumerate(groupby(ranked, key=rank)):
            for _, same in groupby(group, key=lambda region: (repr(region.wanted.content), region.kind)):
                for some in self._portions(same):
                    out += self._pair(some, self.above + 2 * step + 1)
        return _once(reversed(out))

    def may_mix(self, want: Wanted) -> bool:
        """Whether classic queues would take what only quorum queues should: no key makes the broker skip it there."""
        return plain(want.full) != plain(want.common) and not unsupported(want.full, "classic", self.version)

    @property
    def is_typed(self) -> bool:
        """Whether a policy can be for one type of queues."""
        return self.version >= TYPES_FROM

    def _portions(self, same: Iterable[Region]) -> Iterator[list[Region]]:
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
        """Of regions of one content. Dead-letter queues are left out of those only that do not name their queues."""
        wide = [region for region in same if not region.is_exact]
        guards = [guard for region in wide for guard in guards_of(region.narrowest, self.affixes)]
        exact = [region for region in same if region.is_exact] if guards else []
        most = selector_regex.except_for(self._joined(wide if exact else same), guards)
        expression = selector_regex.either([self._joined(exact), most]) if exact else most
        spared = [selector_regex.exactly([name]) for name in self.spared if fits(expression, name) is not False]
        return selector_regex.except_for(expression, spared)

    def _joined(self, same: Sequence[Region]) -> str:
        """The queues of all of them."""
        patterns = [region.pattern() for region in same]
        return selector_regex.of_many(patterns) if len(patterns) > FEW else selector_regex.either(patterns)

    def _pair(self, same: Sequence[Region], priority: int) -> list[Written]:
        """The lower one is what every type takes, the higher one what only quorum queues take."""
        want, kind, expression = same[0].wanted, same[0].kind, self._expression(same)
        out = []
        if kind != "quorum":
            out.append(self._rabbit_policy(expression, want.common, priority, kind))
        if kind == "quorum" or (kind is None and plain(want.full) != plain(want.common)):
            of = "quorum" if self.may_mix(want) else kind
            out.append(self._rabbit_policy(expression, want.full, priority + 1, of))
        return out

    def _rabbit_policy(self, expression: str, keys: Definition, priority: int, kind: str | None) -> Written:
        apply_to = f"{kind}_queues" if kind and self.is_typed else "queues"
        rule = Rule("", expression, dict(plain(keys)), priority, apply_to)
        return Written(replace(rule, name=name_of(rule, self.names)), keys)


def _once(highest_first: Iterable[Written]) -> list[Written]:
    """Without those that one of higher priority repeats: they would never be in force, and have its name."""
    kept: dict[str, Written] = {}
    for policy in highest_first:
        kept.setdefault(policy.rule.name, policy)
    return [*kept.values()]
