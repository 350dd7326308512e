"""The thin slice: one letter from a rejecting consumer through inbox and policy into its dead-letter queue."""

from collections.abc import Callable

from tests.support.bulk import INBOX, PARKING, QUARANTINE, record
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router

POLICY = """
version: 1
policies:
  - name: all
    match: "#"
    definition:
      max-delivery-attempts: 1
"""


def test_a_rejected_letter_reaches_its_dead_letter_queue(amqp: Client, start_router: Callable[..., Router]) -> None:
    router = start_router(POLICY)
    amqp.queue("work", dead_letter_exchange=INBOX)
    amqp.publish("hello", key="work", headers={"tenant": "a"}, message_id="1")
    amqp.fail("work")

    letter = amqp.take("DLQ.work")
    assert (letter.body, letter.headers["tenant"], letter.properties.message_id) == (b"hello", "a", "1")
    assert [(death["queue"], death["reason"], death["count"]) for death in letter.deaths] == [("work", "rejected", 1)]
    fields = record(letter)
    assert (fields["state"], fields["cause"], fields["policy"]) == ("dead", "attempts_spent", "all")
    assert letter.headers["dlx-router-id"] == fields["id"]

    assert eventually(lambda: router.metric("settled_total", action="dead_letter") == 1)
    assert (amqp.depth("work"), amqp.depth(PARKING), amqp.depth(QUARANTINE)) == (0, 0, 0)
