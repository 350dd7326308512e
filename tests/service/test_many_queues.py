"""One router on a thousand attached queues: `make measure-queues`. Each run of the tests attends a few."""
# ruff: noqa: T201 - a measurement says what it found

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pika
import pytest

from tests.support.bulk import bodies, law_holds, take_many
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

POLICIES: Final = """
version: 1
attachments: [{match: "many.#", dead-letter-exchanges: ""}]
policies: [{name: dead, match: "work.#", definition: {dead-letter-exchange: dead, max-delivery-attempts: 1}}]
"""
WITHIN_S: Final = 120


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize(
    "count", [20, pytest.param(1000, marks=[pytest.mark.measure, pytest.mark.timeout(600)])], ids=["20", "1000"]
)
def test_every_attached_queue_is_attended_and_its_letter_decided(
    vhost: Vhost, amqp: Client, start_router: Callable[..., Router], count: int
) -> None:
    """Half of the letters lie there before the router starts, half come when it is ready."""
    amqp.exchange("dead", "topic")
    amqp.bind(amqp.queue("dead"), "dead", "#")
    queues = [amqp.queue(f"many.{number}") for number in range(count)]
    died(amqp, queues[::2])
    began = time.monotonic()
    router = start_router(POLICIES, wait=False)
    router.await_ready(WITHIN_S)
    ready_s = time.monotonic() - began
    idle = eventually(lambda: attended(vhost, count), WITHIN_S, every=0.5)
    died(amqp, queues[1::2])
    sent = time.monotonic()
    dead = take_many(amqp, "dead", count, within=WITHIN_S)
    took_s = time.monotonic() - sent
    assert bodies(dead) == sorted(queues)
    eventually(lambda: law_holds(router), 10)
    print(f"\n{count} queues, {idle} consumers: ready after {ready_s:.1f} s, {rss_mb(router):.0f} MB, ", end="")
    print(f"the last letters within {took_s:.1f} s")
    assert ready_s < 60
    assert rss_mb(router) < 200


def died(amqp: Client, queues: list[str]) -> None:
    """One letter in each queue, as if it had been rejected elsewhere and the broker had brought it there."""
    channel = amqp.connection.channel()
    for queue in queues:
        work = queue.replace("many", "work")
        death = {"count": 1, "reason": "rejected", "queue": work, "exchange": "", "routing-keys": [work]}
        headers = {"x-death": [death], "x-first-death-queue": work}
        channel.basic_publish("", queue, queue.encode(), pika.BasicProperties(delivery_mode=2, headers=headers))
    channel.close()


def attended(vhost: Vhost, count: int) -> int:
    """How many consumers there are, once each of the queues has one."""
    named = [consumer["queue"]["name"] for consumer in vhost.get(f"consumers/{vhost.quoted}")]
    return len(named) if len({name for name in named if name.startswith("many.")}) == count else 0


def rss_mb(router: Router) -> float:
    """Resident memory of the router."""
    lines = Path(f"/proc/{router.pid}/status").read_text(encoding="utf-8").splitlines()
    return next(int(line.split()[1]) * 1024 / 1e6 for line in lines if line.startswith("VmRSS:"))
