"""How far the index says it is behind the journal, whatever events say of their times and whatever the disk does."""

import asyncio
import time
from pathlib import Path
from typing import Any, Final, cast

import pytest

from dlx_router.broker.control import Lost
from dlx_router.broker.reading import Newest, Read, Reading
from dlx_router.index import worker
from dlx_router.index.journal_end import End
from dlx_router.index.schema import open_writer
from dlx_router.index.store import Message, Store
from dlx_router.index.worker import Worker
from dlx_router.telemetry import wall_clock
from dlx_router.telemetry.wall_clock import wall_ms
from tests.core.core_samples import NOW, letter
from tests.journal.conftest import soon
from tests.journal.journal_samples import RULING, line, told

DAY: Final = 86_400_000


class Clock:
    """The wall clock, when a test says how late it is."""

    def __init__(self) -> None:
        self.now_s = time.time()

    def time(self) -> float:
        return self.now_s


class Following(Worker):
    """Of one vhost, whose journal is read by the test."""

    def __init__(self, file: Path) -> None:
        super().__init__(file)
        self.status: dict[str, Any] = {"state": "current", "behind_ms": 0}
        self._vhosts["/"] = self.status

    def ends_at(self, offset: int) -> None:
        """The newest message of the journal, as the broker says."""
        self._ends["/"] = offset
        self._asked.add("/")

    def behind_ms(self) -> Any:
        return self.status["behind_ms"]

    async def follow(self, store: Store, stream: "Brought") -> None:
        """Until the stream brings no more."""
        self._store = store
        self.status |= {"offset": None, "has_caught_up": False}
        stream.status = self.status
        with pytest.raises(Lost):
            await self._follow_on("/", store, cast("Reading", cast("Any", stream)), stream.end(), None)

    async def read(self, store: Store, *events: bytes, offset: int = 0) -> None:
        await self._apply("/", store, [Message(offset + number, event) for number, event in enumerate(events)])


class Brought:
    """Answers as a Reading does: at each take, of a minute, the next of these portions.

    `caught_up`, `states`: what was said before each; `is_new`: as if it were empty until somebody takes that for true.
    """

    is_lost = False

    def __init__(self, *portions: list[Read], newest: int, is_new: bool = False) -> None:
        self.portions, self.last, self.caught_up, self.states = [*portions], newest, list[bool](), list[str]()
        self.status: dict[str, Any] = {}
        self.is_new, self.now_s = is_new, 0.0

    def end(self) -> End:
        end = End("journal", self.newest, self.is_empty, is_new=lambda _message: True)
        end._clock = lambda: self.now_s
        return end

    async def take(self, _at_most: int, within_s: float) -> list[Read]:
        if within_s <= 0:
            return []
        self.caught_up.append(self.status["has_caught_up"])
        self.states.append(self.status["state"])
        self.now_s += 60
        if not self.portions:
            raise Lost("the connection ended")
        return self.portions.pop(0)

    async def gather(self, count: int, within_s: float) -> None:
        """Nothing more comes of a portion."""

    def done(self) -> None:
        """An ack is only a credit."""

    async def newest(self, _first_s: float, _quiet_s: float) -> Newest:
        is_empty = await self.is_empty()
        return Newest(None if is_empty else Read(self.last, b""), not is_empty)

    async def is_empty(self) -> bool:
        return self.is_new and not any(self.caught_up)


def dies_at(ms: int, number: int = 9) -> bytes:
    return line(letter(id=f"{number:032x}", failed_queue="orders"), RULING, now_ms=ms)


@pytest.mark.parametrize("ahead", [DAY, 2**52])
async def test_an_event_from_the_future_does_not_say_that_the_index_is_current(
    store: Store, file: Path, ahead: int
) -> None:
    """For as long as its time lay ahead the index was behind by nothing, however much it had yet to read."""
    following = Following(file)
    await following.read(store, dies_at(wall_ms() + ahead))
    assert following.behind_ms() is None, "nothing is known of how far this is"
    await following.read(store, told(1), offset=1)
    assert following.behind_ms() > wall_ms() - NOW - DAY
    await following.read(store, told(2) + dies_at(wall_ms() + ahead, 10), offset=2)
    assert following.behind_ms() > wall_ms() - NOW - DAY
    assert not following.status.get("has_caught_up")


async def test_what_comes_late_says_that_more_of_it_may_come(store: Store, file: Path) -> None:
    following = Following(file)
    await following.read(store, dies_at(wall_ms()))
    await following.read(store, told(1), offset=1)
    assert following.behind_ms() > DAY
    following.ends_at(1)
    await following.read(store)
    assert following.behind_ms() == 0


async def test_silence_does_not_say_that_all_is_read(store: Store, file: Path) -> None:
    """A second of it did: status pages that had been revoked were shown, by an index that had read half the journal."""
    following = Following(file)
    await following.read(store, told(1))
    for end in (None, 5):
        if end is not None:
            following.ends_at(end)
        for _ in range(3):
            await following.read(store)
            assert not following.status.get("has_caught_up")
            assert (following.status["state"], following.behind_ms() > 0) == ("reading", True)
    await following.read(store, told(2), offset=5)
    assert following.status["has_caught_up"], "a journal that is never silent is read to its end too"
    await following.read(store)
    assert (following.status["state"], following.behind_ms()) == ("current", 0)
    following.ends_at(9)
    await following.read(store)
    assert (following.status["state"], following.behind_ms() > 0) == ("reading", True)


async def test_an_empty_journal_is_not_read_to_its_end_before_somebody_says_so(store: Store, file: Path) -> None:
    following = Following(file)
    await following.read(store)
    await following.read(store)
    assert (following.status.get("has_caught_up"), following.behind_ms()) == (None, None)
    following.ends_at(-1)
    await following.read(store)
    assert (following.status["has_caught_up"], following.behind_ms()) == (True, 0)


@pytest.mark.parametrize("is_asked", [True, False], ids=["its end was asked for", "its first message came"])
async def test_a_journal_that_was_said_to_be_empty_is_read_to_its_end_first(
    store: Store,
    file: Path,
    is_asked: bool,  # noqa: FBT001 - a table's column
) -> None:
    """Its leader had moved: nothing came yet, and none was counted. Status pages that had been revoked were shown."""
    silence = [list[Read]()] * is_asked
    stream = Brought(*silence, *[[Read(offset, told(offset))] for offset in range(4)], newest=3, is_new=True)
    await Following(file).follow(store, stream)
    assert stream.caught_up == [True, *[False] * (len(silence) + 3), True]


async def test_while_the_disk_is_full_the_index_falls_behind(file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It said what it had said before: nothing, and letters of an hour that nobody had read were called recovered."""
    clock = Clock()
    monkeypatch.setattr(wall_clock, "time", clock)
    monkeypatch.setattr(worker, "AGAIN_S", 0.01)
    store, following = Store(open_writer(file, max_bytes=1 << 20)), Following(file)
    many = b"".join(told(number) for number in range(3_000))
    reading = asyncio.create_task(following.read(store, many))
    try:
        await soon(lambda: following._trouble)
        clock.now_s += 60
        await soon(lambda: following.behind_ms() >= 60_000)
        clock.now_s += 60
        await soon(lambda: following.behind_ms() >= 120_000)
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
        store.close()


async def test_a_file_that_is_made_anew_is_not_as_far_as_the_one_before(file: Path) -> None:
    following = Following(file)
    following._throw_away("damaged")
    assert following.behind_ms() is None
