"""Mode relay: what lives goes on in order and as it came, what is too old or too much dies as in the broker."""

import time
from contextlib import suppress
from datetime import UTC, datetime
from typing import Any, Final

from tests.support.bulk import pour, record, take_many
from tests.support.client import Refused
from tests.support.eventually import eventually
from tests.support.scene import Scene, deaths

ATTACHED: Final = (
    "plain.in",
    "short.in",
    "aged.in",
    "own.in",
    "keyed.in",
    "lost.in",
    "bytes.in",
    "strict.in",
    "astray.in",
)
WHEN: Final = datetime(2026, 1, 2, tzinfo=UTC)
POLICIES: Final = """
version: 1
attachments:
  - {queue: plain.in, mode: relay, forward-to: {exchange: "", routing-key: "plain.out"}}
  - {queue: short.in, mode: relay, forward-to: {exchange: "", routing-key: "short.out"}}
  - {queue: aged.in, mode: relay, forward-to: {exchange: "", routing-key: "aged.out"}}
  - {queue: own.in, mode: relay, forward-to: {exchange: "", routing-key: "own.out"}}
  - {queue: keyed.in, mode: relay, forward-to: {exchange: amq.topic, routing-key: "got.{header:tenant}.{routing_key}"}}
  - {queue: bytes.in, mode: relay, forward-to: {exchange: "", routing-key: "bytes.out"}}
  - {queue: strict.in, mode: relay, forward-to: {exchange: "", routing-key: "strict.out"}}
  - {queue: lost.in, mode: relay, forward-to: {exchange: amq.direct}}
  - {queue: astray.in, mode: relay, forward-to: {exchange: amq.direct}}
policies:
  - {name: plain, match: "plain.#", definition: {}}
  - {name: short, queue: short.in, definition: {max-length: 10}}
  - {name: aged, queue: aged.in, definition: {message-ttl: 1500ms, trust-timestamp: true}}
  - {name: own, queue: own.in, definition: {}}
  - {name: bytes, queue: bytes.in, definition: {max-length-bytes: 1000}}
  - {name: strict, queue: strict.in, definition: {ordering: fifo}}
  - {name: astray, queue: astray.in, definition: {ordering: fifo}}
  - {name: lost, queue: lost.in, definition: {message-ttl: 1h}}
"""


def full(scene: Scene, queue: str, kind: str = "classic") -> str:
    """A target that holds one message and refuses more."""
    scene.amqp.queue(queue, kind, max_length=1, overflow="reject-publish")
    with suppress(Refused):
        scene.amqp.publish("first", key=queue)
    return queue


def numbers(scene: Scene, queue: str, count: int) -> list[int]:
    return [int(message.body) for message in take_many(scene.amqp, queue, count)]


def test_each_message_goes_on_once_and_in_order(scene: Scene) -> None:
    scene.amqp.queue("plain.out")
    pour(scene.amqp, "plain.in", (str(n) for n in range(3000)))
    assert numbers(scene, "plain.out", 3000) == list(range(3000))
    assert scene.settled("forward") >= 3000


def test_a_message_that_goes_on_is_as_it_came(scene: Scene) -> None:
    scene.amqp.queue("plain.out")
    stamp = int(time.time())
    given: dict[str, Any] = {
        "content_type": "text/x", "priority": 3, "delivery_mode": 1, "correlation_id": "c", "reply_to": "r",
        "expiration": "600000", "message_id": "m", "timestamp": stamp, "type": "t", "app_id": "a",
    }  # fmt: skip
    headers: dict[str, Any] = {
        "tenant": "eu",
        "x-delivery-count": 7,
        "CC": ["nowhere"],
        "when": datetime(2026, 1, 2, tzinfo=UTC),
    }
    scene.amqp.publish("hello", key="plain.in", headers=headers, **given)
    got = scene.amqp.take("plain.out")
    assert {name: getattr(got.properties, name) for name in given} == given
    assert got.headers["tenant"] == "eu"
    assert got.headers["when"].replace(tzinfo=UTC) == WHEN
    assert set(got.headers) == {"tenant", "when", "dlx-router-pub"}, "no record, no death; its key took off the CC"


