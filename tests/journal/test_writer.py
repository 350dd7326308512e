"""The writer on a real broker: batches, what each mode promises, and a stream that is slow, gone or forbidden."""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from urllib.parse import quote

import pytest
from pamqp import commands

from dlx_router.broker.link import Link
from dlx_router.journal.mode import Mode
from dlx_router.wire import frames
from tests.journal import stream
from tests.journal.conftest import NAMES, Desk, soon, stays
from tests.support.vhost import Vhost
from tools import brokers

MakeDesk = Callable[..., Desk]
BOTH = pytest.mark.parametrize("mode", [Mode.BEST_EFFORT, Mode.REQUIRED])


async def told(vhost: Vhost) -> list[int]:
    """The letters in the stream, by their sizes; a gap is minus the number of its events."""
    events = await asyncio.to_thread(stream.events, vhost.amqp_url)
    return [event["digest"]["size"] if event["kind"] != "gap" else -event["events"] for event in events]


async def working(desk: Desk) -> None:
    """The stream is there and takes events."""
    desk.tell_all(range(1))
    desk.journal.flush()
    await soon(lambda: desk.settled == [0] and not desk.readiness.reasons() and not desk.readiness.notes())
    assert await desk.journal.drain(10) == 0
    desk.settled.clear()


def delete_stream(vhost: Vhost) -> None:
    vhost.api.delete(f"queues/{vhost.quoted}/{quote(NAMES.journal, safe='')}").raise_for_status()


def close_channel(link: Link) -> None:
    """The broker is asked for what it refuses on the journal's channel: it closes that channel."""
    link.send(frames.publish(1, b"no such exchange", b"", b"\x00\x00", b"", 0))


@contextmanager
def standing_still(broker: brokers.Broker, vhost: Vhost) -> Iterator[None]:
    """The stream's writer process in the broker does nothing while the block lasts: nothing is confirmed."""
    if not isinstance(broker, brokers.Node):
        pytest.skip("a broker that was given cannot be looked into")
    lookup = f'{{ok, Q}} = rabbit_amqqueue:lookup(rabbit_misc:r(<<"{vhost.name}">>, queue, <<"{NAMES.journal}">>))'
    broker.rabbitmqctl("eval", f"{lookup}, sys:suspend(amqqueue:get_pid(Q)).")
    try:
        yield
    finally:
        broker.rabbitmqctl("eval", f"{lookup}, sys:resume(amqqueue:get_pid(Q)).")


# -- what is written --------------------------------------------------------------------------------------------------


async def test_events_come_as_lines_of_few_messages(vhost: Vhost, desk: MakeDesk) -> None:
    router = desk()
    async with router.session():
        await working(router)
        router.tell_all(range(1, 1251))
        await soon(lambda: router.settled == [*range(1, 1251)])
    batches = await asyncio.to_thread(stream.batches, vhost.amqp_url)
    assert [len(events) for _, events in batches] == [1, 500, 500, 250]
    assert [event["digest"]["size"] for _, events in batches for event in events] == [*range(1251)]


# -- trouble ----------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.usefixtures("newest")
async def test_a_channel_that_is_closed_loses_no_event(vhost: Vhost, desk: MakeDesk, mode: Mode) -> None:
    router = desk(mode=mode)
    async with router.session() as link:
        await working(router)
        for round_ in range(5):
            router.tell_all(range(round_ * 100, round_ * 100 + 50))
            close_channel(link)
            router.tell_all(range(round_ * 100 + 50, round_ * 100 + 100))
            await soon(lambda: len(router.settled) == (round_ + 1) * 100)  # noqa: B023 - called within the round
            assert await router.journal.drain(10) == 0
        assert router.losses == []
    assert {*await told(vhost)} == {*range(500)}


@BOTH
async def test_a_stream_that_is_deleted_is_declared_anew(vhost: Vhost, desk: MakeDesk, mode: Mode) -> None:
    router = desk(mode=mode)
    async with router.session():
        await working(router)
        await asyncio.to_thread(delete_stream, vhost)
        router.tell_all(range(100, 400))
        await soon(lambda: sorted(router.settled) == [*range(100, 400)])
        assert await router.journal.drain(10) == 0
    assert {*await told(vhost)} == {*range(100, 400)}
    assert router.losses == []


@pytest.mark.usefixtures("newest")
async def test_in_best_effort_a_stream_that_cannot_be_stops_no_letter(vhost: Vhost, desk: MakeDesk) -> None:
    router = desk()
    router.declare = False
    async with router.session():
        await soon(router.readiness.notes)
        router.tell_all(range(300))
        assert router.settled == [*range(300)]
        assert router.readiness.ready
        router.declare = True
        await soon(lambda: not router.readiness.notes())
        assert await router.journal.drain(10) == 0
    assert await told(vhost) == [*range(300)]


@pytest.mark.usefixtures("newest")
async def test_in_required_letters_wait_for_the_stream(vhost: Vhost, desk: MakeDesk) -> None:
    router = desk(mode=Mode.REQUIRED)
    router.declare = False
    async with router.session():
        router.tell_all(range(300))
        await soon(router.readiness.reasons)
        await stays(lambda: not router.settled)
        router.declare = True
        await soon(lambda: sorted(router.settled) == [*range(300)])
        assert router.readiness.ready
    assert await told(vhost) == [*range(300)]


