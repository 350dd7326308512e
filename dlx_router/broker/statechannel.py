"""How routers speak in the state queue: a publishing channel that also hears what is said to it alone.

A hello names this channel by `amq.rabbitmq.reply-to`, so whoever leads can answer it and no other queue is needed.
Source: rabbitmq.com/docs/direct-reply-to.
"""

import asyncio
import secrets
from collections.abc import Callable
from typing import Any, Final

from pamqp import commands

from dlx_router.broker.control import TopologyError
from dlx_router.broker.link import Link
from dlx_router.broker.publisher import Publisher
from dlx_router.wire import frames, properties
from dlx_router.wire.errors import WireError

WITHIN_S: Final = 15.0
HELLO_LASTS_MS: Final = b"600000"  # where nobody reads them they do not pile up for ever
_REPLIES: Final = "amq.rabbitmq.reply-to"
_ANSWERABLE: Final = b"amq.rabbitmq.reply-to."
Heard = Callable[[str], None]  # a publish's answer: "" or why not


class StateChannel(Publisher[Heard]):
    """`on_reply(body)` hears answers to hellos, `on_lost(error)` that the channel is gone."""

    def __init__(self, link: Link, *, on_reply: Callable[[bytes], None], on_lost: Callable[[Exception], None]) -> None:
        super().__init__(link, on_answer=_answered, on_doubt=lambda _jobs, error: on_lost(error))
        self.user = link.user.encode()
        self._on_reply = on_reply

    async def open(self) -> None:
        """Open the channel, and hear what is said to it."""
        await super().open()
        consume = frames.lenient(commands.Basic.Consume)(queue=_REPLIES, consumer_tag="answers", no_ack=True)
        await self._link.rpc(self._channel, consume)

    def on_event(self, event: Any) -> None:
        """An answer, a confirm or a return."""
        if event.__class__ is frames.Delivery:
            self._on_reply(event.body)
        else:
            super().on_event(event)

    async def keep(self, queue: str, body: bytes, *, asks: bool = False) -> None:
        """In the queue, confirmed and persistent. It takes as long as an alarm of the broker does: that is no loss.

        `asks`: who reads it may answer, and it is gone after some time. TopologyError where it is not taken.
        """
        if not self.is_open:
            raise TopologyError("the channel was closed")
        answer: asyncio.Future[str] = asyncio.get_running_loop().create_future()

        def heard(why: str) -> None:
            if not answer.done():
                answer.set_result(why)

        self._send(queue.encode(), body, heard, asks=asks)
        while True:
            stood_still = self._link.blocked
            await asyncio.wait({answer}, timeout=WITHIN_S)
            if answer.done():
                break
            if not stood_still and not self._link.blocked:
                raise TopologyError(f"the broker did not confirm within {WITHIN_S:g} s; it is tried again")
        if answer.result():
            raise TopologyError(f"a message to it was {answer.result()}; it is tried again")

    def answer(self, hello: frames.Delivery, body: bytes) -> None:
        """To whoever said this, where it asks for that in the broker's own way: nothing else is written to."""
        try:
            to = properties.parse(hello.header, properties.PROPERTIES_AT).reply_to or b""
        except WireError:
            return
        if to.startswith(_ANSWERABLE) and self.is_open:
            self._send(to, body, lambda _why: None, asks=False)

    def _send(self, to: bytes, body: bytes, heard: Heard, *, asks: bool) -> None:
        section = properties.build(
            headers=self.stamp(),
            delivery_mode=2,
            reply_to=_REPLIES.encode() if asks else None,
            expiration=HELLO_LASTS_MS if asks else None,
            message_id=secrets.token_hex(8).encode(),
        )
        self.publish(heard, b"", to, section, body)


def _answered(heard: Heard, why: str) -> None:
    heard(why)
