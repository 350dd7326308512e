"""What a new leader reads of a journal: every task, and of letters as little as the broker can help it to."""

import asyncio
import itertools
import time
from collections.abc import Callable
from functools import partial

import pika
import pytest

from dlx_router.broker import tail
from dlx_router.broker.consumer import Consumer
from dlx_router.redrive.task import Spec, Task
from dlx_router.redrive.task_events import line
from dlx_router.service.redrive import replay
from dlx_router.service.redrive.binding_facts import version_of
from tests.journal.conftest import NAMES, Desk, desk, soon
from tests.support.vhost import Vhost

__all__ = ["desk"]
MakeDesk = Callable[..., Desk]
KEY = b"k" * 32
LETTERS = 40
NOW_MS = int(time.time() * 1000)


def task(name: str) -> Task:
    return Task(name, Spec("/", "DLQ"), by="a", created_ms=NOW_MS, changed_ms=NOW_MS, total=1, term=1)


async def letters_told(one: Desk, numbers: range) -> None:
    """Each in a batch of its own, and in a chunk of its own: the next is told once the stream has the last."""
    for number in numbers:
        one.tell(number)
        one.journal.flush()
        await soon(partial(settled_last, one, number))


def settled_last(one: Desk, number: int) -> bool:
    return one.settled[-1:] == [number]


async def task_told(one: Desk, told: Task) -> None:
    batch = one.journal.record(line(told, "router-a", KEY), of_task=True)
    one.journal.flush()
    await soon(lambda: batch.confirmed)


def told_by_an_older_router(vhost: Vhost, told: Task) -> None:
    """Its messages do not say what they tell of."""
    with pika.BlockingConnection(pika.URLParameters(vhost.amqp_url)) as connection:
        connection.channel().basic_publish("", NAMES.journal, line(told, "router-b", KEY))


async def test_a_leader_learns_of_all_tasks_and_reads_few_letters(vhost: Vhost, desk: MakeDesk) -> None:
    one = desk()
    async with one.session() as link:
        await letters_told(one, range(LETTERS))
        await task_told(one, task("first"))
        told_by_an_older_router(vhost, task("older"))
        await letters_told(one, range(LETTERS, 2 * LETTERS))
        await task_told(one, task("last"))
        await letters_told(one, range(2 * LETTERS, 3 * LETTERS))

        found = await replay.all_tasks(link, one.journal, KEY, lambda: True)
        assert sorted(found) == ["first", "last", "older"]
        read = [batch async for batch in replay.of_tasks(link, one.journal, "first")]
        everything = 3 * LETTERS + 3
        if version_of(link) < replay.FILTERS_SINCE:
            assert len(read) >= everything, "and marks"
        else:
            assert 3 <= len(read) < LETTERS, "the broker sends chunks; a filter may let one through that it need not"


@pytest.mark.usefixtures("newest")
async def test_tasks_are_learned_where_no_mark_can_be_written(
    vhost: Vhost, desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MARKED_S", 0.1)
    one = desk()
    async with one.session() as link:
        await letters_told(one, range(3))
        await task_told(one, task("first"))
        one.journal.is_working = False
        assert [*await replay.all_tasks(link, one.journal, KEY, lambda: False)] == ["first"]
        assert len([batch async for batch in replay.of_tasks(link, one.journal, "first")]) == 4


async def test_tasks_and_letters_are_learned_while_letters_die_all_the_time(vhost: Vhost, desk: MakeDesk) -> None:
    one = desk()
    async with one.session() as link:
        await letters_told(one, range(3))
        await task_told(one, task("first"))
        dying = asyncio.create_task(letters_die(one))
        async with asyncio.timeout(15):
            assert [*await replay.all_tasks(link, one.journal, KEY, lambda: True)] == ["first"]
            await replay.recent(link, one.journal, KEY)
            await replay.flock(link, one.journal, task("first"))
        dying.cancel()


async def letters_die(one: Desk) -> None:
    for number in itertools.count(1000):
        one.tell(number)
        one.journal.flush()
        await asyncio.sleep(0.05)  # the rate at which they die


@pytest.mark.parametrize("later_s", [0.0, -60.0], ids=["idle", "clock ahead"])
async def test_a_journal_in_which_nothing_was_told_lately_is_read_too(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch, later_s: float
) -> None:
    monkeypatch.setattr(replay, "RECENT_S", later_s)
    monkeypatch.setattr(replay, "SILENCE_S", 1.0)
    one = desk()
    async with one.session() as link:
        await task_told(one, task("first"))
        told_s = time.time()
        await soon(lambda: time.time() > told_s + 2)
        async with asyncio.timeout(10):
            assert await replay.recent(link, one.journal, KEY) == {}


@pytest.mark.usefixtures("newest")
async def test_a_broker_whose_filters_are_not_enabled_sends_all(
    vhost: Vhost, desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As 3.13 does until its feature flag is. What is refused here with the same code is another argument."""
    monkeypatch.setattr(tail, "_filter", lambda only: {"x-stream-offset": "nonsense"} if only else {})
    one = desk()
    async with one.session() as link:
        await letters_told(one, range(3))
        await task_told(one, task("first"))
        assert [*await replay.all_tasks(link, one.journal, KEY, lambda: False)] == ["first"]


async def test_a_broker_that_is_slow_to_begin_is_not_taken_for_an_empty_journal(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    start = Consumer.start

    async def slow(one: Consumer) -> None:
        await asyncio.sleep(tail.LOOKED_S + 0.2)  # a slow answer
        await start(one)

    one = desk()
    async with one.session() as link:
        await task_told(one, task("first"))
        monkeypatch.setattr(Consumer, "start", slow)
        assert [*await replay.all_tasks(link, one.journal, KEY, lambda: False)] == ["first"]


async def test_a_journal_is_empty_only_where_our_own_mark_is_all_there_is(desk: MakeDesk) -> None:
    one = desk()
    async with one.session() as link:
        await soon(lambda: one.journal.is_working)  # there is a stream
        async with asyncio.timeout(10):
            assert await replay.all_tasks(link, one.journal, KEY, lambda: False) == {}
        assert await tail.last_offset(link, one.journal.name) >= 0


@pytest.mark.usefixtures("newest")
async def test_where_nothing_is_read_and_nothing_is_taken_the_tasks_are_not_known(
    desk: MakeDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(replay, "MARKED_S", 0.1)
    one = desk()
    async with one.session() as link:
        await soon(lambda: one.journal.is_working)
        one.journal.is_working = False
        with pytest.raises(TimeoutError, match="not known"):
            await replay.all_tasks(link, one.journal, KEY, lambda: False)


async def test_where_there_is_no_journal_there_are_no_tasks(desk: MakeDesk) -> None:
    one = desk()
    async with one.session() as link:
        one.journal.name = "no-such-stream"
        assert await replay.all_tasks(link, one.journal, KEY, lambda: False) == {}
