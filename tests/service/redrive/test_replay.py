"""What a new leader reads of a journal: every task, and of letters as little as the broker can help it to."""

import asyncio
import gc
import itertools
import time
from collections.abc import Callable
from contextlib import AsyncExitStack
from dataclasses import replace
from datetime import UTC, datetime
from functools import partial

import pika
import pytest
from structlog.testing import capture_logs

from dlx_router.broker import reading
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.link import Link
from dlx_router.broker.stream import TASKS
from dlx_router.journal.events import fragments
from dlx_router.journal.packing import MAGIC
from dlx_router.redrive.task import Spec, Task
from dlx_router.redrive.task_events import line
from dlx_router.service.redrive import replay
from tests.core.core_samples import NOW, letter
from tests.journal.conftest import NAMES, Desk, desk, soon
from tests.journal.journal_samples import RULING
from tests.support.client import Client
from tests.support.vhost import Vhost

__all__ = ["desk"]
MakeDesk = Callable[..., Desk]
KEY = b"k" * 32
LETTERS = 40
NOW_MS = int(time.time() * 1000)


def task(name: str) -> Task:
    return Task(name, Spec("/", "DLQ"), by="a", created_ms=NOW_MS, changed_ms=NOW_MS, total=1, term=1)


async def letters_told(router: Desk, numbers: range) -> None:
    """Each in a batch of its own, and in a chunk of its own: the next is told once the stream has the last."""
    for number in numbers:
        router.tell(number)
        router.journal.flush()
        await soon(partial(settled_last, router, number))


def settled_last(router: Desk, number: int) -> bool:
    return router.settled[-1:] == [number]


async def task_told(router: Desk, entry: Task) -> None:
    batch = router.journal.record(line(entry, "router-a", KEY), of_task=True)
    router.journal.flush()
    await soon(lambda: batch.confirmed)


def told_by_an_older_router(vhost: Vhost, entry: Task) -> None:
    """Its messages do not say what they tell of."""
    with pika.BlockingConnection(pika.URLParameters(vhost.amqp_url)) as connection:
        connection.channel().basic_publish("", NAMES.journal, line(entry, "router-b", KEY))


async def test_a_leader_learns_of_all_tasks_and_reads_few_letters(vhost: Vhost, desk: MakeDesk) -> None:
    leader = desk()
    async with leader.session() as link:
        await letters_told(leader, range(LETTERS))
        await task_told(leader, task("first"))
        told_by_an_older_router(vhost, task("older"))
        await letters_told(leader, range(LETTERS, 2 * LETTERS))
        await task_told(leader, task("last"))
        await letters_told(leader, range(2 * LETTERS, 3 * LETTERS))

        tasks = await replay.all_tasks(link, leader.journal, KEY, lambda: True)
        assert sorted(tasks) == ["first", "last", "older"]
        read = [message async for message in replay.messages(link, leader.journal, "first", TASKS)]
        everything = 3 * LETTERS + 3
        if link.version < replay.FILTERS_SINCE:
            assert len(read) >= everything, "and marks"
        else:
            assert 3 <= len(read) < LETTERS, "the broker sends chunks; a filter may let one through that it need not"


@pytest.mark.usefixtures("newest")
async def test_of_a_task_that_told_much_the_newest_event_alone_is_kept(desk: MakeDesk) -> None:
    """A task at work tells the journal every two seconds, for days."""
    leader, kept = desk(), list[int]()

    def is_busy() -> bool:
        kept.append(tasks_in_memory())
        return False

    async with leader.session() as link:
        for batch in range(4):
            for change in range(50 * batch, 50 * batch + 50):
                entry = replace(task("long"), change=change)
                leader.journal.record(line(entry, "router-a", KEY), of_task=True)
            await task_told(leader, replace(task("long"), change=50 * batch + 50))
        before = tasks_in_memory()
        tasks = await replay.all_tasks(link, leader.journal, KEY, is_busy)
    assert {name: newest.change for name, newest in tasks.items()} == {"long": 200}
    assert len(kept) >= 4
    assert max(kept) <= before + 10, "not all of the two hundred"


def tasks_in_memory() -> int:
    return sum(type(item) is Task for item in gc.get_objects())


