"""What `alert:` is compared with: how many dead letters of a policy lie in their queues, and since when."""

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

pytestmark = pytest.mark.usefixtures("newest")
POLICIES: Final = """
version: 1
policies:
  - {name: all, match: "#", definition: {max-delivery-attempts: 1, alert: {depth: 2, oldest: 1h}}}
  - {name: made, match: "made.#", definition: {labels-are-not-needed: 0}}
  - {name: named, match: "named.#", definition: {dead-letter-exchange: "", dead-letter-routing-key: "dead.{queue}"}}
  - {name: spread, match: "spread.#", definition: {dead-letter-exchange: amq.fanout}}
  - {name: gone, match: "gone.#", definition: {discard: true}}
""".replace("labels-are-not-needed: 0", "max-redrives: 5")


def fail(amqp: Client, queue: str, letters: int) -> None:
    amqp.queue(queue, dead_letter_exchange="dlx-router.inbox")
    for number in range(letters):
        amqp.publish(str(number), key=queue)
        amqp.fail(queue)


@pytest.mark.slow
def test_dead_letters_are_counted_and_dated_by_policy(
    amqp: Client, vhost: Vhost, start_router: Callable[..., Router], tmp_path: Path
) -> None:
    began = time.time()
    router = start_router(POLICIES, INDEX_PATH=str(tmp_path / "index.sqlite"))
    amqp.queue("dead.named.a")
    amqp.queue("everything")
    amqp.bind("everything", "amq.fanout")
    for queue, letters in (("made.a", 3), ("made.b", 1), ("named.a", 2), ("spread.a", 1), ("gone.a", 1)):
        fail(amqp, queue, letters)

    def counted() -> bool:
        samples = {key[1]: value for key, value in router.metrics().items() if key[0] == "dlx_router_policy_letters"}
        counts = {dict(labels)["policy"]: value for labels, value in samples.items()}
        return counts == {"all": 0, "made": 4, "named": 2, "spread": 1}

    eventually(counted, within=60)
    for policy in ("made", "named", "spread"):
        assert router.metric("policy_threshold", policy=policy, kind="depth") == 2, "inherited"

        def dated(policy: str = policy) -> bool:
            name = ("dlx_router_policy_oldest_letter_timestamp_seconds", frozenset({("policy", policy)}))
            return began - 1 <= router.metrics().get(name, 0) <= time.time() + 1

        eventually(dated, within=60)
    amqp.channel.queue_purge("DLQ.made.a")
    eventually(lambda: router.metric("policy_letters", policy="made") == 1, within=60)
