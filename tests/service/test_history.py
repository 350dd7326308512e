"""What a letter tells of its past: x-death, record, identity; the same on all versions, whatever the broker forgets."""

import itertools
import struct
import time
from itertools import pairwise
from typing import Any, Final

import pytest

from tests.support.bulk import INBOX, PARKING, QUARANTINE, record
from tests.support.client import Client, Message
from tests.support.eventually import eventually
from tests.support.raw import RawClient, RawMessage, fields
from tests.support.scene import Scene, deaths

ATTACHED: Final = ("attached",)
POLICIES: Final = """
version: 1
attachments:
  - queue: attached
    dead-letter-exchanges: ""
policies:
  - name: once
    match: "once.#"
    definition: {max-delivery-attempts: 1}
  - name: twice
    match: "twice.#"
    definition: {max-delivery-attempts: 2}
  - name: five
    match: "five.#"
    definition: {max-delivery-attempts: 5}
  - name: waiting
    match: "waiting.#"
    definition: {max-delivery-attempts: 3, redelivery-delay: 100ms}
  - name: also-expired
    match: "hop.again"
    definition: {max-delivery-attempts: 3, retry-on: [expired]}
  - name: round
    queue: hop.round
    definition: {dead-letter-exchange: round}
  - name: first
    queue: chain.first
    definition: {max-delivery-attempts: 2, dead-letter-exchange: "", dead-letter-routing-key: chain.second}
  - name: second
    queue: chain.second
    definition:
      {max-delivery-attempts: 2, dead-letter-exchange: "", dead-letter-routing-key: chain.hop, allow-chain: true}
  - name: last
    queue: chain.hop
    definition: {allow-chain: true}
"""


# -- x-death ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["classic", "quorum"])
@pytest.mark.parametrize("rounds", [("five", 5), ("waiting", 3)], ids=["without-waits", "with-waits"])
def test_n_rejections_give_count_n(scene: Scene, kind: str, rounds: tuple[str, int]) -> None:
    policy, attempts = rounds
    queue = scene.work(f"{policy}.{kind}", kind)
    scene.amqp.bind(queue, scene.amqp.exchange("shop"), queue)
    scene.amqp.publish("hello", key=queue, exchange="shop")
    seen = [scene.amqp.fail(queue) for _ in range(attempts)]
    last = scene.amqp.take(f"DLQ.{queue}")
    assert [deaths(message) for message in seen] == [
        [(queue, "rejected", count)] if count else [] for count in range(attempts)
    ]
    assert deaths(last) == [(queue, "rejected", attempts)]
    assert {str(death["time"]) for message in [*seen[1:], last] for death in message.deaths} == {
        str(last.deaths[0]["time"])
    }, "x-death keeps the time of the first death"
    assert (last.deaths[0]["exchange"], last.deaths[0]["routing-keys"]) == ("shop", [queue])


def test_deaths_of_several_reasons_are_counted_each_and_told_newest_first(scene: Scene) -> None:
    queue = scene.work("five.reasons", "quorum", delivery_limit=0)
    scene.amqp.publish("hello", key=queue)
    histories = []
    for how in (Message.reject, Message.put_back, Message.reject, Message.reject, Message.put_back):
        message = scene.amqp.await_message(queue)
        histories.append(deaths(message))
        how(message)
    last = scene.amqp.take(f"DLQ.{queue}")
    assert histories[2] == [(queue, "delivery_limit", 1), (queue, "rejected", 1)]
    assert histories[4] == [(queue, "rejected", 3), (queue, "delivery_limit", 1)]
    assert deaths(last) == [(queue, "delivery_limit", 2), (queue, "rejected", 3)]
    assert last.headers["x-first-death-reason"] == "rejected"


def test_own_names_never_appear_in_x_death(scene: Scene) -> None:
    queue = scene.work("waiting.names")
    scene.amqp.publish("hello", key=queue)
    seen = [scene.amqp.fail(queue) for _ in range(3)]
    for message in [*seen, scene.amqp.take(f"DLQ.{queue}")]:
        headers = {name: value for name, value in message.headers.items() if name.startswith("x-")}
        assert "dlx-router" not in repr(headers)


# -- the record -------------------------------------------------------------------------------------------------------


def test_one_id_over_all_tries_and_another_for_another_message(scene: Scene) -> None:
    queue, ids = scene.work("waiting.ids"), []
    for body in ("one", "other"):
        scene.amqp.publish(body, key=queue)
        messages = [scene.amqp.fail(queue), scene.amqp.fail(queue), scene.amqp.fail(queue)]
        messages = [*messages[1:], scene.amqp.take(f"DLQ.{queue}")]
        assert len({message.headers["dlx-router-id"] for message in messages}) == 1
        assert all(message.headers["dlx-router-id"] == record(message)["id"] for message in messages)
        ids.append(messages[0].headers["dlx-router-id"])
    assert ids[0] != ids[1]


