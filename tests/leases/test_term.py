"""A term of leases with a queue in this process: lost connections, forgotten acks, a stream that stands still."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from itertools import count
from types import SimpleNamespace
from typing import Any

import pytest

from dlx_router.broker.answers import LinkError
from dlx_router.core.leases import Ended, Lease, LeaseOver, NoRoom, Removed
from dlx_router.core.names import Names
from dlx_router.journal.mode import Mode
from dlx_router.journal.reading import lines
from dlx_router.journal.writer import Journal
from dlx_router.redrive.task import TaskError
from dlx_router.service.leases import manager as module
from dlx_router.service.leases.holder import HeldLetter
from dlx_router.service.leases.manager import LeaseTerm, ReceiveRequest
from dlx_router.service.redrive.task_log import NotLeader
from dlx_router.telemetry.metrics import Metrics
from dlx_router.telemetry.readiness import Readiness
from tests.core.core_samples import policy_set
from tests.journal.conftest import soon
from tests.leases.queue_in_memory import Queue

ONE = ReceiveRequest("DLQ", "me", 1, 0.0, 30.0, knowing=True)


class Stream:
    """Takes the journal's batches; confirms at once, or when it is told to."""

    def __init__(self, journal: Journal) -> None:
        self.stands_still = self.loses = False
        self.bodies: list[bytes] = []
        self._journal, self._waiting = journal, list[Any]()
        link: Any = SimpleNamespace(blocked=False, is_open=True, flush=lambda: None)
        publisher: Any = self
        journal._link, journal._publisher, journal.is_working = link, publisher, True

    def stamp(self) -> bytes:
        return b""

    def publish(self, batch: Any, *_args: object) -> None:
        self.bodies.append(batch.body)
        if self.loses:
            batch.lose()
        self._waiting.append(batch)
        asyncio.get_running_loop().call_soon(self.confirm)

    def confirm(self) -> None:
        if not self.stands_still:
            waiting, self._waiting = self._waiting, []
            for batch in waiting:
                self._journal._answered(batch, "")


@dataclass
class Scene:
    """A queue, a leader's term, and the journal's batches."""

    queue: Queue
    term: LeaseTerm
    stream: Stream
    removed: Removed

    async def receive(self, limit: int = 1, **more: Any) -> list[Lease[HeldLetter]]:
        return await self.term.receive(replace(ONE, limit=limit, **more))

    @property
    def told(self) -> bytes:
        return b"\n".join(line for body in self.stream.bodies for line in lines(body))


class Reads:
    """Every queue may be read."""

    async def admit(self, _topology: Any, _queue: str) -> dict[str, Any]:
        return {}

    async def require_readable(self, _topology: Any, _queue: str) -> None:
        return None


@asynccontextmanager
async def leading(queue: Queue, removed: Removed | None = None) -> AsyncIterator[Scene]:
    journal = Journal(mode=Mode.BEST_EFFORT, name="j", vhost="/", router_id="r", readiness=Readiness())
    stream, removed = Stream(journal), removed or Removed()
    in_force: Any = SimpleNamespace(policies=policy_set(), policies_of=lambda _queue: (), resolve=lambda _letter: None)
    context: Any = SimpleNamespace(
        link=queue.link,
        login=SimpleNamespace(vhost="/", user="guest"),
        names=Names(),
        management=None,
        reads=Reads(),
        topology=None,
        journal=journal,
        metrics=Metrics(),
        router_id="r",
        confirm_timeout_s=5.0,
        in_force=lambda: in_force,
        sign_with=lambda: b"k" * 32,
    )
    epochs = count(1)
    term = LeaseTerm(context, removed, lambda: next(epochs))
    running = asyncio.create_task(term.run())
    try:
        yield Scene(queue, term, stream, removed)
    finally:
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        await term.stop()


def bodies(leases: list[Lease[HeldLetter]]) -> list[bytes]:
    return [lease.held.envelope.delivery.body for lease in leases]


async def done_and_back(scene: Scene, queue: Queue) -> None:
    """The one letter is done, and lies in its queue again: the node was killed before it had written the ack."""
    (lease,) = await scene.receive(1)
    await scene.term.remove(lease.id, Ended.DONE)
    queue.lose_connections()
    queue.ready.append(queue.acked.pop())


async def test_letters_are_received_held_and_done() -> None:
    queue = Queue()
    queue.fill(b"a", b"b", b"c")
    async with leading(queue) as scene:
        first = await scene.receive(2)
        assert (bodies(first), len(queue.ready)) == ([b"a", b"b"], 1)
        await scene.term.remove(first[0].id, Ended.DONE)
        assert [message.body for message in queue.acked] == [b"a"]
        await scene.term.release(first[1].id)
        assert bodies(await scene.receive(5)) == [b"b", b"c"]
        with pytest.raises(LeaseOver):
            await scene.term.remove(first[0].id, Ended.DONE)
        kinds = b'"leased"', b'"lease_ended"', b'"discarded"'
        await soon(lambda: [scene.told.count(kind) for kind in kinds] == [4, 2, 1])
    assert [message.body for message in queue.ready] == [b"b", b"c"], "what was held went back"


