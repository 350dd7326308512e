"""Settlement: a source is acked only after every publication was confirmed and none returned.

Two small state machines, command + state → state + effects, after RabbitMQ's `rabbit_fifo_dlx`. They hold no clock and
no socket, so a law can drive them through every order of events. AMQP: a `basic.return` precedes the ack of the same
publish, but acks of others may lie between, so returns are paired by number and never by order.
"""

from bisect import bisect_right
from itertools import takewhile
from operator import attrgetter
from typing import Generic, NamedTuple, Protocol, TypeVar

Job = TypeVar("Job")
Made = TypeVar("Made")
_first = attrgetter("first")


class RunOfJobs(Protocol[Made]):
    """Publishes with numbers one behind the other that are counted together, and each of which can be a job."""

    def jobs(self, start: int, stop: int) -> list[Made]:
        """Those from `start` up to `stop` as jobs: from now on each is on its own."""


class Part(NamedTuple, Generic[Job]):
    """Of a run, what lies from `start` up to `stop`; counted from 0."""

    run: RunOfJobs[Job]
    start: int
    stop: int

    def jobs(self) -> list[Job]:
        """As jobs."""
        return self.run.jobs(self.start, self.stop)


class Stretch(NamedTuple, Generic[Job]):
    """The numbers from `first` up to `stop` are pending, and belong to a run whose first number is `base`."""

    first: int
    stop: int
    base: int
    run: RunOfJobs[Job]

    def part(self, first: int, stop: int) -> Part[Job]:
        """What of its run has these numbers."""
        return Part(self.run, first - self.base, stop - self.base)


class Confirms(Generic[Job]):
    """The unconfirmed publishes of one channel, in order of their numbers.

    Runs are kept as `stretches` of numbers as long as all goes well. What is returned, nacked, asked for or in doubt is
    made jobs first: from there on nobody sees that it came in a run.
    """

    __slots__ = ("_next", "_pending", "_returned", "_together", "stretches")

    def __init__(self) -> None:
        self._next = 1
        self._pending: dict[int, Job] = {}
        self._returned: dict[int, str] = {}
        self._together = 0  # in stretches
        self.stretches: list[Stretch[Job]] = []  # in their order

    def __len__(self) -> int:
        return len(self._pending) + self._together

    @property
    def next_number(self) -> int:
        """The number that the next publish on this channel will have."""
        return self._next

    @property
    def only(self) -> int | None:
        """The number of the publish that is pending, where there is just one."""
        if len(self._pending) + self._together != 1:
            return None
        return self.stretches[0].first if self._together else next(iter(self._pending))

    def publish(self, job: Job) -> int:
        """Take the next number for the job."""
        number = self._next
        self._next = number + 1
        self._pending[number] = job
        return number

    def publish_run(self, run: RunOfJobs[Job], count: int) -> None:
        """Take the next numbers for a run of so many."""
        first = self._next
        self._next = first + count
        self._together += count
        self.stretches.append(Stretch(first, self._next, first, run))

    def returned(self, number: int, why: str) -> bool:
        """Note a return; False where no such publish is pending (a foreign stamp)."""
        if self.stretches:
            self._apart(number, number + 1)
        if number not in self._pending:
            return False
        self._returned[number] = why
        return True

    def answered(self, number: int, *, multiple: bool) -> list[tuple[Job, str]]:
        """The jobs that an ack or nack answers, each with why it was returned ("" where it was not)."""
        if self.stretches:
            self._apart(0 if multiple else number, number + 1 if number else self._next)
        if multiple:
            numbers = []
            for pending in self._pending:
                if number and pending > number:
                    break
                numbers.append(pending)
        else:
            numbers = [number] if number in self._pending else []
        pop, back = self._pending.pop, self._returned
        if not back:
            return [(pop(tag), "") for tag in numbers]
        return [(pop(tag), back.pop(tag, "")) for tag in numbers]

    def plain(self, number: int, *, multiple: bool) -> list[Job] | None:
        """The jobs that an ack answers where none was returned; else None, and `answered` has to tell them apart.

        Where there are `stretches`, `runs` tells what else it answers.
        """
        if self._returned:
            return None
        pending = self._pending
        if not multiple:
            return [pending.pop(number)] if number in pending else []
        numbers = takewhile(number.__ge__, pending) if number else pending
        return [pending.pop(tag) for tag in [*numbers]]

    def runs(self, number: int, *, multiple: bool) -> list[Part[Job]]:
        """What of runs an ack answers, in order. Only where `plain` has said that none was returned."""
        if not multiple:
            return self._single(number)
        stretches, stop, whole = self.stretches, number + 1 if number else self._next, 0
        parts = []
        for stretch in stretches:
            if stretch.first >= stop:
                break
            end = min(stretch.stop, stop)
            parts.append(stretch.part(stretch.first, end))
            self._together -= end - stretch.first
            if end < stretch.stop:
                stretches[whole] = stretch._replace(first=end)
                break
            whole += 1
        del stretches[:whole]
        return parts

    def _single(self, number: int) -> list[Part[Job]]:
        at = bisect_right(self.stretches, number, key=_first) - 1
        if at < 0 or number >= self.stretches[at].stop:
            return []
        stretch = self.stretches[at]
        rest = stretch._replace(stop=number), stretch._replace(first=number + 1)
        self.stretches[at : at + 1] = [part for part in rest if part.first < part.stop]
        self._together -= 1
        return [stretch.part(number, number + 1)]

    def _apart(self, first: int, stop: int) -> None:
        """Every run with one of these numbers is jobs from now on."""
        kept = []
        for stretch in self.stretches:
            if stretch.stop <= first or stretch.first >= stop:
                kept.append(stretch)
                continue
            jobs = stretch.part(stretch.first, stretch.stop).jobs()
            self._pending.update(zip(range(stretch.first, stretch.stop), jobs, strict=True))
            self._together -= len(jobs)
        if len(kept) < len(self.stretches):
            self.stretches = kept
            self._pending = dict(sorted(self._pending.items()))  # by number, and those are never equal

    def before(self, number: int) -> list[Job]:
        """Those unanswered that were published before the one with this number, in order."""
        if self.stretches:
            self._apart(0, number)
        return [job for tag, job in self._pending.items() if tag < number]

    def in_doubt(self) -> list[Job]:
        """Everything unanswered, in order; the channel is gone and the numbering starts anew."""
        self._apart(0, self._next)
        jobs = list(self._pending.values())
        self._pending.clear()
        self._returned.clear()
        self._next = 1
        return jobs


