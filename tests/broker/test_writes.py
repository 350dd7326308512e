"""When bytes leave: little at once, much together, and large bodies as they are."""

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any, cast

from dlx_router.broker.link import LARGE_PART, MUCH
from dlx_router.wire import frames
from tests.support.ends import HeldLink, StillLoop

GATHER_S = 30.0


def _scene(scene: Callable[[HeldLink, StillLoop], Coroutine[Any, Any, None]]) -> None:
    async def run() -> None:
        link = HeldLink()
        link.gather_s = GATHER_S
        await scene(link, cast("StillLoop", asyncio.get_running_loop()))

    with asyncio.Runner(loop_factory=StillLoop) as runner:
        runner.run(run())


async def _turns() -> None:
    for _ in range(3):
        await asyncio.sleep(0)


def test_little_leaves_at_once_however_soon_after_the_last() -> None:
    async def scene(link: HeldLink, _loop: StillLoop) -> None:
        for number in range(1, 6):
            link.send(frames.ack(1, number, False))  # noqa: FBT003 - AMQP order
            await _turns()
            assert len(link.kept.written) == number

    _scene(scene)


def test_behind_a_write_of_much_the_next_waits_for_others_and_no_longer() -> None:
    async def scene(link: HeldLink, loop: StillLoop) -> None:
        link.send(b"x" * MUCH)
        await _turns()
        for number in range(3):
            link.send(frames.ack(1, number, False))  # noqa: FBT003 - AMQP order
        await _turns()
        assert len(link.kept.written) == 1
        loop.now += 2 * GATHER_S
        await _turns()
        assert len(link.kept.written) == 2

    _scene(scene)


def test_large_bodies_are_handed_over_as_they_are() -> None:
    async def scene(link: HeldLink, _loop: StillLoop) -> None:
        body = b"b" * 5 * LARGE_PART
        link.send_parts([b"head", body, b"end"], len(body))
        link.flush()
        assert link.kept.written == [b"head", body, b"end"]
        link.send_parts([b"head", b"small", b"end"], 5)
        link.flush()
        assert link.kept.written[3:] == [b"headsmallend"]

    _scene(scene)