async def test_what_waits_for_a_letter_gets_it_as_it_comes() -> None:
    queue = Queue()
    async with leading(queue) as scene:
        waiting = asyncio.create_task(scene.receive(3, wait_s=20.0))
        await soon(lambda: any(channel.consumer for link in queue.links for channel in link.channels.values()))
        queue.fill(b"a", b"b")
        assert bodies(await waiting) == [b"a", b"b"]


async def test_a_filter_leaves_the_rest_in_its_order_and_what_never_died_is_not_handed_out() -> None:
    queue = Queue()
    queue.fill(b"0", b"1", b"2")
    queue.fill(b"living", dead=False)
    queue.fill(*(str(number).encode() for number in range(3, 50)))
    async with leading(queue) as scene:
        leases = await scene.receive(2, holds=lambda letter: letter.size == 2)
        assert bodies(leases) == [b"10", b"11"]
        left = [b"0", b"1", b"2", b"living", *(str(number).encode() for number in (*range(3, 10), *range(12, 50)))]
        assert [message.body for message in queue.ready] == left
        every = await scene.receive(100)
        assert (len(every), b"living" in bodies(every)) == (48, False)
        assert [message.body for message in queue.ready] == [b"living"]
        assert await scene.receive(1) == []


async def test_a_lease_runs_out_and_a_busy_one_does_not() -> None:
    queue = Queue()
    queue.fill(b"a", b"b")
    async with leading(queue) as scene:
        held, busy = await scene.receive(2, visibility_s=0.3)
        scene.stream.stands_still = True
        ending = asyncio.create_task(scene.term.remove(busy.id, Ended.DONE))
        await soon(lambda: [message.body for message in queue.ready] == [b"a"])
        with pytest.raises(LeaseOver) as over:
            await scene.term.release(held.id)
        assert over.value.how is Ended.EXPIRED
        assert queue.acked == []
        scene.stream.stands_still = False
        scene.stream.confirm()
        await ending
        assert [message.body for message in queue.acked] == [b"b"]


async def test_a_lost_connection_gives_letters_back_and_what_was_told_is_not_handed_out_again() -> None:
    queue = Queue()
    queue.fill(b"a", b"b")
    async with leading(queue) as scene:
        held, ending = await scene.receive(2)
        scene.stream.stands_still = True
        done = asyncio.create_task(scene.term.remove(ending.id, Ended.DONE))
        await soon(lambda: ending.is_busy and b'"discarded"' in scene.told)
        queue.lose_connections()
        with pytest.raises(LeaseOver) as over:
            scene.term.leases.find(held.id)
        assert over.value.how is Ended.LOST
        scene.stream.stands_still = False
        scene.stream.confirm()
        with pytest.raises(NotLeader, match="is parked later"):
            await done
        again = await scene.receive(5)
        assert bodies(again) == [b"a"]
        await soon(lambda: [message.body for message in queue.acked] == [b"b"])


async def test_what_a_broker_brings_back_is_parked_and_a_twin_is_handed_out() -> None:
    queue = Queue()
    queue.fill(b"a", b"a", b"b")
    async with leading(queue) as scene:
        lease, twin, _other = await scene.receive(3)
        assert lease.key == twin.key
        await scene.term.remove(lease.id, Ended.DONE)
        queue.lose_connections()
        forgotten = queue.acked.pop()
        forgotten.redelivered = False
        queue.ready.insert(0, forgotten)  # the node was killed, and had not written the ack
        leases = await scene.receive(5)
        assert sorted(bodies(leases)) == [b"a", b"b"], "one of the two is done, the other one is not"
        await soon(lambda: queue.published == [("", "dlx-router.parking", b"a")])
        await soon(lambda: [message.body for message in queue.acked] == [b"a"])


@pytest.mark.slow
async def test_what_comes_back_while_the_journal_is_full_is_parked_later_and_never_handed_out() -> None:
    queue = Queue()
    queue.fill(b"a")
    async with leading(queue) as scene:
        await done_and_back(scene, queue)
        scene.stream.loses = True
        assert await scene.receive(5) == []
        await soon(lambda: [message.body for message in queue.ready] == [b"a"])
        scene.stream.loses = False
        assert await scene.receive(5) == []
        await soon(lambda: [message.body for message in queue.acked] == [b"a"])


