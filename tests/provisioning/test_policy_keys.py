"""The keys for which RabbitMQ skips a policy on a type of queue: as each broker has them, and what plan makes of it."""

from typing import Any

import pytest

from dlx_router.broker.policies import Rule, unsupported
from tests.provisioning.test_provision import Commands
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
def test_the_broker_skips_a_policy_for_some_keys(
    kind: str,
    key: str,
    version: tuple[int, ...],
    is_skipped: bool,  # noqa: FBT001 - a table
) -> None:
    assert bool(unsupported([key], kind, version)) is is_skipped


def test_a_policy_that_the_broker_skips_on_quorum_queues_is_no_harm_to_ours() -> None:
    for key, touches in (("initial-cluster-size", False), ("stream-filter-size-bytes", True)):
        assert Rule("theirs", ".*", {key: 1, "max-length": 1}, 0, "all").touches("dlx-router.inbox") is touches


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
