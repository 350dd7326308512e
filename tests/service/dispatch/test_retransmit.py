"""What is in doubt after a channel was closed is repeated, and a channel that is closed again meanwhile is noticed."""

import asyncio
from collections.abc import Callable
from typing import Any, cast

import pytest

from dlx_router.broker.answers import ChannelClosed
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.publisher import Publisher
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.dispatch.worker import Worker
from tests.support.bulk import dying_queue, pour, rests, take_many
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.worker import NAMES, Sent, Session, Taken, dead, place

TWO_TARGETS = """
version: 1
policies:
  - {name: one, match: "one.#", definition: {dead-letter-exchange: first}}
  - {name: other, match: "other.#", definition: {dead-letter-exchange: second}}
"""


class ClosedBehindTheAnswer:
    """A link whose broker agrees to confirm mode and closes the channel, in one read."""

    frame_max = 131_072

    def __init__(self) -> None:
        self.handler: Any = None

    async def open_channel(self, handler: Any) -> int:
        self.handler = handler
        return 1

    async def rpc(self, *_: object) -> None:
        self.handler.on_closed(ChannelClosed(404, "gone"))


async def test_a_channel_that_is_closed_as_it_opens_is_never_published_on() -> None:
    """What is sent on a closed channel is never answered, or ends the connection."""
    doubts: list[Exception] = []
    publisher: Publisher[str] = Publisher(
        cast("Any", ClosedBehindTheAnswer()),
        on_answer=lambda _job, _why: None,
        on_doubt=lambda _jobs, error: doubts.append(error),
    )
    with pytest.raises(ChannelClosed):
        await publisher.open()
    assert not publisher.is_open
    assert len(doubts) == 1


class OpensAChannel:
    """A publish link that counts what is opened on it."""

    blocked, is_open, frame_max = False, True, 131_072

    def __init__(self) -> None:
        self.opened = 0

    async def open_channel(self, _handler: Any) -> int:
        self.opened += 1
        return self.opened

    async def rpc(self, *_: object) -> None:
        pass


class SlowProbe:
    """A probe whose broker answers when the test says."""

    def __init__(self) -> None:
        self.asked, self.answer = asyncio.Event(), asyncio.Event()

    async def publish(self, *_: object, **__: object) -> str:
        self.asked.set()
        await self.answer.wait()
        return ""


async def test_a_lane_that_was_left_during_its_recovery_opens_no_channel_that_nobody_closes() -> None:
    session, probe, link = (
        Session({"dead-letter-exchange": "dlx", "max-delivery-attempts": 1}),
        SlowProbe(),
        OpensAChannel(),
    )
    session.publish_link = cast("Any", link)
    worker, sent, taken = Worker(session, cast("SerialPublisher", probe)), Sent(), Taken(NAMES.inbox)
    worker._publisher = worker._own_publisher = cast("Any", sent)
    worker.attend(cast("Consumer", taken), place(NAMES.inbox))
    job = session.decider.judge(dead(1), cast("Consumer", taken), place(NAMES.inbox), 0.0)
    recovery = asyncio.create_task(worker._recover([job], own=False))
    await probe.asked.wait()
    worker._is_closed = True
    probe.answer.set()
    await recovery
    assert taken.settled == [1]
    assert link.opened == 0


def test_a_second_target_that_goes_during_recovery_leaves_no_letter_unanswered(
    amqp: Client, start_router: Callable[..., Router]
) -> None:
    """Both exchanges are known, and gone: the channel is closed for one of them, then the probe's, then again."""
    for exchange in ("first", "second"):
        amqp.exchange(exchange, "fanout")
        amqp.bind(amqp.queue(f"{exchange}.dead"), exchange)
    source, other = dying_queue(amqp, "one.work"), dying_queue(amqp, "other.work")
    router = start_router(TWO_TARGETS, UNROUTABLE_GRACE="60s")
    for queue, target in ((source, "first"), (other, "second")):
        pour(amqp, queue, ["known"])
        amqp.take(f"{target}.dead")
    for exchange in ("first", "second"):
        amqp.channel.exchange_delete(exchange)
    channel = amqp.connection.channel()
    for n in range(100):
        channel.basic_publish("", (source, other)[n % 2], str(n).encode())
    eventually(lambda: router.metric("publish_refused_total", cause="closed") >= 1)
    for exchange in ("first", "second"):
        amqp.exchange(exchange, "fanout")
        amqp.bind(f"{exchange}.dead", exchange)
    taken = [message for exchange in ("first", "second") for message in take_many(amqp, f"{exchange}.dead", 50, 30)]
    assert {message.body for message in taken} == {str(n).encode() for n in range(100)}
    rests(router)
    assert "session.ended" not in router.output
