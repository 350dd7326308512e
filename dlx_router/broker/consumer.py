"""A consuming channel: hands over deliveries, turns settled ones into few acks, and counts what it gives back."""

import asyncio
import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar, Final

from pamqp import commands

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.link import Link
from dlx_router.core.settlement import Acks, PackedAcks
from dlx_router.wire import frames


class Consumer:
    """Consumes one queue: deliveries go to `sink(delivery, self)`, the end to `on_lost(self, error, unsettled)`."""

    new_acks: ClassVar[type[Acks] | type[PackedAcks]] = Acks

    def __init__(  # noqa: PLR0913 - what consuming can ask for
        self,
        link: Link,
        queue: str,
        prefetch: int,
        *,
        sink: Callable[[Any, "Consumer"], None],
        on_lost: Callable[["Consumer", Exception, int], None],
        arguments: Mapping[str, Any] | None = None,
        exclusive: bool = False,
        single: bool = False,
        in_order: Callable[[], bool] = lambda: False,
        run_sink: Callable[[Sequence[Any], int, "Consumer"], int] | None = None,
    ) -> None:
        """`exclusive`: only where nobody else consumes, and nobody else will. `single`: it may be one of several.

        `in_order()`: whoever consumes next is to get what follows the last that was settled.
        `run_sink(deliveries, at, self)` takes as many from there on as go together, and says how many; 0: the next goes
        to `sink`.
        """
        self.queue = queue
        self.acked = 0  # deliveries, in all
        self.is_single = single
        self.last_tag = 0  # of the last delivery; a channel counts them from 1
        self._exclusive, self._in_order = exclusive, in_order
        self._link = link
        self._prefetch = prefetch
        self._sink, self._run_sink = sink, run_sink
        self._on_lost = on_lost
        self._arguments = dict(arguments or {})
        self._acks = self.new_acks()
        self._channel = 0
        self._tag = "dlx-router"

    def __len__(self) -> int:
        return len(self._acks)

    @property
    def has_room(self) -> bool:
        """Whether the broker may deliver more than is here."""
        return len(self._acks) + self._acks.unflushed < self._prefetch

    @property
    def is_in_order(self) -> bool:
        """By what holds now: policies change meanwhile."""
        return self._in_order()

    def has_until(self, tag: int) -> bool:
        """Whether a delivery up to this one is not settled yet."""
        return any(unsettled <= tag for unsettled in self._acks.unsettled)

    @property
    def is_open(self) -> bool:
        """Whether deliveries can still be settled."""
        return self._channel > 0

    async def start(self) -> None:
        """Open a channel and consume. ChannelClosed 404: there is no such queue."""
        await self.open()
        if self._run_sink is not None:
            self._link.deliver_runs(self._channel, self.on_deliveries)
        await self._qos(self._prefetch)
        await self._consume()

    async def open(self) -> None:
        """Open the channel."""
        self._channel = await self._link.open_channel(self)

    async def _qos(self, prefetch: int) -> None:
        """Set the prefetch, per consumer: global QoS is denied from 4.3 on. The broker has then read all acks."""
        await self._link.rpc(self._channel, commands.Basic.Qos(0, prefetch, False))  # noqa: FBT003 - AMQP order

    async def _consume(self) -> None:
        await self._link.rpc(
            self._channel,
            frames.lenient(commands.Basic.Consume)(
                queue=self.queue, consumer_tag=self._tag, exclusive=self._exclusive, arguments=self._arguments
            ),
        )
        if not self._channel:  # its end came with the answer, in one read
            raise ChannelClosed(404, f"the consumer of queue {self.queue!r} was ended as it began")

    async def halt(self) -> None:
        """As `cancel`; no delivery comes once this returns. The socket must be read."""
        if self._channel:
            await self._link.rpc(self._channel, commands.Basic.Cancel(self._tag))

    def ignore(self, sink: Callable[[Any, "Consumer"], None]) -> None:
        """From now on deliveries go there; they are unsettled as all others."""
        self._sink, self._run_sink = sink, None

    async def give_all_back(self, *, by_closing: bool = False) -> int:
        """Give back all that is unsettled, in its order, and end; → how many. After `halt`, or more would come.

        By basic.nack: closing the channel counts as a failed delivery on every version. `by_closing`: quorum queues of
        3.10 mix up what nacks give back, where it is more than 32 messages, and count both alike.
        """
        channel, unsettled = self._channel, len(self._acks)
        if not channel:
            return 0
        self.flush()
        if not by_closing:
            self._link.send(frames.nack(channel, 0, True, True))  # noqa: FBT003 - tag 0 and multiple: all, requeued
        self._channel, self._acks = 0, self.new_acks()
        await self._link.close_channel(channel)
        return unsettled

    async def counted(self) -> tuple[int, int]:
        """How many messages lie in the queue and wait, and how many consumers it has, as the broker counts now."""
        answer = await self._link.rpc(self._channel, self._look())
        return int(answer.message_count), int(answer.consumer_count)

    def _look(self) -> commands.Queue.Declare:
        look: commands.Queue.Declare = frames.lenient(commands.Queue.Declare)(queue=self.queue, passive=True)
        return look

    def cancel(self) -> None:
        """No more deliveries soon; those here can still be settled. Waits for no answer: the socket may be paused."""
        if self._channel and self._link.is_open:
            self._link.send(frames.method(self._channel, commands.Basic.Cancel(self._tag, nowait=True)))

    async def end(self) -> None:
        """As `cancel`, and when this returns nothing more will come; a resting socket may delay that."""
        await self._ask_until_answered(commands.Basic.Cancel(self._tag))

    async def _ask_until_answered(self, question: Any) -> None:
        while self._channel and self._link.is_open:
            with contextlib.suppress(TimeoutError):
                await self._link.rpc(self._channel, question)
                return

    def on_event(self, event: Any) -> None:
        """A delivery, or the server's cancel: the queue is gone, its node is, or (4.3) an ack took too long."""
        if event.__class__ is frames.Delivery:
            self.last_tag = event.tag
            self._acks.delivered(event.tag)
            self._sink(event, self)
        elif event.__class__ is frames.Cancelled:
            self.drop(f"the broker cancelled the consumer of {self.queue}")  # what was not settled goes back

    def on_deliveries(self, deliveries: list[frames.Delivery]) -> None:
        """As `on_event` of each; what goes together is taken together."""
        at, count = 0, len(deliveries)
        goes_on = count > 1 and deliveries[-1].tag - deliveries[0].tag == count - 1
        while at < count and self._channel:  # else it has ended meanwhile, and they are for nobody
            taken = self._run_sink(deliveries, at, self) if self._run_sink is not None and goes_on else 0
            if taken:
                self.last_tag = deliveries[at + taken - 1].tag
                self._acks.delivered_run(deliveries[at].tag, self.last_tag + 1)
                at += taken
            else:
                self.on_event(deliveries[at])
                at += 1

    def settle_run(self, first: int, stop: int) -> bool:
        """As `settle`, of the deliveries from `first` up to `stop`."""
        if not self._channel:
            return False
        self._acks.settle_run(first, stop)
        return True

    def settle(self, tag: int) -> bool:
        """Ack at the next flush; False where the delivery is no longer ours."""
        if not self._channel:
            return False
        self._acks.settle(tag)
        return True

    def reject(self, tag: int, *, requeue: bool) -> bool:
        """Reject now. Without requeue the broker moves it by the queue's own DLX, without a size check."""
        if not self._channel:
            return False
        self.flush()
        self._acks.gone(tag)
        self._link.send(frames.reject(self._channel, tag, requeue))
        return True

    def give_back(self, tag: int) -> bool:
        """Back to its place, now. From 4.3 on, and in classic queues, this is no failed delivery."""
        if not self._channel:
            return False
        self._acks.gone(tag)
        self._link.send(frames.nack(self._channel, tag, False, True))  # noqa: FBT003 - AMQP order
        return True

    def flush(self) -> int:
        """Send the acks of all that was settled since the last flush; → how many frames that took."""
        if not self._channel:
            return 0
        self.acked += self._acks.unflushed
        acks = self._acks.flush()
        for tag, multiple in acks:
            self._link.send(frames.ack(self._channel, tag, multiple))
        return len(acks)

    def on_closed(self, error: Exception) -> None:
        """The channel is gone: the broker gives the unsettled to somebody else."""
        channel, self._channel = self._channel, 0
        unsettled, self._acks = len(self._acks), self.new_acks()
        if channel:
            self._on_lost(self, error, unsettled)

    def drop(self, why: str = "closed by us") -> None:
        """As `close`, without waiting for the broker."""
        if self._channel:
            self._link.drop_channel(self._channel)
            self.on_closed(LinkError(why))

    async def close(self) -> None:
        """Close the channel; the unsettled go back."""
        channel = self._channel
        self.on_closed(LinkError("closed by us"))
        if channel and self._link.is_open:
            await self._link.close_channel(channel)


