"""What a stop waits for."""

import asyncio
from typing import Any

from dlx_router.broker.consumer import Consumer
from dlx_router.core.names import Names
from dlx_router.service.sources.consumers import Consumers
from dlx_router.telemetry.metrics import Metrics
from dlx_router.wire.events import Delivery

NAMES = Names("dlx-router")


def test_a_stop_before_there_is_a_connection_waits_for_nothing() -> None:
    every = Consumers("/", NAMES, b"", Metrics(), lambda *_: None)
    every.drain()
    assert (every.may_get_more, every.in_flight) == (False, 0)


class _Silent(Consumer):
    """Its end is never answered."""

    async def end(self) -> None:
        await asyncio.Event().wait()


class _Link:
    is_open, rests, is_silent = True, False, False


def _delivery(tag: int) -> Delivery:
    return Delivery(1, b"", tag, redelivered=False, exchange=b"", routing_key=b"q", header=b"", body=b"")


async def test_an_answer_that_does_not_come_is_waited_for_a_while_and_what_comes_then_is_left_alone() -> None:
    """The while begins anew with each delivery: the answer comes behind all that was on its way."""
    taken: list[object] = []
    link: Any = _Link()
    every = Consumers("/", NAMES, b"", Metrics(), lambda *_: None, cancelled_s=0.5)
    every.link = link
    consumer = _Silent(link, "q", 10, sink=lambda delivery, _: taken.append(delivery), on_lost=lambda *_: None)
    every._consumers["q"] = consumer
    every.drain()
    for tag in range(1, 5):
        assert every.may_get_more
        consumer.on_event(_delivery(tag))
        await asyncio.sleep(0.2)  # less than that while
    async with asyncio.timeout(60):
        while every.may_get_more:  # noqa: ASYNC110 - nothing tells of it
            await asyncio.sleep(0.01)
    every.take_no_more()
    consumer.on_event(_delivery(9))
    assert (len(taken), every.in_flight) == (4, 5)
