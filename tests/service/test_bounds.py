"""What waits has a bound: for a target that is missing, silent or full, and for the check whether it is there."""

from typing import Any, cast

import pytest

from dlx_router.broker.consumer import Consumer
from dlx_router.core.words import Action, Cause
from dlx_router.service import answering
from dlx_router.service.job import Job
from dlx_router.service.lane import Lane
from dlx_router.service.probe import Probe
from tests.support.lane import NAMES, Sent, Session, Taken, dead, place

FIFO = {"dead-letter-exchange": "gone", "max-delivery-attempts": 1, "ordering": "fifo"}


class Clock:
    """A monotonic clock for one module."""

    def __init__(self) -> None:
        self.now = 1000.0

    def monotonic(self) -> float:
        return self.now


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    one = Clock()
    monkeypatch.setattr(answering, "time", one)
    return one


def _lane(session: Session, queue: str) -> tuple[Lane, Sent, Taken]:
    lane, taken = Lane(session, "letters", cast("Probe", None)), Taken(queue)
    sent = Sent()
    lane._publisher = cast("Any", sent)
    lane.attend(cast("Consumer", taken), place(queue))
    return lane, sent, taken


async def _insisted(lane: Lane, session: Session, taken: Taken, clock: Clock) -> Job:
    """A delivery whose target is missing, from its arrival until it is given back or parked."""
    consumer, back = cast("Consumer", taken), len(taken.back)
    job = session.desk.judge(dead(1), consumer, place(taken.queue), clock.now)
    while len(taken.back) == back and job.action is not Action.PARK:
        lane._refused(job, Cause.MISSING_EXCHANGE)
        clock.now += 1
    return job


async def test_a_letter_in_order_is_parked_after_a_grace_that_is_longer_than_a_delivery(clock: Clock) -> None:
    session = Session(FIFO, grace_ms=60_000)
    lane, sent, taken = _lane(session, NAMES.fifo)
    for _ in range(2):  # the second time its id is known, but not as one whose target is missing
        began, before = clock.now, len(taken.back)
        assert (await _insisted(lane, session, taken, clock)).action is Action.DEAD_LETTER
        assert (await _insisted(lane, session, taken, clock)).action is Action.PARK
        assert clock.now - began == pytest.approx(61, abs=3)
        assert len(taken.back) - before == 1
        lane._confirmed(sent.answered())
    assert not session.troubles
