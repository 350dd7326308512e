"""RabbitMQ policies of people and of other routers on queues of ours: RabbitMQ applies one policy to a queue.

So such a policy is a conflict, and apply changes nothing in the vhost. No key of it is copied: whoever made it changes
it, and nobody else. One that leads to our inbox by itself, from above our policies, is none: its queues are caught.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from dlx_router.broker.management import Snapshot, Standing
from dlx_router.broker.policies import Rule
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet
from dlx_router.provisioning.broker_rules import may_take
from dlx_router.provisioning.desired_policies import Desired, listed
from dlx_router.provisioning.ownership import is_own_rule, made_for
from dlx_router.provisioning.queue_definition import EXCHANGE, HANDED_OVER, leads_to_inbox
from dlx_router.provisioning.selector_regex import is_readable, may_meet

_KINDS: Final = frozenset({"all", "queues", "classic_queues", "quorum_queues"})


def conflicts(want: Desired, policies: PolicySet, snapshot: Snapshot, names: Names) -> Iterator[str]:
    """Describe each policy that is, or may be, on the same queues as a policy of ours, and the ways out."""
    top = max((policy.rule.priority for policy in want.policies[1:]), default=0)
    here = [policy for policy in policies.policies if policy.vhost in {None, snapshot.vhost}]
    for rule in want.foreign if want.is_catching else ():
        router = made_for(rule)
        if router is not None and is_own_rule(rule, Names(router)):
            continue  # it is about that router's own queues, which no expression of ours names
        if rule.apply_to not in _KINDS or (leads_to_inbox(rule, names) and rule.priority > top):
            continue
        if shared := _shared(rule, want.attended, here, snapshot.version):
            yield _text(rule, shared, names, top, router)


def _shared(rule: Rule, attended: Sequence[Standing], here: Sequence[Policy], version: tuple[int, ...]) -> str:
    """The queues that it is, or may be, about; "" for none that is known."""
    queues = [queue.name for queue in attended if may_take([rule], queue.name, queue.kind, version)]
    if not is_readable(rule.pattern):
        maybe = f" ({listed(queues)}, maybe)" if queues else ""
        return f"only RabbitMQ can read which queues it is about{maybe}"
    if queues:
        return f"it is about {listed(queues)}"
    policy = next((policy for policy in here if may_meet(policy.selector, rule.pattern)), None)
    return "" if policy is None else f"it is about queues to come that policy {policy.name} ({policy.source}) names"


def _text(rule: Rule, shared: str, names: Names, top: int, router: str | None) -> str:
    text = (
        f'policy "{rule.name}" of priority {rule.priority} ({rule.pattern[:80]}): {shared}, and so is a policy of '
        f"ours, and RabbitMQ applies one policy to a queue; "
    )
    if router is not None:
        return (
            f'{text}the router of prefix "{router}" made it: name its queues in the policies of one router only, or '
            f"take the other away first (DLX_ROUTER_PREFIX={router} dlx-router destroy)"
        )
    own = [key for key in rule.definition if key in HANDED_OVER]
    moved = f", write {', '.join(own)} into the policy file," if own else ""
    plain = "" if is_readable(rule.pattern) else "write its expression plainly (docs/provisioning.md says how), "
    return (
        f"{text}{plain}let its pattern name other queues only{moved} or keep it, with a priority above {top} and "
        f"{EXCHANGE}: {names.inbox} in it; then apply"
    )
