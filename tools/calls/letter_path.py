"""The way of one letter, counted: real consumer, lane, publisher, settling, journal between links that only listen.

What a restructuring moves is named in `_prepared` and in tests/support/worker.py, and nowhere else: the numbers before
and after are those of the same letters.
"""

import asyncio
import gc
import sys
import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, replace
from itertools import count
from pathlib import Path
from types import FrameType
from typing import Any, Final, Self, cast

from dlx_router.broker.consumer import Consumer
from dlx_router.journal.mode import Mode
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.dispatch.worker import Worker
from dlx_router.service.inflight import clock
from dlx_router.wire import frames
from tests.support import worker as support

PACKAGE: Final = Path(cast("str", sys.modules["dlx_router"].__file__)).parent
INBOX: Final = support.NAMES.inbox
# Inlined from Python 3.12 on: a call that only 3.11 makes is not counted there either.
_INLINED: Final = frozenset({"<listcomp>", "<dictcomp>", "<setcomp>"})
_PUBLISH: Final = b"\x00\x3c\x00\x28"
_TURNS: Final = 200
_NOW_S: Final = 1_795_240_000.5
_TICK_S: Final = 0.004  # longer than the journal gathers; all turns of a letter together are shorter than its timers
LETTERS: Final[Mapping[str, dict[str, Any]]] = {
    "to a target": {"dead-letter-exchange": "dlx", "max-delivery-attempts": 1},
    "to a rung": {"max-delivery-attempts": 5, "redelivery-delay": 5000},
}
# The first letter of a queue teaches, the second is found by a walk through its headers, the third by their shape.
RUN: Final = 50  # letters of one read
SINGLE: Final = ("first", "short", "shape")
WAYS: Final = (*SINGLE, "run")
_QUEUES: Final = count(1)  # none is named twice


@dataclass(frozen=True)
class Way:
    """What one letter touched: files of the package, calls from one of them to another, and calls in all."""

    files: tuple[str, ...]
    moves: int
    calls: int
    sent_bytes: int = 0  # a letter, to the broker: copies, events and acks

    def within(self, folder: str) -> int:
        """How many of the files are in this folder of the package."""
        return sum(file.startswith(f"{folder}/") for file in self.files)


