"""The traps of dead lettering, each a named scene on a real broker: histories, keys, properties, loops.

On the newest version only, with a router for each: on every version test_routing, test_history and test_retry have
them, beside others of their kind and with one router for all.
"""

import json
from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.support.bulk import INBOX, PARKING, QUARANTINE, record
from tests.support.client import Client, Message
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

pytestmark = pytest.mark.usefixtures("newest")
Start = Callable[..., Router]

RETRIES: Final = """
version: 1
policies:
  - name: work
    match: "work.#"
    definition: {max-delivery-attempts: 3, redelivery-delay: 150ms}
  - name: expiring
    match: "expiring.#"
    definition: {max-delivery-attempts: 3, redelivery-delay: 150ms, retry-on: [expired, delivery_limit, maxlen]}
  - name: out
    match: "out.#"
    definition: {dead-letter-exchange: target, max-delivery-attempts: 1}
  - name: twice
    match: "twice.#"
    definition: {max-delivery-attempts: 1, max-redrives: 1}
  - name: back
    match: "back.#"
    definition: {dead-letter-exchange: round, max-delivery-attempts: 1}
  - name: open
    match: "open.#"
    definition: {dead-letter-exchange: "", dead-letter-routing-key: "{routing_key}", max-delivery-attempts: 1}
"""


def _source(amqp: Client, name: str, kind: str = "classic", **arguments: Any) -> str:
    return amqp.queue(name, kind, dead_letter_exchange=INBOX, **arguments)


def _dead(amqp: Client, queue: str) -> Message:
    eventually(lambda: amqp.exists(queue))
    return amqp.take(queue)


def test_a_letter_goes_from_a_rejecting_consumer_through_the_policy_into_its_dead_letter_queue(
    amqp: Client, start_router: Start
) -> None:
    router = start_router(RETRIES)
    _source(amqp, "out.a")
    amqp.bind(amqp.queue("arrived"), amqp.exchange("target", "fanout"))
    amqp.publish("one", key="out.a")
    amqp.fail("out.a")
    letter = amqp.take("arrived")
    assert letter.body == b"one"
    assert [(death["queue"], death["reason"], death["count"]) for death in letter.deaths] == [("out.a", "rejected", 1)]
    eventually(lambda: router.metric("settled_total", action="dead_letter") == 1)
    assert router.stop() == 0


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_n_rejections_give_count_n_and_one_letter_id(amqp: Client, start_router: Start, kind: str) -> None:
    start_router(RETRIES)
    _source(amqp, "work.a", kind)
    amqp.publish("one", key="work.a", message_id="m-1")
    failed = [amqp.fail("work.a") for _ in range(3)]
    assert [sum(death["count"] for death in message.deaths) for message in failed] == [0, 1, 2]
    dead = _dead(amqp, "DLQ.work.a")
    assert [(death["queue"], death["count"]) for death in dead.deaths] == [("work.a", 3)]
    assert {record(message)["id"] for message in (*failed[1:], dead)} == {dead.headers["dlx-router-id"]}
    assert record(dead)["attempts"] == 3
    assert consistently(lambda: amqp.get("work.a") is None)


def test_native_deaths_in_between_keep_the_history_whole_and_most_recent_first(
    amqp: Client, start_router: Start
) -> None:
    start_router(RETRIES)
    _source(amqp, "work.slow", message_ttl=50)
    amqp.queue("work.a", dead_letter_exchange="", dead_letter_routing_key="work.slow")
    amqp.publish("one", key="work.a")
    amqp.fail("work.a")
    dead = _dead(amqp, "DLQ.work.slow")
    history = [(death["queue"], death["reason"], death["count"]) for death in dead.deaths]
    assert history == [("work.slow", "expired", 1), ("work.a", "rejected", 1)]
    assert dead.headers["x-first-death-queue"] == "work.a"


def test_a_letter_that_expired_returns_to_its_queue_although_brokers_drop_such_cycles(
    amqp: Client, start_router: Start
) -> None:
    start_router(RETRIES)
    _source(amqp, "expiring.a", message_ttl=400)
    amqp.publish("one", key="expiring.a")
    eventually(lambda: amqp.exists("dlx-router.delay.150"))
    eventually(lambda: amqp.depth("expiring.a") == 1)
    dead = _dead(amqp, "DLQ.expiring.a")
    assert [(death["reason"], death["count"]) for death in dead.deaths] == [("expired", 3)]


def test_a_delivery_limit_death_counts_one_attempt(amqp: Client, start_router: Start) -> None:
    start_router(RETRIES)
    _source(amqp, "expiring.q", "quorum", delivery_limit=1)
    amqp.publish("one", key="expiring.q")
    for _ in range(2):
        message = amqp.await_message("expiring.q")
        message.channel.basic_reject(message.tag, requeue=True)
    again = amqp.await_message("expiring.q")
    assert again.deaths[0]["reason"] == "delivery_limit"
    assert record(again)["attempts"] == 1


