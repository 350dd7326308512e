"""Dead-letter queues that are deleted once they are idle: as the policies in force say, whatever others said before."""

from collections.abc import AsyncIterator
from typing import Any, Final

import pytest

from dlx_router.core.policy import Policy, Selector, SelectorKind, Setting, Source, ordered
from dlx_router.service.dispatch.resources import TargetResources
from dlx_router.service.inflight.in_force import Resolved, Rules
from dlx_router.service.inflight.routes import Resource, dead_letter_resource
from tests.broker.scene import NAMES
from tests.service.dispatch.test_idle_queues import replicas
from tests.support.client import Client
from tests.support.vhost import Vhost

POLICY: Final = """
version: 1
policies:
  - name: work
    queue: work
    definition:
      max-delivery-attempts: 1
      dead-letter-queue-type: classic
"""
SOURCE: Final = Source("p", "p.yaml", 1)
ROUNDS: Final = 100  # each asks the broker: more than the millisecond that the queue may be idle
KEPT: Final[dict[str, Any]] = {"dead-letter-queue-type": "classic"}
DELETED: Final = {**KEPT, "auto-delete-dead-letter-queue-after": 1}
IN_AN_HOUR: Final = {**KEPT, "auto-delete-dead-letter-queue-after": 3_600_000}


@pytest.fixture
async def provision(vhost: Vhost, amqp: Client) -> AsyncIterator[TargetResources]:
    amqp.queue("work")
    async with replicas(vhost, 1) as (replica,):
        yield replica.session.provision


def settings(definition: dict[str, Any]) -> dict[str, Setting]:
    return {key: Setting(value, SOURCE) for key, value in definition.items()}


def in_force(definition: dict[str, Any], **on: dict[str, Any]) -> Resolved:
    overlays = {reason: settings(overlay) for reason, overlay in on.items()}
    selector = Selector(SelectorKind.MATCH, "#")
    policy = Policy("p", selector, SOURCE, definition=settings(definition), on=overlays)
    return Resolved(Rules(ordered([policy]), NAMES, 0), "/", {})


def needed(rules: Resolved, reason: str = "rejected") -> Resource:
    policy = rules.policy_of("work", reason)
    assert policy is not None
    return dead_letter_resource(policy, "DLQ.work", "", "work")


async def reaped(provision: TargetResources, amqp: Client, rules: Resolved) -> bool:
    for _ in range(ROUNDS):
        await provision.reap(rules.policies_of)
        if not amqp.exists("DLQ.work"):
            return True
    return False


@pytest.mark.parametrize(
    "later",
    [
        in_force(KEPT),
        in_force(IN_AN_HOUR),
        in_force(DELETED | {"dead-letter-queue-prefix": "other."}),
        in_force(DELETED | {"discard": True}),
    ],
    ids=["never", "in an hour", "another name", "discard"],
)
@pytest.mark.usefixtures("newest")
async def test_a_queue_that_no_policy_in_force_wants_deleted_stays(
    later: Resolved, provision: TargetResources, amqp: Client
) -> None:
    await provision.prepare([needed(in_force(DELETED))])
    assert not await reaped(provision, amqp, later)
