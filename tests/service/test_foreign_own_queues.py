"""Queues and exchanges under the router's names that somebody else declared first, with other arguments."""

from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import pytest

from tests.support.alone import alone, refuse_over
from tests.support.bulk import INBOX, PARKING, QUARANTINE, law_holds
from tests.support.client import Client, Refused
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.version_draw import share
from tests.support.vhost import Vhost
from tools import brokers

Start = Callable[..., Router]

POLICIES: Final = """
version: 1
policies:
  - {name: work, match: "work.#", definition: {max-delivery-attempts: 3, redelivery-delay: 5s}}
"""
BOTH: Final = pytest.mark.parametrize("settings", [{}, {"MANAGEMENT_URL": ""}], ids=["management", "amqp"])
OURS: Final = {"delivery_limit": 2_147_483_647, "overflow": "reject-publish"}
CAUGHT: Final = {
    **OURS,
    "dead_letter_exchange": "",
    "dead_letter_routing_key": QUARANTINE,
    "dead_letter_strategy": "at-least-once",
}


def accepted(amqp: Client) -> bool:
    """While the broker ends a queue, a channel that published into it may get a nack for the next of that name."""
    try:
        amqp.publish("waits", key=INBOX)
    except Refused:
        return False
    return True


HARMFUL: Final[dict[str, tuple[str, dict[str, Any], str, str]]] = {
    "an inbox without a dead-letter exchange": (INBOX, OURS, "quorum", "x-dead-letter-exchange"),
    "an inbox whose dead go elsewhere": (
        INBOX,
        {**CAUGHT, "dead_letter_routing_key": "elsewhere"},
        "quorum",
        "x-dead-letter-routing-key",
    ),
    "a parking that drops what is beyond a length": (
        PARKING,
        {**CAUGHT, "overflow": "drop-head", "max_length": 1},
        "quorum",
        "x-max-length",
    ),
    "a parking that forgets": (PARKING, {**CAUGHT, "message_ttl": 1000}, "quorum", "x-message-ttl"),
    "a release that deletes after some returns": (
        "dlx-router.release",
        {**CAUGHT, "delivery_limit": 5},
        "quorum",
        "x-delivery-limit",
    ),
    "a classic inbox": (INBOX, {}, "classic", "x-queue-type"),
    "a fifo inbox that serves several": ("dlx-router.inbox.fifo", CAUGHT, "quorum", "x-single-active-consumer"),
}


@BOTH
@pytest.mark.parametrize("case", share([*HARMFUL], 2))
def test_what_can_cost_letters_is_named_and_nothing_is_consumed(
    case: str, settings: dict[str, str], amqp: Client, start_router: Start
) -> None:
    queue, arguments, kind, named = HARMFUL[case]
    amqp.queue(queue, kind, **arguments)
    router = start_router(POLICIES, wait=False, **settings)
    eventually(lambda: router.says_ready(503, f"queue '{queue}'", named, "delete it", "PREFIX"), within=20)
    amqp.publish("waits", key=INBOX)
    assert consistently(lambda: amqp.depth(INBOX) == 1, for_s=1)
    if queue == INBOX:
        assert amqp.take(INBOX).body == b"waits"
    amqp.channel.queue_delete(queue)
    if queue == INBOX:
        eventually(lambda: amqp.exists(INBOX), within=20)
        eventually(lambda: accepted(amqp))
    router.await_ready(within=30)
    assert amqp.take(PARKING).body == b"waits"


def test_a_binding_that_leads_a_letter_to_two_of_our_queues_is_named(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    start_router(POLICIES).stop()
    amqp.bind(PARKING, "dlx-router.release")
    router = start_router(POLICIES, wait=False)
    eventually(lambda: router.says_ready(503, "exchange 'dlx-router.release'", PARKING), within=20)
    amqp.channel.queue_unbind(PARKING, "dlx-router.release", routing_key="")
    amqp.bind(amqp.queue("copies"), INBOX)
    router.await_ready(within=30)
    assert router.says_ready(200, "'copies'", "no letter is lost")


def test_a_rung_that_a_broker_left_half_made_is_finished(amqp: Client, start_router: Start) -> None:
    """A node that froze between the declarations of queue and binding: no session began any more."""
    router, rung = start_router(POLICIES.replace("5s", "1s")), "dlx-router.delay.1000"
    amqp.queue("work.a", dead_letter_exchange=INBOX)
    died = {"queue": "work.a", "reason": "rejected", "count": 1, "exchange": "", "routing-keys": ["work.a"]}
    amqp.publish("one", key=INBOX, headers={"x-death": [died]})
    assert amqp.take("work.a", within=20).body == b"one"
    router.stop()
    amqp.channel.queue_unbind(rung, rung, routing_key="")
    router.start()
    amqp.publish("two", key=INBOX, headers={"x-death": [died]})
    assert amqp.take("work.a", within=20).body == b"two"


@pytest.mark.slow
def test_nothing_is_rejected_from_a_queue_whose_dead_letter_exchange_was_not_seen(
    own_broker: brokers.Node, tmp_path: Path
) -> None:
    """The broker would drop it, and it would be counted as quarantined."""
    with alone(own_broker, tmp_path, POLICIES, {"MANAGEMENT_URL": ""}) as (router, amqp):
        router.start().stop()
        amqp.channel.queue_delete(INBOX)
        amqp.queue(INBOX, "quorum", **OURS)
        amqp.publish("x" * 20_000, key=INBOX)
        refuse_over(own_broker, 10_000)
        router.settings["DECLARE"] = "never"
        router.start(wait=False)
        eventually(lambda: router.says_ready(503, f"queue '{INBOX}'", "is not rejected"), within=30)
        amqp.publish("next", key=INBOX)
        assert amqp.take(PARKING).body == b"next"
        assert router.metric("settled_total", action="quarantine") == 0
        eventually(lambda: law_holds(router))
        router.kill()
        assert amqp.take(INBOX, within=20).body == b"x" * 20_000


def test_a_vhost_that_cannot_work_takes_the_api_of_the_others_from_nobody(
    amqp: Client, vhost: Vhost, start_router: Start
) -> None:
    other = Vhost.make(vhost.broker, f"{vhost.name}-2")
    try:
        amqp.queue(INBOX, "classic")
        router = start_router(POLICIES, VHOSTS=f"{vhost.name},{other.name}")
        eventually(lambda: router.says_ready(200, f"queue '{INBOX}'", "x-queue-type", vhost.name), within=20)
        assert router.metric("vhost_ready", vhost=other.name) == 1
        assert not router.metric("vhost_ready", vhost=vhost.name)
        amqp.channel.queue_delete(INBOX)
        eventually(lambda: router.metric("vhost_ready", vhost=vhost.name) == 1, within=30)
    finally:
        other.close()
