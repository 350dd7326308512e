"""What AMQP 1.0 and odd tables let in, and the broker refuses from us: the letter passes, and no channel closes."""

from collections.abc import Callable
from typing import Any, Final
from urllib.parse import quote, urlsplit

import pytest

from dlx_router.wire import properties, table
from tests.support.bulk import INBOX, PARKING, QUARANTINE
from tests.support.client import Client, Message
from tests.support.eventually import eventually
from tests.support.raw import RawClient
from tests.support.router import Router
from tests.support.scene import Scene
from tests.support.vhost import Vhost

POLICIES: Final = """
version: 1
policies:
  - {name: waits, match: "waits.#", definition: {max-delivery-attempts: 2, redelivery-delay: 200ms}}
  - {name: one, match: "one.#", definition: {max-delivery-attempts: 1}}
  - name: shop
    match: "shop.#"
    definition: {max-delivery-attempts: 2, redelivery-delay: 200ms, dead-letter-exchange: grave}
  - {name: topical, match: "topical.#", definition: {max-delivery-attempts: 1, dead-letter-exchange: amq.topic}}
  - {name: streamed, match: "streamed.#", definition: {max-delivery-attempts: 1, dead-letter-exchange: log}}
delayed:
  - {exchange: edges.delayed, to: amq.direct}
"""
CLOSED: Final = "publish_refused_total"
KEYS: Final = [f"elsewhere.{number}.{'k' * 100}" for number in range(80)]
# A routing key has 255 bytes at most, a CC key what a frame holds: every version takes it, and tells it in x-death.
LONG: Final = ["k" * 256, "é" * 200, "far." + "away." * 4000 + "away"]


def odd(scene: Scene, queue: str, headers: bytes) -> None:
    """A message with this header table, byte for byte."""
    with RawClient(scene.vhost.amqp_url) as client:
        client.publish(b"odd", properties.build(headers=headers, delivery_mode=2), key=queue)


def bcc_of_text() -> bytes:
    """Of two the broker takes the first one off, and lets the other one pass."""
    return table.array_of_longstr(b"BCC", [b"nowhere"]) + table.longstr(b"BCC", b"elsewhere")


def closed(scene: Scene) -> float:
    return scene.router.metric(CLOSED, cause="closed")


def passed(scene: Scene, before: float) -> None:
    """No channel closed, and nothing was given up."""
    assert closed(scene) == before
    assert (scene.amqp.depth(QUARANTINE), scene.amqp.depth(PARKING)) == (0, 0)


def not_on_3(scene: Scene) -> None:
    if scene.vhost.broker.version.startswith("3."):
        pytest.skip("the broker's own dead lettering crashes there on a BCC of text, before the router has it")


def test_a_bcc_of_text_is_put_aside(scene: Scene) -> None:
    not_on_3(scene)
    queue, before = scene.work("waits.bcc"), closed(scene)
    odd(scene, queue, bcc_of_text() + table.longstr(b"tenant", b"a"))
    assert scene.amqp.fail(queue).headers["BCC"] == "elsewhere"
    for message in (scene.amqp.fail(queue), scene.amqp.take(f"DLQ.{queue}")):
        assert {"tenant": "a", "dlx-router-BCC": "elsewhere"}.items() <= message.headers.items()
        assert "BCC" not in message.headers
    passed(scene, before)


def test_neighbours_of_a_bcc_of_text_are_not_published_twice(scene: Scene) -> None:
    not_on_3(scene)
    queue, before = scene.work("one.neighbours", "quorum"), closed(scene)
    for number in range(100):
        scene.amqp.publish(str(number), key=queue)
        if number % 20 == 10:
            odd(scene, queue, bcc_of_text())
    for _ in range(105):
        scene.amqp.fail(queue)
    eventually(lambda: scene.amqp.depth(f"DLQ.{queue}") >= 105)
    bodies = [scene.amqp.take(f"DLQ.{queue}").body for _ in range(scene.amqp.depth(f"DLQ.{queue}"))]
    assert sorted(bodies) == sorted([*(str(number).encode() for number in range(100)), *[b"odd"] * 5])
    passed(scene, before)


def test_a_filter_of_a_stream_that_is_no_text_does_not_end_the_connection(scene: Scene) -> None:
    """4.x closes the connection of who publishes it into a stream."""
    queue, before = scene.work("streamed.filter"), scene.settled("dead_letter")
    scene.amqp.queue("log", "stream")
    scene.amqp.bind("log", scene.amqp.exchange("log", "fanout"))
    scene.amqp.publish("odd", key=queue, headers={"x-stream-filter-value": 5})
    scene.amqp.publish("even", key=queue, headers={"x-stream-filter-value": "a"})
    for _ in range(2):
        scene.amqp.fail(queue)
    eventually(lambda: scene.settled("dead_letter") == before + 2)
    got = streamed(scene, 2)
    assert got[b"odd"]["dlx-router-x-stream-filter-value"] == 5
    assert got[b"even"]["x-stream-filter-value"] == "a"
    assert scene.router.metric("given_back_total") == 0


