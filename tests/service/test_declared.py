"""Declared deaths through the router: what a consumer says in dlx-death is done, and only there where it may say it."""

import json
from typing import Any, Final

import pytest

from tests.support.bulk import INBOX, PARKING, QUARANTINE, record
from tests.support.eventually import consistently, eventually
from tests.support.scene import Scene, deaths

DECLARED: Final = "dlx-router.declared"
POLICIES: Final = """
version: 1
policies:
  - name: work
    match: "work.#"
    definition:
      max-delivery-attempts: 3
      redelivery-delay: 100ms
      dead-letter-headers: [emq]
      on: {"application:card-declined": {dead-letter-queue-prefix: "cards."}}
  - {name: capped, match: "capped.#", definition: {max-redelivery-delay: 300ms}}
"""


def _death_header(failed: str, **more: Any) -> str:
    members = {"queue": failed, "exchange": "shop", "routing_keys": ["order.new", "copy"], "reason": "application:boom"}
    return json.dumps({name: value for name, value in (members | more).items() if value is not None})


def _declare(
    scene: Scene, body: str, header: str | None, headers: dict[str, Any] | None = None, *, exchange: str = DECLARED
) -> None:
    given = (headers or {}) | ({} if header is None else {"dlx-death": header})
    scene.amqp.publish(body, key="order.new", exchange=exchange, headers=given)


def test_a_declared_death_is_a_rejection_with_a_reason_of_its_own(scene: Scene) -> None:
    queue = scene.work("work.a")
    _declare(
        scene, "one", _death_header(queue, retry="never", tag="t1", error={"type": "E", "message": "no", "frame": "f"})
    )
    dead = scene.amqp.take("DLQ.work.a")
    fields = record(dead)
    assert deaths(dead) == [(queue, "rejected", 1)]
    assert dead.deaths[0]["exchange"] == "shop"
    assert dead.deaths[0]["routing-keys"] == ["order.new", "copy"]
    assert (dead.headers["x-first-death-reason"], dead.headers["x-first-death-queue"]) == ("rejected", queue)
    assert (fields["reason"], fields["cause"], fields["attempts"]) == ("application:boom", "never_retry", 1)
    assert fields["error"] == {"type": "E", "message": "no", "frame": "f"}
    assert dead.headers["sourceTag"] == "t1"


def test_never_is_remembered_while_a_full_target_refuses(scene: Scene) -> None:
    queue = scene.work("work.full")
    scene.amqp.queue("DLQ.work.full", max_length=1, overflow="reject-publish")
    scene.amqp.publish("blocks", key="DLQ.work.full")
    scene.amqp.publish("blocks", key="DLQ.work.full") if scene.amqp.depth("DLQ.work.full") == 0 else None
    held = scene.settled("hold")
    _declare(scene, "one", _death_header(queue, retry="never", tag="t1"))
    eventually(lambda: scene.settled("hold") > held, within=30)
    scene.amqp.take("DLQ.work.full")
    dead = scene.amqp.take("DLQ.work.full", within=30)
    assert (dead.body, record(dead)["cause"], dead.headers["sourceTag"]) == (b"one", "never_retry", "t1")
    assert scene.amqp.depth(queue) == 0


def test_what_stands_in_x_death_is_ignored(scene: Scene) -> None:
    queue = scene.work("work.d")
    forged = [{"queue": "other", "reason": "expired", "count": 7, "exchange": "", "routing-keys": ["x"]}]
    _declare(scene, "one", _death_header(queue, retry="never"), {"x-death": forged, "x-first-death-queue": "other"})
    dead = scene.amqp.take("DLQ.work.d")
    assert deaths(dead) == [(queue, "rejected", 1)]
    assert dead.headers["x-first-death-queue"] == queue
    _declare(scene, "two", _death_header(queue, retry="never"), {"x-death": "no array at all"})
    assert deaths(scene.amqp.take("DLQ.work.d")) == [(queue, "rejected", 1)]


def test_without_a_declaration_the_origin_is_unknown(scene: Scene) -> None:
    forged = [{"queue": "work.x", "reason": "rejected", "count": 1, "exchange": "", "routing-keys": ["x"]}]
    _declare(scene, "one", None, {"x-death": forged})
    assert record(scene.parked())["cause"] == "unknown_origin"


@pytest.mark.parametrize(
    ("said", "why"),
    [
        ("{", "not JSON"),
        (_death_header("work.e", queue=7), "'queue'"),
        (_death_header("dlx-router.parking"), "is the router's own"),
        ("[" * 100_000, "not JSON"),
    ],
)
@pytest.mark.usefixtures("newest")
def test_a_declaration_that_cannot_be_read_is_kept_and_explained(scene: Scene, said: str, why: str) -> None:
    _declare(scene, "odd", said)
    kept = scene.amqp.take(QUARANTINE)
    assert kept.body == b"odd"
    assert kept.headers["dlx-death"] == said
    assert "malformed: dlx-death: " in kept.headers["dlx-router-cause"]
    assert why in kept.headers["dlx-router-cause"]


def test_in_the_ordinary_inbox_a_declaration_says_nothing(scene: Scene) -> None:
    """Whoever publishes to a work queue may write the header; only write rights on the exchange let it be obeyed."""
    queue = scene.work("work.f")
    scene.work("work.victim")
    header = _death_header("work.victim", retry="never", retry_after_ms=0)
    scene.amqp.publish("one", key=queue, headers={"dlx-death": header})
    scene.amqp.fail(queue)
    back = scene.amqp.await_message(queue)
    assert (record(back)["reason"], record(back)["attempts"]) == ("rejected", 1)
    back.ack()
    _declare(scene, "stray", header, exchange=INBOX)
    assert record(scene.parked())["cause"] == "unknown_origin"
    assert consistently(lambda: scene.amqp.depth("work.victim") == 0)


@pytest.mark.usefixtures("newest")
def test_a_death_declared_of_a_stream_is_parked_and_nothing_is_written_to_the_stream(scene: Scene) -> None:
    """All its consumers would see the letter as a new message."""
    queue = scene.amqp.queue("work.stream", "stream")
    scene.amqp.publish("one", key=queue)
    eventually(lambda: scene.amqp.depth(queue) == 1)
    _declare(scene, "one", _death_header(queue))
    parked = scene.amqp.take(PARKING)
    fields = record(parked)
    assert (parked.body, fields["cause"], fields["target"], fields["attempts"]) == (b"one", "unroutable", queue, 1)
    eventually(lambda: f"'{queue}' is a stream" in scene.router.output)  # the line is written beside the letter
    assert consistently(lambda: scene.amqp.depth(queue) == 1)
