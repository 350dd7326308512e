"""Where letters go when they are not tried again: dead-letter targets, parking, and who else must not get a copy."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any, Final

import pytest

from tests.journal import stream
from tests.support.bulk import INBOX, PARKING, record, rests
from tests.support.client import Client, Message
from tests.support.eventually import consistently, eventually
from tests.support.router import Router
from tests.support.scene import Scene, deaths
from tests.support.vhost import Vhost
from tools import brokers

Start = Callable[..., Router]


ATTACHED: Final = ("attached.dlq", "attached.unnamed")
TYPES: Final = ("direct", "topic", "fanout", "headers")
POLICIES: Final = f"""
version: 1
attachments:
  - queue: attached.dlq
    dead-letter-exchanges: ""
  - queue: attached.unnamed
policies:
{
    "".join(
        f'''
  - name: by-{kind}
    match: "by-{kind}.#"
    definition: {{max-delivery-attempts: 1, dead-letter-exchange: dlx.{kind}}}
'''
        for kind in (*TYPES, "alternate")
    )
}
  - name: open
    match: "open.#"
    definition: {{max-delivery-attempts: 1, dead-letter-exchange: "", dead-letter-routing-key: "{{routing_key}}"}}
  - name: plain
    match: "plain.#"
    definition: {{max-delivery-attempts: 1}}
  - name: classic
    match: "classic.#"
    definition: {{max-delivery-attempts: 1, dead-letter-queue-type: classic}}
  - name: named
    match: "named.#"
    definition: {{max-delivery-attempts: 1, dead-letter-queue-prefix: "failed.", dead-letter-queue-suffix: ".end"}}
  - name: made
    match: "made.#"
    definition: {{max-delivery-attempts: 1, dead-letter-exchange: made, auto-create-dead-letter-resources: true}}
  - name: made-topic
    match: "made-topic.#"
    definition: {{max-delivery-attempts: 1, dead-letter-exchange: known, auto-create-dead-letter-resources: true}}
  - name: template
    match: "template.#"
    definition:
      max-delivery-attempts: 1
      dead-letter-exchange: templates
      dead-letter-routing-key: >-
        {{queue}}/{{exchange}}/{{routing_key}}/{{reason}}/{{attempts}}/{{header:tenant}}/{{{{x}}}}
  - name: long
    match: "long.#"
    definition:
      max-delivery-attempts: 1
      dead-letter-exchange: templates
      dead-letter-routing-key: "{{header:long}}"
  - name: rewrite
    match: "rewrite.#"
    definition:
      max-delivery-attempts: 1
      dead-letter-exchange: templates
      dead-letter-routing-key-rewrite:
        - {{match: '^order\\.(\\w+)\\.created$', replace: 'dead.\\1'}}
        - {{match: '^order\\.', replace: 'other.'}}
  - name: reasons
    match: "reasons.#"
    definition:
      max-delivery-attempts: 1
      dead-letter-exchange: ""
      dead-letter-routing-key: end.rejected
      on:
        expired: {{dead-letter-routing-key: end.expired}}
        maxlen: {{dead-letter-routing-key: end.maxlen}}
        delivery_limit: {{auto-create-dead-letter-resources: true, dead-letter-queue-prefix: "LIMIT."}}
  - name: discarding
    match: "discarding.#"
    definition: {{max-delivery-attempts: 1, on: {{rejected: {{discard: true}}}}}}
  - name: tried-before
    match: "tried-before.#"
    definition: {{max-delivery-attempts: 3, discard: true}}
  - name: back
    match: "back.#"
    definition: {{max-delivery-attempts: 1, dead-letter-exchange: back}}
  - name: turning
    match: "turning.#"
    definition: {{dead-letter-exchange: turning}}
  - name: attached
    queue: attached.dlq
    definition: {{dead-letter-exchange: "", dead-letter-routing-key: collected}}
  - name: redriven
    match: "redriven.#"
    definition: {{max-delivery-attempts: 2, max-redrives: 2}}
  - name: aliases
    match: "aliases.#"
    definition: {{max-delivery-attempts: 2, dead-letter-headers: [emq, artemis]}}
  - name: generated
    match: "#"
    priority: -1
    apply-to: queues
    inherit: false
    definition: {{max-delivery-attempts: 1}}
