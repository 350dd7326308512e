"""One run: a full source, one contestant, the target counted from outside, everything that came out read and checked.

The clock: the contestant starts when the source is full; the depth of the target is read every 50 ms (5 ms if letters
are few) by a connection of our own; speed and CPU are taken from the first reading over 5 % to the first over 95 %, so
that neither starting nor a last straggler counts. Each run begins without a journal. A run of which a letter is
missing, or not what was sent, has no speed: it is an error.
"""

import contextlib
import random
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any, Final, TypeVar

from tools.bench.contestants import (
    EXCHANGE,
    INBOX,
    INPUT,
    JOURNAL,
    ROUTER,
    ROUTERS,
    SOURCE,
    Contestant,
    Place,
    Process,
    await_ready,
    contestant,
    router,
)
from tools.bench.letters import KEY, Inspection, Letters
from tools.bench.process_usage import Usage
from tools.bench.wire import BenchError, Wire

TARGET: Final = "bench.target"
SAMPLES: Final = 1000
_INBOX: Final = {"x-queue-type": "quorum", "x-delivery-limit": 2147483647, "x-overflow": "reject-publish"}
_LOOK_S: Final = 0.05
_FEW: Final = 20_000  # are over so soon that they are looked at more often
_STALL_S: Final = 60
_REST_S: Final = 30
_FROM, _TO = 0.05, 0.95
_Mover = TypeVar("_Mover", bound=Contestant)


@dataclass(frozen=True, slots=True)
class Course:
    """What is to be moved: `kind` is the type of source and target queue."""

    kind: str
    size: int
    count: int
    queues: int = 1  # where letters died; several: of several policies


@dataclass(frozen=True, slots=True)
class _Reading:
    at_s: float
    count: int
    cpu_s: float
    broker_s: float


class Stage:
    """A broker made ready for runs. In quorum courses the source is the router's inbox, for every contestant."""

    def __init__(self, place: Place, seed: int, *, with_router: bool, counted: bool) -> None:
        """The inbox is there: the router has run once and declared it, or without a router it is declared alike.

        `counted`: as Letters has it.
        """
        self._place, self._counted = place, counted
        self._chance = random.Random(seed)
        self._seed = seed
        self._letters: dict[tuple[int, int], Letters] = {}
        if with_router:
            with _started(Process(ROUTER, place, *router(place, INBOX))) as process:
                await_ready(process)
        with Wire(place.amqp_url) as wire:
            wire.exchange(EXCHANGE, "direct")
            wire.exchange(INPUT, "fanout")
            if not with_router:
                wire.exchange(INBOX, "fanout")
                wire.queue(INBOX, _INBOX)
                wire.bind(INBOX, INBOX, "")

    def run(self, name: str, course: Course) -> dict[str, Any]:
        """Speed, CPU and memory of this contestant on this course; BenchError if it did not do the work."""
        source = INBOX if course.kind == "quorum" else SOURCE
        kind = course.size, course.queues
        letters = self._letters.setdefault(kind, Letters(course.size, self._seed, course.queues, counted=self._counted))
        place = replace(self._place, is_mixed=course.queues > 1)
        with Wire(self._place.amqp_url) as wire:
            self._fill(wire, course, source, letters)
            mover = contestant(name, place, source)
            with _started(mover):
                usage = [Usage(pid, session=True) for pid in mover.pids]
                readings = self._watch(wire, mover, usage, course.count)
                _settled(wire, source)
                counted = mover.counted()
            left = _rest(wire, source)
            inspection = Inspection(letters, course.count, SAMPLES, self._chance)
            wire.drain(TARGET, wire.depth(TARGET)[0], inspection.take)
        inspection.finish(must_be_exact=name in ROUTERS)
        _nothing_twice(counted, course.count + inspection.duplicates)
        result = _result(readings, course)
        if counted:
            result |= {"settled": list(counted), "smaller_share": round(min(counted) / sum(counted), 3)}
        if usage:
            result |= {"rss_mb": round(max(process.peak_mb for process in usage), 1)}
        else:
            del result["cpu_us_per_message"]
        return result | {
            "verified": inspection.verified, "exact": inspection.exact, "duplicates": inspection.duplicates,
            "left_in_source": left,
        }  # fmt: skip

    def _fill(self, wire: Wire, course: Course, source: str, letters: Letters) -> None:
        wire.delete(JOURNAL)  # a router that starts reads all of it, for tasks
        wire.queue(TARGET, {"x-queue-type": course.kind})
        wire.bind(TARGET, EXCHANGE, KEY)
        if source == INBOX:
            _rest(wire, INBOX)
            wire.purge(INBOX)
        else:
            wire.queue(SOURCE, {"x-queue-type": course.kind})
            wire.bind(SOURCE, INPUT, "")
        wire.fill(INBOX if source == INBOX else INPUT, KEY, course.count, letters)
        if (filled := wire.depth(source)) != (course.count, 0):
            raise BenchError(f"{source} holds {filled[0]} letters of {course.count} and has {filled[1]} consumers")

    def _watch(self, wire: Wire, mover: Contestant, usage: list[Usage], count: int) -> list[_Reading]:
        broker = Usage(self._place.broker_pid, session=False)
        readings: list[_Reading] = []
        moved_s = time.monotonic()
        while not readings or readings[-1].count < count:
            depth, _ = wire.depth(TARGET)
            now = _Reading(time.monotonic(), depth, sum(process.cpu_s() for process in usage), broker.cpu_s())
            moved_s = now.at_s if not readings or depth != readings[-1].count else moved_s
            if now.at_s - moved_s > _STALL_S:
                raise BenchError(f"{mover.name} stands still at {depth} of {count}")
            readings.append(now)
            mover.check()
            time.sleep(_LOOK_S if count > _FEW else _LOOK_S / 10)
        return readings


