"""A blocking publisher for bulk: confirms, mandatory, a window of unconfirmed messages, a rate. No Spark in here."""

import struct
import time
from collections.abc import Iterable, Iterator
from typing import Any, Final, NamedTuple

from pamqp import commands

from dlx_router.core.settlement import Confirms
from dlx_router.spark.amqp import Connection, StreamError
from dlx_router.wire import frames, properties, stamp, table
from dlx_router.wire.errors import FrameTooLarge

WINDOW: Final = 1000
CONFIRMED: Final = "confirmed"
RETURNED: Final = "returned"
NACKED: Final = "nacked"
IN_DOUBT: Final = "in doubt"
LARGEST_FRAME: Final = 131_072  # where the broker was not told otherwise
_WRITE_BYTES: Final = 32_768  # so much goes to the socket at once, or what there is before it is waited for
_Bind: Final = frames.lenient(commands.Queue.Bind)
_pack_number: Final = struct.Struct(">q").pack


class Outgoing(NamedTuple):
    """A message to be sent; `properties` go around the headers. `tag` names it in the answers."""

    tag: Any
    exchange: bytes
    routing_key: bytes
    headers: bytes
    properties: dict[str, Any]
    body: bytes

    def encoded(self, channel: int, number: int, frame_max: int) -> bytes:
        """The frames, with the `number` that tells a return apart.

        FrameTooLarge, and LookupError, ValueError or struct.error of values that AMQP does not have.
        """
        section = properties.build(headers=self.headers + table.PUB_PREFIX + _pack_number(number), **self.properties)
        return frames.publish(channel, self.exchange, self.routing_key, section, self.body, frame_max)


class Publishing(Connection):
    """A connection with one channel that publishes. StreamError as of its parent, while nothing is in doubt."""

    def __init__(self, *args: Any, **options: Any) -> None:  # noqa: ANN401 - as the parent
        self._frame_max = LARGEST_FRAME
        self._unsent = bytearray()
        super().__init__(*args, **options)
        self._confirms: Confirms[Any] = Confirms()
        self._out = self._channel = self._channel + 1
        self._rpc(self._out, commands.Channel.Open(), commands.Channel.OpenOk)
        self._rpc(self._out, commands.Confirm.Select(), commands.Confirm.SelectOk)

    def _await(self, answer: type[Any]) -> Any:  # noqa: ANN401 - as the parent
        reply = super()._await(answer)
        if isinstance(reply, commands.Connection.Tune):
            self._frame_max = reply.frame_max or LARGEST_FRAME
        return reply

    def bind(self, queue: str, exchange: str, key: str) -> None:
        """Bind; StreamError where the queue or exchange is missing, or the right to."""
        self._rpc(self._out, _Bind(0, queue, exchange, key), commands.Queue.BindOk)

    def publish(self, messages: Iterable[Outgoing], rate: float = 0.0) -> Iterator[tuple[Any, str]]:
        """Send all, at most `rate` a second (0: no limit) → (tag, confirmed, returned, nacked or in doubt) of each.

        What no frame of this connection holds is told as that, and the others are sent. A connection that breaks ends
        it: what was sent and not answered is in doubt, what was not sent is not told.
        """
        began, sent = time.monotonic(), 0
        try:
            for message in messages:
                while len(self._confirms) >= WINDOW:
                    self._flush()
                    yield from self._answers()
                if rate and (ahead := began + sent / rate - time.monotonic()) > 0:
                    self._flush()
                    time.sleep(ahead)
                try:
                    self._write(message)
                except FrameTooLarge as error:
                    yield message.tag, f"too large: {error}"
                sent += 1
            self._flush()
            while len(self._confirms):
                yield from self._answers()
        except StreamError:
            yield from ((tag, IN_DOUBT) for tag in self._confirms.in_doubt())

    def _write(self, message: Outgoing) -> None:
        data = message.encoded(self._out, self._confirms.next_number, self._frame_max)
        self._confirms.publish(message.tag)
        self._unsent += data
        if len(self._unsent) >= _WRITE_BYTES:
            self._flush()

    def _flush(self) -> None:
        data, self._unsent = self._unsent, bytearray()
        try:
            self._socket.sendall(data)
        except OSError as error:
            raise StreamError(f"{self._where}: connection lost: {error}") from error

    def _answers(self) -> Iterator[tuple[Any, str]]:
        """What the next read of the socket answers."""
        for event in self._next():
            if event.__class__ is frames.Confirm:
                why = CONFIRMED if event.ok else NACKED
                for tag, returned in self._confirms.answered(event.tag, multiple=event.multiple):
                    yield tag, returned or why
            elif event.__class__ is frames.Returned:
                number = stamp.find_pub(event.header)
                if number is not None:
                    self._confirms.returned(number, RETURNED)
            else:
                self._checked(event)