@pytest.mark.usefixtures("newest")
async def test_tasks_are_learned_where_no_mark_can_be_written(
    vhost: Vhost, desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MARKED_S", 0.1)
    leader = desk()
    async with leader.session() as link:
        await letters_told(leader, range(3))
        await task_told(leader, task("first"))
        leader.journal.is_working = False
        assert [*await replay.all_tasks(link, leader.journal, KEY, lambda: False)] == ["first"]
        assert len([message async for message in replay.messages(link, leader.journal, "first", TASKS)]) == 4


async def test_tasks_and_letters_are_learned_while_letters_die_all_the_time(vhost: Vhost, desk: MakeDesk) -> None:
    leader = desk()
    async with leader.session() as link:
        await letters_told(leader, range(3))
        await task_told(leader, task("first"))
        dying = asyncio.create_task(letters_die(leader))
        async with asyncio.timeout(60):
            assert [*await replay.all_tasks(link, leader.journal, KEY, lambda: True)] == ["first"]
            await replay.flock(link, leader.journal, task("first"))
        dying.cancel()


@pytest.mark.usefixtures("newest")
async def test_letters_and_tasks_are_learned_and_broken_messages_stop_nobody(vhost: Vhost, desk: MakeDesk) -> None:
    """Of two routers, beside a stranger."""
    sent = RULING._replace(kind="redriven", redrive_id="first")
    async with AsyncExitStack() as stack:
        old, newer = desk(), desk()
        links: list[Link] = []
        for router, name in ((old, "first"), (newer, "second")):
            links.append(await stack.enter_async_context(router.session()))
            await soon(partial(getattr, router.journal, "is_working"))
            for ruling in (sent, RULING):
                dead = letter(id=name)
                at = {"first_ms": NOW, "last_ms": NOW, "crc32": 7, "size": 3}
                router.journal.record(router.journal.event(fragments(dead, ruling), dead.id, NOW, **at))
            router.journal.flush()
            await task_told(router, task(name))
        with Client(vhost.amqp_url) as stranger:
            for body, version in ((MAGIC + b"no frame", 2), (b"of a later version", 3)):
                stranger.publish(body, key=NAMES.journal, headers={"v": version})
        with capture_logs() as logs:
            assert sorted(await replay.all_tasks(links[1], newer.journal, KEY, lambda: False)) == ["first", "second"]
            flock = await replay.flock(links[1], newer.journal, task("first"))
        assert (flock.sent, flock.dead) == (2, 2)
        causes = [entry["cause"] for entry in logs if entry["event"] == "journal.unreadable"]
        assert sorted(why.partition(":")[0] for why in causes) == ["format 3; 1 and 2 are known", "no whole zstd frame"]


async def letters_die(router: Desk) -> None:
    for number in itertools.count(1000):
        router.tell(number)
        router.journal.flush()
        await asyncio.sleep(0.05)  # the rate at which they die


@pytest.mark.parametrize("later_s", [0.0, 60.0], ids=["idle", "clock ahead"])
async def test_a_journal_in_which_nothing_was_told_lately_is_read_too(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, later_s: float
) -> None:
    monkeypatch.setattr(replay, "SILENCE_S", 1.0)
    leader = desk()
    async with leader.session() as link:
        await task_told(leader, task("first"))
        told_s = time.time()
        await soon(lambda: time.time() > told_s + 2)
        start = datetime.fromtimestamp(int(time.time() + later_s), UTC)
        async with asyncio.timeout(60):
            read = [message async for message in replay.messages(link, leader.journal, start, TASKS) if message.body]
        assert read == []


@pytest.mark.usefixtures("newest")
async def test_a_broker_whose_filters_are_not_enabled_sends_all(
    vhost: Vhost, desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As 3.13 does until its feature flag is. What is refused here with the same code is another argument."""
    monkeypatch.setattr(reading, "_filter", lambda only: {"x-stream-offset": "nonsense"} if only else {})
    leader = desk()
    async with leader.session() as link:
        await letters_told(leader, range(3))
        await task_told(leader, task("first"))
        assert [*await replay.all_tasks(link, leader.journal, KEY, lambda: False)] == ["first"]


async def test_a_broker_that_is_slow_to_begin_is_not_taken_for_an_empty_journal(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Consumer.start

    async def slow(consumer: Consumer) -> None:
        await asyncio.sleep(reading.LOOKED_S + 0.2)  # a slow answer
        await start(consumer)

    leader = desk()
    async with leader.session() as link:
        await task_told(leader, task("first"))
        monkeypatch.setattr(Consumer, "start", slow)
        assert [*await replay.all_tasks(link, leader.journal, KEY, lambda: False)] == ["first"]


async def test_whoever_reads_tells_it_before_the_connection_ends(desk: MakeDesk) -> None:
    leader, reads = desk(), list[bool]()
    async with leader.session() as link:
        await task_told(leader, task("first"))
        link.on_read = lambda: reads.append(True)
        await replay.flock(link, leader.journal, task("first"))
        assert reads


async def test_a_journal_is_empty_only_where_our_own_mark_is_all_there_is(desk: MakeDesk) -> None:
    leader = desk()
    async with leader.session() as link:
        await soon(lambda: leader.journal.is_working)  # there is a stream
        async with asyncio.timeout(60):
            assert await replay.all_tasks(link, leader.journal, KEY, lambda: False) == {}
        assert await reading.last_offset(link, leader.journal.name) >= 0


@pytest.mark.usefixtures("newest")
async def test_where_nothing_is_read_and_nothing_is_taken_the_tasks_are_not_known(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MARKED_S", 0.1)
    leader = desk()
    async with leader.session() as link:
        await soon(lambda: leader.journal.is_working)
        leader.journal.is_working = False
        with pytest.raises(TimeoutError, match="not known"):
            await replay.all_tasks(link, leader.journal, KEY, lambda: False)


async def test_where_there_is_no_journal_there_are_no_tasks(desk: MakeDesk) -> None:
    leader = desk()
    async with leader.session() as link:
        leader.journal.name = "no-such-stream"
        assert await replay.all_tasks(link, leader.journal, KEY, lambda: False) == {}
