"""What is held for a queue that refuses takes its own bytes from the others, and no more: those are read."""

import re
from typing import Any, Final, cast

import pytest

from dlx_router.broker.address import Host, Login
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.link import Link
from dlx_router.broker.topology import Topology
from dlx_router.core.refusal import InDoubt
from dlx_router.service.dispatch.own_queues_refusing import RefusingQueues
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.dispatch.worker import Worker
from dlx_router.service.inflight.job import Job
from dlx_router.service.queue_reads import QueueReads
from dlx_router.service.sources.registry import Setting
from dlx_router.service.vhost.session import Limits, Session
from dlx_router.telemetry.readiness import Readiness
from tests.support.ends import HeldLink
from tests.support.worker import KEY, NAMES, Sent, Taken, message, place
from tests.support.worker import Session as Parts

MOST: Final = 1000
HOST: Final = Host("held", 5672)
LOGIN: Final = Login("guest", "guest", "/")
HEADER: Final = len(message(1).header)


async def _nothing() -> None:
    return


class _Room:
    """A session whose links are held, with one worker."""

    def __init__(self) -> None:
        parts, self.readiness = Parts({}), Readiness()
        self.readiness.clear("start")
        reads = cast("QueueReads", None)
        self.setting = Setting((), NAMES, None, self.readiness, reads, 100, lambda _: False, declare=True, shared=False)
        self.session = session = Session(
            host=HOST,
            login=LOGIN,
            tls=None,
            names=NAMES,
            key=KEY,
            decider=parts.decider,
            limits=Limits(100, MOST, 30.0, 10, 100),
            topology=Topology(HOST, LOGIN, None, NAMES),
            metrics=parts.metrics,
            readiness=self.readiness,
            sources=self.setting,
            journal=parts.journal,
            ensure_journal=_nothing,
            refusals=RefusingQueues("/", self.readiness),
        )
        self.link = session._consume_link = session.consumers.link = HeldLink()
        session._in_flight.links.append(cast("Link", self.link))
        session.publish_link, session.encoder = HeldLink(), parts.encoder
        self.probe = SerialPublisher(session.publish_link, session.encoder, 30.0)
        self.worker = Worker(session, self.probe)
        session._workers = [self.worker]
        self.worker._publisher = self.worker._own_publisher = cast("Any", Sent())

    def take(self, worker: Worker, size: int, tag: int = 1) -> None:
        """A message of so many bytes comes by an attached queue."""
        consumer = cast("Consumer", Taken("staging"))
        worker.attend(consumer, place("staging"))
        worker.take(message(tag, b"x" * (size - HEADER)), consumer)

    def sent(self) -> Job:
        (job,) = cast("Sent", self.worker._publisher).answered()
        return job

    def refuse(self, job: Job) -> None:
        """Parking does not take it."""
        self.worker._carry_out(job, self.worker._after(job, InDoubt(refused="nacked")))

    def rests(self) -> bool:
        return self.link.rests

    def objects(self) -> bool:
        return "nothing is read" in str(self.readiness.reasons())


@pytest.fixture
async def room() -> _Room:
    return _Room()


async def test_a_burst_beside_what_is_held_does_not_stop_the_vhost(room: _Room) -> None:
    """With 58 of 64 MiB held it read no more for as long as parking refused, of the inbox and of release neither."""
    room.take(room.worker, 600)
    room.refuse(room.sent())
    for _ in range(2):
        room.session.weigh(500)
        assert room.rests()
        room.session.weigh(-100)
        assert room.rests(), "half of what is left to the others is to be free"
        room.session.weigh(-200)
        assert not room.rests()
        room.session.weigh(-200)
    assert not room.objects()


async def test_where_all_bytes_are_held_it_is_said_that_nothing_is_read(room: _Room) -> None:
    room.take(room.worker, 1100)
    job = room.sent()
    room.refuse(job)
    room.session._in_flight.check()
    assert room.rests()
    (reason,) = [reason for reason in room.readiness.reasons() if "nothing is read" in reason]
    assert re.search(r"vhost '/': .* 1,100 bytes are held .* 1,000 bytes .* DLX_ROUTER_IN_FLIGHT_BYTES", reason)
    room.session.provision.refusals.took(NAMES.parking)
    assert room.sent() is job, "it is sent again"
    room.worker._confirmed([job])
    room.session._in_flight.check()
    assert not room.rests()
    assert not room.objects()


async def test_what_is_held_is_counted_as_it_comes_and_goes(room: _Room) -> None:
    jobs = []
    for tag in range(1, 4):
        room.take(room.worker, 100 + tag, tag)
        jobs.append(room.sent())
        room.refuse(jobs[-1])
    waits = room.worker._waits
    assert waits.held_bytes == 306
    kept = waits._kept[NAMES.parking]
    kept.asking = kept.jobs.popleft()
    assert waits.held_bytes == 306, "it may be the one that is asked about"
    room.refuse(jobs[0])
    assert waits.held_bytes == 306
    cast("Any", jobs[1].consumer).is_open = False
    waits.check()
    assert waits.held_bytes == 204, "what the broker has again is gone"
    waits.took([jobs[0]])
    assert waits.held_bytes == 0, "all others are sent"
