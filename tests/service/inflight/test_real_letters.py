"""What real brokers bring of letters that died alike goes the short way, however they died.

A benchmark publishes letters of its own making: once it did so well by them while each letter that a consumer of a
quorum queue had refused took the long way, five times as dear, since 4.x counts its deliveries in it.
"""

import asyncio
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

import pytest

from dlx_router.broker.address import Host, Login
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.link import open_link
from dlx_router.core.letter import Arrival
from dlx_router.service.inflight.decoder import Place
from dlx_router.wire import frames
from tests.journal.conftest import soon
from tests.service.inflight.test_compiled import DEFINITIONS, KEY, NAMES, decider_of
from tests.support.client import Client
from tests.support.vhost import Vhost

N: Final = 12
SECONDS: Final = 3  # they die within so many, and what died in another second is another death
NOBODY: Final = cast("Consumer", None)
WAYS: Final = {
    "rejected": ("classic", {}),
    "rejected by a consumer of a quorum queue": ("quorum", {}),
    "returned before": ("quorum", {}),
    "expired": ("classic", {"x-message-ttl": 1}),
    "expired in a quorum queue": ("quorum", {"x-message-ttl": 1}),
    "no room": ("classic", {"x-max-length": 0}),
    "delivered too often": ("quorum", {"x-delivery-limit": 0}),
}


@pytest.mark.parametrize("way", WAYS)
async def test_letters_that_died_alike_go_the_short_way(vhost: Vhost, amqp: Client, way: str) -> None:
    await asyncio.to_thread(_die, amqp, way)
    decider, place = decider_of(DEFINITIONS[0]), Place(vhost.name, NAMES.inbox, Arrival.INBOX, NAMES, KEY)
    jobs = [decider.judge(delivery, NOBODY, place, 0.0) for delivery in await _brought(vhost)]
    assert [job.letter.failed_queue for job in jobs if job.letter is not None][:1] == ["work"]
    assert sum(job.route is None for job in jobs) <= SECONDS


def _die(amqp: Client, way: str) -> None:
    kind, limits = WAYS[way]
    amqp.exchange(NAMES.inbox, "fanout")
    endless = {"x-queue-type": "quorum", "x-delivery-limit": 2**31 - 1}
    amqp.channel.queue_declare(NAMES.inbox, durable=True, arguments=endless)
    amqp.bind(NAMES.inbox, NAMES.inbox)
    dies = {"x-queue-type": kind, "x-dead-letter-exchange": NAMES.inbox}
    amqp.channel.queue_declare("work", durable=True, arguments=dies | limits)
    for number in range(N):
        amqp.publish(f"letter {number:02}", key="work", headers={"tenant": f"t{number:02}"}, delivery_mode=2)
    if way == "returned before":
        _take(amqp, N, requeue=True)
    if not limits or "x-delivery-limit" in limits:
        _take(amqp, N, requeue=bool(limits))


def _take(amqp: Client, count: int, *, requeue: bool) -> None:
    """By a consumer, as people do it: a get is counted otherwise."""
    amqp.channel.basic_qos(prefetch_count=count)
    tags = []
    for method, _, _ in amqp.channel.consume("work", inactivity_timeout=60):
        tags.append(method.delivery_tag)
        if len(tags) == count:
            break
    for tag in tags:
        amqp.channel.basic_reject(tag, requeue=requeue)
    amqp.channel.cancel()


async def _brought(vhost: Vhost) -> list[frames.Delivery]:
    """All that comes to the inbox, as the router's own consumer has it."""
    url, deliveries = urlsplit(vhost.amqp_url), list[Any]()
    login = Login(unquote(url.username or ""), unquote(url.password or ""), vhost.name)
    link = await open_link(Host(url.hostname or "", url.port or 5672), login, tls=None, heartbeat=30, name="test")
    consumer = Consumer(
        link,
        NAMES.inbox,
        1000,
        sink=lambda delivery, _consumer: deliveries.append(delivery),
        on_lost=lambda *_gone: None,
    )
    try:
        await consumer.start()
        await soon(lambda: len(deliveries) == N)
    finally:
        await link.close()
    return deliveries