async def test_another_leader_knows_what_was_removed() -> None:
    queue = Queue()
    queue.fill(b"a", b"b")
    async with leading(queue) as scene:
        (lease,) = await scene.receive(1)
        await scene.term.remove(lease.id, Ended.DONE)
    queue.ready.insert(0, queue.acked.pop())
    removed = Removed()
    removed.add(lease.key, lease.id, -1)  # as it reads in the journal
    async with leading(queue, removed) as scene:
        assert bodies(await scene.receive(5)) == [b"b"]
        await soon(lambda: [message.body for message in queue.acked] == [b"a"])


async def test_who_leads_no_more_is_in_nobodys_way_when_the_journal_answers_late() -> None:
    queue = Queue()
    queue.fill(b"a")
    async with leading(queue) as scene:
        (lease,) = await scene.receive(1)
        scene.stream.stands_still = True
        ending = asyncio.create_task(scene.term.remove(lease.id, Ended.DONE))
        await soon(lambda: b'"discarded"' in scene.told)
        await scene.term.stop()
        with pytest.raises(NotLeader, match="leads no more"):
            await ending
        others: list[int] = []
        scene.term._context.journal.record(b"{}\n").wait_sure(others.append, 1)
        scene.stream.stands_still = False
        scene.stream.confirm()
        await soon(lambda: others == [1])
    assert [message.body for message in queue.ready] == [b"a"]


async def test_a_request_that_sleeps_between_two_scans_takes_nothing_once_another_router_leads() -> None:
    queue = Queue()
    queue.fill(b"other")
    async with leading(queue) as scene:
        waiting = asyncio.create_task(scene.receive(1, wait_s=20.0, holds=lambda letter: letter.size == 1))
        await soon(lambda: bool(scene.term._filtering) and not scene.term._scans and not scene.term._scanning["DLQ"])
        await scene.term.stop()
        queue.fill(b"x")
        with pytest.raises(LinkError, match="leads no more"):
            await waiting
        assert (len(scene.term.leases), any(link.is_open for link in queue.links)) == (0, False)
    assert [message.body for message in queue.ready] == [b"other", b"x"]


async def test_a_stop_gives_letters_back_by_nack_in_their_order_and_not_by_a_lost_connection() -> None:
    queue = Queue()
    queue.fill(b"a", b"b", b"c", b"d")
    async with leading(queue) as scene:
        (first,) = await scene.receive(1)
        assert bodies(await scene.receive(2)) == [b"b", b"c"]
        await scene.term.stop()
        assert scene.term.leases.how_ended(first.id) is Ended.LOST
    assert [message.body for message in queue.ready] == [b"a", b"b", b"c", b"d"]
    assert queue.lost == []


async def test_what_could_not_be_parked_because_its_channel_went_is_parked_the_next_time() -> None:
    queue = Queue()
    queue.fill(b"a")
    async with leading(queue) as scene:
        await done_and_back(scene, queue)
        scene.stream.stands_still = True
        assert await scene.receive(1) == []
        await soon(lambda: b'"kind":"parked"' in scene.told)
        (holder,) = [holder for holder in scene.term._connections._held if holder.is_open]
        holder.drop("an error of the broker")
        scene.stream.stands_still = False
        scene.stream.confirm()
        await soon(lambda: not scene.term._tasks)
        assert await scene.receive(1) == [], "a letter that is done is never handed out again"
        await soon(lambda: [message.body for message in queue.acked] == [b"a"])


async def test_no_more_are_held_than_there_is_room_for(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue()
    queue.fill(*(str(number).encode() * 1000 for number in range(5)))
    async with leading(queue) as scene:
        monkeypatch.setattr(module, "ANSWER_BYTES", 2500)
        assert len(await scene.receive(5)) == 2
        scene.term.leases._most = 3
        assert len(await scene.receive(5)) == 1
        with pytest.raises(NoRoom, match="3 letters are leased"):
            await scene.receive(5)
        assert len(queue.ready) == 2


async def test_a_visibility_that_the_broker_would_cut_is_refused() -> None:
    queue = Queue()
    queue.fill(b"a")
    async with leading(queue) as scene:
        with pytest.raises(TaskError, match="1500 s"):
            await scene.receive(1, visibility_s=1501.0)
        (lease,) = await scene.receive(1, visibility_s=1500.0)
        with pytest.raises(TaskError, match="1500 s"):
            await scene.term.extend(lease.id, 1501.0)
        await scene.term.extend(lease.id, 1000.0)


async def test_while_the_journal_does_not_work_nothing_is_leased_and_nothing_removed() -> None:
    queue = Queue()
    queue.fill(b"a", b"b")
    async with leading(queue) as scene:
        (lease,) = await scene.receive(1)
        scene.term._context.journal.is_working = False
        with pytest.raises(NotLeader, match="cannot be written"):
            await scene.receive(1)
        with pytest.raises(NotLeader, match="cannot be written"):
            await scene.term.remove(lease.id, Ended.DONE)
        assert scene.term.leases.find(lease.id) is lease
