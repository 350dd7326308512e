"""A broker of one queue in this process: what channels of leases ask of a link is answered as RabbitMQ answers it."""

import asyncio
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from pamqp import commands, frame
from pamqp.body import ContentBody

from dlx_router.broker.answers import LinkError
from dlx_router.wire import frames, table


@dataclass(eq=False)
class Message:
    """In the queue, or unacked."""

    number: int
    body: bytes
    header: bytes
    redelivered: bool = False


@dataclass(eq=False)
class Channel:
    """What is open on a link; `credit` is left of the consumer's prefetch."""

    handler: Any
    prefetch: int = 0
    credit: int = 0
    consumer: str = ""
    tag: int = 0
    unacked: dict[int, Message] = field(default_factory=dict)
    publish: list[str] = field(default_factory=list)
    published: int = 0


class Queue:
    """Messages in their order. `acked` are those that the broker was told to forget."""

    def __init__(self) -> None:
        self.ready: list[Message] = []
        self.acked: list[Message] = []
        self.published: list[tuple[str, str, bytes]] = []  # exchange, key, body; each is confirmed
        self.links: list[LinkInMemory] = []
        self.lost: list[Message] = []  # unacked when their channel or connection went: a failed delivery each

    def fill(self, *bodies: bytes, dead: bool = True) -> None:
        for body in bodies:
            number = len(self.ready) + len(self.acked)
            self.ready.append(Message(number, body, header(body, dead=dead)))
        self.deliver()

    def deliver(self) -> None:
        """To the consumers that have credit, a message each in turn."""
        for channel in [channel for link in self.links for channel in link.channels.values() if channel.consumer]:
            while channel.credit and self.ready:
                message = self.ready.pop(0)
                channel.credit -= 1
                channel.tag += 1
                channel.unacked[channel.tag] = message
                flag = message.redelivered
                came = frames.Delivery(1, b"t", channel.tag, flag, b"", b"DLQ", message.header, message.body)
                asyncio.get_running_loop().call_soon(channel.handler.on_event, came)

    def take_back(self, messages: list[Message]) -> None:
        for message in messages:
            message.redelivered = True
        self.ready = sorted([*self.ready, *messages], key=lambda message: message.number)
        self.deliver()

    def lose_connections(self) -> None:
        for link in self.links:
            link.abort()

    async def link(self, _role: str) -> "LinkInMemory":
        self.links.append(link := LinkInMemory(self))
        return link


class LinkInMemory:
    """As `broker.link.Link`, as far as leases use it."""

    def __init__(self, queue: Queue) -> None:
        self.server, self.version = {"version": "4.3.6"}, (4, 3)
        self.is_open, self.blocked = True, False
        self.frame_max = 131_072
        self.channels: dict[int, Channel] = {}
        self._queue, self._number = queue, 0

    async def open_channel(self, handler: Any) -> int:
        self._number += 1
        self.channels[self._number] = Channel(handler)
        return self._number

    async def rpc(self, channel: int, command: Any) -> Any:
        await asyncio.sleep(0)
        if not self.is_open:
            raise LinkError("lost")
        opened = self.channels[channel]
        match command:
            case commands.Basic.Qos():
                opened.prefetch = command.prefetch_count
            case commands.Basic.Consume():
                opened.consumer, opened.credit = command.consumer_tag, opened.prefetch
                self._queue.deliver()
            case commands.Basic.Cancel():
                opened.consumer = ""
            case _:
                return SimpleNamespace(message_count=len(self._queue.ready), consumer_count=0)
        return None

    def send(self, data: bytes) -> None:
        while data:
            taken, channel, command = frame.unmarshal(data)
            data = data[taken:]
            opened = self.channels[channel]
            if isinstance(command, commands.Basic.Ack | commands.Basic.Nack):
                below = command.delivery_tag or opened.tag
                tags = [tag for tag in opened.unacked if (tag <= below if command.multiple else tag == below)]
                assert tags or not command.delivery_tag, "an unknown tag would close the channel"
                settled = [opened.unacked.pop(tag) for tag in tags]
                if isinstance(command, commands.Basic.Ack):
                    self._queue.acked += settled
                else:
                    self._queue.take_back(settled)
            elif isinstance(command, commands.Basic.Publish):
                opened.publish = [command.exchange, command.routing_key]
            elif isinstance(command, ContentBody):
                opened.published += 1
                exchange, key = opened.publish
                self._queue.published.append((exchange, key, command.value))
                confirm = frames.Confirm(channel, opened.published, multiple=False, ok=True)
                asyncio.get_running_loop().call_soon(opened.handler.on_event, confirm)

    async def close_channel(self, channel: int) -> None:
        self.drop_channel(channel)

    def drop_channel(self, channel: int) -> None:
        lost = [*self.channels.pop(channel).unacked.values()]
        self._queue.lost += lost
        self._queue.take_back(lost)

    def abort(self) -> None:
        """Lost: everything that is unacked is in the queue again, and whoever holds it learns it."""
        self.is_open = False
        channels, self.channels = self.channels, {}
        for channel in channels.values():
            channel.handler.on_closed(LinkError("lost"))
        lost = [message for channel in channels.values() for message in channel.unacked.values()]
        self._queue.lost += lost
        self._queue.take_back(lost)

    async def close(self) -> None:
        self.abort()


def header(body: bytes, *, dead: bool = True) -> bytes:
    """A content header; `dead`: with a death in x-death."""
    death = table.longstr(b"queue", "work") + table.longstr(b"reason", "rejected") + table.long_(b"count", 1)
    death += table.timestamp(b"time", 1_700_000_000) + table.longstr(b"exchange", "")
    death += table.array_of_longstr(b"routing-keys", ["work"])
    headers = table.field_array(b"x-death", [death]) if dead else b""
    name = b"m-" + body[:50]
    flags = 0x2000 | 0x0080
    section = flags.to_bytes(2, "big") + len(headers).to_bytes(4, "big") + headers
    section += bytes([len(name)]) + name
    return bytes(4) + len(body).to_bytes(8, "big") + section