class Trace:
    """Counts what code in `package` calls, itself and below it, while this context lasts; `stage`: files that only act.

    A move is a call into a file of the package whose nearest caller in the package is in another file. Calls are those
    of Python functions, of whatever library. A coroutine that goes on counts as called again.
    """

    def __init__(self, package: Path, stage: Sequence[str] = ()) -> None:
        self._root, self._stage = f"{package}/", frozenset(stage)
        self._files: set[str] = set()
        self._moves: Counter[tuple[str, str]] = Counter()
        self._calls = 0

    def __enter__(self) -> Self:
        gc.disable()  # what it ends would be counted where it happens to run
        sys.setprofile(self._event)
        return self

    def __exit__(self, *_: object) -> None:
        sys.setprofile(None)
        gc.enable()

    def way(self) -> Way:
        """All that was counted."""
        return Way(tuple(sorted(file[len(self._root) :] for file in self._files)), self._moves.total(), self._calls)

    def _event(self, frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event != "call" or code.co_name in _INLINED or code.co_filename in self._stage:
            return
        file, caller = code.co_filename, self._caller(frame)
        if self._is_ours(file):
            self._calls += 1
            self._files.add(file)
            if caller not in ("", file):
                self._moves[caller, file] += 1
        elif caller:
            self._calls += 1

    def _caller(self, frame: FrameType) -> str:
        """The nearest file of ours in the stack; "" where there is none, or the stage is nearer."""
        above = frame.f_back
        while above is not None:
            file = above.f_code.co_filename
            if file in self._stage:
                return ""
            if self._is_ours(file):
                return file
            above = above.f_back
        return ""

    def _is_ours(self, file: str) -> bool:
        return file.startswith(self._root)


class _Loop(asyncio.SelectorEventLoop):
    """A loop whose time stands until it is moved: which timer comes first does not depend on the machine."""

    now = 1000.0

    def time(self) -> float:
        return self.now


class _Link:
    """An end that takes what is sent, and confirms what was published when it is asked to."""

    frame_max: Final = 131_072
    is_open: Final = True
    blocked: Final = False

    def __init__(self) -> None:
        self.closed: asyncio.Future[Exception] = asyncio.get_running_loop().create_future()
        self._channels: dict[int, Any] = {}
        self._published: Counter[int] = Counter()
        self._confirmed: Counter[int] = Counter()
        self.sent_bytes = 0

    async def open_channel(self, handler: object) -> int:
        self._channels[len(self._channels) + 1] = handler
        return len(self._channels)

    async def rpc(self, _channel: int, _command: object) -> None:
        return

    def deliver_runs(self, _channel: int, _take: object) -> None:
        return

    def flush(self) -> None:
        return

    def send(self, data: bytes | memoryview) -> None:
        self.sent_bytes += len(data)
        if data[7:11] == _PUBLISH:
            self._published[int.from_bytes(data[1:3], "big")] += 1

    def send_parts(self, parts: Sequence[bytes | memoryview], _size: int) -> None:
        for part in parts:
            self.send(part)

    def confirm(self) -> None:
        for channel, number in [*self._published.items()]:
            if number > self._confirmed[channel]:
                self._confirmed[channel] = number
                event = frames.Confirm(channel, number, multiple=True, ok=True)
                self._channels[channel].on_event(event)


@dataclass(frozen=True)
class _Scene:
    consumer: Consumer
    link: _Link
    acks: _Link
    loop: _Loop
    tags: Iterator[int]

    @property
    def sent_bytes(self) -> int:
        """All that was sent to the broker."""
        return self.link.sent_bytes + self.acks.sent_bytes

    async def letter(self, queue: str) -> None:
        """One letter of this queue, from its delivery to its ack."""
        self.consumer.on_event(support.dead(next(self.tags), queue))
        await self._settled(queue)

    def read(self, queue: str) -> list[frames.Delivery]:
        """What one read brings: many letters of this queue."""
        return [support.dead(next(self.tags), queue) for _ in range(RUN)]

    async def run(self, queue: str, letters: list[frames.Delivery]) -> None:
        """One read, until all are acked."""
        self.consumer.on_deliveries(letters)
        await self._settled(queue)

    async def _settled(self, queue: str) -> None:
        for _ in range(_TURNS):
            await asyncio.sleep(0)
            self.link.confirm()
            if not len(self.consumer):
                self.consumer.flush()
                return
        raise RuntimeError(f"a letter of {queue} was not settled: what carries it asks for more than this scene has")


async def _nothing() -> None:
    return


async def _prepared(definition: dict[str, Any], mode: Mode, loop: _Loop) -> _Scene:
    """A consumer whose letters go through a lane and a journal that works."""
    session, link = support.Session(definition, mode=mode), _Link()
    session.publish_link = link
    worker = Worker(session, cast("SerialPublisher", None))
    await worker.open()
    acks = _Link()
    consumer = Consumer(
        cast("Any", acks), INBOX, 500, sink=worker.take, run_sink=worker.take_run, on_lost=lambda *_: None
    )
    worker.attend(consumer, support.place(INBOX))
    await consumer.start()

    def flush() -> None:
        consumer.flush()

    session.spawn(session.journal.attend(cast("Any", link), _nothing, flush))
    return _Scene(consumer, link, acks, loop, iter(range(1, 1000)))


async def _measured(definition: dict[str, Any], mode: Mode, loop: _Loop) -> dict[str, Way]:
    scene = await _prepared(definition, mode, loop)
    moving = loop.create_task(_moving(loop))
    for _ in SINGLE:  # what letters of all queues share is known: the target, and what is worked out once for a process
        await scene.letter("earlier")
    moving.cancel()
    ways, queue = {}, f"queue {next(_QUEUES)}"
    for way in SINGLE:
        loop.now += _TICK_S
        before = scene.sent_bytes
        with Trace(PACKAGE, _stage()) as trace:
            await scene.letter(queue)
        ways[way] = replace(trace.way(), sent_bytes=_about(scene.sent_bytes - before))
    for _ in range(2):  # the first teaches the mould
        loop.now += _TICK_S
        before, letters = scene.sent_bytes, scene.read(queue)
        with Trace(PACKAGE, _stage()) as trace:
            await scene.run(queue, letters)
        ways["run"] = replace(trace.way(), sent_bytes=_about((scene.sent_bytes - before) / RUN))
    return ways


def _about(sent_bytes: float) -> int:
    """To ten: no queue is named twice, and events are compressed."""
    return round(sent_bytes / 10) * 10


async def _moving(loop: _Loop) -> None:
    while True:
        loop.now += _TICK_S
        await asyncio.sleep(0)


def _stage() -> tuple[str, ...]:
    """The files of the scene, as their code names them."""
    acting: tuple[Callable[..., Any], ...] = (_nothing, support.place)
    return tuple(function.__code__.co_filename for function in acting)


def measure(mode: Mode = Mode.BEST_EFFORT) -> dict[str, dict[str, Way]]:
    """Each letter, by each way; `mode`: of the journal."""
    return {letter: _run(definition, mode) for letter, definition in LETTERS.items()}


def _run(definition: dict[str, Any], mode: Mode) -> dict[str, Way]:
    with _standing_clock(), asyncio.Runner(loop_factory=_Loop) as runner:
        loop = cast("_Loop", runner.get_loop())
        return runner.run(_measured(definition, mode, loop))


@contextmanager
def _standing_clock() -> Iterator[None]:
    """Stop every clock, so that what is written of times is as long, and compresses as well, each time."""
    wall, steady, believed = time.time, time.monotonic, clock.CLOCK
    time.time, time.monotonic = lambda: _NOW_S, lambda: _Loop.now
    vars(clock)["CLOCK"] = clock.Clock()  # this one believes that clock: the real one takes it for a jump
    try:
        yield
    finally:
        time.time, time.monotonic = wall, steady
        vars(clock)["CLOCK"] = believed


def as_data(measurements: dict[str, dict[str, Way]]) -> dict[str, Any]:
    """For JSON."""
    return {letter: {way: asdict(counts) for way, counts in ways.items()} for letter, ways in measurements.items()}
