"""A stream that takes events and confirms none, in the default mode: no letter leaves its queue, no change holds.

The journal, the sender and the API's context are the real ones; the stream is what answers when the test says so.
"""

import asyncio
import math
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from starlette.exceptions import HTTPException

from dlx_router.admin.api import context
from dlx_router.broker.answers import LinkError
from dlx_router.journal.batch import Batch
from dlx_router.journal.mode import Mode
from dlx_router.journal.writer import Journal
from dlx_router.redrive.task import Counts, Kind, Spec
from dlx_router.service.inflight import clock
from dlx_router.service.redrive.sender import WINDOW, WINDOW_BYTES, Counters, Sender, Unconfirmed
from dlx_router.service.redrive.worker import HALTED_S, TaskWorker
from dlx_router.telemetry.readiness import Readiness
from tests.journal.conftest import soon
from tests.service.test_clock import Clocks

LINE = b'{"v":1}\n'


class Stream:
    """Takes batches; `confirm` answers for all of them."""

    def __init__(self, journal: Journal) -> None:
        self.taken: list[Batch] = []
        self._journal = journal
        link: Any = SimpleNamespace(blocked=False, is_open=True)
        publisher: Any = self
        journal._link, journal._publisher, journal.is_working = link, publisher, True

    def stamp(self) -> bytes:
        return b""

    def publish(self, batch: Batch, *_args: object) -> None:
        self.taken.append(batch)

    def confirm(self) -> None:
        for batch in self.taken:
            self._journal._answered(batch, "")
        self.taken.clear()


def journal(mode: Mode = Mode.BEST_EFFORT, spool_bytes: int = 1000) -> Journal:
    return Journal(mode=mode, name="j", vhost="/", router_id="r", readiness=Readiness(), spool_bytes=spool_bytes)


def sender(writer: Journal, settled: list[int], lines: int = 1) -> tuple[Sender, Callable[[int], Any]]:
    """One that discards, and a maker of its letters."""
    context: Any = SimpleNamespace(journal=writer, metrics=SimpleNamespace(redrive_letters={"sent": 0}))
    copies: Any = SimpleNamespace(events=lambda _job, _now: [LINE] * lines, tell_tasks=False)
    counters = Counters(Counts())
    spec = Spec("/", "DLQ", kind=Kind.DISCARD)
    made = Sender(spec, context, copies, ways=None, counters=counters, wake=lambda: None)  # type: ignore[arg-type]  # stand-ins: no broker
    made._out = SimpleNamespace(blocked=False)  # type: ignore[assignment]  # stand-ins: no broker

    def settle(tag: int) -> bool:
        settled.append(tag)
        return True

    consumer = SimpleNamespace(settle=settle)
    job = {"consumer": consumer, "batches": (), "published_ms": 0, "weight": 1}
    return made, lambda tag: SimpleNamespace(**job, delivery=SimpleNamespace(tag=tag))


@pytest.mark.parametrize("mode", [Mode.BEST_EFFORT, Mode.REQUIRED])
async def test_no_letter_leaves_before_the_stream_itself_has_its_events(mode: Mode) -> None:
    settled: list[int] = []
    writer = journal(mode)
    stream = Stream(writer)
    sends, letter = sender(writer, settled, lines=150)  # an edit has two; these do not fit into one batch
    for tag in range(3):
        await sends.send(letter(tag))
    await soon(lambda: sum(batch.events for batch in stream.taken) == 450)
    if mode is Mode.BEST_EFFORT:
        await soon(lambda: all(batch.settled for batch in stream.taken))
    assert (settled, sends.pending, sends.room) == ([], 3, WINDOW - 3), "all are on their way at once"
    stream.confirm()
    assert (settled, sends.pending, sends.failure) == ([0, 1, 2], 0, None)


