"""Tried again: how often, when, and what the consumer sees; on every version alike."""

import time
from collections.abc import Iterator
from typing import Any, Final

import pika
import pytest

from tests.support.bulk import INBOX, PARKING, record
from tests.support.client import Client, Message
from tests.support.eventually import consistently
from tests.support.scene import Scene, deaths

POLICIES: Final = """
version: 1
policies:
  - name: one
    match: "one.#"
    definition: {max-delivery-attempts: 1}
  - name: two
    match: "two.#"
    definition: {max-delivery-attempts: 2}
  - name: three
    match: "three.#"
    definition: {max-delivery-attempts: 3}
  - name: endless
    match: "endless.#"
    definition: {max-delivery-attempts: -1}
  - name: default
    match: "default.#"
    definition: {}
  - name: any-reason
    match: "any.#"
    definition:
      max-delivery-attempts: 3
      redelivery-delay: 200ms
      retry-on: [rejected, expired, maxlen, delivery_limit]
  - name: waits
    match: "waits.#"
    definition:
      max-delivery-attempts: 5
      redelivery-delay: 200ms
      redelivery-delay-multiplier: 2.0
      max-redelivery-delay: 600ms
  - name: jitter
    match: "jitter.#"
    definition: {max-delivery-attempts: 2, redelivery-delay: 400ms, redelivery-collision-avoidance-factor: 0.5}
  - name: looks
    match: "looks.#"
    definition: {max-delivery-attempts: 4, redelivery-delay: 100ms}
  - name: by-reason
    match: "overlaid.#"
    definition:
      max-delivery-attempts: 2
      on:
        rejected: {max-delivery-attempts: 3}
        delivery_limit: {max-delivery-attempts: 1}
        expired: {retry-on: [expired]}
"""


def _deliveries(scene: Scene, queue: str) -> int:
    """How often a letter that is always rejected is delivered before it lies in its dead-letter queue."""
    scene.amqp.publish("hello", key=queue)
    count = 0
    while not (scene.amqp.exists(f"DLQ.{queue}") and scene.amqp.depth(f"DLQ.{queue}")):
        message = scene.amqp.get(queue)
        if message is not None:
            message.reject()
            count += 1
    return count


# -- how often --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("policy", "attempts"), [("one", 1), ("two", 2), ("three", 3), ("default", 10)])
@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_n_attempts_are_exactly_n_deliveries(scene: Scene, kind: str, policy: str, attempts: int) -> None:
    queue = scene.work(f"{policy}.{kind}", kind)
    assert _deliveries(scene, queue) == attempts
    letter = scene.amqp.take(f"DLQ.{queue}")
    assert (record(letter)["attempts"], record(letter)["cause"]) == (attempts, "attempts_spent")
    assert consistently(lambda: scene.amqp.depth(queue) == 0, 0.2)


# -- delivery limits --------------------------------------------------------------------------------------------------


def test_a_death_by_delivery_limit_counts_one_attempt(scene: Scene) -> None:
    queue = scene.work("two.limited", "quorum", delivery_limit=2)
    scene.amqp.publish("hello", key=queue)
    for count in (0, 1):
        for _ in range(3):
            message = scene.amqp.await_message(queue)
            assert deaths(message) == ([(queue, "delivery_limit", count)] if count else [])
            message.put_back()
    letter = scene.amqp.take(f"DLQ.{queue}")
    assert (deaths(letter), record(letter)["attempts"]) == ([(queue, "delivery_limit", 2)], 2)
    assert scene.amqp.depth(queue) == 0


def test_own_queues_have_no_delivery_limit_that_could_be_reached(scene: Scene) -> None:
    queue = scene.work("looks.limits")
    scene.amqp.publish("hello", key=queue)
    scene.amqp.fail(queue)
    scene.amqp.take(queue)
    _deliveries(scene, scene.work("one.limits"))
    limits = {
        row["name"]: row["arguments"].get("x-delivery-limit")
        for row in scene.vhost.get(f"queues/{scene.vhost.quoted}?disable_stats=true&enable_queue_totals=true")
        if row["name"].startswith(("dlx-router.", "DLQ.")) and row["arguments"].get("x-queue-type") == "quorum"
    }
    assert {INBOX, PARKING, "dlx-router.release", "dlx-router.delay.100", "DLQ.one.limits"} <= set(limits)
    assert set(limits.values()) == {2147483647}


