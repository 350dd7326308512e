"""The key is never lost and never two; one router is active, and knows it."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from aio_pika.abc import AbstractConnection

import brokers
from dlx_router.broker.address import Host, Login
from dlx_router.broker.control import TopologyError
from dlx_router.broker.state import StateQueue
from dlx_router.broker.topology import Topology
from tests.broker.scene import NAMES, topology
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.vhost import Vhost

WITHIN_S = 15


@pytest.fixture
async def here(vhost: Vhost) -> AsyncIterator[Topology]:
    one = topology(vhost)
    await one.ensure_core()
    yield one
    await one.close()


async def active(state: StateQueue) -> bytes:
    async with asyncio.timeout(WITHIN_S):
        await state.wait_active()
    return state.key


async def again(here: Topology) -> bytes:
    """The key, as a router gets it that starts anew until it can."""
    async with asyncio.timeout(50):
        while True:
            try:
                async with StateQueue(here) as state:
                    return await active(state)
            except TopologyError:
                continue


async def until(look: Callable[[], bool]) -> None:
    """As `eventually`, while the loop turns."""
    await asyncio.to_thread(eventually, look, WITHIN_S)


async def connection(state: StateQueue) -> AbstractConnection:
    """The connection that a test takes away, as a crash does."""
    return await state._control.connect()


def bodies(amqp: Client) -> set[bytes]:
    """What lies in the queue, nobody attending it; a renewal that was cut off leaves two copies."""
    found = set()
    for method, _, body in amqp.channel.consume(NAMES.state, inactivity_timeout=0.5):
        if method is None:
            break
        found.add(body)
    amqp.channel.cancel()  # gives them back
    return found


def documents(amqp: Client, kind: str) -> list[dict[str, Any]]:
    return [document for body in bodies(amqp) if (document := json.loads(body))["kind"] == kind]


@pytest.mark.usefixtures("newest")
async def test_the_first_router_makes_a_key_that_every_later_one_finds(here: Topology) -> None:
    async with StateQueue(here) as first:
        key = await active(first)
        assert (len(key), first.active) == (32, True)
    assert not first.active
    for _ in range(3):
        async with StateQueue(here) as later:
            assert await active(later) == key


@pytest.mark.usefixtures("newest")
async def test_of_many_that_start_together_one_is_active_and_each_that_follows_has_its_key(here: Topology) -> None:
    states = [StateQueue(here, hello_s=0.2) for _ in range(4)]
    waits = {}
    for state in states:
        await state.__aenter__()
        waits[asyncio.create_task(state.wait_active())] = state
    seen = set()
    while waits:
        done, _ = await asyncio.wait(waits, timeout=WITHIN_S, return_when=asyncio.FIRST_COMPLETED)
        assert [waits[task].active for task in done] == [True]
        seen.add(waits[task := done.pop()].key)
        await waits.pop(task).__aexit__(None, None, None)
    assert len(seen) == 1


async def test_a_standby_waits_and_takes_over_when_the_active_router_is_gone(here: Topology) -> None:
    lost: list[TopologyError] = []
    async with StateQueue(here, on_lost=lost.append) as first, StateQueue(here, hello_s=0.1) as standby:
        key = await active(first)
        waiting = asyncio.create_task(standby.wait_active())
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(asyncio.shield(waiting), 1)
        await (await connection(first)).close()
        async with asyncio.timeout(5):
            await waiting
        assert (standby.key, standby.active, first.active) == (key, True, False)
        assert [NAMES.state in str(error) for error in lost] == [True]


async def test_a_standby_takes_over_even_where_the_active_router_died_before_it_made_a_key(here: Topology) -> None:
    async with StateQueue(here, hello_s=0.1) as first, StateQueue(here, hello_s=0.1) as standby:
        waiting = asyncio.create_task(standby.wait_active())
        await until(first._greeted.is_set)
        await (await connection(first)).close()
        async with asyncio.timeout(WITHIN_S):
            await waiting
        assert len(standby.key) == 32


@pytest.mark.usefixtures("newest")
async def test_a_key_is_renewed_over_and_over_and_stays_one(here: Topology, amqp: Client) -> None:
    async with StateQueue(here, renew_s=0.05) as state:
        key = await active(state)
        tags: set[int | None] = set()

        def renewed() -> bool:
            tags.update(message.delivery_tag for message in state._held.values())
            return len(tags) > 10

        await until(renewed)
        assert state.active
    assert [one["key"] for one in documents(amqp, "key")] == [base64.b64encode(key).decode()]


@pytest.mark.parametrize("letters", range(8))
@pytest.mark.usefixtures("newest")
async def test_a_router_cut_off_in_the_middle_of_a_renewal_loses_no_key(
    here: Topology, amqp: Client, letters: int
) -> None:
    async with StateQueue(here, renew_s=0.01) as state:
        key = await active(state)
        await asyncio.sleep(0.003 * letters + 0.01)  # the moment of the crash is what is tried, not waited for
        transport = (await connection(state)).transport
        assert transport is not None
        transport.connection._writer_task.cancel()  # type: ignore[attr-defined]  # no goodbye
        await until(lambda: not state.active)
    async with StateQueue(here) as after:
        assert await active(after) == key


@pytest.mark.usefixtures("newest")
async def test_a_killed_broker_gives_the_key_back(own_broker: brokers.Node) -> None:
    url = own_broker.amqp_url.removeprefix("amqp://").partition("@")
    user, _, password = url[0].partition(":")
    host, _, port = url[2].partition("/")[0].partition(":")
    here = Topology(Host(host, int(port)), Login(user, password), None, NAMES)
    await here.ensure_core()
    lost: list[TopologyError] = []
    async with StateQueue(here, on_lost=lost.append) as state:
        key = await active(state)
        await asyncio.sleep(6)  # RabbitMQ 3.10 forgets quorum queues that are younger than 5 s when it is killed
        await asyncio.to_thread(own_broker.kill)
        await until(lambda: bool(lost))
    await asyncio.to_thread(own_broker.start)
    assert await again(here) == key
    await here.close()


@pytest.mark.usefixtures("newest")
async def test_a_standby_that_is_cut_off_says_so_instead_of_waiting_for_ever(here: Topology) -> None:
    async with StateQueue(here) as first, StateQueue(here) as standby:
        await active(first)
        waiting = asyncio.create_task(standby.wait_active())
        await (await connection(standby)).close()
        with pytest.raises(TopologyError, match=NAMES.state):
            await asyncio.wait_for(waiting, WITHIN_S)


@pytest.mark.usefixtures("newest")
async def test_a_deleted_queue_ends_being_active(here: Topology, amqp: Client) -> None:
    lost: list[TopologyError] = []
    async with StateQueue(here, on_lost=lost.append) as state:
        await active(state)
        await asyncio.to_thread(amqp.channel.queue_delete, NAMES.state)
        await until(lambda: bool(lost))
        assert not state.active


async def test_what_another_version_keeps_there_stays(here: Topology, amqp: Client) -> None:
    ledger = json.dumps({"kind": "ledger", "v": 7}).encode()
    amqp.publish(ledger, key=NAMES.state)
    amqp.publish(b"\xff no json", key=NAMES.state)
    async with StateQueue(here, renew_s=0.05) as state:
        await active(state)
        await asyncio.sleep(0.3)  # some renewals
    assert {ledger, b"\xff no json"} < bodies(amqp)


@pytest.mark.usefixtures("newest")
async def test_a_second_key_behind_the_first_is_dropped(here: Topology, amqp: Client) -> None:
    def document(letter: bytes) -> bytes:
        return json.dumps({"kind": "key", "v": 1, "key": base64.b64encode(letter * 32).decode()}).encode()

    amqp.publish(document(b"a"), key=NAMES.state)
    amqp.publish(document(b"b"), key=NAMES.state)
    async with StateQueue(here) as state:
        assert await active(state) == b"a" * 32
    assert [one["key"] for one in documents(amqp, "key")] == [base64.b64encode(b"a" * 32).decode()]


async def test_a_key_that_cannot_be_read_is_kept_and_never_replaced(here: Topology, amqp: Client) -> None:
    amqp.publish(json.dumps({"kind": "key", "v": 9, "sealed": "…"}), key=NAMES.state)
    async with StateQueue(here) as state:
        with pytest.raises(TopologyError, match="a key that this version cannot read"):
            await active(state)
    assert [one["v"] for one in documents(amqp, "key")] == [9]


async def test_the_key_is_in_no_repr(here: Topology) -> None:
    async with StateQueue(here) as state:
        key = await active(state)
        assert base64.b64encode(key).decode() not in repr(state)
        assert repr(key) not in repr(state)
