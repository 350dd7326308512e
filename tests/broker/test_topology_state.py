"""The key is never lost and never two; one router is active, and knows it."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest

from dlx_router.broker.address import Host, Login
from dlx_router.broker.control import TopologyError
from dlx_router.broker.state import Moved, StateQueue
from dlx_router.broker.topology import Topology
from dlx_router.core import statemessage
from dlx_router.core.statemessage import Claim
from tests.broker.scene import NAMES, topology
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.raw import RawClient
from tests.support.vhost import Vhost
from tools import brokers

WITHIN_S = 15
SHARED = b"s" * 32


@pytest.fixture
async def here(vhost: Vhost) -> AsyncIterator[Topology]:
    fresh = topology(vhost)
    await fresh.ensure_core()
    yield fresh
    await fresh.close()


async def active(state: StateQueue) -> bytes:
    async with asyncio.timeout(WITHIN_S):
        await state.wait_active()
    return state.key


async def again(here: Topology) -> bytes:
    """The key, as a router gets it that starts anew until it can."""
    async with asyncio.timeout(60):
        while True:
            try:
                async with StateQueue(here) as state:
                    return await active(state)
            except TopologyError:
                continue


async def until(look: Callable[[], bool]) -> None:
    """As `eventually`, while the loop turns."""
    await asyncio.to_thread(eventually, look, WITHIN_S)


def bodies(amqp: Client) -> set[bytes]:
    """What lies in the queue, nobody attending it; a renewal that was cut off leaves two copies."""
    contents = set()
    for method, _, body in amqp.channel.consume(NAMES.state, inactivity_timeout=0.5):
        if method is None:
            break
        contents.add(body)
    amqp.channel.cancel()  # gives them back
    return contents


def of_key(letter: bytes) -> bytes:
    return json.dumps({"kind": "key", "v": 1, "key": base64.b64encode(letter * 32).decode()}).encode()


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
        first._link.abort()
        async with asyncio.timeout(60):
            await waiting
        assert (standby.key, standby.active, first.active) == (key, True, False)
        assert [NAMES.state in str(error) for error in lost] == [True]


@pytest.mark.usefixtures("newest")
async def test_a_key_is_renewed_over_and_over_and_stays_one(here: Topology, amqp: Client) -> None:
    async with StateQueue(here, renew_s=0.05) as state:
        key = await active(state)
        tags: set[int] = set()

        def renewed() -> bool:
            assert state._held is not None
            tags.add(state._held.tag)
            return len(tags) > 10

        await until(renewed)
        assert state.active
    assert [document["key"] for document in documents(amqp, "key")] == [base64.b64encode(key).decode()]


@pytest.mark.parametrize("letters", range(8))
@pytest.mark.usefixtures("newest")
async def test_a_router_cut_off_in_the_middle_of_a_renewal_loses_no_key(
    here: Topology, amqp: Client, letters: int
) -> None:
    async with StateQueue(here, renew_s=0.01) as state:
        key = await active(state)
        await asyncio.sleep(0.003 * letters + 0.01)  # the moment of the crash is what is tried, not waited for
        state._link.abort()  # no goodbye
        await until(lambda: not state.active)
    async with StateQueue(here) as after:
        assert await active(after) == key


@pytest.mark.slow
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
        standby._link.abort()
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


@pytest.mark.parametrize("moments", range(6))
@pytest.mark.usefixtures("newest")
async def test_a_key_of_somebody_else_is_not_the_first_however_a_router_is_cut_off(
    here: Topology, amqp: Client, moments: int
) -> None:
    """Between a copy of the key and the key itself lies what others write; none of it may be first in the queue."""
    async with StateQueue(here, renew_s=0.01) as state:
        key = await active(state)
        for letter in range(10):
            amqp.publish(of_key(bytes((letter + 65,))), key=NAMES.state)
        await asyncio.sleep(0.002 * moments)  # the moment of the crash is what is tried, not waited for
        state._link.abort()
        await until(lambda: not state.active)
    async with StateQueue(here) as after:
        assert await active(after) == key


async def test_what_no_router_of_this_version_keeps_there_goes_to_quarantine(here: Topology, amqp: Client) -> None:
    moved: list[Moved] = []
    strangers = (json.dumps({"kind": "ledger", "v": 7}).encode(), b"\xff no json")
    for body in strangers:
        amqp.publish(body, key=NAMES.state, headers={"mine": "yes", "CC": ["elsewhere"]}, user_id="guest", priority=3)
    async with StateQueue(here, on_moved=moved.append) as state:
        await active(state)
        await until(lambda: len(moved) == 2)
    messages = [amqp.take(NAMES.quarantine) for _ in strangers]
    assert [message.body for message in messages] == [*strangers]
    assert [message.headers["mine"] for message in messages] == ["yes", "yes"]
    assert [(entry.user, entry.routing_key) for entry in moved] == [("guest", NAMES.state)] * 2
    assert [document["kind"] for document in documents(amqp, "key")] == ["key"]


@pytest.mark.usefixtures("newest")
async def test_a_key_that_was_in_use_is_put_back_where_there_is_none(here: Topology) -> None:
    async with StateQueue(here, remembered=b"r" * 32) as state:
        assert await active(state) == b"r" * 32
    async with StateQueue(here, remembered=b"s" * 32) as later:
        assert await active(later) == b"r" * 32


async def test_a_standby_is_answered_by_whoever_is_active_and_told_where_it_is(here: Topology) -> None:
    def claim(local: str) -> Claim:
        return Claim("first-1", f"http://{local}:9719")

    async with (
        StateQueue(here, shared=SHARED, claim=claim) as first,
        StateQueue(here, shared=SHARED, hello_s=0.1) as standby,
    ):
        await active(first)
        await until(lambda: standby.is_answered)
        assert not first.is_answered
        assert first._link.local_address
        assert standby.leader == claim(first._link.local_address), "as the broker sees us"
        assert first.leader is None


async def test_an_answer_that_is_said_again_by_somebody_else_leads_nowhere(here: Topology, amqp: Client) -> None:
    """Whoever may read the state queue knows hellos and answers; an answer of before is none to the hellos of now."""
    async with StateQueue(here, shared=SHARED) as first, StateQueue(here, shared=SHARED, hello_s=0.05) as standby:
        await active(first)
        await until(lambda: standby.is_answered)
        old = statemessage.answer(standby._instance, SHARED, Claim("old-1", "http://10.0.0.1:9719"), "0" * 16)
        forged = statemessage.answer(
            standby._instance, b"x" * 32, Claim("x-1", "http://10.0.0.2:9719"), standby._nonces[-1]
        )
        for body in (old, forged):
            standby._replied(body)
            assert standby.leader is None


@pytest.mark.parametrize("to", [NAMES.parking, "amq.rabbitmq.reply-to.x", "amq.rabbitmq.reply-to.g2dk.AA==", "…" * 80])
@pytest.mark.usefixtures("newest")
async def test_a_hello_makes_us_write_to_no_queue(here: Topology, amqp: Client, to: str) -> None:
    async with StateQueue(here, shared=SHARED) as state, StateQueue(here, shared=SHARED, hello_s=0.1) as standby:
        await active(state)
        amqp.publish(b'{"kind":"hello","instance":"nobody"}', key=NAMES.state, reply_to=to)
        await until(lambda: standby.is_answered)  # it comes behind
        assert state.active
    assert amqp.depth(NAMES.parking) == 0


def _headers(entry: bytes) -> bytes:
    return b"\x20\x00" + len(entry).to_bytes(4, "big") + entry


UNREADABLE = {  # by aio-pika, whose channel ends with it
    "timestamp": b"\x00\x40" + (2**63).to_bytes(8, "big"),
    "message id": b"\x00\x80\x02\xff\xfe",
    "header's name": _headers(b"\x02\xff\xfet\x01"),
    "header's timestamp": _headers(b"\x01aT" + (2**63).to_bytes(8, "big")),
}


@pytest.mark.parametrize("properties", UNREADABLE.values(), ids=UNREADABLE)
async def test_properties_that_no_library_reads_are_no_harm(
    here: Topology, amqp: Client, vhost: Vhost, properties: bytes
) -> None:
    moved: list[Moved] = []
    with RawClient(vhost.amqp_url) as raw:
        raw.publish(b"junk", properties, key=NAMES.state)
    async with StateQueue(here, on_moved=moved.append) as state:
        await active(state)
        await until(lambda: len(moved) == 1)
    assert amqp.depth(NAMES.quarantine) == 1


@pytest.mark.usefixtures("newest")
async def test_what_quarantine_refuses_stays_and_is_told_until_it_is_taken(
    here: Topology, amqp: Client, vhost: Vhost
) -> None:
    amqp.channel.queue_delete(NAMES.quarantine)
    amqp.channel.queue_declare(
        NAMES.quarantine, durable=True, arguments={"x-max-length": 0, "x-overflow": "reject-publish"}
    )
    for number in range(9):
        amqp.publish(f"junk {number}", key=NAMES.state)
    async with StateQueue(here, hello_s=0.1) as state:
        waiting = asyncio.create_task(state.wait_active())
        await until(lambda: "nacked" in state.hindrance)
        await asyncio.to_thread(amqp.channel.queue_delete, NAMES.quarantine)
        await here.ensure_core()
        async with asyncio.timeout(WITHIN_S):
            await waiting
        await until(lambda: not state.hindrance)
    await until(lambda: amqp.depth(NAMES.quarantine) == 9)


async def test_a_key_that_cannot_be_read_is_kept_and_never_replaced(here: Topology, amqp: Client) -> None:
    amqp.publish(json.dumps({"kind": "key", "v": 9, "sealed": "…"}), key=NAMES.state)
    async with StateQueue(here) as state:
        with pytest.raises(TopologyError, match="a key that this version cannot read"):
            await active(state)
    assert [document["v"] for document in documents(amqp, "key")] == [9]