# -- 3.10 drops silently what would go back to a queue where it expired -----------------------------------------------


def _expire(client: Client, queue: str) -> None:
    client.publish("hello", key=queue, expiration="0")  # 1 might be long enough to be taken alive


def _overflow(client: Client, queue: str) -> None:
    client.publish("hello", key=queue)
    client.publish("next", key=queue)
    assert client.take(queue).body == b"next"


def _reach_the_limit(client: Client, queue: str) -> None:
    client.publish("hello", key=queue)
    client.await_message(queue).put_back()


@pytest.mark.parametrize(
    ("reason", "die", "kind", "arguments"),
    [
        ("expired", _expire, "classic", {}),
        ("expired", _expire, "quorum", {}),
        ("maxlen", _overflow, "classic", {"max_length": 1}),
        ("maxlen", _overflow, "quorum", {"max_length": 1}),
        ("delivery_limit", _reach_the_limit, "quorum", {"delivery_limit": 0}),
    ],
)
def test_what_died_without_a_rejection_reaches_its_queue_again_after_a_wait(
    scene: Scene, reason: str, die: Any, kind: str, arguments: dict[str, Any]
) -> None:
    queue = scene.work(f"any.{reason}.{kind}", kind, **arguments)
    die(scene.amqp, queue)
    again = scene.amqp.await_message(queue, within=3)
    assert (again.body, deaths(again)) == (b"hello", [(queue, reason, 1)])
    again.reject()
    last = scene.amqp.await_message(queue, within=3)
    assert deaths(last) == [(queue, "rejected", 1), (queue, reason, 1)]
    last.ack()


# -- when -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_waits_double_up_to_their_cap_and_are_never_early(scene: Scene, kind: str) -> None:
    queue, waits = scene.work(f"waits.{kind}", kind), []
    scene.amqp.publish("hello", key=queue)
    message = scene.amqp.await_message(queue)
    for _ in range(4):
        failed = time.time()
        message.reject()
        message = scene.amqp.await_message(queue)
        waits.append(time.time() - failed)
        assert time.time() * 1000 >= record(message)["due_ms"]
    message.ack()
    for wait, least in zip(waits, (0.2, 0.4, 0.6, 0.6), strict=True):
        assert least - 0.002 <= wait < least + 3, f"{waits}: the clocks are in milliseconds"


def test_letters_with_short_waits_do_not_stand_behind_those_with_long(scene: Scene) -> None:
    slow, quick = scene.work("waits.slow"), scene.work("looks.quick")
    scene.amqp.publish("slow", key=slow)
    scene.amqp.fail(slow)
    scene.amqp.fail(slow)
    scene.amqp.fail(slow)  # waits 600 ms
    scene.amqp.publish("quick", key=quick)
    scene.amqp.fail(quick)  # waits 100 ms
    scene.amqp.take(quick)
    assert scene.amqp.depth(slow) == 0
    scene.amqp.take(slow)


# -- what the consumer sees -------------------------------------------------------------------------------------------

SAID: Final[dict[str, Any]] = {
    "content_type": "application/json",
    "content_encoding": "identity",
    "correlation_id": "c-1",
    "reply_to": "answers",
    "message_id": "m-1",
    "timestamp": 1_700_000_000,
    "type": "order.created",
    "user_id": "guest",
    "app_id": "shop",
}


def _seen(message: Message) -> dict[str, Any]:
    properties = {name: value for name, value in vars(message.properties).items() if value is not None}
    ours = {name for name in message.headers if name.startswith(("x-", "dlx-router"))}
    headers = {name: value for name, value in message.headers.items() if name not in ours}
    return {**properties, "headers": headers, "routing key": message.routing_key, "body": message.body}


