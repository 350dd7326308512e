"""Delayed exchanges: published with `x-delay`, a message arrives at the exchange of the consumers after that time."""

import time
from collections.abc import Callable
from datetime import UTC, datetime
from signal import SIGHUP
from typing import Any, Final

import pytest

from tests.support.bulk import every_body, record
from tests.support.client import Client, Message
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.scene import Scene

Start = Callable[..., Router]
POLICIES: Final = """
version: 1
delayed:
  - {exchange: shop.delayed, to: amq.topic}
  - {exchange: slow.delayed, to: amq.direct, default: 700ms}
"""
LATE_S: Final = 5.0  # on a busy machine; early is never right


def shop(scene: Scene, queue: str, key: str = "") -> str:
    """A consumer's queue, bound where messages go on to."""
    scene.amqp.queue(queue)
    scene.amqp.bind(queue, "amq.topic", key or queue)
    return queue


def timed(scene: Scene, queue: str, delay: Any, *, exchange: str = "shop.delayed") -> tuple[float, Message]:
    """Publish with this x-delay; → how long it took, and what came."""
    began = time.monotonic()
    headers = {} if delay is None else {"x-delay": delay}
    scene.amqp.publish("hello", exchange=exchange, key=queue, headers=headers)
    got = scene.amqp.take(queue, within=15)
    return time.monotonic() - began, got


@pytest.mark.parametrize(
    ("delay", "waits_s", "told"),
    [
        (500, 0.5, -500),
        (40, 0.04, -40),
        ("1300", 1.3, -1300),
        (0, 0.0, 0),
        (-5000, 0.0, -5000),
        ("soon", 0.0, "soon"),
        (True, 0.0, True),
        (10**18, 0.0, 10**18),
        (None, 0.0, None),
    ],
)
def test_a_message_arrives_after_its_delay_and_not_before(
    delay: Any, waits_s: float, told: Any, scene: Scene, newest: None
) -> None:
    queue = shop(scene, f"timed.{delay}".replace("-", "minus"))
    took_s, got = timed(scene, queue, delay)
    assert waits_s <= took_s < waits_s + LATE_S
    assert (got.exchange, got.routing_key) == ("amq.topic", queue)
    assert got.headers.get("x-delay") == told
    assert set(got.headers) - {"x-delay"} == {"dlx-router-pub"}, "no death, no record"


def test_a_message_comes_as_it_was_published(scene: Scene) -> None:
    queue = shop(scene, "whole")
    given: dict[str, Any] = {
        "content_type": "text/x", "priority": 3, "delivery_mode": 1, "correlation_id": "c", "reply_to": "r",
        "expiration": "600000", "message_id": "m", "timestamp": int(time.time()), "type": "t", "app_id": "a",
    }  # fmt: skip
    death = {
        "queue": "old", "reason": "rejected", "count": 3, "time": datetime(2026, 1, 2, tzinfo=UTC), "exchange": "x",
        "routing-keys": ["k"],
    }  # fmt: skip
    sent = {
        "x-death": [death], "x-first-death-queue": "first", "x-first-death-reason": "expired",
        "x-first-death-exchange": "", "x-last-death-queue": "last", "dlx-router": "a record of somebody's",
        "dlx-router-id": "1", "dlx-router-aside": "nothing", "tenant": "eu", "nested": {"a": [1, None]},
        "CC": [shop(scene, "copied")],
    }  # fmt: skip
    scene.amqp.publish("hello", exchange="shop.delayed", key=queue, headers={**sent, "x-delay": 1200}, **given)
    got = scene.amqp.take(queue)
    assert {name: getattr(got.properties, name) for name in given} == given
    headers = dict(got.headers)
    headers["x-death"][0]["time"] = headers["x-death"][0]["time"].replace(tzinfo=UTC)
    assert headers.pop("dlx-router-pub")
    assert headers == {**sent, "x-delay": -1200}
    assert scene.amqp.take("copied").routing_key == queue


def test_nobody_waits_behind_a_longer_delay(scene: Scene, newest: None) -> None:
    queue = shop(scene, "order")
    for delay in (1500, 300, 900):
        scene.amqp.publish(str(delay), exchange="shop.delayed", key=queue, headers={"x-delay": delay})
    assert [scene.amqp.take(queue).body for _ in range(3)] == [b"300", b"900", b"1500"]


