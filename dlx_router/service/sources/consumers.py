"""Consumers: every queue that one session takes from, from the first delivery to the last that is settled."""

import asyncio
import contextlib
import time
from collections.abc import Callable, Iterator
from typing import Final

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.consumer import Consumer, Getter, Peek
from dlx_router.broker.link import Link
from dlx_router.config.units import number_of
from dlx_router.core.letter import Arrival
from dlx_router.core.names import Names
from dlx_router.service.dispatch.worker import Worker
from dlx_router.service.inflight.decoder import AnyExchange, Place
from dlx_router.service.sources.guard import GuardedQueue
from dlx_router.telemetry.logs import log
from dlx_router.telemetry.metrics import Metrics

LEAVING_S: Final = 0.05
SETTLED_S: Final = 0.005
HAND_BACK_S: Final = 2.0
CANCELLED_S: Final = 5.0  # a queue without a majority of its members answers nothing
Lost = Callable[[str, Exception, int], None]


class Consumers:
    """Those of one vhost; `on_lost(queue, error, unsettled)` tells the end of one that nobody asked for."""

    def __init__(
        self,
        vhost: str,
        names: Names,
        key: bytes,
        metrics: Metrics,
        on_lost: Lost,
        *,
        cancelled_s: float = CANCELLED_S,
    ) -> None:
        """`cancelled_s`: how long the broker may take to answer that it delivers no more."""
        self._vhost, self._names, self._key, self._metrics = vhost, names, key, metrics
        self._on_lost, self._cancelled_s = on_lost, cancelled_s
        self._consumers: dict[str, Consumer] = {}
        self._leave: dict[Consumer, Callable[[Consumer], None]] = {}
        self._leaving: set[Consumer] = set()
        self._beginning = 0
        self._draining = False
        self._known_by_s = 0.0  # on the monotonic clock: what begins or leaves as we drain has done so by then
        self._ends: set[asyncio.Task[None]] = set()
        self.began: dict[str, int | None] = {}  # every queue that was consumed → how many returns are not deadly there
        self.returned = 0  # letters of attached queues that went back with a channel
        self.link: Link  # set once there is one, before anything is consumed
        self.isolated: dict[str, Link] = {}  # queues with a connection of their own

    def __iter__(self) -> Iterator[Consumer]:
        """All that have something to settle, or may get it; those too that are being left."""
        return iter([*self._consumers.values(), *self._leaving])

    @property
    def attending(self) -> list[Consumer]:
        """Those that are to go on."""
        return [*self._consumers.values()]

    def is_owed(self, consumer: Consumer) -> bool:
        """Whether the broker would deliver to it at once what is ready: there is room, and we read what comes.

        Where only one of several is served it may be another, unless this one was.
        """
        link = self._link_of(consumer.queue)
        reads = not link.rests and not link.is_receiving and not self._draining
        return reads and consumer.has_room and (not consumer.is_single or consumer.last_tag > 0)

    def _link_of(self, queue: str) -> Link:
        return self.isolated.get(queue, self.link)

    def get(self, queue: str) -> Consumer | None:
        """The one of this queue."""
        return self._consumers.get(queue)

    @property
    def in_flight(self) -> int:
        """Deliveries that are here and not settled."""
        return sum(map(len, self))

    @property
    def may_get_more(self) -> bool:
        """Whether deliveries may come though we drain: the broker has not said yet that it sends no more."""
        begins_or_leaves = bool(self._beginning or self._leaving) and time.monotonic() < self._known_by_s
        if not (self._ends or begins_or_leaves):
            return False  # there may be no link yet
        return self.link.is_open and not self.link.rests and not self.link.is_silent

    async def consume(  # noqa: PLR0913 - whence, where to, and what is known of the queue
        self,
        worker: Worker,
        queue: str,
        arrival: Arrival,
        prefetch: int,
        *,
        exclusive: bool = False,
        limit: int | None = None,
        trusted: frozenset[bytes] | AnyExchange = frozenset(),
        single: bool = False,
        in_order: Callable[[], bool] = lambda: False,
    ) -> Consumer:
        """Consume a queue into a worker; `limit`: how many returns a message survives there, where it is deleted then.

        `trusted`: the exchanges by which, besides ours, the broker brings dead letters there. `single`: the queue may
        have a single active consumer, which another may be. `in_order`: as Consumer says; our inbox of
        what is in order is. ChannelClosed where the broker does not let us.
        """
        consumer = Consumer(
            self._link_of(queue),
            queue,
            prefetch,
            sink=worker.take,
            run_sink=worker.take_run if worker.in_runs else None,
            on_lost=self._lost,
            exclusive=exclusive,
            single=single,
            in_order=(lambda: True) if queue == self._names.fifo else in_order,
        )
        self._leave[consumer] = worker.leave
        worker.attend(consumer, Place(self._vhost, queue, arrival, self._names, self._key, limit, trusted))
        self.began[queue] = limit
        with self._begun(consumer):
            await consumer.start()
        self._consumers[queue] = consumer
        if self._draining:  # the drain began while the broker answered, and did not see it
            self._end(consumer)
        return consumer

    async def fetch(
        self, queue: str, guarded: GuardedQueue, lock: str, trusted: frozenset[bytes], *, limit: int | None = None
    ) -> Getter:
        """A channel to take single messages by. `lock`: a queue of this name keeps all others away ("": none does)."""
        getter = Getter(self._link_of(queue), queue, sink=guarded.take, on_lost=self._lost, on_empty=guarded.empty)
        self.began[queue] = limit
        with self._begun(getter):
            await getter.start()
            if lock:
                await getter.lock(lock)
            await getter.counted()
        place = Place(self._vhost, queue, Arrival.INBOX, self._names, self._key, limit, trusted)
        guarded.attend(getter, place, Peek(self._link_of(queue), queue))
        self._consumers[queue], self._leave[getter] = getter, guarded.leave
        if self._draining:
            self._end(getter)
        return getter

    async def leave(self, source: str) -> None:
        """Stop consuming; the channel is closed once every letter that is here is settled: none of them goes back."""
        if (consumer := self.detach(source)) is not None:
            await self.see_off(consumer)
            log.info("source.left", vhost=self._vhost, queue=source, fate="its letters stay in it from now on")

    def detach(self, queue: str) -> Consumer | None:
        """The consumer of this queue, which is its consumer no more; it is to be seen off."""
        consumer = self._consumers.pop(queue, None)
        if consumer is not None:
            self._leaving.add(consumer)
        return consumer

    async def see_off(self, consumer: Consumer) -> None:
        """Cancel one that was detached, and close its channel once every letter from it is settled."""
        try:
            if self._hands_over_in_order(consumer):
                await self._ended_in_order(consumer)
                return
            await consumer.end()
            while len(consumer):  # noqa: ASYNC110 - what settles is the hot path, and has no time for events
                await asyncio.sleep(LEAVING_S)
            consumer.flush()
            await consumer.close()
        except ChannelClosed:
            pass  # the broker was faster: what was not settled is back in the queue
        finally:
            self._leaving.discard(consumer)
            self._forget(consumer)

    async def give_up(self, queue: str) -> None:
        """Close the consumer at once: what is not settled goes back."""
        consumer = self._consumers.get(queue)
        if consumer is not None:
            consumer.flush()
            with contextlib.suppress(ChannelClosed):
                await consumer.close()

    async def hand_back(self) -> None:
        """Give back what attached queues sent by basic.nack: that is no failed delivery, and a closed channel is.

        What is in order goes back as the connection ends: a nack comes behind a cancel, which hands over at once.
        """
        attached = [consumer for consumer in self if not self._names.is_own(consumer.queue)]
        attached = [consumer for consumer in attached if not self._hands_over_in_order(consumer)]
        self.take_no_more()
        with contextlib.suppress(ChannelClosed, LinkError, TimeoutError):
            async with asyncio.timeout(HAND_BACK_S):
                for consumer in attached:
                    await consumer.end()
                    self._metrics.given_back[self._vhost, "connection"] += await consumer.give_all_back()

    def _not_taken(self, _delivery: object, consumer: Consumer) -> None:
        self._metrics.deliveries[self._vhost, consumer.queue] += 1

    def drain(self) -> None:
        """No more deliveries soon, as `may_get_more` says; those here can still be settled."""
        self._draining, self._known_by_s = True, time.monotonic() + self._cancelled_s
        for consumer in [*self._consumers.values()]:
            self._end(consumer)

    def take_no_more(self) -> None:
        """What still comes stays unsettled: it goes back as we end."""
        for consumer in self:
            consumer.ignore(self._not_taken)

    def _end(self, consumer: Consumer) -> None:
        task = asyncio.get_running_loop().create_task(self._ended(consumer))
        self._ends.add(task)
        task.add_done_callback(self._ends.discard)

    async def _ended(self, consumer: Consumer) -> None:
        with contextlib.suppress(ChannelClosed, LinkError, TimeoutError):  # then nothing comes either
            if self._hands_over_in_order(consumer):
                await self._ended_in_order(consumer)
            else:
                await self._cancelled(consumer)

    def _hands_over_in_order(self, consumer: Consumer) -> bool:
        """Not where a return can cost a letter: what is handed over so was returned once more."""
        return consumer.is_in_order and self.began.get(consumer.queue) is None

    async def _cancelled(self, consumer: Consumer) -> None:
        """The seconds for it count from the last delivery on, and not while we read nothing."""
        ending, last = asyncio.ensure_future(consumer.end()), -1
        try:
            while not ending.done() and (self.link.rests or consumer.last_tag != last):
                last = consumer.last_tag
                await asyncio.wait({ending}, timeout=self._cancelled_s)
        finally:
            ending.cancel()
            await asyncio.gather(ending, return_exceptions=True)

    async def _ended_in_order(self, consumer: Consumer) -> None:
        """One that is cancelled hands over at once, though letters are here: the next ones would overtake them.

        When the channel closes these are at their end, and what came behind them is given back in its place.
        """
        consumer.ignore(self._not_taken)
        last = consumer.last_tag
        while consumer.has_until(last):  # noqa: ASYNC110 - as in `see_off`
            await asyncio.sleep(SETTLED_S)
        consumer.flush()
        async with asyncio.timeout(self._cancelled_s):
            await consumer.close()

    def flush(self) -> None:
        """Send the acks of all that was settled since the last flush."""
        for consumer in self:
            consumer.flush()

    @contextlib.contextmanager
    def _begun(self, consumer: Consumer) -> Iterator[None]:
        """Where it does not begin the broker may think that it did: what it sends then would never be settled."""
        self._beginning += 1
        try:
            yield
        except BaseException:
            self._forget(consumer)
            consumer.drop()  # waits for nothing: the socket may rest
            raise
        finally:
            self._beginning -= 1

    def _forget(self, consumer: Consumer) -> None:
        """Its worker need not know it any more."""
        leave = self._leave.pop(consumer, None)
        if leave is not None:
            leave(consumer)

    def _lost(self, consumer: Consumer, error: Exception, unsettled: int) -> None:
        self._forget(consumer)
        self._metrics.given_back[self._vhost, "connection"] += unsettled
        if not self._names.is_own(consumer.queue):
            self.returned += unsettled
        if self._consumers.get(consumer.queue) is not consumer:
            return  # it never began, and who began it knows
        del self._consumers[consumer.queue]
        if self._draining or not self.link.is_open:
            return
        log.warning(
            "consumer.lost",
            queue=consumer.queue,
            error=str(error),
            fate=f"{number_of(unsettled, 'letter')} went back to the queue; consuming again",
        )
        self._on_lost(consumer.queue, error, unsettled)
