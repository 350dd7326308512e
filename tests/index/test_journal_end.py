"""Where a journal ends, and whether it is the one of before: no silence of the broker is an answer to that."""

import asyncio
import json
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, cast
from urllib.parse import unquote, urlsplit

import pytest

from dlx_router.broker.address import Host, Login
from dlx_router.broker.control import Lost
from dlx_router.broker.reading import Newest, Read, Reading
from dlx_router.index import journal_end
from dlx_router.index import worker as worker_module
from dlx_router.index.journal_end import End, is_same
from dlx_router.index.schema import open_writer
from dlx_router.index.store import Message, Store
from dlx_router.index.supervisor import attend
from dlx_router.index.worker import Worker
from dlx_router.telemetry.wall_clock import wall_ms
from tests.core.core_samples import NOW
from tests.journal.conftest import soon
from tests.journal.journal_samples import line, told
from tests.support.client import Client
from tests.support.vhost import Vhost

NAME: Final = "journal"
AT: Final = 7
OURS: Final = b"ours"
NEW: Final = b"written since"


class Stream:
    """Answers as a Reading does: with these messages, and then with none. `end`: its newest offset; −1: silence."""

    is_counted_empty = False

    def __init__(self, *messages: Read, end: int = -1, last: bytes = b"", is_over: bool = True) -> None:
        self.messages, self.end, self.asked = [*messages], end, 0
        self.last, self.is_over = last, is_over

    async def take(self, at_most: int, within_s: float) -> list[Read]:
        assert at_most == 1
        assert within_s > 0
        batch, self.messages = self.messages[:1], self.messages[1:]
        return batch

    def done(self) -> None:
        assert self.asked == 0, "its newest is asked for where nothing came"

    async def is_empty(self) -> bool:
        return self.is_counted_empty

    async def newest(self, _first_s: float, _quiet_s: float) -> Newest:
        self.asked += 1
        return Newest(None if self.end < 0 else Read(self.end, self.last), self.is_over)


async def same(stream: Stream) -> bool:
    taken = cast("Reading", cast("Any", stream))
    new = lambda message: message.body == NEW  # noqa: E731 - beside the other
    return await is_same(taken, NAME, AT, lambda message: message.body == OURS, stream.newest, is_new=new)


@pytest.mark.parametrize(
    ("stream", "known"),
    [
        (Stream(Read(AT, OURS)), True),
        (Stream(Read(AT, b"another")), False),
        (Stream(Read(AT + 5, OURS)), False),
        (Stream(end=AT - 1), False),
        (Stream(end=0), False),
        (Stream(end=AT - 1, last=NEW, is_over=False), False),
    ],
    ids=[
        "ours",
        "another at our offset",
        "ours is long gone",
        "it ends before",
        "it has one message",
        "it goes on before ours",
    ],
)
async def test_whether_a_stream_is_the_one_of_before_is_what_it_says(stream: Stream, known: bool) -> None:  # noqa: FBT001 - a table's column
    assert await same(stream) is known


@pytest.mark.parametrize("end", [-1, AT, AT + 100], ids=["says nothing", "ends with ours", "goes on"])
async def test_a_silent_stream_is_not_another_one(end: int) -> None:
    """It was: fifteen seconds without a message, and all that the index knew of the vhost was erased."""
    with pytest.raises(Lost, match="nothing came"):
        await same(Stream(end=end))


async def test_a_replica_that_lags_behind_is_not_another_stream() -> None:
    """It was: what it was sent never paused, and 16 s later all that the index knew of the vhost was erased."""
    with pytest.raises(Lost, match="older than what we had"):
        await same(Stream(end=AT - 1, is_over=False))


@pytest.fixture
def at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever waits has waited."""
    monkeypatch.setattr(journal_end, "SILENT_S", -1.0)
    monkeypatch.setattr(journal_end, "SOON_S", -1.0)
    monkeypatch.setattr(journal_end, "LATER_S", -1.0)


def ending(stream: Stream) -> End:
    return End(NAME, stream.newest, stream.is_empty, is_new=lambda message: message.body == NEW)


async def looked(end: End, at: int | None) -> None:
    """Twice: nothing came in between."""
    await end.look(at, is_quiet=True)
    await end.look(at, is_quiet=True)


@pytest.mark.usefixtures("at_once")
async def test_an_end_that_nobody_says_is_asked_for_again() -> None:
    stream = Stream()
    end = ending(stream)
    for _ in range(3):
        await end.look(None, is_quiet=True)
    assert (end.offset, stream.asked) == (None, 3)
    stream.end = 4
    await end.look(None, is_quiet=True)
    assert end.offset == 4, "and what was written just now is on its way"


@pytest.mark.usefixtures("at_once")
async def test_a_journal_is_empty_where_none_comes_and_none_is_counted() -> None:
    stream = Stream()
    stream.is_counted_empty = True
    end = ending(stream)
    await looked(end, None)
    assert end.offset == -1
    stream.end = 0
    await looked(end, 0)
    assert end.offset == 0


@pytest.mark.usefixtures("at_once")
async def test_how_long_an_empty_journal_is_is_asked_anew_once_a_message_comes() -> None:
    stream = Stream()
    stream.is_counted_empty = True
    end = ending(stream)
    await looked(end, None)
    stream.end = 40
    end.begins()
    assert end.offset is None
    await end.look(0, is_quiet=False)
    end.begins()
    assert end.offset == 40


@pytest.mark.usefixtures("at_once")
async def test_what_a_replica_has_copied_so_far_is_no_end() -> None:
    """It counted as all that there was, while hours of the journal were missing: revoked status pages were shown."""
    stream = Stream(end=4, is_over=False)
    end = ending(stream)
    for at in range(4):
        await end.look(at, is_quiet=False)
        assert end.offset is None
    stream.last = NEW
    await end.look(4, is_quiet=False)
    assert end.offset == 4
    stream.end, stream.last = 9, b""
    await end.look(4, is_quiet=True)
    assert end.offset == 4, "what was its end is behind it"
    stream.is_over = True
    await end.look(4, is_quiet=True)
    assert end.offset == 9


async def test_an_end_is_asked_for_once_where_letters_never_stop() -> None:
    stream = Stream(end=4)
    end = ending(stream)
    for at in (None, 0, 1, 2, 3, 4, 5):
        await end.look(at, is_quiet=False)
    assert (end.offset, stream.asked) == (4, 1)


@pytest.mark.usefixtures("at_once")
@pytest.mark.parametrize(("at", "end"), [(4, -1), (4, 9), (None, 9)], ids=["says nothing", "goes on", "begins"])
async def test_a_stream_that_stands_still_is_left(at: int | None, end: int) -> None:
    """Else the index would call itself current for as long as its connection lives."""
    with pytest.raises(Lost, match="there is more"):
        await looked(ending(Stream(end=end)), at)


# -- a broker ---------------------------------------------------------------------------------------------------


LAST: Final = Message(AT, told(1))


@asynccontextmanager
async def following(vhost: Vhost, file: Path, *known: Message) -> AsyncIterator[Worker]:
    """A worker whose file has these messages of the vhost's journal."""
    store = Store(open_writer(file, max_bytes=1 << 30))
    store.apply(vhost.name, known)
    store.close()
    url, worker = urlsplit(vhost.amqp_url), Worker(file)
    login = Login(unquote(url.username or ""), unquote(url.password or ""), vhost.name)
    order = attend(Host(url.hostname or "", url.port or 5672), login, None, NAME, b"")
    orders = asyncio.StreamReader()
    running = asyncio.create_task(worker.run(orders))
    orders.feed_data(f"{json.dumps(order)}\n".encode())
    try:
        await soon(lambda: worker._store is not None)
        yield worker
    finally:
        orders.feed_eof()
        await running
        assert worker._lock is not None
        worker._lock.close()