class Acks:
    """The unsettled deliveries of one channel; turns settled ones into as few acks as possible."""

    __slots__ = ("_done", "_open")

    def __init__(self) -> None:
        self._open: dict[int, None] = {}
        self._done: set[int] = set()

    def __len__(self) -> int:
        return len(self._open) - len(self._done)

    def delivered(self, tag: int) -> None:
        """A delivery arrived; it stays unsettled until `settle` and `flush`."""
        self._open[tag] = None

    def delivered_run(self, first: int, stop: int) -> None:
        """As `delivered` of each tag from `first` up to `stop`."""
        self._open.update(dict.fromkeys(range(first, stop)))

    def settle_run(self, first: int, stop: int) -> None:
        """As `settle` of each tag from `first` up to `stop`."""
        self._done.update(filter(self._open.__contains__, range(first, stop)))

    def settle(self, tag: int) -> None:
        """The delivery may be acked. Unknown tags (of a channel that is gone) are ignored."""
        if tag in self._open:
            self._done.add(tag)

    @property
    def unflushed(self) -> int:
        """How many are settled since the last flush."""
        return len(self._done)

    @property
    def unsettled(self) -> list[int]:
        """The tags that are not settled, in the order of their deliveries."""
        return [tag for tag in self._open if tag not in self._done]

    def gone(self, tag: int) -> None:
        """The delivery was rejected or given back by other means."""
        self._open.pop(tag, None)
        self._done.discard(tag)

    def flush(self) -> list[tuple[int, bool]]:
        """(tag, multiple) for all that is settled: one ack for the longest settled beginning, one each for the rest."""
        done = self._done
        if not done:
            return []
        if len(done) == len(self._open):
            last = next(reversed(self._open))
            self._open.clear()
            done.clear()
            return [(last, True)]
        last = 0
        for tag in self._open:
            if tag not in done:
                break
            last = tag
        acks = [(last, True)] if last else []
        acks += [(tag, False) for tag in sorted(done) if tag > last]
        for tag in done:
            del self._open[tag]
        done.clear()
        return acks


class PackedAcks:
    """As `Acks`, in one byte for each delivery that ever came: for a channel that ends with what it holds.

    Law: it answers as `Acks` does. Tags count from 1, each one more than the last.
    """

    __slots__ = ("_done", "_first", "_states", "_unsettled")

    def __init__(self) -> None:
        self._states = bytearray(1)  # by tag: whether it is unsettled
        self._first = 1  # nothing before it is
        self._unsettled = 0
        self._done: set[int] = set()

    def __len__(self) -> int:
        return self._unsettled

    def delivered(self, tag: int) -> None:
        """A delivery arrived; it stays unsettled until `settle` and `flush`."""
        self.delivered_run(tag, tag + 1)

    def delivered_run(self, first: int, stop: int) -> None:
        """As `delivered` of each tag from `first` up to `stop`."""
        self._states.extend(b"\1" * (stop - first))
        self._unsettled += stop - first

    def settle_run(self, first: int, stop: int) -> None:
        """As `settle` of each tag from `first` up to `stop`."""
        for tag in range(first, stop):
            self.settle(tag)

    def settle(self, tag: int) -> None:
        """The delivery may be acked. Unknown tags (of a channel that is gone) are ignored."""
        if self._take(tag):
            self._done.add(tag)

    def _take(self, tag: int) -> bool:
        is_open = 0 < tag < len(self._states) and bool(self._states[tag])
        if is_open:
            self._states[tag] = 0
            self._unsettled -= 1
        return is_open

    @property
    def unflushed(self) -> int:
        """How many are settled since the last flush."""
        return len(self._done)

    @property
    def unsettled(self) -> list[int]:
        """The tags that are not settled, in the order of their deliveries."""
        return [tag for tag, is_open in enumerate(self._states) if is_open]

    def gone(self, tag: int) -> None:
        """The delivery was rejected or given back by other means."""
        self._take(tag)
        self._done.discard(tag)

    def flush(self) -> list[tuple[int, bool]]:
        """(tag, multiple) for all that is settled: one ack for the longest settled beginning, one each for the rest."""
        at = self._states.find(1, self._first)
        first = self._first = len(self._states) if at < 0 else at
        beginning = max((tag for tag in self._done if tag < first), default=0)
        acks = [(beginning, True)] if beginning else []
        acks += [(tag, False) for tag in sorted(self._done) if tag > first]
        self._done.clear()
        return acks
