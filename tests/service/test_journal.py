"""The journal beside the letters: every decision is an event, and no mode of it loses or holds a letter."""

from collections import Counter
from collections.abc import Callable
from typing import Final

import pytest

from tests.journal import stream
from tests.support.bulk import INBOX, frozen, law_holds, rests, take_many
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

POLICIES: Final = """
version: 1
policies:
  - name: all
    match: "#"
    definition: {max-delivery-attempts: 2, redelivery-delay: 300ms}
  - name: once
    match: "once.#"
    definition: {max-delivery-attempts: 1}
  - name: drop
    match: "drop.#"
    definition: {max-delivery-attempts: 1, discard: true}
"""
Start = Callable[..., Router]
N: Final = 20
TOGETHER: Final = 5
DECIDED: Final = {"retried": N, "released": N, "dead_lettered": N, "discarded": 5, "parked": 1}


@pytest.mark.parametrize("mode", ["best-effort", "required", "off"])
def test_each_decision_is_one_event(vhost: Vhost, amqp: Client, start_router: Start, mode: str) -> None:
    amqp.queue("work.a", dead_letter_exchange=INBOX)
    amqp.queue("drop.a", dead_letter_exchange=INBOX)
    router = start_router(POLICIES, JOURNAL=mode)
    for number in range(N):
        amqp.publish(f"letter {number}", key="work.a", message_id=f"m{number}")
        amqp.fail("work.a")
    for _ in range(N):
        amqp.fail("work.a")
    for number in range(5):
        amqp.publish(f"letter {number}", key="drop.a")
        amqp.fail("drop.a")
    amqp.publish("of unknown origin", key="", exchange=INBOX)
    take_many(amqp, "DLQ.work.a", N)
    rests(router)
    law_holds(router)
    assert router.stop() == 0
    if mode == "off":
        assert not amqp.exists("dlx-router.journal")
        return
    events = stream.events(vhost.amqp_url)
    assert Counter(event["kind"] for event in events) == DECIDED
    assert len({event["event_id"] for event in events}) == len(events)


@pytest.mark.parametrize("mode", ["best-effort", "required"])
def test_an_event_names_the_queue_that_the_letter_went_to_and_stands_there_once(
    vhost: Vhost, amqp: Client, start_router: Start, mode: str
) -> None:
    """Together, before it is known which queue that is, and one by one afterwards."""
    router = start_router(POLICIES, JOURNAL=mode)
    where = {"once.lasting": "DLQ.once.lasting", "once.exclusive": "DLQ.transient", "once.vanished": "DLQ.transient"}
    amqp.queue("once.lasting", dead_letter_exchange=INBOX)
    amqp.queue("once.vanished", dead_letter_exchange=INBOX)
    amqp.channel.queue_declare("once.exclusive", exclusive=True, arguments={"x-dead-letter-exchange": INBOX})
    with frozen(router):
        for queue in where:
            _die(amqp, queue, TOGETHER)
        amqp.channel.queue_delete("once.vanished")
    eventually(lambda: router.metric("settled_total", action="dead_letter") == 3 * TOGETHER)
    take_many(amqp, "DLQ.once.lasting", TOGETHER)
    take_many(amqp, "DLQ.transient", 2 * TOGETHER)
    for _ in range(3):
        _die(amqp, "once.lasting", 1)
        take_many(amqp, "DLQ.once.lasting", 1)
        _die(amqp, "once.exclusive", 1)
        take_many(amqp, "DLQ.transient", 1)
    rests(router)
    assert router.stop() == 0
    events = stream.events(vhost.amqp_url)
    assert {event["failed_queue"]: event["target"]["routing_key"] for event in events} == where
    assert Counter(event["kind"] for event in events) == {"dead_lettered": 3 * TOGETHER + 6}
    assert all(event["target"]["routing_key"] == where[event["failed_queue"]] for event in events)


def _die(amqp: Client, queue: str, count: int) -> None:
    for number in range(count):
        amqp.publish(f"{queue} {number}", key=queue)
        amqp.fail(queue)