class Holder(Consumer):
    """Consumes in turns: `take` begins one, `halt` ends it; what came stays unsettled on the channel.

    Prefetch is for each turn: a further one gets as many letters more.
    """

    turn = 0  # each is a consumer; on quorum queues it counts as one for as long as it holds something

    start = Consumer.open

    async def take(self, most: int) -> None:
        """Begin a turn: the broker delivers as many, now or as they come. ChannelClosed: it refuses."""
        self.turn += 1
        self._tag = f"dlx-router-{self.turn}"
        await self._qos(most)
        await self._consume()

    def give_back_up_to(self, tag: int) -> None:
        """All that came before and this, back to their places in one go: a queue keeps the order of that for sure."""
        if self._channel:
            for earlier in [other for other in self._acks.unsettled if other <= tag]:
                self._acks.gone(earlier)
            self._link.send(frames.nack(self._channel, tag, True, True))  # noqa: FBT003 - AMQP order

    async def seen(self) -> bool:
        """Whether the broker has read all that was sent on this channel, acks too; False where it is lost."""
        self.flush()
        if not self._channel:
            return False
        await self._qos(1)
        return self._channel > 0


_GET: Final = frames.lenient(commands.Basic.Get)


class Getter(Consumer):
    """Consumes nothing by itself; each `fetch` is answered by a delivery to the sink, or by `on_empty()`."""

    def __init__(
        self,
        link: Link,
        queue: str,
        *,
        sink: Callable[[Any, Consumer], None],
        on_lost: Callable[[Consumer, Exception, int], None],
        on_empty: Callable[[], None],
    ) -> None:
        super().__init__(link, queue, 0, sink=sink, on_lost=on_lost)
        self._on_empty = on_empty
        self.is_cancelled = False

    start = Consumer.open

    async def lock(self, name: str) -> None:
        """Be the only one, as long as this connection lasts; ChannelClosed (405) where another is."""
        declare = frames.lenient(commands.Queue.Declare)
        await self._link.rpc(self._channel, declare(queue=name, exclusive=True, auto_delete=True))

    def fetch(self, count: int) -> None:
        """Ask for so many messages."""
        if self._channel:
            self._link.send(frames.method(self._channel, _GET(queue=self.queue)) * count)

    def cancel(self) -> None:
        """No more is to be asked for; what is here can still be settled."""
        self.is_cancelled = True

    async def end(self) -> None:
        """As `cancel`, and what was asked for is here when this returns."""
        self.cancel()
        await self._ask_until_answered(self._look())

    def on_event(self, event: Any) -> None:
        """A message, or word that there is none."""
        if event.__class__ is frames.Got:
            where = event.exchange, event.routing_key
            came = frames.Delivery(event.channel, b"", event.tag, event.redelivered, *where, event.header, event.body)
            super().on_event(came)
        elif event.__class__ is frames.Method:
            self._on_empty()
        else:
            super().on_event(event)


