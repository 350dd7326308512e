"""Delayed exchanges: apply makes them, destroy takes them away again, and never what waits or what is not ours."""

from collections.abc import Callable
from typing import Any, Final

import pytest

from tests.provisioning.test_provision import Commands
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router

POLICIES: Final = """version: 1
delayed:
  - {exchange: shop.delayed, to: amq.topic}
"""
QUEUE: Final = "dlx-router.delayed.shop.delayed"


@pytest.fixture
def shop(commands: Commands) -> Commands:
    commands.write(POLICIES)
    return commands


def exchange(shop: Commands, kind: str, **more: Any) -> None:
    shop.vhost.put(f"exchanges/{shop.vhost.quoted}/shop.delayed", {"type": kind, "durable": True, **more})


def test_destroy_leaves_the_broker_as_it_was_found(
    shop: Commands, amqp: Client, start_router: Callable[..., Router]
) -> None:
    before = shop.definitions()
    router = start_router(shop.folder)
    amqp.queue("work")
    amqp.bind("work", "amq.topic", "work")
    amqp.publish("hello", exchange="shop.delayed", key="work", headers={"x-delay": 300})
    assert amqp.take("work", within=20).body == b"hello"
    shop.vhost.api.delete(f"queues/{shop.vhost.quoted}/work").raise_for_status()
    assert router.stop() == 0
    done = shop.run("destroy", "--with-journal")
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"- queue {QUEUE}" in done.stdout
    assert "not made by the router" not in done.stdout
    assert shop.definitions() == before


@pytest.mark.slow
def test_apply_makes_what_the_router_would_and_destroy_takes_it_away(
    shop: Commands, start_router: Callable[..., Router]
) -> None:
    before = shop.definitions()
    printed = shop.apply()
    assert "+ exchange shop.delayed (fanout)" in printed
    assert f"+ binding shop.delayed → {QUEUE}" in printed
    made = shop.definitions()
    assert shop.plan()["steps"] == []
    assert start_router(shop.folder).stop() == 0
    assert shop.definitions() == made, "the router finds all that it would have made"
    assert shop.run("destroy", "--with-journal").returncode == 0, "one that has led may have written a mark there"
    assert shop.definitions() == before


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_destroy_refuses_while_delayed_messages_lie_there_even_of_an_entry_that_was_taken_out(
    shop: Commands, amqp: Client
) -> None:
    shop.apply()
    for number in range(2):
        amqp.publish(str(number), exchange="shop.delayed", key="work", headers={"x-delay": 60_000})
    eventually(lambda: amqp.depth(QUEUE) == 2)
    shop.write("version: 1\npolicies:\n  - {name: a, queue: a}\n")
    done = shop.run("destroy")
    assert done.returncode == 1, done.stdout + done.stderr
    assert f"! queue {QUEUE} holds 2 delayed messages" in done.stdout
    assert amqp.depth(QUEUE) == 2
    assert "exchange" in done.stdout
    assert amqp.exists(QUEUE)


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_an_exchange_that_somebody_else_declared_stays(shop: Commands) -> None:
    exchange(shop, "topic")
    before = shop.definitions()
    shop.apply()
    assert shop.plan()["steps"] == []
    done = shop.run("destroy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kept: exchange shop.delayed: not made by the router; what is published to it reaches no" in done.stdout
    assert shop.definitions() == before


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
def test_an_exchange_of_ours_that_others_are_bound_to_stays(shop: Commands, amqp: Client) -> None:
    shop.apply()
    amqp.queue("audit")
    amqp.bind("audit", "shop.delayed", "")
    done = shop.run("destroy")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "kept: exchange shop.delayed: the router made it, but audit is bound to it; delete it by hand" in done.stdout
    amqp.publish("seen", exchange="shop.delayed", key="")
    assert amqp.take("audit").body == b"seen"
    assert shop.vhost.queues() == ["audit"]


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize(("kind", "durable", "why"), [("direct", True, "type direct"), ("fanout", False, "durable")])
def test_an_exchange_that_cannot_be_delayed_is_in_the_way(shop: Commands, kind: str, durable: Any, why: str) -> None:
    exchange(shop, kind, durable=durable)
    done = shop.run("apply")
    assert done.returncode == 1
    assert f"! delayed: exchange shop.delayed is {'of ' if 'type' in why else 'not '}{why}" in done.stdout
    assert QUEUE not in shop.vhost.queues(), "a queue of which not every message would come is not made"
