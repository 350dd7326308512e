"""When a look through a queue is over, by the clock and by what the queue says."""

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dlx_router.broker.topology import QueueCounts, QueueExclusive, TopologyError
from dlx_router.core.names import Names
from dlx_router.redrive.task import Spec, Task
from dlx_router.service.redrive.bindings import SURE_S, Bounds, depth_of, ready_in, see_to_holding
from dlx_router.service.redrive.context import Stopped
from dlx_router.service.redrive.scan import AGAIN_S, MOST_S, SETTLED_S, Over, ScanPass
from dlx_router.service.redrive.sender import Attempt
from dlx_router.service.redrive.worker import End, TaskWorker

TICK_S = 0.02


class Queue:
    """One with so many letters waiting, None: nobody knows. And how often it was asked."""

    def __init__(self, waiting: int | None) -> None:
        self.waiting, self.asked = waiting, 0

    async def ready(self) -> int | None:
        self.asked += 1
        return self.waiting


async def ends(
    look: ScanPass, seen: int, *, within_s: float, busy: bool = False, later: bool = False
) -> tuple[Over, float]:
    """What it says at last, and when."""
    now, over = 1000.0, Over.NO
    while over is Over.NO and now < 1000.0 + within_s:
        now += TICK_S
        over = await look.over(now, seen, busy=busy, later=later)
    return over, now - 1000.0


@pytest.mark.parametrize(
    ("seen", "waiting", "busy", "later", "expected"),
    [
        (10, 0, False, False, Over.ALL),
        (11, 0, False, False, Over.ALL),
        (10, 3, False, False, Over.NO),
        (10, 3, False, True, Over.ALL),
        (10, 0, True, False, Over.NO),
        (9, 0, False, False, Over.FEWER),
        (0, 0, False, False, Over.FEWER),
        (9, 1, False, False, Over.NO),
        (9, 1, False, True, Over.NO),
        (9, 0, True, False, Over.NO),
        (10, None, False, False, Over.NO),
        (9, None, False, False, Over.NO),
    ],
)
async def test_a_look_is_over_once_all_was_seen_or_nothing_comes_any_more(
    seen: int,
    waiting: int | None,
    busy: bool,  # noqa: FBT001 - a column of the table
    later: bool,  # noqa: FBT001 - a column of the table
    expected: Over,
) -> None:
    over, after_s = await ends(ScanPass(10, Queue(waiting).ready), seen, within_s=3, busy=busy, later=later)
    assert over is expected
    if over is not Over.NO:
        assert (after_s >= SETTLED_S) is (over is Over.FEWER)


@settings(deadline=None, max_examples=30)
@given(st.lists(st.integers(0, 2), min_size=150, max_size=300))
def test_while_letters_come_nothing_is_over_and_the_queue_is_not_asked_often(steps: list[int]) -> None:
    queue = Queue(0)

    async def walk() -> None:
        seen, now, last, look = 0, 1000.0, 1000.0, ScanPass(10_000, queue.ready)
        for step in steps:
            now, seen = now + TICK_S, seen + step
            last = now if step else last
            over = await look.over(now, seen, busy=False, later=False)
            assert over is Over.NO or now - last >= SETTLED_S - TICK_S

    asyncio.run(walk())
    assert queue.asked <= len(steps) * TICK_S / AGAIN_S + 1


class Emptied:
    """A topology that knows a queue of which all letters have gone; a consumer of ours is there."""

    async def queue_counts(self, queues: list[str]) -> QueueCounts:
        return QueueCounts(dict.fromkeys(queues, (0, 1)), frozenset())


def idle_worker(spec: Spec) -> TaskWorker:
    """One whose queue is empty."""
    journal = SimpleNamespace(is_working=True)
    context: Any = SimpleNamespace(
        router_id="r", names=Names("p"), in_force=None, login=SimpleNamespace(vhost="/"), sign_with=lambda: b"k",
        topology=Emptied(), journal=journal, management=None,
        leased=lambda _queue: 0,
    )  # fmt: skip
    worker = TaskWorker(Task("t", spec, total=10), context, lambda _letter: True, Attempt())
    scan: Any = SimpleNamespace(lost=None, holding=0, unread=0, flush=lambda: None)
    worker._scan, worker._sender._out = scan, SimpleNamespace(blocked=False)  # type: ignore[assignment]  # stand-ins: no broker
    return worker


@pytest.mark.parametrize(("spec", "seen", "expected"), [
    (Spec("/", "DLQ"), 9, None),
    (Spec("/", "DLQ", dry_run=True), 9, End.DONE),
    (Spec("/", "DLQ"), 10, End.DONE),
])  # fmt: skip
async def test_one_letter_that_leaves_another_way_does_not_keep_the_task(
    spec: Spec, seen: int, expected: End | None
) -> None:
    worker = idle_worker(spec)
    for _ in range(seen):
        worker.counters.count("seen")
    async with asyncio.timeout(60):
        assert await worker._working(10) is expected, "None: look again, and count anew"