def test_a_retry_looks_like_the_first_delivery(amqp: Client, start_router: Start) -> None:
    start_router(RETRIES)
    _source(amqp, "work.a")
    amqp.queue("copies")
    amqp.bind("work.a", amqp.exchange("orders", "topic"), "order.#")
    amqp.bind("copies", "orders", "copy")
    properties = {
        "type": "order",
        "priority": 3,
        "correlation_id": "c-1",
        "app_id": "shop",
        "content_type": "text/plain",
    }
    amqp.publish(
        "one",
        exchange="orders",
        key="order.new",
        headers={"CC": ["copy"], "BCC": ["hidden"]},
        delivery_mode=1,
        **properties,
    )
    first = amqp.fail("work.a")
    again = amqp.fail("work.a")
    assert again.routing_key == first.routing_key == "order.new"
    assert again.headers["CC"] == first.headers["CC"] == ["copy"]
    assert "BCC" not in again.headers
    assert again.properties.delivery_mode == 1
    assert {name: getattr(again.properties, name) for name in properties} == properties
    assert again.properties.message_id is None
    assert amqp.depth("copies") == 1


def test_a_foreign_user_id_is_taken_off_and_remembered(amqp: Client, vhost: Vhost, start_router: Start) -> None:
    vhost.put("users/shop", {"password": "shop", "tags": ""})
    vhost.put(f"permissions/{vhost.quoted}/shop", {"configure": ".*", "write": ".*", "read": ".*"})
    start_router(RETRIES)
    _source(amqp, "out.a")
    amqp.bind(amqp.queue("arrived"), amqp.exchange("target", "fanout"))
    host = vhost.amqp_url.partition("@")[2]
    with Client(f"amqp://shop:shop@{host}") as shop:
        shop.publish("one", key="out.a", user_id="shop")
    amqp.fail("out.a")
    letter = amqp.take("arrived")
    assert letter.properties.user_id is None
    assert record(letter)["props"]["user_id"] == "shop"


@pytest.mark.parametrize("kind", ["direct", "topic", "fanout", "headers"])
def test_a_dead_letter_exchange_of_any_type_gets_the_letter(amqp: Client, start_router: Start, kind: str) -> None:
    start_router(RETRIES)
    _source(amqp, "out.a")
    amqp.exchange("target", kind)
    amqp.queue("arrived")
    matching = {"x-match": "all", "tenant": "acme"} if kind == "headers" else None
    amqp.channel.queue_bind("arrived", "target", routing_key="out.a", arguments=matching)
    amqp.publish("one", key="out.a", headers={"tenant": "acme"})
    amqp.fail("out.a")
    assert amqp.take("arrived").routing_key == "out.a"


def test_an_alternate_exchange_is_a_route(amqp: Client, start_router: Start) -> None:
    start_router(RETRIES)
    _source(amqp, "out.a")
    amqp.bind(amqp.queue("arrived"), amqp.exchange("other", "fanout"))
    amqp.channel.exchange_declare("target", "direct", durable=True, arguments={"alternate-exchange": "other"})
    amqp.publish("one", key="out.a")
    amqp.fail("out.a")
    assert amqp.take("arrived").body == b"one"


def test_an_expiration_left_over_never_evaporates_a_copy(amqp: Client, start_router: Start) -> None:
    start_router(RETRIES)
    amqp.publish("one", key=INBOX, expiration="600", headers={"x-note": "no history"})
    eventually(lambda: amqp.depth(PARKING) == 1)
    assert consistently(lambda: amqp.depth(PARKING) == 1, for_s=1.0)
    parked = amqp.take(PARKING)
    assert record(parked)["cause"] == "unknown_origin"
    assert record(parked)["props"]["expiration"] == "600"
    assert "x-death" not in parked.headers


@pytest.mark.parametrize(
    "history", ["text", 7, ["text"], [{"queue": "q", "reason": "rejected", "count": "many"}], [{"reason": "rejected"}]]
)
def test_a_malformed_history_is_quarantined_and_nobody_dies(amqp: Client, start_router: Start, history: Any) -> None:
    router = start_router(RETRIES)
    amqp.publish("odd", key=INBOX, headers={"x-death": history})
    kept = amqp.take(QUARANTINE)
    assert kept.body == b"odd"
    assert kept.headers["x-death"] == history
    _source(amqp, "work.a")
    amqp.publish("next", key="work.a")
    amqp.fail("work.a")
    assert amqp.take("work.a").body == b"next"
    assert router.metric("settled_total", action="quarantine") == 1