class Peek:
    """Looks at the head of a queue and leaves it there.

    `basic.get` and the `basic.nack` that gives back what it brings go in one write, so the broker does both in one go:
    a consumer has no time for the next message between them. Of an empty queue there is nothing to be given back, and
    the broker closes the channel; the next look opens another.
    """

    def __init__(self, link: Link, queue: str) -> None:
        self._link, self._queue = link, queue
        self._number = self._tag = 0  # tags count what was delivered on this channel
        self._answer: asyncio.Future[frames.Got | None] | None = None

    async def look(self, within: float = 3.0) -> frames.Got | None:
        """Return the head as it is now; None if the queue is empty. ChannelClosed, LinkError or TimeoutError."""
        if not self._number:
            self._number, self._tag = await self._link.open_channel(self), 0
        self._tag += 1
        answer: asyncio.Future[frames.Got | None] = asyncio.get_running_loop().create_future()
        self._answer = answer
        get = frames.method(self._number, _GET(queue=self._queue))
        self._link.send(get + frames.nack(self._number, self._tag, False, True))  # noqa: FBT003 - AMQP order
        try:
            async with asyncio.timeout(within):
                return await answer
        except TimeoutError:
            self.close()
            raise

    def close(self) -> None:
        """Close the channel; the next look opens another."""
        number, self._number = self._number, 0
        if number:
            self._link.drop_channel(number)

    def on_event(self, event: Any) -> None:
        """A message, or the answer that there is none."""
        if event.__class__ is frames.Got:
            self._resolve(event)
        elif event.__class__ is frames.Method:
            self._number = 0
            self._resolve(None)

    def on_closed(self, error: Exception) -> None:
        """The channel is gone."""
        self._number = 0
        if self._answer is not None and not self._answer.done():
            self._answer.set_exception(error)

    def _resolve(self, got: frames.Got | None) -> None:
        if self._answer is not None and not self._answer.done():
            self._answer.set_result(got)
