"""Foreign RabbitMQ policies on attended queues. RabbitMQ applies one policy to a queue, so each is a conflict.

No key of it is copied: whoever made it changes it, and nobody else. One that leads to our inbox by itself, from above
our policies, is none: its queues are caught.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from dlx_router.broker.administration import Rule, Snapshot, Standing
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, PolicySet
from dlx_router.provisioning.broker_rules import may_take
from dlx_router.provisioning.desired_policies import Desired
from dlx_router.provisioning.pcre import is_readable
from dlx_router.provisioning.queue_definition import EXCHANGE, HANDED_OVER, leads_to_inbox
from dlx_router.provisioning.router_overlaps import may_meet

_KINDS: Final = frozenset({"all", "queues", "classic_queues", "quorum_queues"})
_SHOWN: Final = 5


def conflicts(
    want: Desired, policies: PolicySet, foreign: Sequence[Rule], snapshot: Snapshot, names: Names
) -> Iterator[str]:
    """What to say of each that is, or may be, on the same queues as one of the router's policies."""
    top = max((policy.rule.priority for policy in want.policies[1:]), default=0)
    here = [policy for policy in policies.policies if policy.vhost in {None, snapshot.vhost}]
    for rule in foreign if want.is_catching else ():
        if rule.apply_to not in _KINDS or (leads_to_inbox(rule, names) and rule.priority > top):
            continue
        if shared := _shared(rule, want.attended, here, snapshot.version):
            yield _text(rule, shared, names, top)


def _shared(rule: Rule, attended: Sequence[Standing], here: Sequence[Policy], version: tuple[int, ...]) -> str:
    """The queues that it is, or may be, about; "" for none that is known."""
    queues = [
        queue.name for queue in attended if may_take([rule], queue.name, queue.kind, version, stated=queue.policy)
    ]
    if not is_readable(rule.pattern):
        return (
            f"only RabbitMQ can read which queues it is about ({_listed(queues)}, maybe)"
            if queues
            else ("only RabbitMQ can read which queues it is about")
        )
    if queues:
        return f"it is about {_listed(queues)}"
    policy = next((policy for policy in here if may_meet(policy.selector, rule.pattern)), None)
    return "" if policy is None else f"it is about queues to come that policy {policy.name} ({policy.source}) names"


def _listed(queues: Sequence[str]) -> str:
    more = f" and {len(queues) - _SHOWN} more" if len(queues) > _SHOWN else ""
    return f"{'queue' if len(queues) == 1 else 'queues'} {', '.join(sorted(queues)[:_SHOWN])}{more}"


def _text(rule: Rule, shared: str, names: Names, top: int) -> str:
    own = [key for key in rule.definition if key in HANDED_OVER]
    moved = f", write {', '.join(own)} into the policy file," if own else ""
    plain = "" if is_readable(rule.pattern) else "write its expression plainly (docs/provisioning.md says how), "
    return (
        f'policy "{rule.name}" of priority {rule.priority} ({rule.pattern[:80]}): {shared}, and so is a policy of '
        f"ours, and RabbitMQ applies one policy to a queue; {plain}let its pattern name other queues only{moved} or "
        f"keep it, with a priority above {top} and {EXCHANGE}: {names.inbox} in it; then apply"
    )
