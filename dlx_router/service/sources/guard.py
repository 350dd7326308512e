"""A guarded queue: others consume it, the router only takes what has to die.

Rules for whoever edits this file:
1. Of a queue that is too long exactly the excess is taken, from the head, and none of it is given back.
2. To learn the age of the head it is taken once, and looked at again when it is due: each look that ends in giving
   back may let a consumer have the next message first. So nobody looks while no head can be due, and what is due soon
   is kept until then and not given back.
3. Without a basis of its age a message never dies of it.
"""

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable
from typing import Final

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.consumer import Consumer, Getter, Peek
from dlx_router.core.passing import EXPIRED, MAXLEN, Limits, due_ms, excess
from dlx_router.service.dispatch import arrivals
from dlx_router.service.dispatch.owner import Owner
from dlx_router.service.dispatch.worker import Worker
from dlx_router.service.inflight import decoder
from dlx_router.service.inflight.clock import now_ms
from dlx_router.service.inflight.decoder import Place
from dlx_router.service.inflight.job import Job
from dlx_router.wire import frames

ROUND_S: Final = 0.25
BUSY_S: Final = 0.05
SETTLED_MS: Final = 1000
OVERDUE_MS: Final = 100
HELD_MS: Final = 1000
FEW: Final = 16
PROBE: Final = "probe"
BATCH: Final = 200
MOST: Final = 1000  # dying at once
NO_BASIS_S: Final = 10.0
ANSWER_S: Final = 15.0
SIZES_S: Final = 1.0
_WEIGHT: Final = 0.05
Look = asyncio.Future[Job | None]


