"""The keys for which RabbitMQ skips a policy on a type of queue: as each broker has them, and what plan makes of it."""

from typing import Any

import pytest

from dlx_router.broker.administration import Rule, Snapshot, Standing
from dlx_router.broker.policies import Policy as BrokerPolicy
from dlx_router.broker.policy_keys import unsupported
from dlx_router.core.names import Names
from dlx_router.core.policy import Policy, Selector, SelectorKind, Source, ordered
from dlx_router.provisioning.broker_rules import in_force
from dlx_router.provisioning.desired_policies import desired
from tests.provisioning.test_provision import INBOX, Commands
from tests.support.eventually import eventually

SKIPPED = [
    ("classic", "max-in-memory-length", (4, 0), True), ("classic", "max-in-memory-bytes", (4, 3), True),
    ("classic", "max-in-memory-length", (3, 10), False), ("classic", "queue-leader-locator", (3, 10), True),
    ("classic", "queue-leader-locator", (4, 0), False), ("classic", "filter-field-names", (4, 3), True),
    ("classic", "stream-filter-size-bytes", (4, 0), False), ("classic", "delayed-retry-type", (4, 3), False),
    ("quorum", "initial-cluster-size", (3, 10), True), ("quorum", "initial-cluster-size", (4, 3), True),
    ("quorum", "stream-filter-size-bytes", (4, 3), False), ("quorum", "max-in-memory-length", (4, 3), False),
]  # fmt: skip


@pytest.mark.parametrize(("kind", "key", "version", "is_skipped"), SKIPPED)
def test_a_policy_is_copied_where_the_broker_applies_it_and_only_there(
    kind: str,
    key: str,
    version: tuple[int, ...],
    is_skipped: bool,  # noqa: FBT001 - a table
) -> None:
    assert bool(unsupported([key], kind, version)) is is_skipped
    theirs = Rule("theirs", "^q$", {key: 1, "message-ttl": 7}, 3)
    now = Snapshot("/", version, (Standing("q", kind),), policies=(theirs,))
    every = Policy("all", Selector(SelectorKind.MATCH, "#"), Source("all", "p.yaml", 1))
    ours = [written.rule for written in desired(ordered([every]), now, Names()).policies]
    rule = in_force([*ours, theirs], "q", kind, version)
    assert rule in ours
    assert ("message-ttl" in rule.definition) is not is_skipped


def test_a_policy_that_the_broker_skips_on_quorum_queues_is_no_harm_to_ours() -> None:
    for key, touches in (("initial-cluster-size", False), ("stream-filter-size-bytes", True)):
        assert BrokerPolicy("theirs", ".*", "all", 0, {key: 1, "max-length": 1}).touches("dlx-router.inbox") is touches


KEYS: dict[str, Any] = {
    "max-age": "1h", "stream-max-segment-size-bytes": 1000, "stream-filter-size-bytes": 32, "initial-cluster-size": 1,
    "delivery-limit": 5, "dead-letter-strategy": "at-most-once", "target-group-size": 1, "selector-fields": ["a"],
    "selector-field-max-bytes": 10, "filter-field-names": ["a"], "max-in-memory-length": 1, "max-in-memory-bytes": 1,
    "queue-leader-locator": "client-local", "queue-master-locator": "client-local", "max-priority": 5,
    "queue-mode": "lazy", "queue-version": 1, "message-ttl": 60000, "max-length": 1000, "max-length-bytes": 100_000,
    "expires": 3_600_000, "overflow": "drop-head", "dead-letter-exchange": "x", "delayed-retry-type": "disabled",
    "single-active-consumer": True, "consumer-timeout": 3_600_000,
}  # fmt: skip


@pytest.mark.slow
def test_the_broker_skips_a_policy_for_the_keys_that_we_know_and_for_no_other(commands: Commands) -> None:
    """Every key that this version takes, a queue of each type for it, and which policy the broker applies there."""
    expected: dict[str, str] = {}
    api = commands.vhost
    version = tuple(map(int, api.get("overview")["rabbitmq_version"].split(".")[:2]))
    for key, value in KEYS.items():
        body = {"pattern": f"^{key}_", "definition": {key: value}, "apply-to": "queues"}
        if api.api.put(f"policies/{api.quoted}/{key}", json=body).is_client_error:
            continue  # this version takes no such policy
        for kind in ("classic", "quorum"):
            commands.declare(f"{key}_{kind}", queue_type=kind)
            expected[f"{key}_{kind}"] = "" if unsupported([key], kind, version) else key
    assert {"max-length_quorum", "initial-cluster-size_quorum", "queue-leader-locator_classic"} <= expected.keys()

    def applied() -> dict[str, str]:
        return {queue["name"]: queue.get("policy") or "" for queue in api.get(f"queues/{api.quoted}")}

    eventually(lambda: applied() == expected, 30)


@pytest.mark.slow
@pytest.mark.parametrize("key", ["initial-cluster-size", "max-in-memory-length", "queue-leader-locator"])
def test_a_policy_that_the_broker_skips_on_one_type_keeps_no_queue_from_the_inbox(commands: Commands, key: str) -> None:
    """One that names every queue: no other of ours would lead the letters there."""
    value = "client-local" if key == "queue-leader-locator" else 100
    commands.vhost.policy("theirs", ".*", {key: value, "message-ttl": 70_000})
    commands.declare("new", queue_type="quorum")
    commands.declare("old")
    commands.apply()
    assert commands.plan()["steps"] == []
    for queue in ("new", "old"):
        eventually(lambda queue=queue: leads(commands, queue), 30)  # type: ignore[misc]  # a default binds it


def leads(commands: Commands, queue: str) -> bool:
    return (commands.effective(queue) or {}).get("dead-letter-exchange") == INBOX
