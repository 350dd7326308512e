"""Clients of Python: pika, aio-pika and frameworks. Each rejects in its own way, and sees its own again."""

import asyncio
import os
import subprocess
import sys
from collections.abc import Callable
from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, Final

import aio_pika
import pika
import pytest

from tests.clients.sameness import HERE, RETURN, Desk, ends, explained, lines, own, ways
from tests.support.bulk import record
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

pytestmark = pytest.mark.clients
BODY: Final = bytes(range(256))


def test_pika_gets_back_what_it_sent(desk: Desk) -> None:
    queue = ways(desk, "pika")
    headers: dict[str, Any] = {
        "bool": True, "int": -7, "long": 1 << 40, "decimal": Decimal("1.5"), "text": "größe", "bytes": b"\xff\x00",
        "time": datetime(2026, 1, 1, tzinfo=UTC), "none": None, "list": [1, "two", [None]], "table": {"a": {"b": 1}},
    }  # fmt: skip
    properties = {
        "content_type": "application/octet-stream", "content_encoding": "none", "delivery_mode": 2, "priority": 3,
        "correlation_id": "c-1", "reply_to": "answers", "message_id": "m-1", "timestamp": 1_763_800_000_123,
        "type": "order", "user_id": "guest", "app_id": "shop", "cluster_id": "c",
    }  # fmt: skip
    whole = pika.BasicProperties(headers=headers, **properties)
    desk.amqp.channel.basic_publish("shop", queue, BODY, whole, mandatory=True)
    letters = [desk.amqp.fail(queue) for _ in range(2)]
    assert [(letter.exchange, letter.routing_key, letter.redelivered) for letter in letters] == [
        ("shop", queue, False),
        (RETURN, queue, False),
    ]
    for letter in letters:
        assert (letter.body, own(letter.headers)) == (BODY, headers)
        assert {name: getattr(letter.properties, name) for name in properties} == properties
    ends(desk, queue)


async def test_aio_pika_gets_back_what_it_sent(desk: Desk) -> None:
    queue = ways(desk, "aiopika")
    headers: dict[str, Any] = {
        "bool": True, "byte": 7, "short": 300, "long": 1 << 40, "float": 0.5, "decimal": Decimal("1.5"),
        "text": "größe", "bytes": bytearray(b"\xff\x00"), "time": datetime(2026, 1, 1, tzinfo=UTC), "none": None,
        "list": [1, "two"], "table": {"a": {"b": 1}},
    }  # fmt: skip
    sent = aio_pika.Message(
        BODY, headers=headers, content_type="application/octet-stream", content_encoding="none", priority=3,
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT, correlation_id="c-1", reply_to="answers", message_id="m-1",
        timestamp=datetime(2026, 1, 1, tzinfo=UTC), type="order", user_id="guest", app_id="shop",
    )  # fmt: skip
    names = {
        "content_type", "content_encoding", "priority", "delivery_mode", "correlation_id", "reply_to", "message_id",
        "timestamp", "type", "user_id", "app_id",
    }  # fmt: skip
    async with await aio_pika.connect(desk.vhost.amqp_url) as connection:
        channel = await connection.channel()
        await (await channel.get_exchange("shop")).publish(sent, routing_key=queue)
        async with asyncio.timeout(60), (await channel.get_queue(queue)).iterator() as messages:
            deliveries = []
            for _ in range(2):
                deliveries.append(await anext(messages))
                await deliveries[-1].reject(requeue=False)
    assert [(delivery.exchange, delivery.routing_key) for delivery in deliveries] == [("shop", queue), (RETURN, queue)]
    for delivery in deliveries:
        assert (delivery.body, own(delivery.headers)) == (BODY, headers)
        assert {name: getattr(delivery, name) for name in names} == {name: getattr(sent, name) for name in names}
    await asyncio.to_thread(ends, desk, queue)