@pytest.mark.parametrize("to", ["same", "other"])
def test_a_consumer_that_copies_headers_onto_a_new_message_starts_a_new_letter(scene: Scene, to: str) -> None:
    queue = scene.work(f"twice.copied.{to}")
    target = queue if to == "same" else scene.work("twice.copied.target")
    scene.amqp.publish("old", key=queue)
    scene.amqp.fail(queue)
    old = scene.amqp.take(queue)
    scene.amqp.publish("new", key=target, headers=old.headers)
    scene.amqp.fail(target)
    again = scene.amqp.fail(target)
    new = scene.amqp.take(f"DLQ.{target}")
    assert new.body == b"new"
    members = record(new)
    assert (
        members["id"] == new.headers["dlx-router-id"] == again.headers["dlx-router-id"] != old.headers["dlx-router-id"]
    )
    assert (members["parent"], members["attempts"], members["redrives"]) == (old.headers["dlx-router-id"], 2, 0)
    assert scene.amqp.depth(target) == 0


# -- what must survive ------------------------------------------------------------------------------------------------


def _sized(tag: bytes, data: bytes) -> bytes:
    return tag + struct.pack(">I", len(data)) + data


_INNER: Final = b"\x01ad" + struct.pack(">d", 0.1) + b"\x01bV" + b"\x01cD\x03" + struct.pack(">I", 1234)
TYPES: Final = {
    "array": _sized(b"A", b"I\x00\x00\x00\x01" + _sized(b"A", _sized(b"S", b"deep") + b"t\x00") + _sized(b"F", _INNER)),
    "bool": b"t\x01",
    "bytes": _sized(b"x", b"\x00\xff\xfe"),
    "decimal": b"D\x02\x00\x00\x01\x41",
    "double": b"d" + struct.pack(">d", 1 / 3),
    "float": b"f" + struct.pack(">f", 2.5),
    "int16": b"s\x80\x01",
    "int32": b"I\xff\xff\xff\xfe",
    "int64": b"l\x00\x00\x00\x00\x00\x00\x00\x07",
    "int8": b"b\xff",
    "none": b"V",
    "table": _sized(b"F", _INNER + _sized(b"\x01dF", _INNER)),
    "text": _sized(b"S", "größe".encode()),
    "time": b"T\x00\x00\x00\x00\x65\x53\xf1\x00",
    "uint16": b"u\xff\xff",
    "uint32": b"i\xff\xff\xff\xff",
    "uint8": b"B\xff",
}


def _table(entries: dict[str, bytes]) -> bytes:
    return b"".join(bytes([len(name)]) + name.encode() + value for name, value in entries.items())


def _properties(headers: bytes) -> bytes:
    return b"\x20\x00" + struct.pack(">I", len(headers)) + headers


def _raw(raw: RawClient, queue: str, *, fail: bool = False) -> RawMessage:
    message = eventually(lambda: raw.fail(queue) if fail else raw.get(queue))
    assert message is not None
    return message


@pytest.mark.parametrize("policy", ["once", "waiting"])
def test_every_header_type_survives_to_the_byte(scene: Scene, policy: str) -> None:
    queue = scene.work(f"{policy}.types")
    with RawClient(scene.vhost.amqp_url) as raw:
        raw.publish(b"hello", _properties(_table(TYPES)), key=queue)
        _raw(raw, queue, fail=True)
        if policy == "waiting":
            for _ in range(2):
                table = fields(_raw(raw, queue, fail=True).headers)
                assert {name: table.get(name) for name in TYPES} == TYPES
        eventually(lambda: scene.amqp.exists(f"DLQ.{queue}"))
        table = fields(_raw(raw, f"DLQ.{queue}").headers)
    assert {name: table.get(name) for name in TYPES} == TYPES


def test_no_property_is_invented(scene: Scene) -> None:
    queue = scene.work("waiting.bare")
    with RawClient(scene.vhost.amqp_url) as raw:
        raw.publish(b"hello", b"\x00\x00", key=queue)
    seen = [scene.amqp.fail(queue) for _ in range(3)]
    last = scene.amqp.take(f"DLQ.{queue}")
    for message in [*seen, last]:
        properties = {name: value for name, value in vars(message.properties).items() if value is not None}
        assert set(properties) - {"headers", "delivery_mode"} == set()
    assert [message.properties.delivery_mode for message in seen] == [None] * 3
    assert "message_id" not in record(last).get("props", {})


