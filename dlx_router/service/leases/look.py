"""A look: letters of a queue that are meant are kept, the others are held until its end and then given back.

It asks the broker for as many letters as are wanted, and for twice as many each time where what came was not meant: so
a filter costs what lies in front of what it means, and never more than MOST.
"""

import asyncio
import time
from collections.abc import Callable
from contextlib import suppress
from enum import Enum, auto
from typing import Final

from dlx_router.broker.consumer import Consumer
from dlx_router.broker.holder import Holder
from dlx_router.service.dispatch.settler import returned, returned_up_to
from dlx_router.wire import frames

MOST: Final = 10_000  # letters that one look may hold
LINGER_S: Final = 0.03  # after the last that came: those that lay there came together
STEP: Final = 16  # commands that give letters back, until the broker has seen to them
AT_ONCE: Final = 32  # letters: RabbitMQ 3.10 mixes up the order of more that one command gives back
QUIET_S: Final = 0.3  # after which what is not there is not in the queue


class Meant(Enum):
    """What is to be done with a delivery."""

    KEPT = auto()  # it is leased
    LEFT = auto()  # it stays in its queue
    SEEN_TO = auto()  # it is no more in the queue, or will not be
    FULL = auto()  # it stays, and no more may be kept


class Look:
    """`consider(delivery, holder)` says what is meant; it must not wait. `most` letters are kept at most."""

    def __init__(self, holder: Holder, most: int, consider: Callable[[frames.Delivery, Holder], Meant]) -> None:
        self.kept = self.came = 0
        self.lost: Exception | None = None
        self.refused: Exception | None = None  # why no letter can be chosen
        self._holder, self._most, self._consider = holder, most, consider
        self._left: list[int] = []
        self._ends: list[int] = []  # the last tag of each turn
        self._others = 0  # tag of the first that is not left
        self._is_full = False
        self._came_s = 0.0
        self._wake = asyncio.Event()
        holder.ignore(self._take)

    def lose(self, error: Exception) -> None:
        """The channel is gone, and what it held."""
        self.lost = error
        self._wake.set()

    async def run(self, until_s: float) -> None:
        """Until as many are kept, all that was there is looked at, or it is late. Raises what ended the channel."""
        asked = self._most
        try:
            while True:
                begun = self.came
                await self._holder.take(asked)
                self._came_s = time.monotonic()
                is_over = await self._turn(begun + asked, until_s)
                await self._holder.halt()
                self._ends.append(self._holder.last_tag)
                self._raise_lost()
                if is_over or self._is_enough:
                    return
                asked = min(2 * asked, MOST - self.came)
        finally:
            await self._give_back()

    @property
    def _is_enough(self) -> bool:
        return self._is_full or self.kept >= self._most or self.came >= MOST

    def _raise_lost(self) -> None:
        if self.lost is not None:
            raise self.lost

    async def _turn(self, until: int, until_s: float) -> bool:
        """Whether the look is over; else all came that were asked for, and more are wanted."""
        while self.lost is None and not self._is_enough:
            if self.came >= until:
                return False
            now = time.monotonic()
            rest_s = self._came_s + (LINGER_S if self.kept else QUIET_S) - now
            may_wait_s = 0.0 if self.kept or self._left else until_s - now
            if max(rest_s, may_wait_s) <= 0:
                return True
            self._wake.clear()
            with suppress(TimeoutError):
                async with asyncio.timeout(max(rest_s, may_wait_s, 0.001)):
                    await self._wake.wait()
        return True

    def _take(self, delivery: frames.Delivery, _consumer: Consumer) -> None:
        self.came += 1
        self._came_s = time.monotonic()
        self._wake.set()
        meant = Meant.LEFT if self._is_enough or self.lost is not None else self._consider(delivery, self._holder)
        self.kept += meant is Meant.KEPT
        self._is_full |= meant is Meant.FULL
        if meant in {Meant.LEFT, Meant.FULL}:
            self._left.append(delivery.tag)
        else:
            self._others = self._others or delivery.tag

    async def _give_back(self) -> None:
        """What lies before the first that is kept goes back as it lay, the rest in steps that keep its order.

        Quorum queues: beyond 32 commands under way the broker gathers those to come, and mixes up their order.
        """
        first = [tag for tag in self._left if not self._others or tag < self._others]
        before = steps = 0
        for end in sorted({*self._ends, *first[-1:]}):  # of several consumers at once the order is mixed up as well
            turn = [tag for tag in first if before < tag <= end]  # an unknown tag would close the channel
            for last in (*turn[AT_ONCE - 1 : -1 : AT_ONCE], *turn[-1:]):
                returned_up_to(self._holder, last)
                steps += 1
                await self._seen_to(steps)
            before = end
        for tag in self._left[len(first) :]:
            returned(self._holder, tag)
            steps += 1
            await self._seen_to(steps)

    async def _seen_to(self, steps: int) -> None:
        if steps % STEP == 0 and self._holder.is_open:
            await self._holder.counted()