@contextlib.contextmanager
def _started(mover: _Mover) -> Iterator[_Mover]:
    """Runs while the block lasts."""
    try:
        mover.start()
        yield mover
    finally:
        mover.stop()


def _settled(wire: Wire, source: str) -> None:
    """A moment for the last acks; what is not acked by then shows in `left_in_source`."""
    time.sleep(0.2)
    if (ready := wire.depth(source)[0]) != 0:
        raise BenchError(f"{ready} letters are still ready in {source}, and yet all are in the target: duplicates")


def _nothing_twice(counted: tuple[int, ...], came_out: int) -> None:
    """What the routers say that they settled is what came out: nothing twice, nothing unsaid."""
    if counted and sum(counted) != came_out:
        raise BenchError(f"the routers counted {' + '.join(map(str, counted))} letters, and {came_out} came out")


def _rest(wire: Wire, source: str) -> int:
    """How many letters the source still holds once nobody consumes it any more."""
    deadline = time.monotonic() + _REST_S
    while (answer := wire.depth(source))[1]:
        if time.monotonic() > deadline:
            raise BenchError(f"{source} still has {answer[1]} consumers after {_REST_S} s")
        time.sleep(0.05)
    return answer[0]


def _result(readings: list[_Reading], course: Course) -> dict[str, Any]:
    first = next(reading for reading in readings if reading.count >= course.count * _FROM)
    last = next(reading for reading in readings if reading.count >= course.count * _TO)
    idle = [reading for reading in readings if not reading.count]
    begin = idle[-1] if idle else readings[0]
    if first.count == last.count:
        first, last = begin, readings[-1]
    seconds, count = last.at_s - first.at_s, last.count - first.count
    if not seconds:
        raise BenchError("too fast to be measured: ask for more messages")
    return {
        "messages": course.count,
        "messages_per_s": round(count / seconds, 1),
        "mb_per_s": round(count * course.size / seconds / 1e6, 2),
        "seconds": round(seconds, 3),
        "seconds_all": round(readings[-1].at_s - begin.at_s, 3),
        "cpu_us_per_message": round((last.cpu_s - first.cpu_s) / count * 1e6, 2),
        "broker_cpu_us_per_message": round((last.broker_s - first.broker_s) / count * 1e6, 2),
    }