def test_headers_of_our_own_do_not_pile_up(scene: Scene) -> None:
    queue = scene.work("five.pile", "quorum")
    scene.amqp.publish("hello", key=queue)
    scene.amqp.fail(queue)
    names = [set(scene.amqp.fail(queue).headers) for _ in range(4)]
    assert all(before == after for before, after in pairwise(names))
    assert {"x-delivery-count", "x-acquired-count"} & set(scene.amqp.take(f"DLQ.{queue}").headers) <= {
        "x-delivery-count"  # the broker's own word about the DLQ, on get
    }


# -- what cannot be read ----------------------------------------------------------------------------------------------

MALFORMED: Final[dict[str, Any]] = {
    "text": "rejected at work",
    "number": 7,
    "array-of-text": ["rejected"],
    "array-of-numbers": [1, 2],
    "array-of-arrays": [[{"queue": "work", "reason": "rejected", "count": 1}]],
    "count-as-text": [{"queue": "once.a", "reason": "rejected", "count": "3"}],
    "queue-as-number": [{"queue": 3, "reason": "rejected", "count": 1}],
    "no-reason": [{"queue": "once.a", "count": 1}],
    "keys-as-text": [{"queue": "once.a", "reason": "rejected", "count": 1, "routing-keys": "once.a"}],
}


@pytest.mark.parametrize(("shape", "queue"), [*zip(MALFORMED, itertools.cycle(["attached", INBOX]), strict=False)])
def test_a_malformed_x_death_is_quarantined_and_router_and_broker_live(scene: Scene, queue: str, shape: str) -> None:
    scene.amqp.publish("odd", key=queue, headers={"x-death": MALFORMED[shape], "tenant": "a"}, message_id="1")
    kept = scene.amqp.take(QUARANTINE)
    assert (kept.body, kept.properties.message_id, kept.headers["tenant"]) == (b"odd", "1", "a")
    assert kept.headers["x-death"] == MALFORMED[shape]
    good = scene.work(f"once.{shape}")
    scene.amqp.publish("good", key=good)
    scene.amqp.fail(good)
    assert scene.amqp.take(f"DLQ.{good}").body == b"good"
    assert scene.router.ask("/readyz")[0] == 200
    assert (scene.amqp.depth(PARKING), scene.amqp.depth(QUARANTINE)) == (0, 0)


def test_a_malformed_x_death_that_dies_in_a_work_queue_never_stops_the_router(scene: Scene) -> None:
    # what an odd history does to 3.10's own queue process is the broker's affair; here it is a text, which all survive
    queue = scene.work("once.native")
    scene.amqp.publish("odd", key=queue, headers={"x-death": "text"})
    scene.amqp.fail(queue)
    assert scene.amqp.take(f"DLQ.{queue}").body == b"odd"


# -- expiration -------------------------------------------------------------------------------------------------------


def _history(queue: str) -> dict[str, Any]:
    return {"x-death": [{"queue": queue, "reason": "rejected", "count": 1, "exchange": "", "routing-keys": [queue]}]}


def _outlives(client: Client, queue: str) -> Message:
    """The letter in this queue, which is still there when it would have expired."""
    message = client.await_message(queue)
    message.requeue()
    deadline = time.monotonic() + 0.3
    eventually(lambda: time.monotonic() > deadline)
    return client.take(queue, within=1)


def test_a_leftover_expiration_never_evaporates_a_letter_in_parking(scene: Scene) -> None:
    scene.amqp.publish("hello", key="attached", expiration="250")
    letter = _outlives(scene.amqp, PARKING)
    assert letter.properties.expiration is None
    assert record(letter)["props"]["expiration"] == "250"


def test_a_leftover_expiration_never_evaporates_a_letter_that_waits(scene: Scene) -> None:
    queue = scene.work("waiting.leftover")
    scene.amqp.publish("hello", key="attached", expiration="60", headers=_history(queue))
    assert scene.amqp.fail(queue).properties.expiration is None
    assert scene.amqp.fail(queue).properties.expiration is None
    assert record(scene.amqp.take(f"DLQ.{queue}"))["props"]["expiration"] == "60"


def test_the_expiration_by_which_a_letter_died_is_told(scene: Scene) -> None:
    queue = scene.work("once.expiring")
    scene.amqp.publish("hello", key=queue, expiration="1")
    letter = scene.amqp.take(f"DLQ.{queue}")
    assert letter.deaths[0]["original-expiration"] == "1"
    assert (deaths(letter), letter.properties.expiration) == ([(queue, "expired", 1)], None)
