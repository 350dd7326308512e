"""The client against a router: what it declares is done, what it cannot declare stays with its consumer."""

import asyncio
import struct
from collections.abc import AsyncIterator, Callable
from typing import Any, Final

import aio_pika
import pytest
from aio_pika.abc import AbstractIncomingMessage, AbstractQueue

from dlx_router.client import (
    Dead,
    FromDeadLetterQueue,
    InvalidDeclaration,
    Undeliverable,
    dead,
    dead_many,
    sync,
)
from tests.support.bulk import record
from tests.support.client import Client
from tests.support.raw import RawClient
from tests.support.router import Router
from tests.support.scene import deaths
from tests.support.vhost import Vhost

Start = Callable[..., Router]

POLICIES: Final = """
version: 1
policies:
  - {name: work, match: "work.#", definition: {max-delivery-attempts: 3, redelivery-delay: 100ms}}
"""


@pytest.fixture
async def consume(vhost: Vhost) -> AsyncIterator[Callable[[str, int], Any]]:
    """consume(queue, n) → the next n messages, unacked."""
    async with await aio_pika.connect(vhost.amqp_url) as connection:
        channel = await connection.channel()

        async def take(name: str, count: int = 1) -> list[AbstractIncomingMessage]:
            queue: AbstractQueue = await channel.get_queue(name)
            async with asyncio.timeout(60), queue.iterator() as messages:
                return [await anext(messages) for _ in range(count)]

        yield take


async def test_declared_and_then_acked(start_router: Start, amqp: Client, consume: Callable[..., Any]) -> None:
    start_router(POLICIES)
    amqp.queue("work.a")
    amqp.publish("one", key="work.a", headers={"x-mine": "kept"}, expiration="60000", user_id="guest")
    (message,) = await consume("work.a")
    try:
        int(message.body)
    except ValueError as error:
        await dead(message, "no-stock", error=error, retry="never", tag="t1")
    letter = await asyncio.to_thread(amqp.take, "DLQ.work.a")
    header = record(letter)
    assert (letter.body, letter.headers["x-mine"]) == (b"one", "kept")
    assert letter.properties.message_id is None, "none was invented"
    assert (header["reason"], header["cause"]) == ("application:no-stock", "never_retry")
    assert header["error"]["type"] == "ValueError"
    assert letter.deaths[0]["original-expiration"] == "60000"
    assert amqp.depth("work.a") == 0


async def test_each_attempt_is_the_same_letter(start_router: Start, amqp: Client, consume: Callable[..., Any]) -> None:
    start_router(POLICIES)
    amqp.queue("work.a")
    amqp.publish("one", key="work.a")
    ids = set()
    for _ in range(3):
        (message,) = await consume("work.a")
        ids.add(message.headers.get("dlx-router-id"))
        await dead(message, "boom")
    letter = await asyncio.to_thread(amqp.take, "DLQ.work.a")
    assert deaths(letter) == [("work.a", "rejected", 3)]
    assert ids == {None, record(letter)["id"]}


@pytest.mark.usefixtures("newest")
async def test_a_batch_tells_of_each(start_router: Start, amqp: Client, consume: Callable[..., Any]) -> None:
    start_router(POLICIES)
    amqp.queue("work.a")
    for number in range(3):
        amqp.publish(str(number), key="work.a", message_id="the same")
    first, two, three = await consume("work.a", 3)
    await two.ack()
    results = await dead_many([Dead(message=message, reason="boom", retry="never") for message in (first, two, three)])
    assert [result.ok for result in results] == [True, False, True]
    assert isinstance(results[1].error, InvalidDeclaration)
    letters = [await asyncio.to_thread(amqp.take, "DLQ.work.a") for _ in range(2)]
    assert sorted(letter.body for letter in letters) == [b"0", b"2"]
    assert {letter.properties.message_id for letter in letters} == {"the same"}


@pytest.mark.usefixtures("newest")
async def test_a_message_whose_channel_is_closed_keeps_no_other_from_being_declared(
    start_router: Start, amqp: Client, vhost: Vhost, consume: Callable[..., Any]
) -> None:
    start_router(POLICIES)
    for queue in ("work.a", "work.b"):
        amqp.queue(queue)
    for number in range(2):
        amqp.publish(str(number), key="work.a")
    amqp.publish("late", key="work.b")
    first, last = await consume("work.a", 2)
    async with await aio_pika.connect(vhost.amqp_url) as connection:
        channel = await connection.channel()
        late = await (await channel.get_queue("work.b")).get()
        await channel.close()
        with pytest.raises(Undeliverable, match="the channel of the message is closed"):
            await dead(late, "boom")
        batch = [Dead(message=message, reason="boom", retry="never") for message in (first, late, last)]
        results = await dead_many(batch)
    assert [result.ok for result in results] == [True, False, True]
    assert isinstance(results[1].error, Undeliverable)
    letters = [await asyncio.to_thread(amqp.take, "DLQ.work.a") for _ in range(2)]
    assert sorted(letter.body for letter in letters) == [b"0", b"1"]
    assert (await asyncio.to_thread(amqp.take, "work.b")).body == b"late"