def streamed(scene: Scene, count: int) -> dict[bytes, dict[str, Any]]:
    """Body → headers of all that is in the stream."""
    got: dict[bytes, dict[str, Any]] = {}
    with Client(scene.vhost.amqp_url) as client:
        channel = client.connection.channel()
        channel.basic_qos(prefetch_count=10)
        for method, props, body in channel.consume(
            "log", arguments={"x-stream-offset": "first"}, inactivity_timeout=60
        ):
            assert method is not None, f"{len(got)} of {count}"
            got[body] = props.headers
            if len(got) == count:
                return got
    return got


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_cc_keys_over_255_bytes_outlive_a_wait(scene: Scene, kind: str) -> None:
    queue, before = scene.work(f"waits.long.{kind}", kind), closed(scene)
    scene.amqp.publish("long", key=queue, headers={"CC": LONG})
    for message in (scene.amqp.fail(queue), scene.amqp.fail(queue)):
        assert (message.headers["CC"], message.routing_key) == (LONG, queue)
    dead = scene.amqp.take(f"DLQ.{queue}")
    assert (dead.body, dead.deaths[0]["routing-keys"], dead.deaths[0]["count"]) == (b"long", [queue, *LONG], 2)
    passed(scene, before)


def test_a_dead_letter_goes_by_all_its_keys_after_a_wait(scene: Scene) -> None:
    """Its last CC key is bound in the exchange of dead letters."""
    queue, before = scene.work("shop.cc"), closed(scene)
    scene.amqp.bind(queue, scene.amqp.exchange("shop", "direct"), "new")
    scene.amqp.bind(scene.amqp.queue("last"), scene.amqp.exchange("grave", "direct"), KEYS[-1])
    scene.amqp.publish("many", exchange="shop", key="new", headers={"CC": KEYS})
    for message in (scene.amqp.fail(queue), scene.amqp.fail(queue)):
        assert (message.headers["CC"], message.routing_key) == (KEYS, "new")
    dead = scene.amqp.take("last")
    assert (dead.headers["CC"], dead.routing_key, dead.deaths[0]["routing-keys"]) == (KEYS, "new", ["new", *KEYS])
    passed(scene, before)


# -- by AMQP 1.0, which is native to 4.x -------------------------------------------------------------------------------


@pytest.fixture
def native(vhost: Vhost, amqp: Client) -> Callable[..., None]:
    """native(queue, **what) publishes by AMQP 1.0."""
    if vhost.broker.version.startswith("3."):
        pytest.skip("AMQP 1.0 is a plugin there")
    proton = pytest.importorskip("proton")
    utils = pytest.importorskip("proton.utils")
    parts = urlsplit(vhost.amqp_url)

    def publish(queue: str, **what: Any) -> None:
        connection = utils.BlockingConnection(
            f"amqp://{parts.username or 'guest'}:{parts.password or 'guest'}@{parts.hostname}:{parts.port}",
            timeout=10, allowed_mechs="PLAIN", virtual_host=f"vhost:{vhost.name}",
        )  # fmt: skip
        try:
            sender = connection.create_sender(f"/queues/{quote(queue, safe='')}")
            sender.send(proton.Message(body=b"odd", inferred=True, durable=True, **what))
        finally:
            connection.close()

    return publish


@pytest.mark.parametrize(
    ("what", "aside"),
    [
        ({"properties": {"CC": "elsewhere"}}, {"dlx-router-CC": "elsewhere"}),
        ({"properties": {"BCC": "elsewhere"}}, {"dlx-router-BCC": "elsewhere"}),
        ({"properties": {"CC": 1, "BCC": None}}, {"dlx-router-CC": 1, "dlx-router-BCC": None}),
        ({"reply_to": "amq.rabbitmq.reply-to"}, {"dlx-router-reply-to": "amq.rabbitmq.reply-to"}),
    ],
    ids=["cc", "bcc", "no-text", "reply-to"],
)
def test_what_amqp_10_lets_in_passes(
    native: Callable[..., None], start_router: Callable[..., Router], amqp: Client, what: Any, aside: dict[str, Any]
) -> None:
    router = start_router(POLICIES)
    queue = amqp.queue("waits.native", "quorum", dead_letter_exchange=INBOX)
    native(queue, **what)
    amqp.fail(queue)
    for message in (amqp.fail(queue), amqp.take(f"DLQ.{queue}")):
        assert aside.items() <= message.headers.items()
        assert replied(message) is None
    assert (router.metric(CLOSED, cause="closed"), amqp.depth(QUARANTINE)) == (0, 0)


def replied(message: Message) -> str | None:
    reply_to: str | None = message.properties.reply_to
    return reply_to


def test_what_cannot_be_read_and_asks_for_a_direct_reply_is_kept(
    native: Callable[..., None], start_router: Callable[..., Router], amqp: Client
) -> None:
    """Quarantine is a publish like any other."""
    router = start_router(POLICIES)
    queue = amqp.queue("waits.unreadable", "quorum", dead_letter_exchange="dlx-router.declared")
    native(queue, reply_to="amq.rabbitmq.reply-to", properties={"dlx-death": "no declaration", "CC": "elsewhere"})
    amqp.fail(queue)
    kept = amqp.take(QUARANTINE)
    assert (kept.body, replied(kept)) == (b"odd", None)
    assert kept.headers["dlx-router-reply-to"] == "amq.rabbitmq.reply-to"
    assert router.metric(CLOSED, cause="closed") == 0
