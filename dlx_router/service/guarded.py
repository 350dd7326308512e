"""A guarded queue: others consume it, the router only takes what has to die.

Rules for whoever edits this file:
1. Of a queue that is too long exactly the excess is taken, from the head, and none of it is given back.
2. To learn the age of the head it is taken once, and looked at again when it is due: each look that ends in giving
   back may let a consumer have the next message first. What is due soon is kept until then, and not given back.
3. Without a basis of its age a message never dies of it.
"""

import asyncio
import time
from collections import deque
from typing import Final

from dlx_router.broker.consumer import Consumer
from dlx_router.broker.getter import Getter
from dlx_router.broker.link import ChannelClosed, LinkError
from dlx_router.core.passing import EXPIRED, MAXLEN, Limits, due_ms, excess
from dlx_router.service import intake
from dlx_router.service.desk import now_ms
from dlx_router.service.intake import Place
from dlx_router.service.job import Job
from dlx_router.service.lane import Lane
from dlx_router.service.settling import Owner, Settling
from dlx_router.wire import frames

ROUND_S: Final = 0.25
BATCH: Final = 200
MOST: Final = 1000  # dying at once
SOON_MS: Final = 250
NO_BASIS_S: Final = 10.0
ANSWER_S: Final = 15.0
_WEIGHT: Final = 0.05
Look = asyncio.Future[Job | None]


class Guarded:
    """One queue. `take` and `empty` are what its `Getter` calls."""

    def __init__(self, owner: Owner, queue: str, letters: Lane) -> None:
        self._owner, self._queue, self._letters = owner, queue, letters
        self._settling = Settling(owner)
        self._open: deque[Look | None] = deque()  # what was asked for, in order: a look, or (None) something to die
        self._answered = asyncio.Event()
        self._look_again_s = 0.0
        self.mean_bytes = 0.0

    def attend(self, getter: Getter, place: Place) -> None:
        """Its messages come from that place."""
        self._letters.attend(getter, place)

    @property
    def limits(self) -> Limits:
        """What holds now."""
        return self._owner.desk.limits(self._queue)

    # -- what the getter says -----------------------------------------------------------------------------------

    def take(self, delivery: frames.Delivery, consumer: Consumer) -> None:
        """A message that was asked for."""
        owner, size = self._owner, len(delivery.body)
        owner.metrics.deliveries[owner.vhost, self._queue] += 1
        owner.weigh(size + len(delivery.header))
        self.mean_bytes += (size - self.mean_bytes) * (_WEIGHT if self.mean_bytes else 1.0)
        job, look = Job(consumer, delivery, owner.read_s()), self._asked_for()
        if look is None:
            self._letters.bury(job, MAXLEN)
        elif look.done():  # nobody waits for it any more
            self._settling.give_back(job, "probe")
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
        while getter.is_open:
            try:
                if self.limits.any and not self._owner.publish_link.blocked:
                    await self._round(getter)
            except (ChannelClosed, LinkError, TimeoutError):
                pass  # the getter tells its end itself; a paused socket answers later
            await asyncio.sleep(ROUND_S)

    async def _round(self, getter: Getter) -> None:
        over = MOST
        while (over := min(over, excess(self.limits, await getter.ready(), self.mean_bytes))) > 0:
            most = min(over, BATCH, MOST - len(getter))
            if most > 0:
                await self._take_away(getter, most)
            else:
                await asyncio.sleep(0.02)  # the dying are on their way
            over -= most
        if self.limits.ttl_ms is not None and time.monotonic() >= self._look_again_s:
            await self._expire(getter, self.limits)

    async def _take_away(self, getter: Getter, count: int) -> None:
        self._open.extend([None] * count)
        self._answered.clear()
        getter.fetch(count)
        async with asyncio.timeout(ANSWER_S):
            await self._answered.wait()

    async def _expire(self, getter: Getter, limits: Limits) -> None:
        """All heads that are due, or soon will be; then one look that is given back."""
        while len(getter) < MOST and (head := await self._look(getter)) is not None:
            ends = due_ms(limits, intake.stamps(head.delivery))
            left = None if ends is None else ends - now_ms()
            if left is None or left > SOON_MS:
                self._settling.give_back(head, "probe")
                self._look_again_s = time.monotonic() + (NO_BASIS_S if left is None else left / 1000)
                return
            if left > 0:
                await asyncio.sleep(left / 1000 + 0.001)  # the clocks may differ by a tick: never early
            self._letters.bury(head, EXPIRED)

    async def _look(self, getter: Getter) -> Job | None:
        look: Look = asyncio.get_running_loop().create_future()
        self._open.append(look)
        self._answered.clear()
        getter.fetch(1)
        async with asyncio.timeout(ANSWER_S):
            return await look