@pytest.mark.parametrize("policy", ["looks", "three"], ids=["with-waits", "without-waits"])
@pytest.mark.parametrize("mode", [1, 2, None], ids=["transient", "persistent", "no-delivery-mode"])
def test_on_every_retry_the_consumer_sees_the_first_delivery(scene: Scene, policy: str, mode: int | None) -> None:
    queue = scene.work(f"{policy}.mode-{mode}", max_priority=9)
    scene.amqp.bind(queue, scene.amqp.exchange("shop", "topic"), f"order.created.{policy}.{mode}")
    bystander = scene.amqp.queue(f"bystander.{policy}.{mode}")
    scene.amqp.bind(bystander, "shop", bystander)
    properties = {**SAID, "priority": 7, "delivery_mode": mode}
    headers = {
        "CC": [bystander],
        "tenant": "a",
        "traceparent": "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01",
    }
    scene.amqp.publish(
        b"\x00\xff", key=f"order.created.{policy}.{mode}", exchange="shop", headers=headers, **properties
    )
    first = _seen(scene.amqp.fail(queue))
    assert first["routing key"] == f"order.created.{policy}.{mode}"
    assert first["headers"] == headers
    assert {name: first.get(name) for name in properties} == properties
    for _ in range(2):
        assert _seen(scene.amqp.fail(queue)) == first
    assert scene.amqp.depth(bystander) == 1, "its CC copy came from the publisher, and none from a retry"


def test_a_retry_reaches_only_the_queue_that_failed(scene: Scene) -> None:
    scene.amqp.exchange("news", "fanout")
    queue, other = scene.work("three.subscriber-a"), scene.work("three.subscriber-b")
    scene.amqp.bind(queue, "news")
    scene.amqp.bind(other, "news")
    scene.amqp.publish("hello", key="three.subscriber-b", exchange="news")
    scene.amqp.fail(queue)
    scene.amqp.take(queue)
    assert scene.amqp.depth(other) == 1


def test_a_routing_key_that_looks_like_a_way_back_leads_nobody_astray(scene: Scene) -> None:
    queue, other = scene.work("three.astray"), scene.work("three.other")
    for name in (queue, other):
        scene.amqp.publish("known", key=name)
        scene.amqp.fail(name)
        scene.amqp.take(name)  # both are bound for their way back now
    scene.amqp.bind(queue, scene.amqp.exchange("astray", "fanout"))
    scene.amqp.publish("hello", key=f"to:{other}", exchange="astray")
    scene.amqp.fail(queue)
    assert scene.amqp.take(queue).body == b"hello"
    assert scene.amqp.depth(other) == 0


def test_an_exclusive_queue_gets_its_letters_back(scene: Scene) -> None:
    scene.amqp.channel.queue_declare("two.exclusive", exclusive=True, arguments={"x-dead-letter-exchange": INBOX})
    scene.amqp.publish("hello", key="two.exclusive")
    scene.amqp.fail("two.exclusive")
    assert deaths(scene.amqp.take("two.exclusive")) == [("two.exclusive", "rejected", 1)]


# -- user-id ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def other_user(scene: Scene) -> Iterator[str]:
    """The URL of a publisher who is not the router's user; gone afterwards."""
    scene.vhost.put("users/somebody", {"password": "s3cret", "tags": ""})
    everything = {"configure": ".*", "write": ".*", "read": ".*"}
    scene.vhost.put(f"permissions/{scene.vhost.quoted}/somebody", everything)
    place = pika.URLParameters(scene.vhost.amqp_url)
    yield f"amqp://somebody:s3cret@{place.host}:{place.port}/{scene.vhost.quoted}"
    scene.vhost.api.delete("users/somebody").raise_for_status()


def test_a_foreign_user_id_is_taken_off_and_remembered_and_its_neighbours_go_on(scene: Scene, other_user: str) -> None:
    queue = scene.work("looks.user")
    with Client(other_user) as publisher:
        publisher.publish("foreign", key=queue, user_id="somebody")
    scene.amqp.publish("own", key=queue, user_id="guest")
    assert [scene.amqp.fail(queue).properties.user_id for _ in range(2)] == ["somebody", "guest"]
    for _ in range(3):
        again = {message.body: message for message in (scene.amqp.fail(queue), scene.amqp.fail(queue))}
        assert (again[b"foreign"].properties.user_id, again[b"own"].properties.user_id) == (None, "guest")
    last = {message.body: message for message in (scene.amqp.take(f"DLQ.{queue}"), scene.amqp.take(f"DLQ.{queue}"))}
    assert (last[b"foreign"].properties.user_id, record(last[b"foreign"])["props"]["user_id"]) == (None, "somebody")
    assert last[b"own"].properties.user_id == "guest"
    assert scene.router.metric("publish_refused_total", cause="closed") == 0