@pytest.mark.usefixtures("newest")
async def test_a_full_spool_loses_the_newest_and_says_where(vhost: Vhost, desk: MakeDesk) -> None:
    router = desk(spool_bytes=4_000)
    router.declare = False
    async with router.session():
        await soon(router.readiness.notes)
        router.tell_all(range(2500))
        assert router.settled == [*range(2500)]
        assert router.losses
        router.declare = True
        await soon(lambda: not router.readiness.notes())
        router.tell_all(range(5000, 5003))
        assert await router.journal.drain(10) == 0
    kept = 2500 - router.journal.lost
    assert router.journal.lost == sum(router.losses) > 0
    assert await told(vhost) == [*range(kept), -router.journal.lost, *range(5000, 5003)]


@pytest.mark.usefixtures("newest")
async def test_more_than_the_window_waits_in_the_spool_and_keeps_its_order(vhost: Vhost, desk: MakeDesk) -> None:
    router = desk()
    async with router.session() as link:
        await working(router)
        link.pause(paused=True)
        for number in range(1, 301):
            router.tell_all(range(number, number + 1))
        link.pause(paused=False)
        assert await router.journal.drain(10) == 0
    assert await told(vhost) == [*range(301)]


async def test_events_in_memory_outlive_a_connection(vhost: Vhost, desk: MakeDesk) -> None:
    router = desk()
    async with router.session() as link:
        await working(router)
        link.pause(paused=True)
        router.tell_all(range(1, 11))
        link.abort()
        await soon(lambda: not link.is_open)
    assert router.settled == [*range(1, 11)]
    async with router.session():
        await soon(lambda: not router.readiness.notes())
        assert await router.journal.drain(10) == 0
    assert {*await told(vhost)} == {*range(11)}


async def test_in_required_letters_of_a_lost_connection_are_told_when_they_come_again(
    vhost: Vhost, desk: MakeDesk
) -> None:
    router = desk(mode=Mode.REQUIRED)
    router.declare = False
    async with router.session():
        router.tell_all(range(1, 11))
        await soon(router.readiness.reasons)
    router.declare = True
    async with router.session():
        await working(router)
        assert router.settled == []
    assert await told(vhost) == [0]


@pytest.mark.slow
@pytest.mark.usefixtures("newest")
async def test_a_stream_that_stands_still_stops_no_letter_in_best_effort(
    broker: brokers.Broker, vhost: Vhost, desk: MakeDesk
) -> None:
    router = desk()
    async with router.session() as link:
        await working(router)
        with standing_still(broker, vhost):
            for number in range(1, 501):  # more messages than the broker lets wait for one stream
                router.tell_all(range(number, number + 1))
            await soon(lambda: len(router.settled) == 500)
            await link.rpc(0x7FF, commands.Channel.Open())  # the connection itself is not held up
        assert await router.journal.drain(60) == 0
    assert await told(vhost) == [*range(501)]
    assert router.losses == []


@pytest.mark.slow
@BOTH
@pytest.mark.usefixtures("newest")
async def test_a_confirm_that_does_not_come_ends_the_channel(
    broker: brokers.Broker, vhost: Vhost, desk: MakeDesk, mode: Mode
) -> None:
    router = desk(mode=mode, confirm_timeout_s=0.5)
    async with router.session():
        await working(router)
        with standing_still(broker, vhost):
            router.tell_all(range(1, 11))
            await soon(lambda: router.readiness.reasons() or router.readiness.notes())
        await soon(lambda: len(router.settled) == 10)
        assert await router.journal.drain(10) == 0
    assert {*await told(vhost)} == {*range(11)}


@pytest.mark.usefixtures("newest")
async def test_who_has_to_be_sure_learns_that_an_event_is_lost(desk: MakeDesk) -> None:
    router = desk(spool_bytes=10)
    heard: list[str] = []
    batch = router.tell(7)
    batch.wait_sure(heard.append, "retired")
    router.journal.flush()
    assert (heard, batch.lost, batch.confirmed, router.losses) == (["retired"], True, False, [1])


@pytest.mark.slow
@BOTH
async def test_who_waits_for_the_stream_waits_on_when_the_journals_own_link_is_lost(
    broker: brokers.Broker, vhost: Vhost, desk: MakeDesk, mode: Mode
) -> None:
    """The letters' session goes on, so nobody would deliver them again."""
    made = desk(mode=mode)
    async with made.on_links_of_its_own() as links:
        await working(made)
        with standing_still(broker, vhost):
            made.tell_all(range(3))
            await soon(lambda: bool(made.journal._sent))
            links[-1].abort()
            await soon(lambda: made.journal._link is None)
        await soon(lambda: sorted(made.settled) == [0, 1, 2], 30)
        async with asyncio.timeout(60):
            while {*await told(vhost)} != {0, 1, 2}:  # noqa: ASYNC110 - it is asked of the broker
                await asyncio.sleep(0.2)
