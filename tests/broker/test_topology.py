"""What the router owns is there before it is used, and nothing that exists is changed."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from urllib.parse import urlsplit

import pytest
from aiormq.abc import AbstractChannel

from dlx_router.broker.address import Host, Login
from dlx_router.broker.control import Control, Lost
from dlx_router.broker.topology import (
    Forbidden,
    QueueExclusive,
    Topology,
    TopologyError,
    TopologyMissing,
)
from dlx_router.core.names import return_key
from tests.broker.scene import NAMES, arguments, bindings, topology, user
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.vhost import Vhost

RESCUED = {
    "x-queue-type": "quorum",
    "x-delivery-limit": 2147483647,
    "x-overflow": "reject-publish",
    "x-dead-letter-exchange": "",
    "x-dead-letter-routing-key": "dlx-router.quarantine",
    "x-dead-letter-strategy": "at-least-once",
}
PLAIN = {key: value for key, value in RESCUED.items() if "dead-letter" not in key}
ODD_NAMES = ["größe 1", "a*b?c=d%2F&e", "orders!$", "x" * 255, "ü" * 127, "'\"<>"]


@pytest.fixture
async def here(vhost: Vhost) -> AsyncIterator[Topology]:
    fresh = topology(vhost)
    yield fresh
    await fresh.close()


@pytest.fixture
async def never(vhost: Vhost) -> AsyncIterator[Topology]:
    fresh = topology(vhost, declare=False)
    yield fresh
    await fresh.close()


async def test_the_core_is_declared_with_arguments_that_lose_nothing(here: Topology, vhost: Vhost) -> None:
    await here.ensure_core()
    for queue in (NAMES.inbox, NAMES.release, NAMES.parking):
        assert arguments(vhost, queue) == RESCUED
    assert arguments(vhost, NAMES.quarantine) == PLAIN
    assert arguments(vhost, NAMES.state) == PLAIN | {"x-single-active-consumer": True}
    assert arguments(vhost, NAMES.fifo) == RESCUED | {"x-single-active-consumer": True}
    assert arguments(vhost, NAMES.retired) == PLAIN
    own = [NAMES.inbox, NAMES.release, NAMES.parking, NAMES.quarantine, NAMES.state, NAMES.fifo, NAMES.retired]
    assert vhost.queues() == sorted(own)


async def test_what_is_published_to_inbox_and_release_lies_in_their_queues(here: Topology, amqp: Client) -> None:
    await here.ensure_core()
    for name in (NAMES.inbox, NAMES.release):
        amqp.publish("a letter", key="any.key", exchange=name)
        assert amqp.take(name).routing_key == "any.key"


async def test_a_queue_that_exists_keeps_its_arguments(here: Topology, vhost: Vhost, amqp: Client) -> None:
    amqp.queue(NAMES.inbox, "quorum", max_length=7)
    await here.ensure_core()
    await here.ensure_core()
    assert arguments(vhost, NAMES.inbox) == {"x-queue-type": "quorum", "x-max-length": 7}
    assert bindings(vhost, NAMES.inbox) == {(NAMES.inbox, ""), (NAMES.declared, "")}


async def test_a_letter_in_a_rung_comes_out_at_release_when_its_time_is_over(
    here: Topology, vhost: Vhost, amqp: Client
) -> None:
    await here.ensure_rung(100)
    expected = PLAIN | {
        "x-message-ttl": 100,
        "x-dead-letter-exchange": NAMES.release,
        "x-dead-letter-strategy": "at-least-once",
    }
    assert arguments(vhost, NAMES.delay(100)) == expected
    amqp.publish("waits", key="first.key", exchange=NAMES.delay(100))
    message = amqp.take(NAMES.release)
    assert (message.body, message.routing_key) == (b"waits", "first.key")


@pytest.mark.parametrize("queue", ODD_NAMES)
async def test_the_way_back_leads_to_exactly_the_queue_whatever_its_name(
    here: Topology, amqp: Client, queue: str
) -> None:
    await here.ensure_core()
    amqp.queue(queue)
    amqp.queue("other")
    assert await here.ensure_return_binding(queue) is True
    assert await here.ensure_return_binding("other") is True
    amqp.publish("back", key="first.key", exchange=NAMES.return_, headers={"BCC": [return_key(queue)]})
    assert amqp.take(queue).routing_key == "first.key"
    assert amqp.depth("other") == 0


async def test_a_queue_of_one_connection_only_is_said_to_be_so(here: Topology, amqp: Client) -> None:
    await here.ensure_core()
    amqp.channel.queue_declare("mine", exclusive=True)
    with pytest.raises(QueueExclusive):
        await here.ensure_return_binding("mine")
    with pytest.raises(QueueExclusive):
        await here.queue_exists("mine")


@pytest.mark.usefixtures("newest")
async def test_a_name_that_amqp_cannot_carry_is_an_error_of_ours(here: Topology) -> None:
    for name in ("x" * 256, "\udcff"):
        with pytest.raises(TopologyError, match="no such name"):
            await here.queue_exists(name)


async def test_depths_are_told_of_queues_that_can_be_looked_at(here: Topology, amqp: Client, vhost: Vhost) -> None:
    amqp.queue("full", "quorum")
    amqp.queue("empty")
    for _ in range(3):
        amqp.publish("x", key="full")
    assert await here.depths(["full", "empty"]) == {"full": 3, "empty": 0}
    amqp.channel.queue_declare("private", exclusive=True)
    before = vhost.queues()
    assert await here.depths(["missing", "full", "private", "empty", "gone"]) == {"full": 3, "empty": 0}
    assert await here.depths([]) == {}
    assert vhost.queues() == before


async def test_a_queue_that_does_not_exist_is_told_from_one_that_cannot_be_looked_at(
    here: Topology, amqp: Client
) -> None:
    amqp.queue("full")
    amqp.publish("x", key="full")
    amqp.channel.queue_declare("private", exclusive=True)
    seen = await here.queue_counts(["missing", "full", "private", "gone", "x" * 256, "full\r\n"])
    assert seen.counts == {"full": (1, 0)}
    assert seen.missing == {"missing", "gone"}
    assert await here.queue_counts([]) == ({}, frozenset())


@pytest.mark.parametrize(("kind", "type_"), [("quorum", "quorum"), ("classic", "classic")])
async def test_a_dead_letter_queue_refuses_rather_than_drops(
    here: Topology, vhost: Vhost, kind: str, type_: str
) -> None:
    await here.ensure_dead_letter_queue("DLQ.orders", kind, None)
    options = arguments(vhost, "DLQ.orders")
    assert (options["x-queue-type"], options["x-overflow"]) == (type_, "reject-publish")
    assert ("x-delivery-limit" in options) == (kind == "quorum")


async def test_a_missing_dead_letter_exchange_is_declared_direct_and_the_queue_bound_by_its_name(
    here: Topology, vhost: Vhost, amqp: Client
) -> None:
    await here.ensure_dead_letter_queue("DLQ.größe", "quorum", "tote Briefe")
    amqp.publish("dead", key="DLQ.größe", exchange="tote Briefe")
    assert amqp.take("DLQ.größe").body == b"dead"
    assert bindings(vhost, "DLQ.größe") == {("tote Briefe", "DLQ.größe")}


async def test_an_existing_dead_letter_exchange_and_queue_are_used_as_they_are(
    here: Topology, vhost: Vhost, amqp: Client
) -> None:
    amqp.exchange("dlx", "topic")
    amqp.queue("DLQ.a", max_length=3)
    await here.ensure_dead_letter_queue("DLQ.a", "quorum", "dlx")
    assert arguments(vhost, "DLQ.a")["x-max-length"] == 3
    assert vhost.get(f"exchanges/{vhost.quoted}/dlx")["type"] == "topic"
    assert bindings(vhost, "DLQ.a") == {("dlx", "DLQ.a")}


async def test_declare_never_names_all_that_is_missing_and_declares_nothing(never: Topology, vhost: Vhost) -> None:
    with pytest.raises(TopologyMissing) as caught:
        await never.ensure_core()
    definitions = caught.value.definitions
    assert "exchange dlx-router.inbox: fanout, durable" in definitions
    assert "binding of queue dlx-router.release to exchange dlx-router.release, routing key ''" in definitions
    assert any(
        line.startswith('queue dlx-router.state: durable, arguments {"x-queue-type": "quorum"') for line in definitions
    )
    assert all(line in str(caught.value) for line in definitions)
    assert vhost.queues() == []


async def test_a_missing_right_is_named(vhost: Vhost) -> None:
    name, password = user(vhost, "reader", read=".*")
    here = topology(vhost, user=name, password=password)
    try:
        with pytest.raises(Forbidden, match=r"dlx-router\.quarantine.*dlx-router permissions"):
            await here.ensure_core()
    finally:
        await here.close()


async def test_after_a_lost_connection_the_next_look_connects_again(here: Topology, vhost: Vhost) -> None:
    await here.ensure_core()

    def cut() -> bool:
        open_now = [
            connection for connection in vhost.get(f"vhosts/{vhost.quoted}/connections") if "name" in connection
        ]
        for connection in open_now:
            vhost.api.delete(
                f"connections/{connection['name'].replace(' ', '%20').replace('>', '%3E')}"
            ).raise_for_status()
        return bool(open_now)

    await asyncio.to_thread(eventually, cut, 20)  # the management plugin lists connections after a while
    assert await here.queue_exists(NAMES.inbox)


@pytest.mark.usefixtures("newest")
async def test_who_lost_a_connection_does_not_close_the_one_that_somebody_else_opened_since(vhost: Vhost) -> None:
    url = urlsplit(vhost.amqp_url)
    control = Control(Host(url.hostname or "", url.port or 5672), Login("guest", "guest", vhost.name), None, "test")
    tries: Counter[str] = Counter()
    at_work, opened, over = asyncio.Event(), asyncio.Event(), asyncio.Event()

    async def first(channel: AbstractChannel) -> bool:
        tries["first"] += 1
        if tries["first"] == 1:
            await at_work.wait()
            raise Lost("as if the connection were gone")
        opened.set()
        await over.wait()
        return not channel.is_closed

    async def second(_channel: AbstractChannel) -> None:
        tries["second"] += 1
        if tries["second"] == 1:
            at_work.set()
            await opened.wait()
            raise Lost("as if the connection were gone")

    await control.connect()
    running = asyncio.ensure_future(control.run(first, "first"))
    await control.run(second, "second")
    over.set()
    assert await running
    assert tries == {"first": 2, "second": 2}
    await control.close()


async def test_all_that_is_published_to_a_delayed_exchange_comes_to_its_queue(
    here: Topology, vhost: Vhost, amqp: Client
) -> None:
    amqp.exchange("theirs", "topic")
    for exchange in ("ours", "theirs", "ours"):
        await here.ensure_delayed(exchange)
        amqp.publish(exchange, exchange=exchange, key="any.key")
        assert amqp.take(NAMES.delayed(exchange)).routing_key == "any.key"
    assert arguments(vhost, NAMES.delayed("ours")) == RESCUED


@pytest.mark.parametrize(("kind", "durable"), [("direct", True), ("headers", True), ("fanout", False)])
async def test_an_exchange_that_would_not_bring_everything_cannot_be_delayed(
    kind: str,
    durable: bool,  # noqa: FBT001 - a table
    here: Topology,
    amqp: Client,
) -> None:
    amqp.channel.exchange_declare("theirs", kind, durable=durable)
    with pytest.raises(TopologyError, match=r"exchange 'theirs'.*inequivalent arg"):
        await here.ensure_delayed("theirs")