def test_headers_copied_onto_a_new_message_start_a_new_letter(amqp: Client, start_router: Start) -> None:
    start_router(RETRIES)
    _source(amqp, "work.a")
    amqp.publish("first", key="work.a")
    amqp.fail("work.a")
    again = amqp.take("work.a")
    amqp.publish("second", key="work.a", headers=again.headers)
    amqp.fail("work.a")
    new = amqp.take("work.a")
    assert new.body == b"second"
    assert record(new)["parent"] == record(again)["id"] != record(new)["id"]
    assert record(new)["attempts"] == 1


def test_a_target_that_leads_back_to_the_inbox_is_a_loop(amqp: Client, start_router: Start) -> None:
    start_router(RETRIES)
    _source(amqp, "back.a")
    amqp.channel.exchange_bind(INBOX, amqp.exchange("round", "fanout"))
    amqp.publish("one", key="back.a")
    amqp.fail("back.a")
    assert record(amqp.take(PARKING))["cause"] == "loop"


@pytest.mark.parametrize("own", ["dlx-router.retired", "dlx-router.state", "dlx-router.release"])
def test_no_producer_sends_a_dead_letter_into_a_queue_of_the_router(
    amqp: Client, start_router: Start, own: str
) -> None:
    """In `retired` it would be acked once it is journalled: dropped, by whoever publishes."""
    router = start_router(RETRIES)
    amqp.bind(_source(amqp, "open.a"), amqp.exchange("in", "topic"), "#")
    amqp.publish("one", exchange="in", key=own)
    amqp.publish("two", exchange="in", key=amqp.queue("archive"))
    for _ in range(2):
        amqp.fail("open.a")
    parked = record(amqp.take(PARKING))
    assert (parked["cause"], parked["target"]) == ("forbidden", own)
    assert amqp.take("archive").body == b"two"
    assert router.metric("settled_total", action="retire") == 0


def test_a_redrive_by_hand_counts_and_is_parked_when_it_dies_too_often(amqp: Client, start_router: Start) -> None:
    start_router(RETRIES)
    _source(amqp, "twice.a")
    amqp.publish("one", key="twice.a")
    amqp.fail("twice.a")
    dead = _dead(amqp, "DLQ.twice.a")
    amqp.publish(dead.body, key="twice.a", headers=dead.headers)
    amqp.fail("twice.a")
    parked = record(amqp.take(PARKING))
    assert (parked["cause"], parked["redrives"], parked["id"]) == ("redrive_exhausted", 1, record(dead)["id"])


def test_a_queue_without_a_policy_is_parked_and_named(amqp: Client, start_router: Start) -> None:
    start_router(RETRIES)
    _source(amqp, "nobody")
    amqp.publish("one", key="nobody")
    amqp.fail("nobody")
    parked = record(amqp.take(PARKING))
    assert (parked["cause"], parked["failed_queue"]) == ("no_policy", "nobody")


def test_an_attached_queue_is_emptied_into_the_target_its_policy_names(amqp: Client, start_router: Start) -> None:
    amqp.queue("legacy.failed")
    amqp.publish("old", key="legacy.failed")
    start_router(
        """
version: 1
attachments: [{queue: legacy.failed}]
policies:
  - name: legacy
    queue: legacy.failed
    definition: {dead-letter-exchange: "", dead-letter-routing-key: archive}
""",
        wait=False,
    )
    amqp.queue("archive")
    assert amqp.take("archive", within=20).body == b"old"


def test_dead_letters_of_an_exclusive_queue_share_a_transient_queue(
    amqp: Client, vhost: Vhost, start_router: Start
) -> None:
    start_router(RETRIES)
    with Client(vhost.amqp_url) as owner:
        owner.channel.queue_declare(
            "work.mine", exclusive=True, arguments={"x-dead-letter-exchange": INBOX, "x-message-ttl": 0}
        )
        owner.publish("one", key="work.mine")
        eventually(lambda: amqp.exists("DLQ.transient"))
    assert json.loads(_dead(amqp, "DLQ.transient").headers["dlx-router"])["failed_queue"] == "work.mine"


def test_one_router_serves_several_vhosts(amqp: Client, vhost: Vhost, start_router: Start) -> None:
    other = Vhost.make(vhost.broker, f"{vhost.name}-2")
    try:
        router = start_router(RETRIES, VHOSTS=f"{vhost.name},{other.name}")
        for place in (vhost, other):
            with Client(place.amqp_url) as client:
                _source(client, "work.a")
                client.publish("one", key="work.a")
                client.fail("work.a")
                assert client.take("work.a").deaths[0]["count"] == 1
            assert router.metric("broker_connected", vhost=place.name) == 1
    finally:
        other.close()
