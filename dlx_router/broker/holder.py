"""A holding channel: takes letters of a queue when it is asked to, and holds each until it is settled."""

from pamqp import commands

from dlx_router.broker.answers import ChannelClosed
from dlx_router.broker.consumer import Consumer
from dlx_router.wire import frames


class Holder(Consumer):
    """Consumes in turns: `take` begins one, `halt` ends it; what came stays unsettled on the channel.

    Prefetch is for each turn: a further one gets as many letters more.
    """

    turn = 0  # each is a consumer; on quorum queues it counts as one for as long as it holds something

    async def start(self) -> None:
        """Open the channel."""
        self._channel = await self._link.open_channel(self)

    async def take(self, most: int) -> None:
        """A turn: the broker delivers as many, now or as they come. ChannelClosed: it does not let us."""
        self.turn += 1
        self._tag = f"dlx-router-{self.turn}"
        await self._link.rpc(self._channel, commands.Basic.Qos(0, most, False))  # noqa: FBT003 - AMQP order
        consume = frames.lenient(commands.Basic.Consume)
        arguments = self._arguments or None
        await self._link.rpc(self._channel, consume(queue=self.queue, consumer_tag=self._tag, arguments=arguments))
        if not self._channel:
            raise ChannelClosed(404, f"the consumer of queue {self.queue!r} was ended as it began")

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
        await self._link.rpc(self._channel, commands.Basic.Qos(0, 1, False))  # noqa: FBT003 - its answer is what counts
        return self._channel > 0
