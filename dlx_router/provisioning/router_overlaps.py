"""Queues that this router and another one, of another prefix, would both catch.

A dead letter goes to one router. Two that name the same queue would each set their policy above the other's with every
apply, so whoever comes second is refused, and told who the other is.
"""

import re
from collections.abc import Iterator, Sequence
from typing import Final

from dlx_router.broker.administration import Rule, Snapshot, Standing
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet, Selector, SelectorKind
from dlx_router.provisioning import selector_regex
from dlx_router.provisioning.broker_rules import applies, in_force
from dlx_router.provisioning.desired_policies import Desired
from dlx_router.provisioning.pcre import fits

_SHOWN: Final = 5
_WORD: Final = re.compile(r"[A-Za-z0-9_-]+")


def meetings(want: Desired, policies: PolicySet, kept: Sequence[Rule], snapshot: Snapshot) -> Iterator[str]:
    """What is to be said of each other router in whose way we would be, or it in ours. `kept`: policies not ours."""
    ours = [policy.rule for policy in want.policies]
    here = [policy for policy in policies.policies if policy.vhost in {None, snapshot.vhost}]
    for router in want.others.routers:
        theirs = [rule for rule, prefix in want.others.catching if prefix == router.prefix]
        if (both := _both(theirs, want.attended, here, snapshot.version)) is not None:
            yield _conflict(router.prefix, *both)
        elif (queue := _caught(router, ours, kept, snapshot)) is not None:
            yield _unshielded(router.prefix, queue)


def _both(
    theirs: Sequence[Rule], standing: Sequence[Standing], selectors: Sequence[Policy], version: tuple[int, ...]
) -> tuple[str, str] | None:
    """What both name, and their policy that does."""
    for rule in theirs:
        queues = [
            queue.name for queue in standing if applies(rule, queue.name, queue.kind, version, stated=queue.policy)
        ]
        if queues:
            more = f" and {len(queues) - _SHOWN} more" if len(queues) > _SHOWN else ""
            noun = "queue" if len(queues) == 1 else "queues"
            return f"{noun} {', '.join(sorted(queues)[:_SHOWN])}{more}", rule.name
    for policy in selectors:
        for rule in theirs:
            if may_meet(policy.selector, rule.pattern):
                return f"queues to come that policy {policy.name} ({policy.source}) names", rule.name
    return None


def may_meet(selector: Selector, expression: str) -> bool:
    """Whether some queue that the selector names is surely one that the RabbitMQ policy names."""
    exact = selector_regex.name_in(expression)
    if exact is not None:
        return selector.fits(exact)
    if selector_regex.is_every(selector_regex.of_selector(selector)) or selector_regex.is_every(expression):
        return True
    return any(fits(expression, name) for name in _samples(selector, expression) if selector.fits(name))


def _samples(selector: Selector, expression: str) -> Iterator[str]:
    """Names that the selector may name: in place of * and # stand words that the expression asks for."""
    if selector.kind is SelectorKind.QUEUE:
        yield selector.text
    if selector.kind is not SelectorKind.MATCH:
        return
    words = selector.text.split(".")
    for filler in ("x", *dict.fromkeys(_WORD.findall(expression))):
        for kept in ({"*"}, {"*", "#"}):
            yield ".".join(filler if word in kept else word for word in words if word in kept or word != "#")


def _caught(router: Names, ours: Sequence[Rule], kept: Sequence[Rule], snapshot: Snapshot) -> str | None:
    """A queue of the other router's own that a policy of ours would be in force for."""
    mine, rules = {id(rule) for rule in ours}, [*ours, *kept]
    for queue in snapshot.queues:
        now = in_force(rules, queue.name, queue.kind, snapshot.version, stated=queue.policy)
        if router.is_own(queue.name) and id(now) in mine:
            return queue.name
    return None


def _conflict(prefix: str, what: str, policy: str) -> str:
    return (
        f'the router of prefix "{prefix}" catches {what}, by policy "{policy}", and so do these policies: a dead '
        f"letter goes to one router; let one of both name them no more, or take the other away first "
        f"(DLX_ROUTER_PREFIX={prefix} dlx-router destroy)"
    )


def _unshielded(prefix: str, queue: str) -> str:
    return (
        f'queue {queue} is the router\'s of prefix "{prefix}", and nothing keeps these policies from it: that router '
        f"would consume nothing; first run dlx-router apply with its settings (DLX_ROUTER_PREFIX={prefix}), or name "
        f"fewer queues"
    )