async def test_faststream_rejects_and_sees_its_own_again(desk: Desk, library: Callable[[str], Any]) -> None:
    rabbit = library("faststream.rabbit")
    queue = ways(desk, "faststream")
    broker, attempts, twice = rabbit.RabbitBroker(desk.vhost.amqp_url), [], asyncio.Event()

    async def take(body: dict[str, Any], message: Any) -> None:
        attempts.append((body, own(message.headers), message.correlation_id, message.raw_message))
        if len(attempts) > 1:
            twice.set()
        raise ValueError("no stock")

    take.__annotations__["message"] = rabbit.RabbitMessage  # by which FastStream knows what to hand over
    rejects = library("faststream").AckPolicy.REJECT_ON_ERROR
    broker.subscriber(rabbit.RabbitQueue(queue, declare=False), ack_policy=rejects)(take)
    async with broker:
        await broker.start()
        sent = {"order": 7, "lines": [1.5, None]}
        await broker.publish(sent, exchange=rabbit.RabbitExchange("shop", declare=False), routing_key=queue,
                             headers={"x-mine": 2.5}, correlation_id="c-1", persist=True, priority=3)  # fmt: skip
        await asyncio.wait_for(twice.wait(), 60)
        await asyncio.to_thread(ends, desk, queue)  # before it goes: the handler tells us first, and then rejects
    first, second = attempts
    assert first[:3] == second[:3]
    assert (first[0], first[1]["x-mine"], first[2]) == (sent, 2.5, "c-1")
    assert (first[3].exchange, second[3].exchange) == ("shop", RETURN)


def test_celery_rejects_a_task_and_gets_it_again(desk: Desk, library: Callable[[str], Any], tmp_path: Path) -> None:
    library("celery")
    queue, journal = ways(desk, "celery"), tmp_path / "told.jsonl"
    env = {**os.environ, "TESTED_URL": desk.vhost.amqp_url, "TESTED_QUEUE": queue, "TESTED_FILE": str(journal)}
    options = "--pool solo --without-gossip --without-mingle --without-heartbeat --loglevel INFO"
    with (tmp_path / "worker.log").open("wb") as log:
        worker = subprocess.Popen(
            [sys.executable, "-m", "celery", "--app", "celery_app", "worker", *options.split()],
            env=env, cwd=HERE, stdout=log, stderr=log,
        )  # fmt: skip
    try:
        sent = [sys.executable, "-m", "celery_app", "7", "größe"]
        subprocess.run(sent, env=env, cwd=HERE, check=True, timeout=60)
        eventually(lambda: journal.exists() and len(lines(journal.read_text(encoding="utf-8"))) == 2, within=60)
        ends(desk, queue)  # before it goes: Celery rejects when its loop turns next, up to 10 s after the task
    finally:
        worker.kill()
        worker.wait()
    first, second = lines(journal.read_text(encoding="utf-8"))
    assert (first["exchange"], second["exchange"]) == ("shop", RETURN)
    for attempt in (first, second):
        attempt["properties"]["application_headers"] = own(attempt["properties"]["application_headers"])
        del attempt["exchange"]
    assert first == second
    assert (first["args"], first["task"]) == ([7, "größe"], "take")


def test_dramatiq_keeps_its_own_retries_and_its_dead_come_back(
    vhost: Vhost, amqp: Client, start_router: Callable[..., Router], library: Callable[[str], Any], tmp_path: Path
) -> None:
    """Its delayed queue is its own business; what lies in its queue of dead messages is the router's, once attached."""
    dramatiq, rabbitmq = library("dramatiq"), library("dramatiq.brokers.rabbitmq")
    queue, grave = "work.dramatiq", "work.dramatiq.XQ"
    broker, attempts = rabbitmq.RabbitmqBroker(url=vhost.amqp_url), []
    broker.add_middleware(dramatiq.middleware.CurrentMessage())

    def take(number: int, text: str) -> None:
        message = dramatiq.middleware.CurrentMessage.get_current_message()
        attempts.append((number, text, message.message_id, message.options.get("retries", 0)))
        raise ValueError("no stock")

    actor = dramatiq.actor(take, broker=broker, queue_name=queue, max_retries=1, min_backoff=100, max_backoff=100)
    broker.declare_queue(queue, ensure=True)
    index = tmp_path / "index.sqlite"
    attached = """
version: 1
attachments: [{queue: work.dramatiq.XQ, dead-letter-exchanges: ""}]
policies: [{name: all, match: "#", definition: {max-delivery-attempts: 2, redelivery-delay: 100ms}}]
"""
    desk = Desk(vhost, start_router(attached, INDEX_PATH=str(index)), amqp, index)
    worker = dramatiq.Worker(broker, worker_threads=1, worker_timeout=100)
    worker.start()
    try:
        sent = actor.send(7, "größe")
        dead = amqp.take(f"DLQ.{queue}", within=30)
    finally:
        worker.stop()
        broker.close()
    assert attempts == [(7, "größe", sent.message_id, retries) for retries in (0, 1, 1)], "two of its own, one of ours"
    kept = dramatiq.Message.decode(dead.body)
    assert (kept.args, kept.message_id, record(dead)["failed_queue"]) == ((7, "größe"), sent.message_id, queue)
    assert amqp.depth(grave) == 0
    explained(desk, queue)
