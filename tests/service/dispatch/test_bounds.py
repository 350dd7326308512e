"""What waits has a bound: for a target that is missing, silent or full, and for the check whether it is there."""

import asyncio
import time
from collections.abc import Callable
from typing import Any, cast

import pytest

from dlx_router.broker.consumer import Consumer
from dlx_router.core import next_step
from dlx_router.core.passing import Target
from dlx_router.core.refusal import NACK_PAUSE_S, InDoubt, NotTaken, ResourceRefused
from dlx_router.core.words import Action, Cause
from dlx_router.journal.batch import Batch
from dlx_router.service.dispatch import settler
from dlx_router.service.dispatch.cooldown import SilentTargets
from dlx_router.service.dispatch.serial_publisher import MOST_QUESTIONS, SerialPublisher
from dlx_router.service.dispatch.worker import Worker
from dlx_router.service.inflight.job import Job
from dlx_router.service.sources.relay import Relay
from dlx_router.service.sources.retention import Retention
from dlx_router.wire import frames, table
from tests.support.bulk import dying_queue, pour
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.router import Router
from tests.support.worker import NAMES, Sent, Session, Taken, dead, message, place

FIFO = {"dead-letter-exchange": "gone", "max-delivery-attempts": 1, "ordering": "fifo"}


class Clock:
    """A monotonic clock for one module."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    fake = Clock()
    monkeypatch.setattr(settler, "time", fake)
    return fake


def _worker(session: Session, queue: str, probe: SerialPublisher | None = None) -> tuple[Worker, Sent, Taken]:
    worker, taken = Worker(session, cast("SerialPublisher", probe)), Taken(queue)
    sent = Sent()
    worker._publisher = worker._own_publisher = cast("Any", sent)
    worker.attend(cast("Consumer", taken), place(queue))
    return worker, sent, taken


async def _insisted(worker: Worker, session: Session, taken: Taken, clock: Clock) -> Job:
    """A delivery whose target is missing, from its arrival until it is given back or parked."""
    consumer, back = cast("Consumer", taken), len(taken.back)
    job = session.decider.judge(dead(1), consumer, place(taken.queue), clock.now)
    while len(taken.back) == back and job.action is not Action.PARK:
        worker._carry_out(job, worker._after(job, ResourceRefused(Cause.MISSING_EXCHANGE, ""), clock.now))
        clock.now += 1
    return job


async def test_a_letter_in_order_is_parked_after_a_grace_that_is_longer_than_a_delivery(clock: Clock) -> None:
    session = Session(FIFO, grace_ms=60_000)
    worker, sent, taken = _worker(session, NAMES.fifo)
    for _ in range(2):  # the second time its id is known, but not as one whose target is missing
        began, before = clock.now, len(taken.back)
        assert (await _insisted(worker, session, taken, clock)).action is Action.DEAD_LETTER
        assert (await _insisted(worker, session, taken, clock)).action is Action.PARK
        assert clock.now - began == pytest.approx(61, abs=3)
        assert len(taken.back) - before == 1
        worker._confirmed(sent.answered())
    assert not session.troubles


async def test_a_letter_by_a_compiled_route_is_nacked_twice_and_then_waits() -> None:
    session = Session({"dead-letter-exchange": "gone", "max-delivery-attempts": 1})
    worker, sent, taken = _worker(session, NAMES.inbox)
    for tag in (1, 2):
        worker.take(dead(tag), cast("Consumer", taken))
        worker._confirmed(await _all_sent(sent, 1))
    job = session.decider.judge(dead(3), cast("Consumer", taken), place(NAMES.inbox), 0.0)
    assert job.route is not None
    assert worker._after(job, NotTaken.NACKED) == next_step.TryAgain(NACK_PAUSE_S)
    assert isinstance(worker._after(job, NotTaken.NACKED), next_step.HoldOnLadder)


def _relay(session: Session) -> tuple[Relay, Sent, Taken]:
    deaths, taken, sent = Worker(session, cast("SerialPublisher", None)), Taken("staging.in"), Sent()
    relay = Relay(
        session, cast("SerialPublisher", None), queue=taken.queue, target=Target("work"), deaths=deaths, slack=10
    )
    relay._publisher = relay._own_publisher = cast("Any", sent)
    relay.attend(cast("Consumer", taken), place(taken.queue))
    return relay, sent, taken


async def test_a_strict_relay_sends_one_message_at_a_time_from_its_first_on() -> None:
    """While the broker is asked whether the exchange is there, the others wait in line."""
    relay, sent, taken = _relay(Session({"ordering": "fifo"}))
    assert relay.limits.strict
    for tag in range(1, 6):
        relay.take(message(tag), cast("Consumer", taken))
    for tag in range(1, 6):
        jobs = await _all_sent(sent, 1)
        assert [job.delivery.tag for job in jobs] == [tag]
        relay._confirmed(jobs)
    assert taken.settled == [1, 2, 3, 4, 5]


async def test_a_limit_that_is_told_late_holds_from_then_on() -> None:
    worker, sent, taken = _worker(Session({}), "source")
    consumer, returned = cast("Consumer", taken), table.long_(b"x-delivery-count", 3)
    worker.take(message(1, headers=returned), consumer)
    worker.limit(consumer, 6)
    worker.take(message(2, headers=returned), consumer)
    near = [job.delivery.tag for job in sent.jobs if job.cause == Cause.ATTEMPTS_SPENT]
    assert (near, len(sent)) == ([2], 2)


async def test_a_limit_that_is_told_late_spares_what_waits_in_a_relay() -> None:
    """It goes to parking and is not given back, or its last return might delete it. All others keep their order."""
    relay, sent, taken = _relay(Session({"ordering": "fifo"}))
    parked = Sent()
    relay._deaths._publisher = relay._deaths._own_publisher = cast("Any", parked)
    consumer = cast("Consumer", taken)
    for tag in range(1, 7):
        relay.take(message(tag, headers=table.long_(b"x-delivery-count", tag % 3)), consumer)
    relay.limit(consumer, 5)
    assert sorted(job.delivery.tag for job in parked.jobs) == [2, 5]
    relay.give_back()
    assert taken.back == [3, 4, 6]
    relay._confirmed(await _all_sent(sent, 1))
    assert taken.settled == [1]


async def test_a_limit_that_is_told_late_is_known_of_what_dies_in_a_relay_too() -> None:
    """Parking refuses such a letter, whose next return deletes it: then nothing of its queue is taken for a proof."""
    session = Session({})
    relay, _, taken = _relay(session)
    deaths, parked = relay._deaths, Sent()
    deaths._publisher = deaths._own_publisher = cast("Any", parked)
    relay.limit(cast("Consumer", taken), 5)
    relay.take(message(1, headers=table.long_(b"x-delivery-count", 3)), cast("Consumer", taken))
    (job,) = await _all_sent(parked, 1)
    deaths._carry_out(job, deaths._after(job, InDoubt(refused="nacked")))
    assert "its next returns delete a letter" in session.provision.refusals.why_not(taken.queue)


async def _all_sent(sent: Sent, count: int) -> list[Job]:
    async with asyncio.timeout(60):
        while len(sent) < count:  # noqa: ASYNC110 - nothing says when a task of the lane is done
            await asyncio.sleep(0.01)
    return sent.answered()


class Unconfirmed(SerialPublisher):
    """A probe that publishes one after the other, and gets no confirm from queues that are silent."""

    TIMEOUT_S = 0.2

    def __init__(self, well: set[str] | None = None, timeout_s: float = TIMEOUT_S) -> None:
        super().__init__(cast("Any", None), cast("Any", None), timeout_s)
        self.waiting = self.most = 0
        self.asked: list[str] = []
        self.well: set[str] = set() if well is None else well
        self.beside: list[Unconfirmed] = []

    def lend(self) -> "Unconfirmed | None":
        if super().lend() is None:
            return None
        self.beside.append(Unconfirmed(self.well, self._timeout_s))
        return self.beside[-1]

    async def publish(self, job: Job, *, bare: bool = False) -> str:
        key = "" if job.raw or job.copy is None else job.copy.routing_key
        self.waiting += 1
        self.most = max(self.most, self.waiting)
        self.asked.append(key)
        async with self._lock:
            answers = job.raw or key in self.well
            if not answers:
                await asyncio.sleep(self._timeout_s)  # a target that is silent
        self.waiting -= 1
        return "" if answers else "timeout"


def _silent(session: Session, count: int) -> list[str]:
    """As many failed queues whose dead-letter queues were silent, and have rested for long enough."""
    session.provision.silent = SilentTargets(0.05, 0.05)
    targets = [f"q{at}" for at in range(count)]
    for target in targets:
        session.provision.silent.rest(("", f"DLQ.{target}", None), for_s=0)
    return targets


async def test_silent_targets_are_asked_each_by_one_letter_and_nothing_else_waits_for_them() -> None:
    session, probe = Session({"max-delivery-attempts": 1}), Unconfirmed()
    worker, sent, taken = _worker(session, NAMES.inbox, probe)
    targets = _silent(session, 12)
    consumer = cast("Consumer", taken)
    tag = 0
    until = time.monotonic() + 10 * Unconfirmed.TIMEOUT_S
    while time.monotonic() < until:
        for target in targets:
            job = session.decider.judge(dead(tag := tag + 1, target), consumer, place(NAMES.inbox), 0.0)
            worker._send(job)
        waiting = [asked.asked[-1] for asked in probe.beside if asked.waiting]
        assert len(set(waiting)) == len(waiting) <= MOST_QUESTIONS, "one letter for each, and few at once"
        await asyncio.sleep(0.02)
    assert len(probe.beside) > len(targets), "silent targets are asked again and again"
    raw = frames.Delivery(1, b"c", 0, False, b"in", b"k", b"\0" * 14, b"")  # noqa: FBT003 - AMQP order
    job = session.decider.judge(raw._replace(header=raw.header + b"\xff\xff"), consumer, place(NAMES.inbox), 0.0)
    assert job.raw
    worker._send(job)
    async with asyncio.timeout(Unconfirmed.TIMEOUT_S):
        while 0 not in taken.settled:  # noqa: ASYNC110 - nothing says when a task of the lane is done
            await asyncio.sleep(0.01)
    assert not session.troubles
    assert len(sent), "the others are on their way to the ladder"


async def test_a_silent_target_that_is_well_again_is_used_at_once_though_others_are_asked() -> None:
    """It rested for a minute, and what was held for it stood for as long."""
    session, probe = Session({"max-delivery-attempts": 1}), Unconfirmed(timeout_s=3600)
    worker, sent, taken = _worker(session, NAMES.inbox, probe)
    *others, well = _silent(session, MOST_QUESTIONS)
    consumer, here = cast("Consumer", taken), place(NAMES.inbox)
    for tag, target in enumerate(others, 1):
        worker._send(session.decider.judge(dead(tag, target), consumer, here, 0.0))
    probe.well.add(f"DLQ.{well}")
    worker._send(session.decider.judge(dead(20, well), consumer, here, 0.0))
    async with asyncio.timeout(60):
        while 20 not in taken.settled:  # noqa: ASYNC110 - nothing says when a task of the lane is done
            await asyncio.sleep(0.01)
    worker._send(session.decider.judge(dead(21, well), consumer, here, 0.0))
    assert [job.delivery.tag for job in sent.jobs] == [21], "the next goes with all others, unasked"


async def test_what_is_in_doubt_waits_for_one_silent_target_and_not_for_each() -> None:
    """Its lane sends nothing meanwhile. What goes to queues of ours waits for its own answer."""
    session, probe = Session({"max-delivery-attempts": 1}), Unconfirmed()
    worker, sent, taken = _worker(session, NAMES.inbox, probe)
    consumer, here = cast("Consumer", taken), place(NAMES.inbox)
    doubted = [session.decider.judge(dead(tag, f"q{tag}"), consumer, here, 0.0) for tag in range(1, 13)]
    raw = session.decider.judge(message(13)._replace(header=b"\0" * 14 + b"\xff\xff"), consumer, here, 0.0)
    assert raw.raw
    began = time.monotonic()
    await worker._alone.each([*doubted, raw])
    assert time.monotonic() - began < 10 * Unconfirmed.TIMEOUT_S, "twelve would take longer"
    assert len(probe.asked) == 2, "the first silent target, and quarantine"
    assert taken.settled == [13]
    assert {job.action for job in doubted} == {Action.HOLD}
    await _all_sent(sent, len(doubted))
    assert session.provision.silent.keys() == {("", "DLQ.q1", None)}, "the others are asked as ever"


async def test_retired_letters_are_taken_again_once_the_stream_is_back() -> None:
    session, batch = Session({}), Batch(1)
    taken: list[Taken] = []
    left = asyncio.Event()

    class Queues:
        async def consume(self, *given: object) -> Taken:
            assert given[1] == NAMES.retired
            taken.append(Taken(NAMES.retired))
            return taken[-1]

        async def leave(self, queue: str) -> None:
            assert queue == NAMES.retired
            left.set()

    worker, _, _ = _worker(session, NAMES.retired)
    retired = Retention(cast("Any", Queues()), NAMES, worker, session.spawn)
    await retired.begin()
    retired.rest_until(batch)
    assert taken[0].is_cancelled, "at once, or what is given back would come again"
    retired.rest_until(batch)
    async with asyncio.timeout(60):
        await left.wait()
        assert len(taken) == 1
        batch.confirm()
        while len(taken) < 2:  # noqa: ASYNC110 - nothing says when a task is done
            await asyncio.sleep(0.01)
    await asyncio.sleep(0)
    assert len(taken) == 2


@pytest.mark.usefixtures("newest")
def test_a_strict_relay_whose_target_is_full_leaves_room_for_letters(
    amqp: Client, start_router: Callable[..., Router]
) -> None:
    policies = """
version: 1
attachments: [{queue: strict.in, mode: relay, forward-to: {exchange: "", routing-key: full.out}}]
policies:
  - {name: strict, queue: strict.in, definition: {ordering: fifo}}
  - {name: work, queue: work, definition: {max-delivery-attempts: 1}}
"""
    amqp.queue("strict.in")
    amqp.queue("full.out", max_length=1, overflow="reject-publish")
    dying_queue(amqp, "work")
    amqp.publish("first", key="full.out")
    pour(amqp, "strict.in", ("x" * 30_000 for _ in range(100)))
    router = start_router(policies, IN_FLIGHT_BYTES=str(1 << 20))
    eventually(lambda: router.metric("publish_refused_total", cause="nacked") > 1, within=30)
    amqp.publish("letter", key="work")
    assert amqp.take("DLQ.work", within=30).body == b"letter"
