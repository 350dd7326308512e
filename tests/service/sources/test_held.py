"""Nothing is held for ever: looks that nobody waits for, and what is known of consumers that are gone."""

import asyncio
import gc
import weakref
from types import SimpleNamespace
from typing import Any, cast

import pytest

from dlx_router.broker.consumer import Consumer
from dlx_router.core.letter import Arrival
from dlx_router.core.names import Names
from dlx_router.core.policy import ordered
from dlx_router.core.words import Action
from dlx_router.journal.mode import Mode
from dlx_router.journal.writer import Journal
from dlx_router.service.dispatch.decider import Decider
from dlx_router.service.dispatch.settler import Settler
from dlx_router.service.inflight.decoder import Place
from dlx_router.service.inflight.in_force import InForce, Rules
from dlx_router.service.inflight.job import Job
from dlx_router.service.inflight.places import Places
from dlx_router.service.sources import guard
from dlx_router.service.sources.guard import GuardedQueue
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from dlx_router.wire import frames

PLACE = Place("/", "work", Arrival.INBOX, Names(), b"")


def _consumer() -> Consumer:
    return Consumer(None, "work", 1, sink=lambda *_: None, on_lost=lambda *_: None)  # type: ignore[arg-type]  # no broker: none is asked


def test_a_consumer_that_is_gone_is_known_until_its_last_letter_is_settled() -> None:
    places, consumer = Places(), _consumer()
    places[consumer] = PLACE
    places.leave(consumer)
    places.leave(consumer)
    assert places[consumer] is PLACE
    seen = weakref.ref(consumer)
    del consumer
    gc.collect()
    assert (seen(), len(places), len(places._gone)) == (None, 0, 0)


class _Owner:
    """Counts the bytes in flight."""

    vhost = "/"
    decider: Any = SimpleNamespace(in_force=None)

    def __init__(self) -> None:
        self.weight = 0
        self.metrics: Any = type("Metrics", (), {"deliveries": _Count(), "given_back": _Count()})()

    def settling(self) -> Settler:
        return Settler(cast("Any", self))

    def read_s(self) -> float:
        return 0.0

    def weigh(self, size: int) -> None:
        self.weight += size


class _Count(dict[Any, int]):
    def __missing__(self, _key: Any) -> int:
        return 0


class _Slow(Consumer):
    """A getter whose broker answers only the first question in time, and the second later."""

    def __init__(self, asked: GuardedQueue) -> None:
        super().__init__(None, "work", 1, sink=asked.take, on_lost=lambda *_: None)  # type: ignore[arg-type]  # no broker: none is asked
        self.asked, self.back = asked, list[int]()

    def fetch(self, _count: int) -> None:
        self.deliver(1)

    def deliver(self, tag: int) -> None:
        self.asked.take(frames.Delivery(1, b"", tag, False, b"", b"work", b"head", b"body"), self)  # noqa: FBT003 - AMQP order

    def give_back(self, tag: int) -> bool:
        self.back.append(tag)
        return True


async def test_heads_that_came_are_given_back_where_the_others_do_not_come_in_time(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(guard, "ANSWER_S", 0.01)
    owner: Any = _Owner()

    async def sizes() -> float:
        return 0.0

    source = GuardedQueue(owner, "work", None, sizes)  # type: ignore[arg-type]  # no broker: none is asked
    slow: Any = _Slow(source)
    with pytest.raises(TimeoutError):
        await source._heads(slow, 2)
    assert (slow.back, owner.weight) == ([1], 0)
    slow.deliver(2)
    assert (slow.back, owner.weight, owner.metrics.given_back["/", "probe"]) == ([1, 2], 0, 2)
    await asyncio.sleep(0)


def test_an_error_that_nobody_foresaw_sends_the_letter_to_quarantine_and_is_not_raised() -> None:
    journal = Journal(mode=Mode.OFF, name="j", vhost="/", router_id="r", readiness=Readiness())
    decider = Decider(InForce.of(Rules(ordered([], "abcdef012345"), Names(), 30_000), "/"), Metrics(), journal)
    delivery = frames.Delivery(1, b"", 1, False, b"", b"work", bytes(14), b"body")  # noqa: FBT003 - AMQP order
    job = Job(_consumer(), delivery, 0.0, decider.in_force)

    def odd() -> None:
        raise LookupError("nobody thought of this")

    decider.safely(job, PLACE, odd)
    assert (job.raw, job.action, job.letter, job.copy) == (True, Action.QUARANTINE, None, None)
    assert job.cause == "malformed: LookupError('nobody thought of this')"