@pytest.mark.usefixtures("newest")
async def test_a_dead_letter_is_not_declared_again(
    start_router: Start, amqp: Client, consume: Callable[..., Any]
) -> None:
    start_router(POLICIES)
    amqp.queue("work.a")
    amqp.publish("one", key="work.a")
    (message,) = await consume("work.a")
    await dead(message, "boom", retry="never")
    await asyncio.to_thread(amqp.await_message, "DLQ.work.a")
    amqp.channel.basic_recover(requeue=True)
    (message,) = await consume("DLQ.work.a")
    with pytest.raises(FromDeadLetterQueue, match="redrive it, or ack it"):
        await dead(message, "boom")
    await message.reject(requeue=True)
    assert (await asyncio.to_thread(amqp.take, "DLQ.work.a")).body == b"one"


@pytest.mark.parametrize("there", [False, True], ids=["no exchange", "no queue"])
@pytest.mark.usefixtures("newest")
async def test_without_a_router_the_message_stays(amqp: Client, consume: Callable[..., Any], *, there: bool) -> None:
    if there:
        amqp.exchange("dlx-router.declared", "fanout")
    amqp.queue("work.a")
    amqp.publish("one", key="work.a")
    (message,) = await consume("work.a")
    with pytest.raises(Undeliverable, match="does a router attend" if there else "no exchange"):
        await dead(message, "boom")
    await message.reject(requeue=True)
    assert (await asyncio.to_thread(amqp.take, "work.a")).body == b"one"


async def test_headers_that_fill_a_frame_leave_the_connection_alone(
    start_router: Start, amqp: Client, consume: Callable[..., Any]
) -> None:
    start_router(POLICIES)
    amqp.queue("work.a")
    amqp.publish("one", key="work.a", headers={"x-large": "x" * 130_700})
    (message,) = await consume("work.a")
    with pytest.raises(Undeliverable, match="a frame holds"):
        await dead(message, "boom", description="y" * 900)
    await message.reject(requeue=True)
    message = _delivered(amqp, "work.a")
    with pytest.raises(Undeliverable, match="a frame holds"):
        sync.dead(message, "boom", description="y" * 900)
    amqp.channel.basic_ack(message.method.delivery_tag)


def _delivered(amqp: Client, queue: str) -> sync.Message:
    amqp.await_message(queue).requeue()
    for method, properties, body in amqp.channel.consume(queue, inactivity_timeout=60):
        return sync.Message(amqp.channel, method, properties, body)
    raise AssertionError


def test_the_same_on_pika(start_router: Start, amqp: Client) -> None:
    start_router(POLICIES)
    amqp.queue("work.a")
    amqp.publish("one", key="work.a", expiration="60000")
    message = _delivered(amqp, "work.a")
    sync.dead(message, "boom", description="no stock", retry="never")
    amqp.channel.cancel()
    letter = amqp.take("DLQ.work.a")
    assert (letter.body, letter.properties.message_id) == (b"one", None)
    assert record(letter)["error"] == {"message": "no stock"}
    amqp.publish("two", key="work.a")
    message = _delivered(amqp, "work.a")
    bad = sync.Message(message.channel, message.method, message.properties, message.body)
    results = sync.dead_many(
        [
            sync.Dead(message=bad, reason="boom", retry="never", queue="dlx-router.parking"),
            sync.Dead(message=message, reason="boom", retry="never"),
        ]
    )
    assert [result.ok for result in results] == [False, True]
    amqp.channel.cancel()
    assert amqp.take("DLQ.work.a").body == b"two"


@pytest.mark.usefixtures("newest")
async def test_a_message_with_an_empty_id_that_is_returned_is_not_acked(
    amqp: Client, consume: Callable[..., Any], vhost: Vhost
) -> None:
    """aiormq takes an empty id for none, and knows what it publishes by one of its own."""
    amqp.exchange("dlx-router.declared", "fanout")
    amqp.queue("work.a")
    with RawClient(vhost.amqp_url) as raw:
        raw.publish(b"one", struct.pack(">H", 0x0080) + b"\x00", key="work.a")
    (message,) = await consume("work.a")
    with pytest.raises(Undeliverable, match="does a router attend"):
        await dead(message, "boom")
    await message.reject(requeue=True)
    assert (await asyncio.to_thread(amqp.take, "work.a")).body == b"one"


@pytest.mark.usefixtures("newest")
async def test_what_somebody_else_wrote_into_our_headers_keeps_no_message_from_being_declared(
    amqp: Client, consume: Callable[..., Any]
) -> None:
    amqp.bind(amqp.queue("declared"), amqp.exchange("dlx-router.declared", "fanout"))
    amqp.queue("work.a")
    for body in ("one", "two"):
        amqp.publish(body, key="work.a", headers={"dlx-router": "[" * 100_000})
    (message,) = await consume("work.a")
    await dead(message, "boom")
    sync.dead(_delivered(amqp, "work.a"), "boom")
    amqp.channel.cancel()
    assert [amqp.take("declared").body for _ in range(2)] == [b"one", b"two"]
