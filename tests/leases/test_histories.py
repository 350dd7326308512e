"""The law of leases over random histories: done is gone for good, what is not done comes back, one holder at a time."""

import asyncio
import contextlib
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from dlx_router.core.leases import Ended, Lease, LeaseError, Removed
from dlx_router.service.leases.events import removals
from dlx_router.service.leases.holder import HeldLetter
from dlx_router.service.redrive.task_log import NotLeader
from tests.core.core_samples import law
from tests.leases.queue_in_memory import Message, Queue
from tests.leases.test_term import Scene, leading
from tests.support.thoroughness import THOROUGH

LETTERS = 8
STEPS = 25


class History:
    """A queue, the routers that lead one after the other, and what a worker was answered."""

    def __init__(self, chance: random.Random) -> None:
        self.chance, self.queue = chance, Queue()
        self.leases: list[Lease[HeldLetter]] = []
        self.done: set[bytes] = set()  # confirmed
        self.doubtful: set[bytes] = set()
        self.told: list[bytes] = []  # the journal, which outlives routers
        self.scene: Scene
        self.leads = contextlib.AsyncExitStack()

    async def run(self) -> None:
        self.queue.fill(*(f"letter {number}".encode() for number in range(LETTERS)))
        await self.leads_anew()
        acts = (
            [self.receives] * 4
            + [self.says_done] * 4
            + [self.releases, self.runs_out, self.router_dies, self.broker_dies]
        )
        try:
            for _ in range(STEPS):
                await self.chance.choice(acts)()
            await self.all_comes_back()
        finally:
            await self.leads.aclose()

    async def leads_anew(self) -> None:
        removed = Removed()
        for body in self.told:
            for removal in removals(body):
                removed.add(removal.key, removal.lease_id, -1)
        self.scene = await self.leads.enter_async_context(leading(self.queue, removed))
        self.leases.clear()

    async def receives(self) -> None:
        before = {lease.id for lease in self.scene.term.leases}
        held = {self.body_of(lease) for lease in self.scene.term.leases}
        for lease in await self.scene.receive(self.chance.randint(1, 3)):
            assert lease.id not in before
            body = self.body_of(lease)
            assert body not in self.done, "done, and handed out again"
            assert body not in held, "two hold it"
            self.leases.append(lease)

    async def says_done(self) -> None:
        if lease := self.any_lease():
            self.scene.stream.stands_still = self.chance.random() < 0.3
            ending = asyncio.create_task(self.scene.term.remove(lease.id, Ended.DONE))
            self.doubtful.add(self.body_of(lease))
            if self.scene.stream.stands_still:
                await asyncio.sleep(0.005)  # it is told, and nobody knows
                await self.chance.choice([self.router_dies, self.broker_dies])()
                self.scene.stream.stands_still = False
                self.scene.stream.confirm()
            with contextlib.suppress(LeaseError, NotLeader, asyncio.CancelledError):
                await ending
                self.done.add(self.body_of(lease))

    async def releases(self) -> None:
        if lease := self.any_lease():
            with contextlib.suppress(LeaseError):
                await self.scene.term.release(lease.id)

    async def runs_out(self) -> None:
        for lease in self.scene.term.leases:
            if self.chance.random() < 0.5:
                lease.until_ms = 0
        self.scene.term.expire()

    async def router_dies(self) -> None:
        self.told += self.scene.stream.bodies
        self.queue.lose_connections()
        await self.leads.aclose()
        self.queue.links.clear()
        await self.leads_anew()

    async def broker_dies(self) -> None:
        """Some acks were never written; what comes back may not even say that it was delivered."""
        lost: list[Message] = [message for message in self.queue.acked if self.chance.random() < 0.5]
        self.queue.acked = [message for message in self.queue.acked if message not in lost]
        self.queue.lose_connections()
        self.queue.links.clear()
        flags = self.chance.random() < 0.5
        self.queue.ready = sorted([*self.queue.ready, *lost], key=lambda message: message.number)
        for message in self.queue.ready:
            message.redelivered = flags
        self.leases.clear()

    async def all_comes_back(self) -> None:
        for lease in self.scene.term.leases:
            lease.until_ms = 0
        self.scene.term.expire()
        back = {self.body_of(lease) for lease in await self.scene.receive(100)}
        every = {f"letter {number}".encode() for number in range(LETTERS)}
        assert every - self.doubtful <= back, "what nobody said is done came back"
        assert not back & self.done
        await asyncio.sleep(0.05)  # what the broker had brought back is removed again
        held = len(back)
        assert len(self.queue.ready) == 0
        assert len(self.queue.acked) + held == LETTERS

    def any_lease(self) -> Lease[HeldLetter] | None:
        held = [lease for lease in self.leases if lease.id in self.scene.term.leases]
        return self.chance.choice(held) if held else None

    @staticmethod
    def body_of(lease: Lease[HeldLetter]) -> bytes:
        return lease.held.envelope.delivery.body


@pytest.mark.slow
@law
@given(st.integers(0, 1 << 32))
def test_done_is_gone_for_good_and_what_is_not_done_comes_back(seed: int) -> None:
    asyncio.run(History(random.Random(seed)).run())


@pytest.mark.parametrize("seed", range(20 * THOROUGH))
def test_so_do_these_histories(seed: int) -> None:
    asyncio.run(History(random.Random(seed)).run())
