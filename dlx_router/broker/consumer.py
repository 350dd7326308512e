"""A consuming channel: hands over deliveries, turns settled ones into few acks, and counts what it gives back."""

import contextlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

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
        """Open a channel and consume. Global QoS is denied from 4.3 on, so the prefetch is per consumer."""
        self._channel = await self._link.open_channel(self)
        if self._run_sink is not None:
            self._link.deliver_runs(self._channel, self.on_deliveries)
        await self._link.rpc(self._channel, commands.Basic.Qos(0, self._prefetch, False))  # noqa: FBT003 - AMQP order
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
