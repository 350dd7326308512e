"""Idle dead-letter queues are deleted again and again while letters go there: none is lost, whoever deletes."""

import asyncio
import threading
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, contextmanager, suppress
from typing import Any, Final, cast

import pytest
from pika.exceptions import ChannelClosedByBroker

from dlx_router.broker.consumer import Consumer
from dlx_router.broker.link import Link, open_link
from dlx_router.broker.topology import Topology
from dlx_router.service.dispatch.idle_queues import IdleQueues
from dlx_router.service.dispatch.in_use import Busy, InUse
from dlx_router.service.dispatch.resources import TargetResources
from dlx_router.service.dispatch.serial_publisher import SerialPublisher
from dlx_router.service.dispatch.worker import Worker
from dlx_router.service.inflight.routes import dead_letter_resource
from tests.broker.scene import NAMES, topology
from tests.support.client import Client
from tests.support.eventually import eventually
from tests.support.vhost import Vhost
from tests.support.worker import Session, Taken, dead, place

AT_ONCE: Final = {
    "max-delivery-attempts": 1,
    "dead-letter-queue-type": "classic",
    "auto-delete-dead-letter-queue-after": 1,
}
DLQ: Final = "DLQ.work"
GAP_S: Final = 0.003
LONG_GAP_S: Final = 0.03  # of several: each has to be without a letter for a moment at the same time


class Replica:
    """A lane on a connection of its own, and what it needs; it deletes idle queues whenever it can."""

    def __init__(self, there: Topology, link: Link, definition: dict[str, Any] | None = None) -> None:
        self.session = session = Session(AT_ONCE if definition is None else definition)
        session.publish_link, self.link = cast("Any", link), link
        self.in_use = InUse(lambda: link, NAMES, lambda queue: session.provision.lost(queue))  # noqa: PLW0108 - later
        self.worker = Worker(session, SerialPublisher(link, session.encoder, 5))
        idle = IdleQueues(lambda: session.decider.in_force, session.vhost, lambda: [self.worker], self.in_use)
        session.provision = TargetResources(there, NAMES, 10, session.spawn, idle=idle)
        self.taken = Taken("dlx-router.inbox")
        self.sent = 0

    async def open(self) -> None:
        await self.worker.open()
        self.worker.attend(cast("Consumer", self.taken), place("dlx-router.inbox"))

    async def publish(self, for_s: float, name: str, gap_s: float) -> None:
        """Letters, one by one, so that the queue is idle between them."""
        loop = asyncio.get_running_loop()
        until = loop.time() + for_s
        while loop.time() < until:
            self.sent += 1
            self.worker.take(dead(self.sent, "work", f"{name} {self.sent}".encode()), cast("Consumer", self.taken))
            await asyncio.sleep(gap_s)

    async def reap(self, deleted: Callable[[], None]) -> None:
        """Delete what is idle, again and again."""
        provision = self.session.provision
        while True:
            before = len(provision._created)
            await provision.reap(self.session.decider.in_force.policies_of)
            if len(provision._created) < before:
                deleted()
            await asyncio.sleep(0.001)

    async def wait(self) -> None:
        async with asyncio.timeout(60):
            while len(self.taken.settled) < self.sent:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)


@asynccontextmanager
async def replicas(vhost: Vhost, number: int) -> AsyncIterator[list[Replica]]:
    there = topology(vhost)
    await there.ensure_core()
    host, login, _ = there._address
    links = [await open_link(host, login, tls=None, heartbeat=10, name=f"replica {at}") for at in range(number)]
    members = [Replica(there, link) for link in links]
    for replica in members:
        await replica.open()
    try:
        yield members
    finally:
        for link in links:
            await link.close()
        await there.close()


@contextmanager
def emptied(vhost: Vhost) -> Any:
    """What somebody takes out of the dead-letter queue, who never consumes it: so it is unused."""
    bodies: list[str] = []
    over = threading.Event()

    def take() -> None:
        with Client(vhost.amqp_url) as client:
            while not over.is_set():
                try:
                    message = client.get(DLQ)
                except ChannelClosedByBroker:
                    client.channel = client.connection.channel()
                    message = None
                if message is not None:
                    bodies.append(message.ack().body.decode())
                else:
                    over.wait(0.001)

    thread = threading.Thread(target=take)
    thread.start()
    try:
        yield bodies
    finally:
        over.set()
        thread.join(20)