def journal(amqp: Client, *bodies: bytes) -> None:
    """The stream, with these messages."""
    amqp.channel.queue_declare(NAME, durable=True, arguments={"x-queue-type": "stream"})
    for body in bodies:
        amqp.publish(body, key=NAME)


@asynccontextmanager
async def poured(vhost: Vhost, body: Callable[[], bytes]) -> AsyncIterator[None]:
    """Messages for the stream, several a second, as long as the block lasts."""
    is_over = threading.Event()

    def pour() -> None:
        with Client(vhost.amqp_url) as amqp:
            while not is_over.wait(0.1):
                amqp.publish(body(), key=NAME)

    pouring = asyncio.create_task(asyncio.to_thread(pour))
    try:
        yield
    finally:
        is_over.set()
        await pouring


def status(worker: Worker, vhost: Vhost) -> Any:
    return worker._vhosts[vhost.name]


def position(worker: Worker, vhost: Vhost) -> Any:
    assert worker._store is not None
    return worker._store.position(vhost.name)


@pytest.fixture
def soon_silent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for long."""
    monkeypatch.setattr(journal_end, "SILENT_S", 1.0)
    monkeypatch.setattr(journal_end, "CHUNK_S", 1.0)


@pytest.mark.usefixtures("soon_silent")
async def test_what_the_index_knows_stays_while_its_stream_says_nothing(vhost: Vhost, amqp: Client, file: Path) -> None:
    """What it is shows with its first message."""
    journal(amqp)
    async with following(vhost, file, LAST) as worker:
        await soon(lambda: status(worker, vhost)["state"] == "lost", within=20)
        assert "nothing came" in status(worker, vhost)["trouble"]
        assert not status(worker, vhost)["has_caught_up"]
        assert position(worker, vhost)[0] == AT


@pytest.mark.usefixtures("soon_silent")
async def test_a_stream_that_ends_before_is_another_one_and_is_read(vhost: Vhost, amqp: Client, file: Path) -> None:
    journal(amqp, told(2), told(3))
    async with following(vhost, file, LAST) as worker:
        await soon(lambda: status(worker, vhost)["state"] == "current", within=20)
        assert (status(worker, vhost)["has_caught_up"], position(worker, vhost)[0]) == (True, 1)


@pytest.mark.usefixtures("soon_silent")
async def test_a_stream_that_ends_nowhere_is_another_one_by_what_is_written_now(
    vhost: Vhost, amqp: Client, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is older may be what a replica lacked, and is sent without a pause."""
    monkeypatch.setattr(worker_module, "CLOCKS_MS", 0)
    journal(amqp, told(2))
    now = [NOW]
    async with following(vhost, file, LAST._replace(offset=1_000_000)) as worker:
        async with poured(vhost, lambda: line(now_ms=now[0] or wall_ms())):
            await soon(lambda: "older than" in (status(worker, vhost)["trouble"] or ""), within=20)
            assert position(worker, vhost)[0] == 1_000_000
            now[0] = 0
            await worker._obey(worker._orders[vhost.name])
            await soon(lambda: status(worker, vhost)["has_caught_up"], within=20)
        assert position(worker, vhost)[0] < 1_000_000


async def test_a_stream_whose_last_message_is_no_event_is_read_to_its_end(
    vhost: Vhost, amqp: Client, file: Path
) -> None:
    journal(amqp, *[told(number) for number in range(AT)], told(1), b"no event", b"")
    async with following(vhost, file, LAST) as worker:
        await soon(lambda: status(worker, vhost)["state"] == "current", within=20)
        assert (status(worker, vhost)["has_caught_up"], position(worker, vhost)[0]) == (True, AT + 2)