class Answering:
    """A topology that says one after the other of a queue, and then the last for ever."""

    def __init__(self, *counts: tuple[int, int]) -> None:
        self._counts = [*counts]

    async def queue_counts(self, queues: list[str]) -> QueueCounts:
        counts = self._counts.pop(0) if len(self._counts) > 1 else self._counts[0]
        return QueueCounts(dict.fromkeys(queues, counts), frozenset())


@pytest.mark.parametrize(("counts", "depth"), [
    ([(7, 0)], 7),
    ([(0, 2)], 0),
    ([(0, 0), (0, 0), (7, 0)], 7),
    ([(0, 0)], 0),
])  # fmt: skip
async def test_a_queue_that_seems_to_have_nothing_and_nobody_is_asked_again(
    counts: list[tuple[int, int]], depth: int
) -> None:
    """A quorum queue that takes back a million letters says so for a while, and a task would be done at once."""
    context: Any = SimpleNamespace(topology=Answering(*counts))
    began = time.monotonic()
    assert await depth_of(context, "DLQ") == depth
    assert (time.monotonic() - began > SURE_S) is (counts == [(0, 0)])


class Refusing:
    """A topology that counts nothing, knows what is missing, and says this where it is asked for the queue alone."""

    def __init__(self, missing: set[str], answer: Exception | bool) -> None:  # noqa: FBT001 - whether it is there
        self._missing, self._answer = missing, answer

    async def queue_counts(self, _queues: list[str]) -> QueueCounts:
        return QueueCounts({}, frozenset(self._missing))

    async def queue_exists(self, _queue: str) -> bool:
        if isinstance(self._answer, Exception):
            raise self._answer
        return self._answer


@pytest.mark.parametrize(("missing", "answer", "raised", "text"), [
    ({"DLQ"}, True, Stopped, "queue 'DLQ' does not exist"),
    (set(), False, Stopped, "queue 'DLQ' does not exist"),
    (set(), QueueExclusive("of one connection"), Stopped, "queue 'DLQ' cannot be looked at: of one connection"),
    (set(), TopologyError("no answer in time"), TopologyError, "no answer in time"),
])  # fmt: skip
async def test_one_answer_that_does_not_come_stops_no_task(
    missing: set[str],
    answer: Exception | bool,  # noqa: FBT001 - whether it is there
    raised: type[Exception],
    text: str,
) -> None:
    """It was told that the queue does not exist, and had to be resumed by hand."""
    context: Any = SimpleNamespace(topology=Refusing(missing, answer))
    with pytest.raises(raised, match=text):
        await ready_in(context, "DLQ")


async def test_a_queue_that_answers_again_is_asked_again() -> None:
    context: Any = SimpleNamespace(topology=Refusing(set(), answer=True))
    assert await ready_in(context, "DLQ") is None


async def test_a_look_does_not_end_by_its_time_over_copies_that_are_on_their_way() -> None:
    """Under an alarm of more than a minute 1,000 letters went back whose copies lay in the socket, and went twice."""
    worker = idle_worker(Spec("/", "DLQ", filter="true"))
    worker._bounds, worker._sender.pending = Bounds(most_s=0.0), 1
    worker.counters.count("seen", "sent")
    working = asyncio.create_task(worker._working(10))
    assert not (await asyncio.wait([working], timeout=0.3))[0]
    worker.counters.count("sent")
    worker._sender.pending = 0
    assert await working is None


@pytest.mark.parametrize(("version", "arguments", "most_s"), [
    ("4.3.0", {}, MOST_S),
    ("4.3.0", {"x-consumer-timeout": 300_000}, 250),
    ("4.3.0", {"x-consumer-timeout": 36_000_000}, MOST_S),
])  # fmt: skip
async def test_a_look_ends_before_the_broker_ends_its_consumer(
    version: str, arguments: dict[str, int], most_s: float
) -> None:
    async def admit(_topology: object, _queue: str) -> dict[str, Any]:
        return {"type": "quorum", "arguments": arguments}

    async def check_head(_link: object, _queue: str, _facts: object) -> None:
        return None

    reads = SimpleNamespace(admit=admit, check_head=check_head, near_limit=set())
    context: Any = SimpleNamespace(reads=reads, topology=None)
    link: Any = SimpleNamespace(version=tuple(map(int, version.split(".")[:2])))
    assert (await see_to_holding(context, link, "DLQ", sifting=True)).most_s == most_s
