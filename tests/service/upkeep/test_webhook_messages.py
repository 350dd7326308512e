"""Messages on their way to real receivers, good and dead ones, and what is written down."""

import asyncio
import json
import time
from collections.abc import Callable, Mapping
from ipaddress import ip_network
from typing import Any

import pytest

from dlx_router.config.webhooks.endpoint import ALL_EVENTS, Endpoint
from dlx_router.core.notices import Notice
from dlx_router.core.selection import Index
from dlx_router.service.upkeep.webhook_messages import TOLD, WebhookMessages
from dlx_router.telemetry.metrics import Metrics
from dlx_router.webhooks import outbox
from dlx_router.webhooks.sender import Sender
from tests.support.eventually import patience
from tests.support.receiver import Receiver

Records = list[tuple[str, str, dict[str, Any]]]


def endpoint(name: str, receiver: Receiver, **more: Any) -> Endpoint:
    return Endpoint(
        name, "host", receiver.url(), "cloudevents", ALL_EVENTS, allowed=(ip_network("127.0.0.0/8"),), **more
    )


def notice(key: str = "g1", kind: str = "group.opened", **item: Any) -> Notice:
    return Notice(kind, "/", key, ("orders",), {"group": key, "failed_queue": "orders", **item})


class Scene:
    """Messages over a sender in its thread; `records`: what the journal got."""

    def __init__(self, *endpoints: Endpoint) -> None:
        self.records: Records = []
        self.metrics = Metrics()
        self.messages = WebhookMessages(Sender("p", None, 1).send, self._record, self.metrics)
        self.messages.use({target.name: target for target in endpoints})

    def _record(self, vhost: str, action: str, details: Mapping[str, Any]) -> None:
        self.records.append((vhost, action, json.loads(json.dumps(details))))

    async def until(self, look: Callable[[], object], within: float = 10) -> None:
        """Passes on until it is so."""
        deadline = time.monotonic() + patience(within)
        while not look():
            self.messages.pass_on()
            assert time.monotonic() < deadline, (self.metrics.webhooks, self.messages.waiting())
            await asyncio.sleep(0.02)


@pytest.fixture(autouse=True)
def _at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(outbox, "INTERVAL_MS", 0)


async def test_a_message_is_sent_and_then_written_down() -> None:
    with Receiver() as receiver:
        scene = Scene(endpoint("a", receiver))
        scene.messages.add([notice("g1"), notice("g2")], set())
        await scene.until(lambda: scene.metrics.webhooks["delivered"])
        (post,) = receiver.posts
        await scene.messages.stop()
    ((_, action, details),) = scene.records
    assert (action, details["to"], details["kind"], details["keys"]) == (TOLD, "a", "group.opened", ["g1", "g2"])
    assert details["id"] == post.headers["webhook-id"]
    assert "127.0.0.1" not in json.dumps(scene.records), "an endpoint is known by its name"


async def test_a_dead_receiver_costs_nobody_else_anything() -> None:
    with Receiver(hangs=True) as hangs, Receiver(status=500) as fails, Receiver() as works:
        scene = Scene(endpoint("hangs", hangs), endpoint("fails", fails), endpoint("works", works))
        for number in range(5):
            scene.messages.add([notice(f"g{number}", f"breaker.{'opened' if number % 2 else 'closed'}")], set())
        began = time.monotonic()
        await scene.until(lambda: scene.metrics.webhooks["delivered"] >= 2 and scene.metrics.webhooks["failed"])
        assert time.monotonic() - began < 50
        assert scene.messages.waiting() == {"hangs": 2, "fails": 2, "works": 0}
        await scene.messages.stop()


async def test_a_receiver_that_comes_back_gets_what_it_missed_with_the_same_id() -> None:
    with Receiver(status=503) as receiver:
        scene = Scene(endpoint("a", receiver))
        scene.messages.add([notice()], set())
        await scene.until(lambda: scene.metrics.webhooks["failed"])
        receiver.status = 200
        await scene.until(lambda: scene.metrics.webhooks["delivered"], within=15)
        ids = {post.headers["webhook-id"] for post in receiver.posts}
        await scene.messages.stop()
    assert (len(receiver.posts), len(ids)) == (2, 1)
    assert len(scene.records) == 1


async def test_an_endpoint_is_told_what_it_asked_for_only() -> None:
    with Receiver() as mine, Receiver() as all_:
        selector = Index((), ((0, "orders"),), lambda _queue: ())
        scene = Scene(endpoint("mine", mine, match=("orders",), _selector=selector), endpoint("all", all_))
        scene.messages.add(
            [Notice("group.opened", "/", "g1", ("mail",), {"failed_queue": "mail", "group": "g1"})], set()
        )
        await scene.until(lambda: all_.posts)
        scene.messages.add([notice("g2")], set())
        await scene.until(lambda: mine.posts)
        await scene.messages.stop()
    assert [json.loads(post.body)["data"]["items"][0]["group"] for post in mine.posts] == ["g2"]


async def test_who_leads_no_more_sends_no_more() -> None:
    with Receiver(status=500) as receiver:
        scene = Scene(endpoint("a", receiver))
        scene.messages.add([notice()], set())
        await scene.until(lambda: scene.metrics.webhooks["failed"])
        scene.messages.leave("/")
        assert scene.messages.waiting() == {"a": 0}
        await scene.messages.stop()
