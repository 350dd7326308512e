"""RabbitMQ policies of others of which only the broker knows which queues they name, and what is to be said of them."""

from collections.abc import Iterable, Sequence
from typing import Final

from dlx_router.broker.administration import Rule, Standing
from dlx_router.provisioning.pcre import fits
from dlx_router.provisioning.queue_definition import copied_from
from dlx_router.provisioning.rabbit_policies import Written

_KINDS: Final = frozenset({"all", "queues", "classic_queues", "quorum_queues"})
_SHOWN: Final = 5
_PLAINLY: Final = "write its expression plainly (docs/provisioning.md says how)"


def unread(rules: Iterable[Rule], queues: Sequence[Standing] = ()) -> list[Rule]:
    """Those for work queues of which it is not known which they name, or whether one of these."""
    names = ["", *(queue.name for queue in queues)]  # the empty one stands for those to come
    some = [rule for rule in rules if rule.apply_to in _KINDS]
    return [rule for rule in some if any(fits(rule.pattern, name) is None for name in names)]


def of_people(rule: Rule, written: Iterable[Written]) -> str:
    """A policy that ours may displace without having its keys. `written`: ours, with their queues."""
    by = copied_from(rule)
    copies = [policy for policy in written if any(key.by == by for key in policy.keys.values())]
    queues = sorted({queue for policy in copies for queue in policy.queues})
    more = f" and {len(queues) - _SHOWN} more" if len(queues) > _SHOWN else ""
    return (
        f"{_only_there(by, rule)}: its keys are copied to no queue but those for which RabbitMQ says that it is in "
        f"force ({', '.join(queues[:_SHOWN]) or 'none'}{more}), so others, and those to come, may lose them; {_PLAINLY}"
    )


def of_operators(rule: Rule) -> str:
    """A limit that may be that of any queue."""
    what = _only_there(f'operator policy "{rule.name}"', rule)
    return f"{what}: it is taken to limit every queue, so dead letters come at most once; {_PLAINLY}"


def _only_there(what: str, rule: Rule) -> str:
    return f"which queues {what} names only RabbitMQ can tell ({rule.pattern[:80]})"
