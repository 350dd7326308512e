"""A search for what no AMQP 0-9-1 client can be given: heads of queues are read by AMQP 1.0, and the culprit is moved.

A culprit is accepted only after the other queue has confirmed its copy; everything else goes back to its place. So a
message is at worst there twice.
"""

import time
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

from dlx_router.broker.address import Host, Login, Tls
from dlx_router.broker.amqp10 import CHANNELS, Channel, Connection, connected
from dlx_router.broker.answers import LinkError
from dlx_router.wire.amqp10 import Amqp10Error
from dlx_router.wire.amqp10_message import kept, objection

QUIET_S: Final = 1.0  # another router that just lost the culprit gives it back within this
FOUND_QUIET_S: Final = 0.2
LONGEST_S: Final = 20.0
IN_VAIN_S: Final = 5.0  # nothing is consumed meanwhile, and where messages keep coming it is never quiet
MOST_BYTES: Final = 64 << 20  # of what is looked at and put back
CHUNK: Final = 64
ADVICE: Final = "read it with an AMQP 1.0 client"


class Found(NamedTuple):
    """A message that no AMQP 0-9-1 client can be given. `left`: why it is still where it was; "": it is moved."""

    queue: str
    number: int  # from the head, beginning at 1
    cause: str
    message: bytes
    left: str = ""


# What the copy is told about itself, by name of the annotation.
Annotated = Callable[[Found], dict[str, str]]


class _Head:
    """The head of one queue: what was looked at, and what of it was taken."""

    def __init__(self, channel: Channel, window: int) -> None:
        self.channel, self.window = channel, window
        self.seen = 0
        self.taken: set[int] = set()
        self.first = self.last = -1

    def saw(self, delivery: int) -> None:
        """A message came; the broker numbers them without gaps."""
        self.seen += 1
        self.first = delivery if self.first < 0 else self.first
        self.last = delivery

    def back(self) -> list[tuple[int, int]]:
        """The ranges of deliveries that go back."""
        ranges, start = [], self.first
        for delivery in [*sorted(self.taken), self.last + 1]:
            if start < delivery:
                ranges.append((start, delivery - 1))
            start = delivery + 1
        return ranges if self.seen else []


class Search:
    """One search. `found` and `refused` (queue → why it could not be read) grow while it runs.

    `is_complete`: every message that was asked for was looked at, or the queue has no more.
    """

    def __init__(self, connection: Connection) -> None:
        self.found: list[Found] = []
        self.refused: dict[str, str] = {}
        self._connection = connection
        self._heads: dict[int, _Head] = {}
        self._pending: list[tuple[_Head, int, Found]] = []
        self._bytes = 0
        self._seen = 0
        self.is_complete = False

    async def through(
        self, wanted: Sequence[tuple[str, int]], target: str = "", annotated: Annotated | None = None
    ) -> None:
        """Look at the first messages of these queues, so many of each; what is found goes to `target` if one is named.

        LinkError where the connection ends: then the broker has put everything back.
        """
        for number, (queue, window) in enumerate(wanted[: CHANNELS - 1], start=1):
            channel = await self._connection.receiver(number, queue, self._came)
            if channel.refused:
                self.refused[queue] = channel.refused
            else:
                self._heads[number] = _Head(channel, window)
        await self._looked(target, annotated)
        for head in self._heads.values():
            if head.channel.refused:
                self.refused[head.channel.queue] = head.channel.refused
            for first, last in head.back():
                self._connection.release(head.channel, first, last)

    async def _looked(self, target: str, annotated: Annotated | None) -> None:
        begun, sender = time.monotonic(), None
        while time.monotonic() < begun + (LONGEST_S if self.found else IN_VAIN_S):
            self._allow()
            before = self._seen
            quiet = FOUND_QUIET_S if self.found or not target else QUIET_S
            if not await self._connection.until(lambda: self._seen > before, within=quiet):  # noqa: B023 - awaited here
                self.is_complete = self._bytes < MOST_BYTES and not self.refused
                return
            for head, delivery, letter in self._pending:
                left = ""
                if target:
                    sender = sender or await self._connection.sender(0, target)
                    left = await self._moved(sender, letter, annotated)
                    if not left:
                        self._connection.accept(head.channel, delivery)
                        head.taken.add(delivery)
                self.found.append(letter._replace(left=left))
            self._pending.clear()

    async def _moved(self, sender: Channel, letter: Found, annotated: Annotated | None) -> str:
        """Why it is not in the other queue; "" where it is, confirmed."""
        try:
            copy = kept(letter.message, annotated(letter) if annotated is not None else {})
        except Amqp10Error as error:
            return f"it cannot be copied: {error}"
        if sender.refused:
            return f"{sender.queue!r}: {sender.refused}"
        why = await self._connection.send(sender, copy)
        return f"{sender.queue!r} did not take it: {why}" if why else ""

    def _allow(self) -> None:
        """A little more of each queue, where there was no end of it yet."""
        for head in self._heads.values():
            room = head.window + len(head.taken) - head.seen
            if not head.channel.refused and not head.channel.credit and room > 0 and self._bytes < MOST_BYTES:
                self._connection.allow(head.channel, min(room, CHUNK, max(1, head.seen)))

    def _came(self, channel: Channel, delivery: int, message: bytes) -> None:
        head = self._heads[channel.number]
        head.saw(delivery)
        self._seen += 1
        self._bytes += len(message)
        if cause := objection(message, self._connection.version):
            self._pending.append((head, delivery, Found(channel.queue, head.seen, cause, message)))


async def first_found(place: tuple[Host, Login, Tls | None], wanted: Sequence[tuple[str, int]]) -> list[Found]:
    """What is among the first messages of these queues, all of which stay; [] where nobody can say."""
    host, login, tls = place
    try:
        connection = await connected(host, login, tls=tls)
    except LinkError:
        return []
    search = Search(connection)
    try:
        await search.through(wanted)
    except LinkError:
        pass
    finally:
        await connection.close()
    return search.found


def described(letter: Found) -> str:
    """One message that cannot be read, for people."""
    return f"message {letter.number} of queue {letter.queue!r} cannot be read by AMQP 0-9-1: {letter.cause}; {ADVICE}"


async def explained(place: tuple[Host, Login, Tls | None], queue: str, window: int) -> str:
    """Why RabbitMQ crashed (541) as it delivered from this queue, and what now."""
    letters = await first_found(place, [(queue, window)])
    if letters:
        return described(letters[0])
    return (
        f"RabbitMQ crashed (541) as it delivered a message of queue {queue!r}: one that came by AMQP 1.0 and cannot be "
        f"read by AMQP 0-9-1, or what the broker's log says; {ADVICE}"
    )
