"""The link's answers: each to its question, also where questions cross, answers are late, and ends come early."""

import asyncio
import os
import socket
import time
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pytest
import uvloop
from pamqp import commands

from dlx_router.broker.address import Host, Login
from dlx_router.broker.answers import ChannelClosed
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.link import Link, open_link
from dlx_router.wire import frames
from tests.support.bulk import pour
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.proxy import Proxy
from tests.support.vhost import Vhost

pytestmark = pytest.mark.usefixtures("newest")
CONSUME: Final = b"\x00\x3c\x00\x14"
CANCEL: Final = b"\x00\x3c\x00\x1e"


async def linked(vhost: Vhost, port: int = 0) -> Link:
    url = urlsplit(vhost.amqp_url)
    login = Login(unquote(url.username or ""), unquote(url.password or ""), vhost.name)
    host = Host("127.0.0.1" if port else url.hostname or "", port or url.port or 5672)
    return await open_link(host, login, tls=None, heartbeat=10, name="link test")


class _Nobody:
    """For a channel whose events are of no interest."""

    def on_event(self, event: object) -> None:
        pass

    def on_closed(self, error: Exception) -> None:
        pass


def consumer(link: Link, queue: str, lost: list[Exception] | None = None) -> Consumer:
    ends = [] if lost is None else lost
    return Consumer(
        link,
        queue,
        10,
        sink=lambda _delivery, _consumer: None,
        on_lost=lambda _consumer, error, _left: ends.append(error),
    )


async def count(link: Link, channel: int, queue: str, within: float) -> int:
    reply = await link.rpc(channel, commands.Queue.Declare(queue=queue, passive=True), within)
    return int(reply.message_count)


def test_a_write_that_still_waits_when_its_link_ends_is_dropped_without_a_word(vhost: Vhost) -> None:
    troubles: list[dict[str, Any]] = []

    async def scene() -> None:
        asyncio.get_running_loop().set_exception_handler(lambda _loop, trouble: troubles.append(trouble))
        link = await linked(vhost)
        link.gather_s = 0.05
        await link.open_channel(_Nobody())
        link.send(frames.HEARTBEAT)
        link.abort()
        await asyncio.sleep(0.2)  # what it gathered would be sent by then

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(scene())
    assert troubles == []


async def test_while_we_read_nothing_of_the_broker_it_is_not_late(vhost: Vhost, amqp: Client) -> None:
    amqp.queue("work")
    link = await linked(vhost)
    channel = await link.open_channel(_Nobody())
    link.pause(paused=True)
    asked = asyncio.ensure_future(count(link, channel, "work", within=0.1))
    done, _ = await asyncio.wait({asked}, timeout=0.5)
    assert not done
    link.pause(paused=False)
    assert await asked == 0
    await link.close()


@pytest.mark.usefixtures("newest")
@pytest.mark.parametrize("in_turns", [True, False])
async def test_a_link_that_reads_in_turns_lets_others_work_and_keeps_the_order(
    vhost: Vhost, amqp: Client, *, in_turns: bool
) -> None:
    """A read brings hundreds of deliveries; each takes 2 ms here."""
    amqp.queue("work")
    pour(amqp, "work", [str(number) for number in range(500)], {})
    link, came, ticks = await linked(vhost), list[int](), 0
    if in_turns:
        link.read_in_turns()

    def take(delivery: frames.Delivery, _consumer: Consumer) -> None:
        came.append(int(delivery.body))
        until = time.monotonic() + 0.002
        while time.monotonic() < until:
            pass

    slow = Consumer(link, "work", 1000, sink=take, on_lost=lambda *_: None)
    await slow.start()
    async with asyncio.timeout(60):
        while len(came) < 500:
            ticks += bool(came)
            if came == [*range(200)]:
                link.pause(paused=True)
                link.pause(paused=False)
            await asyncio.sleep(0.001)
        assert await slow.counted() == (0, 1)
    assert came == [*range(500)]
    if in_turns:
        assert ticks > 20, "100 turns of 10 ms; a sleeper is woken in each third at least"
    else:
        assert ticks < 40, "few reads bring all of it"
    await link.close()


@pytest.mark.usefixtures("newest")
async def test_two_questions_on_one_channel_get_their_own_answers(vhost: Vhost, amqp: Client) -> None:
    amqp.queue("work")
    link = await linked(vhost)
    subscriber = consumer(link, "work")
    await subscriber.start()
    async with asyncio.timeout(60):
        _, counted = await asyncio.gather(subscriber.halt(), subscriber.counted())
    assert counted in {(0, 1), (0, 0)}
    amqp.publish("late", key="work")
    async with asyncio.timeout(60):
        counted, _ = await asyncio.gather(subscriber.counted(), subscriber.close())
    assert counted == (1, 0)
    await link.close()


async def test_an_answer_that_comes_too_late_is_not_taken_for_the_next(vhost: Vhost, amqp: Client) -> None:
    amqp.queue("work")
    amqp.queue("other")
    amqp.publish("one", key="other")
    with Proxy(urlsplit(vhost.amqp_url).port or 5672) as line:
        link = await linked(vhost, line.port)
        channel = await link.open_channel(_Nobody())
        line.stall()
        with pytest.raises(TimeoutError, match=r"no answer to Queue\.Declare within 0\.3 s"):
            await count(link, channel, "work", within=0.3)
        asked = asyncio.ensure_future(count(link, channel, "other", within=10))
        await asyncio.sleep(0)
        line.heal()
        assert await asked == 1
        await link.close()


async def test_a_consumer_that_is_ended_as_it_begins_says_so(vhost: Vhost, amqp: Client) -> None:
    """The broker's yes and its cancel come in one read."""
    amqp.queue("work")
    link = await linked(vhost)
    subscriber, send = consumer(link, "work"), link.send

    def then_hold_up_the_loop(data: bytes) -> None:
        send(data)
        if CONSUME in data:
            asyncio.get_running_loop().call_soon(delete_meanwhile, amqp, link)

    link.send = then_hold_up_the_loop  # type: ignore[method-assign]  # calls the true one
    with pytest.raises(ChannelClosed, match="ended as it began"):
        await subscriber.start()
    await link.close()


def delete_meanwhile(amqp: Client, link: Link) -> None:
    """The queue is consumed, then gone, and all that the broker says to it waits in the socket."""
    eventually(lambda: amqp.channel.queue_declare("work", passive=True).method.consumer_count == 1)
    amqp.channel.queue_delete("work")
    assert link._transport is not None
    with socket.socket(fileno=os.dup(link._transport.get_extra_info("socket").fileno())) as wire:
        eventually(lambda: CANCEL in wire.recv(4096, socket.MSG_PEEK))


async def test_where_no_channel_is_free_the_asker_is_told(vhost: Vhost) -> None:
    link = await linked(vhost)
    for _ in range(2047):
        await link.open_channel(_Nobody())
    with pytest.raises(ChannelClosed, match="2047 channels"):
        await link.open_channel(_Nobody())
    assert link.is_open
    await link.close()