def waiting(amqp: Client, wanted: set[str]) -> set[str]:
    """Those of the wanted letters that were refused and wait for another try, so that they are not lost."""
    came: set[str] = set()

    def all_here() -> bool:
        while (message := amqp.get(NAMES.release)) is not None:
            came.add(message.ack().body.decode())
        return wanted <= came

    with suppress(AssertionError):
        eventually(all_here, 15, every=0.2)
    return came


async def none_is_lost(vhost: Vhost, amqp: Client, number: int, for_s: float) -> tuple[int, int]:
    """Letters and deletions; every letter that was settled was found."""
    amqp.queue("work")
    deletions: list[None] = []
    gap_s = GAP_S if number == 1 else LONG_GAP_S
    async with replicas(vhost, number) as all_:
        with emptied(vhost) as bodies:
            reaping = [asyncio.create_task(replica.reap(lambda: deletions.append(None))) for replica in all_]
            await asyncio.gather(*(replica.publish(for_s, f"{at}", gap_s) for at, replica in enumerate(all_)))
            for replica in all_:
                await replica.wait()
            for task in reaping:
                task.cancel()
            await asyncio.gather(*reaping, return_exceptions=True)
            await asyncio.to_thread(eventually, lambda: not amqp.exists(DLQ) or amqp.depth(DLQ) == 0, 20)
    settled = {f"{at} {tag}" for at, replica in enumerate(all_) for tag in replica.taken.settled}
    lost = settled - set(bodies)
    lost -= await asyncio.to_thread(waiting, amqp, lost)
    assert not lost, f"{len(lost)} of {len(settled)} letters lost, {len(deletions)} deletions"
    assert not [replica.session.troubles for replica in all_ if replica.session.troubles]
    return len(settled), len(deletions)


@pytest.mark.slow
@pytest.mark.parametrize("number", [1, 2])
async def test_no_letter_is_lost_where_its_queue_is_deleted_between_letters(
    number: int, vhost: Vhost, amqp: Client
) -> None:
    letters, deletions = await none_is_lost(vhost, amqp, number, 5.0)
    assert letters > 100
    assert deletions > 3


async def test_who_publishes_keeps_others_from_deleting(vhost: Vhost, amqp: Client) -> None:
    amqp.queue(DLQ)
    async with replicas(vhost, 2) as (replica, other):
        await replica.in_use.hold(DLQ)
        await other.in_use.hold(DLQ)
        with pytest.raises(Busy):
            await replica.in_use.delete(DLQ)
        assert amqp.exists(DLQ)
        await other.in_use.release(DLQ)
        await replica.in_use.delete(DLQ)
        assert not amqp.exists(DLQ)
    eventually(lambda: not [name for name in vhost.queues() if ".in-use." in name])


async def test_who_comes_while_it_is_deleted_waits(vhost: Vhost, amqp: Client) -> None:
    amqp.queue(DLQ)
    amqp.publish("a", key=DLQ)
    async with replicas(vhost, 2) as (replica, other):
        await replica.in_use.hold(DLQ)
        for _ in range(20):
            holding = asyncio.create_task(other.in_use.hold(DLQ))
            with pytest.raises(Busy):  # it is not empty
                await replica.in_use.delete(DLQ)
            await holding
            await other.in_use.release(DLQ)
    assert amqp.depth(DLQ) == 1


async def test_a_lock_that_is_lost_is_had_again_with_the_next_letter(vhost: Vhost, amqp: Client) -> None:
    amqp.queue("work")
    async with replicas(vhost, 1) as (replica,):
        provision = replica.session.provision
        policy = replica.session.decider.in_force.policy_of("work", "rejected")
        assert policy is not None
        resource = dead_letter_resource(policy, DLQ, "", "work")
        await provision.prepare([resource])
        amqp.channel.queue_delete(NAMES.in_use(DLQ))
        async with asyncio.timeout(60):
            while resource in provision.known:  # noqa: ASYNC110 - nobody tells
                await asyncio.sleep(0.01)
        await provision.prepare([resource])
        assert amqp.exists(NAMES.in_use(DLQ))