class GuardedQueue:
    """One queue. `take` and `empty` are what its `Getter` calls."""

    def __init__(self, owner: Owner, queue: str, letters: Worker, sizes: Callable[[], Awaitable[float]]) -> None:
        """`sizes`: the mean size of the bodies that lie there, 0.0 where nobody knows."""
        self._owner, self._queue, self._letters = owner, queue, letters
        self._sizes, self._sized_s = sizes, 0.0
        self._settling = owner.settling()
        self._open: deque[Look | None] = deque()  # what was asked for, in order: a look, or (None) something to die
        self._answered = asyncio.Event()
        self._look_again_s = 0.0
        self._empty_ms = 0  # when nothing was in the queue; everything in it came later
        self._mean_bytes = 0.0
        self.is_over = False  # set when the queue is not to be guarded any more
        self._calm, self._taking = True, False
        self._peek: Peek

    def attend(self, getter: Getter, place: Place, peek: Peek) -> None:
        """Its messages come from that place; `peek` looks at the head."""
        self._letters.attend(getter, place)
        self._peek = peek

    def leave(self, getter: Consumer) -> None:
        """It is gone, and the broker has what came by it."""
        self._letters.leave(getter)

    @property
    def limits(self) -> Limits:
        """What holds now."""
        return arrivals.limits(self._owner.decider.in_force, self._queue)

    # -- what the getter says -----------------------------------------------------------------------------------

    def take(self, delivery: frames.Delivery, consumer: Consumer) -> None:
        """A message that was asked for."""
        owner, size = self._owner, len(delivery.body)
        owner.metrics.deliveries[owner.vhost, self._queue] += 1
        owner.weigh(size + len(delivery.header))
        self._mean_bytes += (size - self._mean_bytes) * (_WEIGHT if self._mean_bytes else 1.0)
        job, look = Job(consumer, delivery, owner.read_s(), owner.decider.in_force), self._asked_for()
        if look is None:
            self._letters.bury(job, MAXLEN)
        elif look.done():  # nobody waits for it any more
            self._settling.give_back(job, PROBE)
        else:
            look.set_result(job)

    def empty(self) -> None:
        """There is nothing."""
        look = self._asked_for()
        if look is not None and not look.done():
            look.set_result(None)

    def _asked_for(self) -> Look | None:
        look = self._open.popleft()
        if not self._open:
            self._answered.set()
        return look

    # -- rounds -------------------------------------------------------------------------------------------------

    async def watch(self, getter: Getter) -> None:
        """Keep the limits as long as the getter is there."""
        while getter.is_open and not (self.is_over or getter.is_cancelled):
            try:
                if self.limits.any and not self._owner.publish_link.blocked:
                    await self._round(getter)
            except (ChannelClosed, LinkError, TimeoutError):
                pass  # the getter tells its end itself; a paused socket answers later
            await asyncio.sleep(ROUND_S if self._calm else BUSY_S)

    async def _weigh(self) -> None:
        """AMQP counts messages, only the management API bytes; it counts anew every 5 s."""
        if self.limits.length_bytes is not None and time.monotonic() > self._sized_s + SIZES_S:
            self._sized_s, mean_bytes = time.monotonic(), await self._sizes()
            self._mean_bytes = mean_bytes or self._mean_bytes

    async def _round(self, getter: Getter) -> None:
        await self._weigh()
        if self.is_over:
            return
        over, (ready, consumers) = MOST, await getter.counted()
        self._calm = not self._taking and not excess(self.limits, ready, self._mean_bytes)
        while not getter.is_cancelled and (over := min(over, excess(self.limits, ready, self._mean_bytes))) > 0:
            most = min(over, BATCH, MOST - len(getter))
            if most > 0:
                await self._take_away(getter, most)
            else:
                await asyncio.sleep(0.02)  # the dying are on their way
            over, (ready, consumers) = over - most, await getter.counted()
        if not ready:
            self._empty_ms, self._taking = now_ms(), False
        elif self.limits.ttl_ms is not None and self._may_look(self.limits.ttl_ms, consumers):
            await self._expire(getter, self.limits, alone=not consumers)

    def _may_look(self, ttl_ms: int, consumers: int) -> bool:
        """Nobody else takes messages, or the consumers are behind for so long that one may be due."""
        if time.monotonic() < self._look_again_s:
            return False
        return not consumers or now_ms() >= self._empty_ms + min(ttl_ms - soon_ms(self.limits), SETTLED_MS)

    async def _take_away(self, getter: Getter, count: int) -> None:
        self._open.extend([None] * count)
        self._answered.clear()
        getter.fetch(count)
        async with asyncio.timeout(ANSWER_S):
            await self._answered.wait()

    async def _expire(self, getter: Getter, limits: Limits, *, alone: bool) -> None:
        """Take heads as long as they are due. After one look heads follow each other, so none is looked at again."""
        self._taking = self._taking or await self._head_is_due(limits)
        count = 1
        while self._taking and len(getter) < MOST and not getter.is_cancelled:
            heads = await self._heads(getter, count)
            lefts = [_left_ms(limits, job.delivery) for job in heads]
            for job, left in zip(heads, lefts, strict=True):
                self._end(job, left, limits, alone=alone)
            last = lefts[-1] if lefts else None
            if last is None or last > 0:
                self._taking &= bool(lefts)
                return
            count = min(2 * count, BATCH if alone else FEW) if last < -(OVERDUE_MS if alone else HELD_MS) else 1

    async def _head_is_due(self, limits: Limits) -> bool:
        """A look that leaves the head where it is."""
        owner, got = self._owner, await self._peek.look()
        if got is None:
            return False
        owner.metrics.deliveries[owner.vhost, self._queue] += 1
        owner.metrics.given_back[owner.vhost, PROBE] += 1
        left = _left_ms(limits, got)
        if left is not None and left <= soon_ms(limits):
            return True
        self._look_when_due(left, limits)
        return False

    def _look_when_due(self, left: int | None, limits: Limits) -> None:
        wait_s = NO_BASIS_S if left is None else (left - soon_ms(limits)) / 1000
        self._look_again_s = time.monotonic() + wait_s

    def _end(self, job: Job, left: int | None, limits: Limits, *, alone: bool) -> None:
        """The first head that has time left is kept where that is short: so none of them overtakes it."""
        if left is not None and left <= 0:
            self._letters.bury(job, EXPIRED)
        elif left is not None and left <= HELD_MS and not alone:
            self._look_again_s = time.monotonic() + left / 1000
            self._owner.spawn(self._dies_in(job, left))
        else:
            self._taking = False
            self._look_when_due(left, limits)
            self._settling.give_back(job, PROBE)

    async def _dies_in(self, job: Job, left: int) -> None:
        await asyncio.sleep(left / 1000 + 0.001)  # the clocks may differ by a tick: never early
        if job.consumer.is_open:
            self._letters.bury(job, EXPIRED)
        else:
            self._settling.gone(job)

    async def _heads(self, getter: Getter, count: int) -> list[Job]:
        looks: list[Look] = [asyncio.get_running_loop().create_future() for _ in range(count)]
        self._open.extend(looks)
        self._answered.clear()
        getter.fetch(count)
        try:
            async with asyncio.timeout(ANSWER_S):
                jobs = await asyncio.gather(*looks)
        except BaseException:
            self._give_up(looks)
            raise
        return [job for job in jobs if job is not None]

    def _give_up(self, looks: list[Look]) -> None:
        """Nobody waits for the rest of them: heads that came go back, and so do those that come later."""
        for look in reversed(looks):
            if look.done() and not look.cancelled() and (job := look.result()) is not None:
                self._settling.give_back(job, PROBE)
            look.cancel()


def soon_ms(limits: Limits) -> int:
    """What is due within this time is taken, and kept until then."""
    return min(HELD_MS, (limits.ttl_ms or 0) // 4)


def _left_ms(limits: Limits, message: frames.Delivery | frames.Got) -> int | None:
    ends = due_ms(limits, decoder.stamps(message))
    return None if ends is None else ends - now_ms()
