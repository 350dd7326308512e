"""Carrying a plan out: what exists already is no error, so the command can be killed and run again."""

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

from dlx_router.broker.definitions import Binding, Exchange
from dlx_router.broker.management import Management, RefusedError, Snapshot
from dlx_router.broker.policies import Rule
from dlx_router.config.policy_files.attachments import Attachment
from dlx_router.config.policy_files.delayed_exchanges import Delayed
from dlx_router.core.names import Names
from dlx_router.core.policy import PolicySet
from dlx_router.provisioning import ownership
from dlx_router.provisioning.desired_policies import Written
from dlx_router.provisioning.plan import Plan, bound, plan
from dlx_router.provisioning.steps import Action, Step


async def planned(  # noqa: PLR0913 - what a plan is made of, by its names
    api: Management,
    policies: PolicySet,
    names: Names,
    vhost: str,
    *,
    journal: bool,
    delayed: Sequence[Delayed] = (),
    attachments: Sequence[Attachment] = (),
    uncounted: bool = False,
) -> Plan:
    """The plan of one vhost as it stands now. `uncounted`: deaths that the broker does not count are none."""
    owned = ownership.read_ledger(await api.parameter(ownership.ledger_name(names, vhost)))
    snapshot = await api.snapshot(vhost)
    if uncounted:
        snapshot = none_pending(snapshot)
    return plan(
        policies,
        snapshot,
        names,
        owned,
        journal=journal,
        delayed=delayed,
        attachments=attachments,
    )


def none_pending(snapshot: Snapshot) -> Snapshot:
    """The same; deaths that nobody counts are none, as somebody says who has looked; not of a queue that is down."""
    queues = (queue if queue.is_down else replace(queue, pending=queue.pending or 0) for queue in snapshot.queues)
    return replace(snapshot, queues=tuple(queues))


class Applied(NamedTuple):
    """The steps that were taken, and which policy the broker refused, with why; "" if it took all."""

    steps: list[Step]
    refusal: str = ""


async def apply(api: Management, vhost_plan: Plan, names: Names) -> Applied:
    """Take the steps in their order; the ledger names every policy of ours before it stands and until it is gone.

    It ends at a policy that the broker refuses. New policies come first, so nothing was removed or lowered until then.
    """
    vhost, taken = vhost_plan.vhost, list[Step]()
    await _note(api, names, vhost, vhost_plan.ours | vhost_plan.owned)
    for step in vhost_plan.steps:
        try:
            await _take(api, vhost, step)
        except RefusedError as error:
            if not isinstance(step.thing, Written):
                raise
            refusal = (
                f'RabbitMQ refuses policy "{step.name}" ({step.thing.rule.pattern[:80]}), so nothing after it was '
                f"changed: {error}; write its selector otherwise"
            )
            return Applied(taken, refusal)
        taken.append(step)
    await _note(api, names, vhost, vhost_plan.ours)
    return Applied(taken)


async def _note(api: Management, names: Names, vhost: str, policies: frozenset[str]) -> None:
    name = ownership.ledger_name(names, vhost)
    value = ownership.ledger_value(policies)
    if await api.parameter(name) != value:
        await api.make((ownership.PARAMETERS, name), {"name": name, "value": value})


async def _take(api: Management, vhost: str, step: Step) -> None:
    match step.thing:
        case Rule(name=name) if step.action is Action.REMOVE:
            await api.remove(("policies", vhost, name))
        case Written(rule=rule):
            await api.make(("policies", vhost, rule.name), rule.body())
        case Exchange(name=name, kind=kind, arguments=arguments):
            body = {"type": kind, "durable": True, "arguments": dict(arguments)}
            await api.make(("exchanges", vhost, name), body)
        case Binding() as binding:
            await api.bind(vhost, bound(binding))
        case _ as queue:
            assert not isinstance(queue, Rule)
            await api.make(("queues", vhost, queue.name), {"durable": True, "arguments": dict(queue.arguments)})