async def test_what_a_task_does_to_a_letter_is_told_by_the_clock_of_letters(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a step of the wall clock it was told later than the letter's next death."""
    clocks, times = Clocks([1_795_240_000.0], [5.0]), list[int]()
    monkeypatch.setattr(clock, "time", clocks)
    monkeypatch.setattr(clock, "CLOCK", clock.Clock())
    monkeypatch.setattr(time, "time", clocks.time)
    assert clock.now_ms() == 1_795_240_000_000
    clocks.go_on(1.0, jump=3600.0)
    writer = journal()
    stream = Stream(writer)
    sends, letter = sender(writer, [])

    def events(_job: object, now_ms: int) -> list[bytes]:
        times.append(now_ms)
        return [LINE]

    sends._copies = cast("Any", SimpleNamespace(events=events, tell_tasks=False))
    await sends.send(letter(1))
    assert times == [1_795_240_001_000]
    await soon(lambda: bool(stream.taken))


async def test_what_the_journal_loses_stays_and_nothing_more_goes() -> None:
    settled: list[int] = []
    writer = journal(spool_bytes=0)
    sends, letter = sender(writer, settled)
    assert sends.room == 0, "it does not work yet"
    await sends.send(letter(1))
    await soon(lambda: writer.lost == 1)
    assert (settled, sends.pending) == ([], 0)
    assert isinstance(sends.failure, LinkError)


async def test_who_is_halted_waits_for_the_journal_behind_the_last_confirm_not_beside_it() -> None:
    """Else letters whose copies were confirmed a moment ago go back, and are there twice."""
    writer = journal()
    sends, letter = sender(writer, [])
    worker = TaskWorker.__new__(TaskWorker)  # what it halts by, and nothing that works
    worker._sender, worker._halt, worker._patient_s = sends, asyncio.Event(), math.inf
    worker._context = SimpleNamespace(confirm_timeout_s=30.0)  # type: ignore[assignment]  # stand-ins: no broker
    Stream(writer)
    begun = time.monotonic()
    assert worker._patient_until(begun) == begun + 10
    worker._halt.set()
    sends.flying = sends.pending = 1
    assert worker._patient_until(begun) == begun + 10, "a copy is on its way"
    worker._patient_s = begun + 3
    assert worker._patient_until(begun) == begun + 3, "whoever stops the router has no more time"
    worker._patient_s = math.inf
    await soon(lambda: time.monotonic() > begun + 0.1)
    sends._confirmed([letter(1)])
    assert begun + 0.1 + HALTED_S <= worker._patient_until(begun) < begun + 10, "its event is"


async def test_copies_that_the_broker_does_not_read_are_waited_for_as_long_as_nobody_halts() -> None:
    """They lie in the socket and will arrive: whoever gives their letters back sends them twice."""
    sends, _ = sender(journal(), [])
    worker = TaskWorker.__new__(TaskWorker)  # what it waits by, and nothing that works
    worker._sender, worker._halt, worker._patient_s = sends, asyncio.Event(), math.inf
    worker._context = SimpleNamespace(confirm_timeout_s=30.0)  # type: ignore[assignment]  # stand-ins: no broker
    scan: Any = SimpleNamespace(lost=None)
    worker._scan, sends.flying, sends._out.blocked = scan, 1, True
    assert worker._patient_until(5.0) == math.inf
    scan.lost = LinkError("its letters have gone back already")
    assert worker._patient_until(5.0) == 15.0
    scan.lost, sends._out.blocked = None, False
    assert worker._patient_until(5.0) == 15.0
    sends._out.blocked = True
    worker._halt.set()
    assert worker._patient_until(5.0) == 15.0, "a stop has one deadline"


async def test_who_goes_on_after_a_confirm_that_did_not_come_sends_one_letter_until_one_does() -> None:
    """Else each run leaves a copy of each letter more at a target that may have them."""
    writer = journal()
    Stream(writer)
    sends, letter = sender(writer, [])
    sends._context.confirm_timeout_s = 0.0  # type: ignore[misc]  # a stand-in, which is not frozen
    sends.window = 1
    sends.pending = sends.flying = 1
    assert sends.room == 0
    with pytest.raises(Unconfirmed, match="the broker confirmed nothing for 0 s"):
        sends.check()
    sends._confirmed([letter(1)])
    assert sends.room == WINDOW - 1


class Copies:
    """Remembers as of when it is asked for events."""

    tell_tasks = False

    def __init__(self) -> None:
        self.times_ms: list[int] = []

    def address(self, _job: Any, _key: str) -> None:
        pass

    def events(self, _job: Any, now_ms: int) -> list[bytes]:
        self.times_ms.append(now_ms)
        return [LINE]


@pytest.mark.parametrize("kind", [Kind.PARK, Kind.DISCARD])
async def test_a_letter_is_told_as_sent_at_the_time_when_it_was_not_when_that_was_sure(
    kind: Kind, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have died again by then, which another router tells by its own clock."""
    clocks = Clocks([1_700_000_000.0], [5.0])
    monkeypatch.setattr(clock, "time", clocks)
    monkeypatch.setattr(clock, "CLOCK", clock.Clock())
    writer = journal()
    stream = Stream(writer)
    sends, letter = sender(writer, [])
    copies: Any = Copies()
    encoder: Any = SimpleNamespace(write=lambda _job, _stamp: ("", "", b""))
    publisher: Any = SimpleNamespace(stamp=lambda: b"", publish=lambda *_: None)
    sends._spec = Spec("/", "DLQ", kind=kind)
    sends._copies, sends._encoder, sends._publisher = copies, encoder, publisher
    job = letter(1)
    job.delivery.body = b""
    await sends.send(job)
    clocks.go_on(5.0)
    if kind is Kind.PARK:
        sends._confirmed([job])
    stream.confirm()
    assert copies.times_ms == [1_700_000_000_000]


async def answered(writer: Journal) -> str:
    """What who asks for a change is told; "" where it holds."""
    attendant: Any = SimpleNamespace(journal=writer, vhost="/")
    names: Any = None
    try:
        await context.Context("r", names, {}).write(attendant, [LINE])
    except HTTPException as error:
        return f"{error.status_code} {error.detail}"
    return ""


async def test_a_change_holds_only_once_the_stream_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(context, "CONFIRM_S", 0.6)  # more than best-effort waits
    writer = journal()
    stream = Stream(writer)
    late = await answered(writer)
    assert (late[:4], "did not confirm in time" in late) == ("503 ", True)
    stream.confirm()
    stream.publish = lambda batch, *_args: writer._answered(batch, "")  # type: ignore[method-assign]  # stand-ins: no broker
    assert not await answered(writer)
    assert "too far behind" in await answered(journal(spool_bytes=0))
    assert "JOURNAL=off" in await answered(journal(Mode.OFF))


async def test_what_is_on_its_way_has_a_bound_in_bytes_that_it_gives_back() -> None:
    writer = journal()
    stream = Stream(writer)
    sends, letter = sender(writer, [])
    for tag in range(3):
        await sends.send(letter(tag))
    assert sends.room_bytes == WINDOW_BYTES - 3
    await soon(lambda: bool(stream.taken))
    stream.confirm()
    assert (sends.pending, sends.room_bytes) == (0, WINDOW_BYTES)
    sends._begins(job := letter(4))
    sends.flying = 1
    sends._in_doubt([job], LinkError("lost"))
    assert (sends.pending, sends.flying, sends.room_bytes) == (0, 0, WINDOW_BYTES)
