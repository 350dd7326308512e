"""Settlement: a source is acked only after every publication was confirmed and none returned.

Two small state machines, command + state → state + effects, after RabbitMQ's `rabbit_fifo_dlx`. They hold no clock and
no socket, so a law can drive them through every order of events. AMQP: a `basic.return` precedes the ack of the same
publish, but acks of others may lie between, so returns are paired by number and never by order.
"""

from typing import Generic, TypeVar

Job = TypeVar("Job")


class Confirms(Generic[Job]):
    """The unconfirmed publishes of one channel, in order of their numbers."""

    __slots__ = ("_next", "_pending", "_returned")

    def __init__(self) -> None:
        self._next = 1
        self._pending: dict[int, Job] = {}
        self._returned: dict[int, str] = {}

    def __len__(self) -> int:
        return len(self._pending)

    @property
    def next_number(self) -> int:
        """The number that the next publish on this channel will have."""
        return self._next

    @property
    def only(self) -> int | None:
        """The number of the publish that is pending, where there is just one."""
        return next(iter(self._pending)) if len(self._pending) == 1 else None

    def publish(self, job: Job) -> int:
        """Take the next number for the job."""
        number = self._next
        self._next = number + 1
        self._pending[number] = job
        return number

    def returned(self, number: int, why: str) -> bool:
        """Note a return; False where no such publish is pending (a foreign stamp)."""
        if number not in self._pending:
            return False
        self._returned[number] = why
        return True

    def answered(self, number: int, *, multiple: bool) -> list[tuple[Job, str]]:
        """The jobs that an ack or nack answers, each with why it was returned ("" where it was not)."""
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
            return [(pop(one), "") for one in numbers]
        return [(pop(one), back.pop(one, "")) for one in numbers]

    def plain(self, number: int, *, multiple: bool) -> list[Job] | None:
        """The jobs that an ack answers where none was returned; else None, and `answered` has to tell them apart."""
        if self._returned:
            return None
        pending = self._pending
        if not multiple:
            return [pending.pop(number)] if number in pending else []
        numbers = [one for one in pending if one <= number] if number else [*pending]
        return [pending.pop(one) for one in numbers]

    def before(self, number: int) -> list[Job]:
        """Those unanswered that were published before the one with this number, in order."""
        return [job for one, job in self._pending.items() if one < number]

    def in_doubt(self) -> list[Job]:
        """Everything unanswered, in order; the channel is gone and the numbering starts anew."""
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