def test_a_message_without_a_route_is_held_and_goes_on_when_there_is_one(scene: Scene) -> None:
    before = scene.settled("hold")
    scene.amqp.publish("hello", exchange="shop.delayed", key="lost", headers={"x-delay": 100, "x-death": "odd"})
    eventually(lambda: scene.settled("hold") >= before + 2)
    got = scene.amqp.take(shop(scene, "lost"), within=30)
    assert (got.routing_key, got.headers["x-delay"], got.headers["x-death"]) == ("lost", -100, "odd")


WORK: Final = "version: 1\ndelayed:\n  - {exchange: work.delayed, to: work}\n"


def work(amqp: Client) -> None:
    amqp.bind(amqp.queue("jobs"), amqp.exchange("work", "fanout"))


def test_without_a_route_for_too_long_it_is_parked_and_can_go_the_same_way_again(
    amqp: Client, start_router: Start
) -> None:
    amqp.exchange("work", "direct")
    start_router(WORK, UNROUTABLE_GRACE="1s")
    headers = {"x-delay": 150, "x-death": "odd", "CC": ["other"]}
    amqp.publish("hello", exchange="work.delayed", key="gone", headers=headers, expiration="600000")
    parked = amqp.take("dlx-router.parking", within=20)
    fields = record(parked)
    assert (fields["cause"], fields["target"], fields["state"], fields["reason"]) == (
        "unroutable",
        "work",
        "parked",
        "unknown",
    )
    assert (fields["deaths"], fields["first"]["routing_keys"], fields["attempts"]) == ([], ["gone"], 0)
    assert "x-death" not in parked.headers
    amqp.bind(amqp.queue("jobs"), "work", "gone")
    amqp.channel.basic_publish("", "dlx-router.delayed.work.delayed", parked.body, parked.properties)
    got = amqp.take("jobs")
    assert (got.routing_key, got.properties.expiration) == ("gone", "600000")
    assert got.headers == {**headers, "x-delay": -150, "dlx-router-pub": got.headers["dlx-router-pub"]}


def test_what_waits_survives_a_router_that_is_killed(amqp: Client, start_router: Start, newest: None) -> None:
    work(amqp)
    router = start_router(WORK)
    began = time.monotonic()
    for n in range(50):
        amqp.publish(str(n), exchange="work.delayed", key="any", headers={"x-delay": 1500})
    eventually(lambda: router.metric("settled_total", action="hold") > 0)
    router.kill()
    amqp.publish("50", exchange="work.delayed", key="any", headers={"x-delay": 200})
    router.start()
    assert len(every_body(amqp, "jobs", 51, within=30)) == 51
    assert time.monotonic() - began >= 1.5


def said(router: Router, *words: str) -> bool:
    text = router.ask("/readyz")[1]
    missing = [word for word in words if word not in text]
    assert not missing, f"{missing} not in {text}"
    return True


def test_entries_come_change_and_go_and_what_waits_keeps_its_way(
    amqp: Client, start_router: Start, newest: None
) -> None:
    work(amqp)
    amqp.bind(amqp.queue("others"), amqp.exchange("other", "fanout"))
    router = start_router("version: 1\n")
    rewrite(router, WORK)
    eventually(lambda: amqp.exists("dlx-router.delayed.work.delayed") and said(router, "ready"), within=20)
    eventually(lambda: router.ask("/readyz")[0] == 200, within=20)
    amqp.publish("1", exchange="work.delayed", key="any", headers={"x-delay": 1500})
    eventually(lambda: router.metric("settled_total", action="hold") == 1)
    rewrite(router, WORK.replace("to: work", "to: other, default: 100ms"))
    eventually(lambda: router.ask("/readyz")[0] == 200, within=20)
    amqp.publish("2", exchange="work.delayed", key="any")
    assert amqp.take("others").body == b"2"
    rewrite(router, "version: 1\n")
    eventually(lambda: "source.left" in router.output)
    amqp.publish("3", exchange="work.delayed", key="any")
    assert amqp.take("jobs").body == b"1", "it went where it was to go when it came"
    assert amqp.depth("dlx-router.delayed.work.delayed") == 1
    rewrite(router, WORK)
    assert amqp.take("jobs", within=20).body == b"3"


def rewrite(router: Router, text: str) -> None:
    """Other policies, in force when this returns."""
    before = router.metric("reloads_total", result="success")
    (router.policies / "policies.yaml").write_text(text, encoding="utf-8")
    router.signal(SIGHUP)
    eventually(lambda: router.metric("reloads_total", result="success") > before, within=20)