"""


FROM_GET: Final = {"x-delivery-count"}  # 3.10 says it on each get from a quorum queue


def _fail(scene: Scene, queue: str, **properties: Any) -> None:
    scene.amqp.publish("hello", key=queue, **properties)
    scene.amqp.fail(queue)


# -- exchanges of every type ------------------------------------------------------------------------------------------


def _target(client: Client, kind: str, queues: tuple[str, ...], keys: tuple[str, ...]) -> None:
    """Exchange dlx.KIND, and queues of which each gets one of the keys (fanout: all; headers: tenant a)."""
    name = f"dlx.{kind}"
    if kind == "alternate":
        client.exchange("dlx.fallback", "fanout")
        client.channel.exchange_declare(name, "direct", durable=True, arguments={"alternate-exchange": "dlx.fallback"})
        name = "dlx.fallback"
    else:
        client.exchange(name, kind)
    matching = {"x-match": "all", "tenant": "a"} if kind == "headers" else None
    for queue, key in zip(queues, keys, strict=True):
        client.channel.queue_bind(client.queue(queue), name, key, arguments=matching)


@pytest.mark.parametrize("kind", [*TYPES, "alternate"])
def test_a_dead_letter_exchange_of_any_type_routes_by_the_original_key(scene: Scene, kind: str) -> None:
    queue, end = scene.work(f"by-{kind}.a"), f"end.{kind}"
    _target(scene.amqp, kind, (end,), ({"topic": "order.#"}.get(kind, "order.created"),))
    scene.amqp.bind(queue, scene.amqp.exchange(f"shop.{kind}"), "order.created")
    scene.amqp.publish("hello", key="order.created", exchange=f"shop.{kind}", headers={"tenant": "a"})
    scene.amqp.fail(queue)
    letter = scene.amqp.take(end)
    assert (letter.routing_key, deaths(letter)) == ("order.created", [(queue, "rejected", 1)])
    assert letter.exchange == f"dlx.{kind}"
    assert (scene.amqp.depth(end), scene.amqp.depth(PARKING)) == (0, 0)


def test_all_original_keys_route_as_the_broker_would(scene: Scene) -> None:
    queue = scene.work("by-direct.cc")
    _target(scene.amqp, "direct", ("cc.first", "cc.second", "cc.third"), ("k1", "k2", "k3"))
    scene.amqp.bind(queue, scene.amqp.exchange("cc"), "k1")
    scene.amqp.publish("hello", key="k1", exchange="cc", headers={"CC": ["k2"], "BCC": ["k3"]})
    scene.amqp.fail(queue)
    for end in ("cc.first", "cc.second"):
        letter = scene.amqp.take(end)
        assert (letter.routing_key, letter.headers["CC"]) == ("k1", ["k2"])
        assert "BCC" not in letter.headers
    assert scene.amqp.depth("cc.third") == 0, "a BCC is not seen by any client"


@pytest.mark.parametrize("policy", ["template", "plain", "made", "discarding", "nobody"])
def test_cc_keys_get_no_copy_where_the_final_key_is_the_policys(scene: Scene, policy: str) -> None:
    queue, bystander = scene.work(f"{policy}.cc"), scene.amqp.queue(f"bystander.{policy}")
    scene.amqp.queue("end.template.cc")
    scene.amqp.bind("end.template.cc", scene.amqp.exchange("templates", "topic"), "template.cc//template.#")
    scene.amqp.bind(bystander, "templates", bystander)
    scene.amqp.bind(bystander, scene.amqp.exchange("made"), bystander)
    before = scene.settled("discard")
    _fail(scene, queue, headers={"CC": [bystander]})
    assert scene.amqp.take(bystander).headers["CC"] == [bystander], "the publisher's own copy"
    if policy == "discarding":
        eventually(lambda: scene.settled("discard") == before + 1)
    else:
        letter = scene.amqp.take({"template": "end.template.cc"}.get(policy, f"DLQ.{queue}"))
        assert "CC" not in letter.headers
        assert record(letter)["props"]["cc"] == [bystander]
        assert letter.deaths[0]["routing-keys"] == [queue, bystander]
    assert scene.amqp.depth(bystander) == 0


# -- keys -------------------------------------------------------------------------------------------------------------


def _expire(client: Client, queue: str) -> None:
    client.publish("hello", key=queue, expiration="1")


def _overflow(client: Client, queue: str) -> None:
    client.publish("hello", key=queue)
    client.publish("next", key=queue)


def _reject(client: Client, queue: str) -> None:
    client.publish("hello", key=queue)
    client.fail(queue)


def _reach_the_limit(client: Client, queue: str) -> None:
    client.publish("hello", key=queue)
    client.await_message(queue).put_back()


@pytest.mark.parametrize(
    ("reason", "die", "end"),
    [
        ("rejected", _reject, "end.rejected"),
        ("expired", _expire, "end.expired"),
        ("maxlen", _overflow, "end.maxlen"),
        ("delivery_limit", _reach_the_limit, "LIMIT.reasons.delivery_limit"),
    ],
)
def test_each_reason_has_its_own_target(scene: Scene, reason: str, die: Callable[..., None], end: str) -> None:
    for target in ("end.rejected", "end.expired", "end.maxlen"):
        scene.amqp.queue(target)
    queue = scene.work(f"reasons.{reason}", "quorum", delivery_limit=0, max_length=1)
    die(scene.amqp, queue)
    letter = scene.amqp.take(end)
    assert (deaths(letter), record(letter)["reason"]) == ([(queue, reason, 1)], reason)


# -- dead-letter queues that the router makes -------------------------------------------------------------------------


def _declared(vhost: Vhost, kind: str, name: str) -> dict[str, Any]:
    document: dict[str, Any] = vhost.get(f"{kind}/{vhost.quoted}/{name}")
    return document


@pytest.mark.parametrize(
    ("queue", "name", "kind"),
    [
        ("plain.kinds", "DLQ.plain.kinds", "quorum"),
        ("classic.kinds", "DLQ.classic.kinds", "classic"),
        ("named.kinds", "failed.named.kinds.end", "quorum"),
    ],
)
def test_a_dead_letter_queue_is_made_as_the_policy_says(scene: Scene, queue: str, name: str, kind: str) -> None:
    _fail(scene, scene.work(queue))
    assert scene.amqp.take(name).routing_key == name
    made = _declared(scene.vhost, "queues", name)
    assert (made["durable"], made["arguments"]["x-queue-type"]) == (True, kind)
    assert made["arguments"]["x-overflow"] == "reject-publish"


def test_a_dead_letter_queue_that_is_deleted_is_made_again(scene: Scene) -> None:
    queue = scene.work("plain.deleted")
    for _ in range(2):
        _fail(scene, queue)
        scene.amqp.take(f"DLQ.{queue}")
        scene.amqp.channel.queue_delete(f"DLQ.{queue}")


@pytest.mark.parametrize("name", ["plain.exclusive", "Q", "n" * 255], ids=["plain", "short", "long"])
def test_letters_of_exclusive_queues_share_the_transient_dead_letter_queue(scene: Scene, name: str) -> None:
    scene.amqp.channel.queue_declare(name, exclusive=True, arguments={"x-dead-letter-exchange": INBOX})
    _fail(scene, name)
    assert record(scene.amqp.take("DLQ.transient"))["failed_queue"] == name


# -- without a way ----------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("newest")
def test_a_letter_that_dies_where_dead_letters_lie_is_parked_and_what_is_hidden_stays_hidden(
    vhost: Vhost, amqp: Client, start_router: Start
) -> None:
    """A policy for all queues is none for those, so that nothing goes round; but what it redacts it redacts there."""
    keys = "journal: {redact: [x-exception-message]}, on: {expired: {dead-letter-queue-prefix: EXP.}}"
    policy = f"{{name: all, match: '#', definition: {{max-delivery-attempts: 1, {keys}}}}}"
    router = start_router(f"version: 1\npolicies: [{policy}]", JOURNAL="required")
    graves = ("DLQ.work", "EXP.work")
    for queue in graves:
        amqp.queue(queue, dead_letter_exchange=INBOX)
        amqp.publish("hello", key=queue, headers={"x-exception-message": "card 4711"})
        amqp.fail(queue)
    parked = [record(amqp.take(PARKING)) for _ in graves]
    assert sorted((fields["cause"], fields["failed_queue"]) for fields in parked) == [("no_policy", q) for q in graves]
    rests(router)
    events = stream.events(vhost.amqp_url)
    assert [(event["cause"], event.get("policy"), event["redacted"]) for event in events] == [
        ("no_policy", None, ["x-exception-message"])
    ] * 2
    assert "4711" not in str(events)


@pytest.mark.parametrize("queue", [INBOX, "attached.unnamed"])
def test_a_message_of_unknown_origin_is_parked_and_nothing_is_invented(scene: Scene, queue: str) -> None:
    scene.amqp.publish("hello", key=queue, headers={"tenant": "a"})
    letter = scene.parked()
    fields = record(letter)
    assert (fields["cause"], fields["reason"], fields["deaths"], fields["attempts"]) == (
        "unknown_origin",
        "unknown",
        [],
        0,
    )
    assert not {name for name in letter.headers if name.startswith("x-")} - FROM_GET
    assert "first" not in fields


def test_dead_letters_in_an_attached_queue_are_judged_by_where_they_died(scene: Scene) -> None:
    queue = scene.amqp.queue("plain.native", dead_letter_exchange="", dead_letter_routing_key="attached.dlq")
    _fail(scene, queue)
    assert record(scene.amqp.take(f"DLQ.{queue}"))["failed_queue"] == queue


@pytest.mark.parametrize("own", ["retired", "state", "release"])
def test_no_producer_sends_a_dead_letter_into_a_queue_of_the_router(scene: Scene, own: str) -> None:
    """In `retired` it would be acked once it is journalled: dropped, by whoever publishes."""
    queue, target = scene.work(f"open.{own}"), f"dlx-router.{own}"
    scene.amqp.bind(queue, scene.amqp.exchange(f"in.{own}", "fanout"))
    scene.amqp.publish("one", exchange=f"in.{own}", key=target)
    scene.amqp.fail(queue)
    parked = record(scene.parked())
    assert (parked["cause"], parked["target"]) == ("forbidden", target)
    assert scene.settled("retire") == 0


def test_a_target_that_leads_back_to_the_inbox_parks_its_letters_as_a_loop(scene: Scene) -> None:
    scene.amqp.bind(INBOX, scene.amqp.exchange("back", "fanout"))
    _fail(scene, scene.work("back.a"))
    letter = scene.parked()
    assert (record(letter)["cause"], record(letter)["failed_queue"]) == ("loop", "back.a")
    assert deaths(letter) == [("back.a", "rejected", 1)]


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_a_target_that_expires_back_without_a_rejection_parks_its_letters_as_a_cycle(scene: Scene, kind: str) -> None:
    queue = scene.work(f"turning.{kind}", kind, message_ttl=1)
    scene.amqp.bind(queue, scene.amqp.exchange("turning"), queue)
    scene.amqp.publish("hello", key=queue)
    letter = scene.parked()
    assert (record(letter)["cause"], deaths(letter)) == ("cycle", [(queue, "expired", 2)])


# -- redrives by hand -------------------------------------------------------------------------------------------------


def _redrive(client: Client, letter: Message, queue: str) -> None:
    """As a person or a shovel does it: the copy as it is."""
    properties = {name: value for name, value in vars(letter.properties).items() if name != "headers" and value}
    client.publish(letter.body, key=queue, headers=letter.headers, **properties)


@pytest.mark.parametrize("kind", ["classic", "quorum"])
def test_redrives_by_hand_start_anew_are_counted_and_end_in_parking(scene: Scene, kind: str) -> None:
    queue = scene.work(f"redriven.{kind}", kind)
    scene.amqp.publish("hello", key=queue, message_id="m-1")
    fields: dict[str, Any] = {}
    for redrives in (0, 1):
        scene.amqp.fail(queue)
        assert record(scene.amqp.fail(queue))["state"] == "retrying"
        letter = scene.amqp.take(f"DLQ.{queue}")
        fields = record(letter)
        assert (fields["redrives"], fields["attempts"]) == (redrives, 2)
        assert deaths(letter) == [(queue, "rejected", 2 * (redrives + 1))]
        _redrive(scene.amqp, letter, queue)
    scene.amqp.fail(queue)
    scene.amqp.fail(queue)
    parked = scene.parked()
    assert (record(parked)["cause"], record(parked)["redrives"]) == ("redrive_exhausted", 2)
    assert (deaths(parked), record(parked)["id"]) == ([(queue, "rejected", 6)], fields["id"])


# -- aliases ----------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("newest")
def test_the_final_copy_carries_the_headers_of_other_systems(scene: Scene) -> None:
    queue = scene.work("aliases.a")
    scene.amqp.bind(queue, scene.amqp.exchange("shop"), queue)
    scene.amqp.publish("hello", key=queue, exchange="shop", message_id="m-1")
    scene.amqp.fail(queue)
    again = scene.amqp.fail(queue)
    letter = scene.amqp.take(f"DLQ.{queue}")
    expected = {
        "sourceQueueName": queue,
        "originalMessageID": "m-1",
        "originalReceiveCount": 2,
        "DLQ.sourceQueue": queue,
        "_AMQ_ORIG_ADDRESS": "shop",
        "_AMQ_ORIG_QUEUE": queue,
        "_AMQ_ORIG_MESSAGE_ID": "m-1",
    }
    assert {name: letter.headers.get(name) for name in expected} == expected
    assert abs(letter.headers["deadTimestamp"] - record(letter)["last_death_ms"]) < 1000
    assert not {*expected, "deadTimestamp"} & set(again.headers), "only the final copy"


# -- several vhosts ---------------------------------------------------------------------------------------------------


@contextmanager
def _two(broker: brokers.Broker, name: str) -> Iterator[tuple[Vhost, Vhost]]:
    both = Vhost.make(broker, f"{name}-a"), Vhost.make(broker, f"{name} b/ü")
    yield both
    for vhost in both:
        vhost.close()


@pytest.mark.usefixtures("newest")
def test_one_router_serves_several_vhosts_and_each_has_its_own_policies(
    broker: brokers.Broker, vhost: Vhost, start_router: Start
) -> None:
    with _two(broker, vhost.name) as (a, b), Client(a.amqp_url) as amqp, Client(b.amqp_url) as other:
        router = start_router(
            f"""
            version: 1
            policies:
              - {{name: all, match: "#", definition: {{max-delivery-attempts: 1}}}}
              - name: only-b
                vhost: {b.name}
                match: "#"
                priority: 1
                definition: {{dead-letter-queue-prefix: "B."}}
            """,
            VHOSTS=f"{a.name},{b.name}",
        )
        for client, end, place in ((amqp, "DLQ.work", a), (other, "B.work", b)):
            client.queue("work", dead_letter_exchange=INBOX)
            client.publish("hello", key="work")
            client.fail("work")
            assert record(client.take(end))["vhost"] == place.name
            eventually(partial(router.metric, "settled_total", vhost=place.name))
            assert router.metric("broker_connected", vhost=place.name) == 1
        assert consistently(lambda: not amqp.exists("B.work"), 0.1)
        assert vhost.queues() == []
        assert router.stop() == 0


@pytest.mark.parametrize("name", ["plain." + "語" * 80, "plain." + "ü" * 110])
@pytest.mark.parametrize("management", [True, False])
def test_letters_of_a_long_name_that_is_not_ascii_reach_their_dead_letter_queue(
    name: str,
    management: bool,  # noqa: FBT001 - a column of the table
    vhost: Vhost,
    amqp: Client,
    start_router: Start,
) -> None:
    amqp.queue(name, dead_letter_exchange=INBOX)
    definition = "{max-delivery-attempts: 2, redelivery-delay: 0s}"
    policies = f'version: 1\npolicies:\n  - {{name: all, match: "#", definition: {definition}}}\n'
    router = start_router(policies, **({} if management else {"MANAGEMENT_URL": ""}))
    amqp.publish("letter", key=name)
    for _ in range(2):
        amqp.fail(name, within=30)
    eventually(lambda: f"DLQ.{name}" in vhost.queues() and amqp.depth(f"DLQ.{name}") == 1, within=30)
    assert router.metric("settled_total", action="park") == 0
