"""Regions: the queues that some of our selectors name together, those apart that an operator policy limits."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import groupby
from typing import Final

from dlx_router.broker.administration import Rule
from dlx_router.config.lint.policy_conflicts import covers
from dlx_router.core.policy import Policy, SelectorKind
from dlx_router.provisioning import selector_regex
from dlx_router.provisioning.queue_definition import Wanted

MOST_EXPRESSION: Final = 1024  # bytes; RabbitMQ 4.3 takes no more, those before what PCRE compiles to 64 KiB


@dataclass(frozen=True, slots=True)
class Region:
    """Queues that all these policies of ours name; `names` where they are named one by one.

    `limits`: the operator policy on them, where it decides what the others mean. `behind`: how many more of our
    policies name all of them, and are cut off by one that does not inherit.
    """

    chain: tuple[Policy, ...]
    wanted: Wanted
    kind: str | None = None
    names: frozenset[str] = frozenset()
    limits: Rule | None = None
    behind: int = 0

    @property
    def is_exact(self) -> bool:
        """Whether it names its queues."""
        return bool(self.names) or any(policy.selector.kind is SelectorKind.QUEUE for policy in self.chain)

    @property
    def members(self) -> frozenset[object]:
        """By which it is told which of two is the narrower."""
        limits = self.limits
        rules = [] if limits is None or selector_regex.is_every(limits.pattern) else [("operator", limits.name)]
        kind = [("kind", self.kind)] if self.kind else []
        return frozenset({*(policy.name for policy in self.chain), *rules, *kind})

    @property
    def narrowest(self) -> list[Policy]:
        """The policies whose selectors all others surely name too: together they name what all of them do.

        Each is left out for one that stays, so of several that name the same queues the first does.
        """
        kept = [*self.chain]
        for policy in reversed(self.chain):
            if any(other is not policy and covers(policy, other) for other in kept):
                kept = [other for other in kept if other is not policy]
        return kept

    def pattern(self) -> str:
        """The expression."""
        if self.names:
            return selector_regex.exactly(self.names)
        ours = [selector_regex.of_selector(policy.selector) for policy in self.narrowest]
        limits = [] if self.limits is None else [selector_regex.closed(self.limits.pattern)]
        return selector_regex.both([*ours, *limits])


def parts(region: Region) -> Iterable[Region]:
    """A region that names its queues one by one, as several where its expression would be too long."""
    if size(region.pattern()) <= MOST_EXPRESSION:
        yield region
        return
    some: list[str] = []
    for name in sorted(region.names):
        if some and size(selector_regex.exactly([*some, name])) > MOST_EXPRESSION:
            yield replace(region, names=frozenset(some))
            some = []
        some.append(name)
    yield replace(region, names=frozenset(some))


def size(expression: str) -> int:
    """Of an expression, in bytes."""
    return len(expression.encode(errors="surrogateescape"))


def rank(region: Region) -> tuple[int, ...]:
    """Of a higher one the policy has a higher priority; between as many selectors what the broker applies decides."""
    operator = 0 if region.limits is None else region.limits.priority
    return (1 if region.names else 0, len(region.members) + region.behind, operator)


def kind_of(chain: Sequence[Policy]) -> str | None:
    """The type of queues that the chain is about; None: any."""
    return next((policy.queue_type for policy in chain if policy.queue_type is not None), None)


def together(exact: Sequence[Region]) -> list[Region]:
    """Queues that are named one by one, those of equal content in one region."""
    out: list[Region] = []
    for _, same in groupby(sorted(exact, key=_content), key=_content):
        group = [*same]
        first, names = group[0], frozenset(name for region in group for name in region.names)
        out.append(Region((), first.wanted, first.kind, names))
    return out


def _content(region: Region) -> str:
    return repr((region.wanted.content, region.kind))


def until_cut(chain: Iterable[Policy]) -> list[Policy]:
    """Without what stands behind a policy that does not inherit."""
    out: list[Policy] = []
    for policy in chain:
        out.append(policy)
        if not policy.inherit:
            break
    return out