def test_the_oldest_die_where_the_queue_is_too_long_for_its_target(scene: Scene) -> None:
    full(scene, "short.out")
    pour(scene.amqp, "short.in", (str(n) for n in range(40)))
    eventually(lambda: scene.amqp.exists("DLQ.short.in") and scene.amqp.depth("DLQ.short.in") >= 29)
    dead = take_many(scene.amqp, "DLQ.short.in", 29)
    assert [int(message.body) for message in dead[:20]] == list(range(20))
    letter = dead[0]
    assert deaths(letter) == [("short.in", "maxlen", 1)]
    assert letter.deaths[0]["exchange"] == ""
    assert letter.deaths[0]["routing-keys"] == ["short.in"]
    assert letter.headers["x-first-death-reason"] == "maxlen"
    assert (record(letter)["failed_queue"], record(letter)["reason"]) == ("short.in", "maxlen")
    assert scene.amqp.take("short.out").body == b"first"
    living = [int(message.body) for message in take_many(scene.amqp, "short.out", 10)]
    rest = [head for queue in ("short.out", "DLQ.short.in") if (head := scene.amqp.get(queue)) is not None]
    everything = [*living, *(int(message.body) for message in dead), *(int(message.ack().body) for message in rest)]
    assert sorted(everything) == list(range(40)), "each of them once"
    assert living == sorted(living), "the living in their order"


def test_what_waits_longer_than_its_time_dies_expired_and_not_early(scene: Scene) -> None:
    full(scene, "aged.out")
    began = time.time()
    scene.amqp.publish("old", key="aged.in", headers={"CC": ["elsewhere"]}, message_id="1")
    letter = scene.amqp.take("DLQ.aged.in")
    assert time.time() - began >= 1.5
    assert deaths(letter) == [("aged.in", "expired", 1)]
    assert letter.deaths[0]["routing-keys"] == ["aged.in", "elsewhere"]
    assert "original-expiration" not in letter.deaths[0]


def test_a_message_without_a_route_waits_and_goes_on_when_there_is_one(scene: Scene) -> None:
    scene.amqp.publish("hello", key="lost.in", headers={"a": 1}, expiration="600000", priority=2)
    eventually(lambda: scene.settled("hold") >= 1)
    scene.amqp.queue("lost.out")
    scene.amqp.bind("lost.out", "amq.direct", "lost.in")
    got = scene.amqp.take("lost.out", within=30)
    assert (got.body, got.routing_key) == (b"hello", "lost.in")
    assert set(got.headers) == {"a", "dlx-router-pub"}
    assert (got.properties.expiration, got.properties.priority) == ("600000", 2)


def test_the_order_is_kept_although_the_target_refuses(scene: Scene) -> None:
    scene.amqp.queue("strict.out", max_length=5, overflow="reject-publish")
    pour(scene.amqp, "strict.in", (str(n) for n in range(60)))
    eventually(lambda: scene.amqp.depth("strict.out") == 5)
    assert numbers(scene, "strict.out", 60) == list(range(60))


def test_what_has_no_route_is_held_in_a_strict_relay_too_and_does_not_block_the_others(scene: Scene) -> None:
    for key in ("one.astray", "two.astray", "three.astray"):
        scene.amqp.bind("astray.in", "amq.topic", key)
    scene.amqp.queue("astray.out")
    for key in ("two.astray", "three.astray"):
        scene.amqp.bind("astray.out", "amq.direct", key)
    held = scene.settled("hold")
    for key in ("one.astray", "two.astray", "three.astray"):
        scene.amqp.publish(key, exchange="amq.topic", key=key)
    assert [message.body for message in take_many(scene.amqp, "astray.out", 2)] == [b"two.astray", b"three.astray"]
    eventually(lambda: scene.settled("hold") > held)
    scene.amqp.bind("astray.out", "amq.direct", "one.astray")
    assert scene.amqp.take("astray.out", within=30).body == b"one.astray"
