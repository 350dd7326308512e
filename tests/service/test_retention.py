"""Retention and order: what leaves a dead-letter queue is in the journal first; fifo keeps the order of arrival."""

import base64
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.journal.stream import events
from tests.support.bulk import take_many
from tests.support.client import Client
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

INBOX: Final = "dlx-router.inbox"
FIFO: Final = "dlx-router.inbox.fifo"
RETIRED: Final = "dlx-router.retired"
POLICY: Final = """
version: 1
policies:
  - name: short
    match: "short.#"
    definition: {max-delivery-attempts: 1, dead-letter-queue-type: KIND, KEEPS}
"""


def retired(vhost: Vhost) -> list[Any]:
    return [event for event in events(vhost.amqp_url) if event["kind"] == "retired"]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("kind", "keeps", "left"),
    [
        ("quorum", "dead-letter-queue-ttl: 1s", 0),
        ("classic", "dead-letter-queue-max-length: 2", 2),
        ("classic", "dead-letter-queue-max-length-bytes: 14B", 2),
    ],
)
def test_what_leaves_by_retention_is_journalled_first(
    amqp: Client, vhost: Vhost, start_router: Callable[..., Router], kind: str, keeps: str, left: int
) -> None:
    router = start_router(POLICY.replace("KIND", kind).replace("KEEPS", keeps))
    amqp.queue("short.a", dead_letter_exchange=INBOX)
    for number in range(5):
        amqp.publish(f"order-{number}", key="short.a")
        amqp.fail("short.a")
    eventually(lambda: router.metric("settled_total", action="retire") == 5 - left, within=30)
    assert amqp.depth("DLQ.short.a") == left
    assert amqp.depth(RETIRED) == 0
    retirements = retired(vhost)
    assert [base64.b64decode(event["body"]).decode() for event in retirements] == [
        f"order-{n}" for n in range(5 - left)
    ]
    assert {(event["failed_queue"], event["cause"], event["reason"], event["attempts"]) for event in retirements} == {
        ("short.a", "retention", "rejected", 1)
    }


def test_a_fifo_queues_dead_letters_come_in_the_order_of_their_deaths(
    amqp: Client, vhost: Vhost, start_router: Callable[..., Router]
) -> None:
    policy = "version: 1\npolicies:\n  - {name: ledger, queue: ledger, definition: {ordering: fifo, retry-on: []}}\n"
    start_router(policy)
    amqp.queue("ledger", dead_letter_exchange=FIFO, single_active_consumer=True)
    for number in range(100):
        amqp.publish(str(number), key="ledger")
    for _ in range(100):
        amqp.fail("ledger")
    eventually(lambda: amqp.exists("DLQ.ledger") and amqp.depth("DLQ.ledger") == 100, within=30)
    taken = take_many(amqp, "DLQ.ledger", 100)
    assert [message.body.decode() for message in taken] == [str(number) for number in range(100)]
    assert vhost.get(f"queues/{vhost.quoted}/DLQ.ledger")["arguments"]["x-single-active-consumer"] is True


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_a_target_that_is_missing_for_a_moment_breaks_no_order(
    amqp: Client, start_router: Callable[..., Router]
) -> None:
    start_router("""
version: 1
policies:
  - name: ledger
    queue: ledger
    definition: {ordering: fifo, retry-on: [], dead-letter-exchange: later, dead-letter-routing-key: all}
""")
    amqp.queue("ledger", dead_letter_exchange=FIFO)
    for number in range(10):
        amqp.publish(str(number), key="ledger")
        amqp.fail("ledger")
    eventually(lambda: amqp.depth(FIFO) == 9, within=10)
    consistently(lambda: amqp.depth(FIFO) == 9, for_s=1)
    amqp.exchange("later")
    amqp.queue("graves")
    amqp.bind("graves", "later", "all")
    assert [amqp.take("graves", within=20).body for _ in range(10)] == [str(number).encode() for number in range(10)]
