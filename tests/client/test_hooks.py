"""Errors by themselves, on pika and aio-pika: what is declared, and what stays what it was."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Final

import aio_pika
import pika
import pytest

from dlx_router.client import InvalidDeclaration
from dlx_router.client import aio_pika as on_aio_pika
from dlx_router.client import pika as on_pika
from tests.support.bulk import INBOX, record
from tests.support.client import Client, Message
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.vhost import Vhost

Start = Callable[..., Router]
POLICIES: Final = """
version: 1
policies: [{name: work, match: "work.#", definition: {max-delivery-attempts: 1}}]
"""


class OutOfStock(Exception):
    pass


def fails(text: str = "item 7") -> None:
    raise OutOfStock(text)


def hide(details: dict[str, str]) -> dict[str, str]:
    return {**details, "message": "hidden"}


@pytest.fixture
def work(amqp: Client, start_router: Start) -> str:
    start_router(POLICIES)
    return amqp.queue("work.a", dead_letter_exchange=INBOX)


def ended(amqp: Client, queue: str) -> tuple[Message, dict[str, Any]]:
    """A letter in the dead-letter queue, and what is told of it."""
    letter = amqp.take(f"DLQ.{queue}", within=20)
    return letter, record(letter)


@pytest.fixture
def channel(vhost: Vhost) -> Iterator[Any]:
    connection = pika.BlockingConnection(pika.URLParameters(vhost.amqp_url))
    yield connection.channel()
    if connection.is_open:
        connection.close()


@pytest.fixture
async def aio(vhost: Vhost) -> AsyncIterator[aio_pika.abc.AbstractChannel]:
    async with await aio_pika.connect_robust(vhost.amqp_url) as connection:
        yield await connection.channel()


class TestPika:
    def test_each_way_to_take_a_message_is_watched(self, work: str, amqp: Client, channel: Any) -> None:
        on_pika.declare_errors(channel, reason="no-stock", redact=hide)
        amqp.publish("got", key=work)
        method = eventually(lambda: channel.basic_get(work)[0])
        try:
            fails()
        except OutOfStock:
            channel.basic_reject(method.delivery_tag, requeue=False)
        letter, header = ended(amqp, work)
        assert (letter.body, header["reason"]) == (b"got", "application:no-stock")
        assert (header["error"]["type"], header["error"]["message"]) == (f"{__name__}.OutOfStock", "hidden")
        assert header["error"]["frame"].endswith(" in fails")
        amqp.publish("iterated", key=work)
        method, _, body = next(channel.consume(work, inactivity_timeout=60))
        assert body == b"iterated"
        try:
            fails()
        except OutOfStock:
            channel.basic_nack(method.delivery_tag, requeue=False)
        assert ended(amqp, work)[1]["error"]["message"] == "hidden"
        assert on_pika.declare_errors(channel) is channel, "again: by new settings, and watched once"
        amqp.publish("called", key=work)
        channel.cancel()
        channel.basic_consume(work, lambda *_: fails())
        with pytest.raises(OutOfStock):
            channel.start_consuming()
        assert ended(amqp, work)[1]["error"]["message"] == "item 7"
        assert channel._dlx_router_deliveries._taken == {}, "nothing is held of what is settled"

    def test_what_is_no_rejection_because_of_an_exception_stays_what_it_was(
        self, work: str, amqp: Client, channel: Any
    ) -> None:
        on_pika.declare_errors(channel)
        for number in range(6):
            amqp.publish(str(number), key=work)
        tags = [eventually(lambda: channel.basic_get(work)[0]).delivery_tag for _ in range(6)]
        try:
            fails()
        except OutOfStock:
            channel.basic_ack(tags[0])
            channel.basic_nack(tags[2], multiple=True, requeue=False)  # of many, nobody knows which one failed
            channel.basic_reject(tags[3], requeue=True)
            channel.basic_reject(tags[4], requeue=True)
        channel.basic_reject(tags[5], requeue=False)  # nothing failed
        letters = [ended(amqp, work) for _ in range(3)]
        assert {header["reason"] for _, header in letters} == {"rejected"}
        assert sorted(letter.body for letter, _ in letters) == [b"1", b"2", b"5"]
        assert [amqp.take(work).redelivered for _ in range(2)] == [True, True]

    def test_an_acknowledged_delivery_is_left_alone(self, work: str, amqp: Client, channel: Any) -> None:
        on_pika.declare_errors(channel)
        amqp.publish("one", key=work)
        channel.basic_consume(work, lambda *_: fails(), auto_ack=True)
        with pytest.raises(OutOfStock):
            channel.start_consuming()
        assert channel._dlx_router_deliveries._taken == {}
        assert not amqp.exists(f"DLQ.{work}")

    def test_a_letter_from_a_dead_letter_queue_is_rejected_as_before(
        self, work: str, amqp: Client, channel: Any, caplog: pytest.LogCaptureFixture
    ) -> None:
        """It is dead already: to declare it once more would be a circle."""
        amqp.publish("one", key=work)
        amqp.fail(work)
        eventually(lambda: amqp.exists(f"DLQ.{work}") and amqp.depth(f"DLQ.{work}") == 1)
        on_pika.declare_errors(channel)
        method, _, _ = channel.basic_get(f"DLQ.{work}")
        with caplog.at_level(logging.WARNING, "dlx_router.client"):
            try:
                fails()
            except OutOfStock:
                channel.basic_reject(method.delivery_tag, requeue=False)
        assert "rejected without its error" in caplog.text
        assert amqp.depth(f"DLQ.{work}") == 0

    def test_only_channels_of_a_blocking_connection_can_be_watched(self) -> None:
        with pytest.raises(InvalidDeclaration, match="BlockingConnection"):
            on_pika.declare_errors(object())


class TestAioPika:
    async def test_each_way_to_take_a_message_is_watched(
        self, work: str, amqp: Client, aio: aio_pika.abc.AbstractChannel
    ) -> None:
        queue = on_aio_pika.declare_errors(await aio.get_queue(work), reason="no-stock", redact=hide)
        amqp.publish("got", key=work)
        message = await queue.get(timeout=60)
        with contextlib.suppress(OutOfStock):
            async with message.process():
                fails()
        letter, header = await asyncio.to_thread(ended, amqp, work)
        assert (letter.body, header["reason"], header["error"]["message"]) == (b"got", "application:no-stock", "hidden")
        amqp.publish("iterated", key=work)
        async with queue.iterator() as messages:
            async for delivery in messages:
                try:
                    fails()
                except OutOfStock:
                    await delivery.nack(requeue=False)
                break
        assert (await asyncio.to_thread(ended, amqp, work))[1]["error"]["frame"].endswith(" in fails")

    async def test_where_nobody_asked_for_it_nothing_is_declared(
        self, work: str, amqp: Client, aio: aio_pika.abc.AbstractChannel
    ) -> None:
        amqp.publish("one", key=work)
        message = await (await aio.get_queue(work)).get(timeout=60)
        with contextlib.suppress(OutOfStock):
            async with message.process():
                fails()
        _, header = await asyncio.to_thread(ended, amqp, work)
        assert (header["reason"], header.get("error")) == ("rejected", None)

    async def test_a_younger_exception_is_why_though_an_older_one_is_being_handled(
        self, work: str, amqp: Client, vhost: Vhost
    ) -> None:
        async with await aio_pika.connect(vhost.amqp_url) as connection:
            queue = on_aio_pika.declare_errors(await (await connection.channel()).get_queue(work))
            amqp.publish("one", key=work)
            amqp.publish("two", key=work)
            try:
                fails("the connection before")
            except OutOfStock:
                async with queue.iterator() as messages:
                    await (await anext(messages)).reject()
                    with contextlib.suppress(OutOfStock):
                        async with (await anext(messages)).process():
                            fails("item 2")
        headers = [(await asyncio.to_thread(ended, amqp, work))[1] for _ in range(2)]
        assert sorted(header.get("error", {}).get("message", "") for header in headers) == ["", "item 2"]
