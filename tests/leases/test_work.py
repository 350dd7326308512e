"""The client's worker: programs that receive letters and say what becomes of them."""

import asyncio

import pytest

from dlx_router.client.worker import LeaseEnded, WorkerError, receive
from tests.leases.conftest import Bench
from tests.support.eventually import consistently, eventually

pytestmark = pytest.mark.usefixtures("newest")  # what it shows is the same on every version


async def test_a_loop_over_letters(bench: Bench) -> None:
    queue = bench.failed("loop.a", ["good", "bad", "back", "rest"])
    url = f"http://127.0.0.1:{bench.router.port}"
    seen: list[str] = []

    async def handled() -> None:
        async for letter in receive(queue, url=url, vhost=bench.vhost.name, batch=10, until_empty=True):
            body = letter.body.decode()
            seen.append(body)
            if body == "rest":
                break
            async with letter:
                if body == "back":
                    await letter.redrive()
                if body == "bad":
                    raise RuntimeError(body)

    with pytest.raises(RuntimeError):
        await handled()
    await asyncio.to_thread(eventually, lambda: bench.amqp.depth(queue) == 3)  # what nobody had looked at too
    bench.amqp.take(queue)
    await handled()
    assert seen == ["good", "bad", "back", "rest"]
    assert bench.amqp.take("loop.a").body == b"back"
    await asyncio.to_thread(eventually, lambda: bench.amqp.depth(queue) == 1)


async def test_a_letter_that_waited_for_its_turn_is_extended_as_its_block_begins(bench: Bench) -> None:
    queue = bench.failed("turn.a", ["first", "second"])
    url = f"http://127.0.0.1:{bench.router.port}"
    letters = receive(queue, url=url, vhost=bench.vhost.name, visibility=3.0, batch=2)
    async with await anext(letters):
        await asyncio.sleep(2.2)  # the second waits for its turn
    async with await anext(letters):
        await asyncio.to_thread(consistently, lambda: bench.amqp.depth(queue) == 0, 1.5)
    await asyncio.to_thread(eventually, lambda: bench.amqp.depth(queue) == 0)
    assert bench.receive(queue) == [], "both are done"


async def test_a_letter_is_kept_while_it_is_worked_at_and_late_is_late(bench: Bench) -> None:
    queue = bench.failed("keep.a", ["slow", "late"])
    url = f"http://127.0.0.1:{bench.router.port}"
    letters = receive(queue, url=url, vhost=bench.vhost.name, visibility=1.5, batch=2)
    slow = await anext(letters)
    async with slow:
        await asyncio.to_thread(consistently, lambda: bench.amqp.depth(queue) == 0, 1)
        await asyncio.sleep(2)  # as long as somebody works at it, which is longer than its lease
    late = await anext(letters)
    with pytest.raises(LeaseEnded) as ended:
        await late.done()
    assert ended.value.ended == "expired"
    (expired,) = [
        letter async for letter in receive(queue, url=url, vhost=bench.vhost.name, until_empty=True, visibility=0.5)
    ]
    await asyncio.sleep(1)  # its lease is over
    entered = False
    with pytest.raises(LeaseEnded):
        async with expired:
            entered = True
    assert not entered, "somebody else may have it"
    with pytest.raises(WorkerError, match="does not exist"):
        await anext(receive("DLQ.nobody", url=url, vhost=bench.vhost.name))
    with pytest.raises(ValueError, match="write http"):
        await anext(receive(queue, url="localhost"))
