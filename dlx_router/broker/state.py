"""The state queue: who is active, and the key that signs, for routers without a key file.

The key is a message in a queue with a single active consumer. Guarantees: the key is never lost, whenever we are
killed; two routers never use two keys; `active` is said only by the one consumer, once it has seen all that lay before;
what no router wrote is moved to quarantine and hinders nothing.

How: we consume and publish a hello. A hello of ours that comes back proves that we are the active consumer and, the
queue being in order, that every earlier message has been seen. An active router acks the hellos of others, so a standby
repeats its own; routers that share a key file sign them and are answered, so they know that somebody leads.

The first key is held unacked for at most `renew_s`, then published again, and acked only when the copy came back and
all that lay between is settled: else a key that somebody else wrote would be the first if we died then. A new key is
used only once it came back: the first in the queue is the key of all. The link is our own, which decodes no header:
properties that no library can read are no harm.
"""

import asyncio
import contextlib
import secrets
import time
from collections import deque
from collections.abc import Callable, Coroutine
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Final, Self

from pamqp import commands

from dlx_router.broker.answers import ChannelClosed, LinkError
from dlx_router.broker.consumer import Consumer
from dlx_router.broker.control import Forbidden, Lost, QueueMissing, TopologyError
from dlx_router.broker.link import Link
from dlx_router.broker.publisher import Publisher
from dlx_router.broker.topology import Topology
from dlx_router.core import statemessage
from dlx_router.core.statemessage import Claim, First, Hello, Junk, Key, Sealed
from dlx_router.wire import frames, properties, table
from dlx_router.wire.errors import WireError

RENEW_S: Final = 5.0  # less than half of the shortest consumer_timeout that is supported, 15 s
HELLO_S: Final = 1.0  # a takeover has 5 s, and a standby learns of it by its next hello
COPY_S: Final = 5.0
ANSWERED_S: Final = 5.0
HELLOS: Final = 5  # an answer comes to one of the last
PREFETCH: Final = 5  # the key and four more: junk may be as large as the broker lets messages be
_BROKEN: Final = (LinkError, ChannelClosed, TimeoutError, OSError)
_SEALED: Final = (
    "its first key is a key that this version cannot read; run the version that wrote it. With another key every "
    "waiting letter would go to quarantine. Where no later version ever ran here somebody else wrote it (whoever may "
    "publish to the default exchange could): end all routers and purge the queue"
)


WITHIN_S: Final = 15.0
HELLO_LASTS_MS: Final = b"600000"  # where nobody reads them they do not pile up for ever
_REPLIES: Final = "amq.rabbitmq.reply-to"
_ANSWERABLE: Final = b"amq.rabbitmq.reply-to."
Heard = Callable[[str], None]  # a publish's answer: "" or why not


class StateChannel(Publisher[Heard]):
    """`on_reply(body)` hears answers to hellos, `on_lost(error)` that the channel is gone."""

    def __init__(self, link: Link, *, on_reply: Callable[[bytes], None], on_lost: Callable[[Exception], None]) -> None:
        super().__init__(link, on_answer=lambda heard, why: heard(why), on_doubt=lambda _jobs, error: on_lost(error))
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


AGAIN_S: Final = 1.0
MAX_HEADER_BYTES: Final = 120_000  # a frame holds 128 KiB; what has larger ones comes without them
_ROUTING: Final = frozenset({b"CC", b"BCC", b"dlx-router-pub", b"dlx-router-cause", b"x-delivery-count"})


@dataclass(frozen=True, slots=True)
class Moved:
    """Something that no router wrote, and that lies in quarantine now; with what the broker told of its way."""

    why: str
    exchange: str
    routing_key: str
    user: str  # as far as the publisher said it; the broker has verified it then
    body_bytes: int


class Removal:
    """`settle(tag)` is called when the copy was confirmed, `on_moved` then told."""

    def __init__(
        self,
        channel: StateChannel,
        quarantine: str,
        *,
        settle: Callable[[int], None],
        on_moved: Callable[[Moved], None],
    ) -> None:
        self._channel, self._quarantine = channel, quarantine.encode()
        self._settle, self._on_moved = settle, on_moved
        self._moving: dict[int, str] = {}  # by tag: why the quarantine did not take it, so far

    def lies_before(self, tag: int) -> bool:
        """Whether anything that came before this delivery is not settled."""
        return any(other < tag for other in self._moving)

    @property
    def hindrance(self) -> str:
        """What cannot be moved, and why; "" where all can."""
        refused = [why for why in self._moving.values() if why]
        if not refused:
            return ""
        return f"{len(refused)} messages that no router wrote lie in it, and the quarantine queue {refused[0]} them"

    def move(self, delivery: frames.Delivery, why: str) -> None:
        """Into quarantine as it came, as often as it takes."""
        if not self._channel.is_open:
            return  # the broker gives it to whoever comes next
        tag = delivery.tag
        self._moving.setdefault(tag, "")

        def heard(answer: str) -> None:
            if answer:
                self._moving[tag] = answer
                asyncio.get_running_loop().call_later(AGAIN_S, self.move, delivery, why)
                return
            del self._moving[tag]
            self._settle(tag)
            self._on_moved(_moved(delivery, why))

        self._channel.publish(heard, b"", self._quarantine, self._section(delivery, why), delivery.body)

    def _section(self, delivery: frames.Delivery, why: str) -> bytes:
        """Its properties and headers, less what would route it, end it or be refused."""
        stamp, user = self._channel.stamp(), self._channel.user
        try:
            props = properties.parse(delivery.header, properties.PROPERTIES_AT)
            entries = table.entries(props.headers)
        except (WireError, table.TableError):
            return properties.build(headers=stamp, delivery_mode=2)
        kept = table.splice(props.headers, entries, _ROUTING & entries.keys(), b"")
        cause = table.longstr(b"dlx-router-cause", f"state queue: {why}".encode())
        if len(kept) > MAX_HEADER_BYTES:
            kept = b""
        user_id = props.user_id if props.user_id == user else None
        return props.replaced(headers=kept + cause + stamp, delivery_mode=2, expiration=None, user_id=user_id)


def _moved(delivery: frames.Delivery, why: str) -> Moved:
    try:
        user = properties.parse(delivery.header, properties.PROPERTIES_AT).user_id or b""
    except WireError:
        user = b""
    exchange, key = (part.decode(errors="replace") for part in (delivery.exchange, delivery.routing_key))
    return Moved(why, exchange, key, user.decode(errors="replace"), len(delivery.body))


class StateQueue:
    """Our part in the state queue of one vhost, for as long as the block lasts. The key appears in no repr or error."""

    def __init__(  # noqa: PLR0913 - who hears what, and for tests how often
        self,
        topology: Topology,
        *,
        on_lost: Callable[[TopologyError], None] = lambda _why: None,
        on_moved: Callable[[Moved], None] = lambda _moved: None,
        shared: bytes | None = None,
        remembered: bytes | None = None,
        claim: Callable[[str], Claim | None] = lambda _local: None,
        renew_s: float = RENEW_S,
        hello_s: float = HELLO_S,
    ) -> None:
        """`shared`: the key of a file; leadership alone is wanted. `remembered`: put back where no key is.

        `claim(our address on this link)`: what those are told who ask who leads.
        """
        self.active = False
        self._topology, self._queue = topology, topology.names.state
        self._on_lost, self._on_moved, self._shared = on_lost, on_moved, shared
        self._remembered, self._renew_s, self._hello_s, self._claim = remembered, renew_s, hello_s, claim
        self._instance = secrets.token_hex(8)
        self._link: Link
        self._consumer: Consumer
        self._channel: StateChannel
        self._removal: Removal
        self._first: First | None = None
        self._held: frames.Delivery | None = None  # the newest copy of the first key
        self._answered_s = -ANSWERED_S  # by the monotonic clock: when a leader answered last
        self._leader: Claim | None = None  # what it said then
        self._nonces: deque[str] = deque(maxlen=HELLOS)  # of hellos that may still be answered
        self._older: list[int] = []  # tags of copies that are acked once all before the newest is settled
        self._greeted = asyncio.Event()  # our hello came back
        self._keyed = asyncio.Event()  # a key came
        self._copied = asyncio.Event()  # a copy came back
        self._heard_s = time.monotonic()  # when anything came last
        self._lost: asyncio.Future[TopologyError] = asyncio.get_running_loop().create_future()
        self._tasks: set[asyncio.Task[None]] = set()

    async def __aenter__(self) -> Self:
        """Takes its place in the queue; raises TopologyError where it cannot."""
        try:
            self._link = await self._topology.link("state")
        except LinkError as error:
            raise self._refusal(error) from None
        try:
            async with asyncio.timeout(WITHIN_S):
                await self._begin()
        except _BROKEN as error:
            await self._link.close()
            raise self._refusal(error) from None
        except BaseException:
            self._link.abort()
            raise
        self._spawn(self._greet)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.active = False
        self._on_lost = lambda _why: None
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._link.close()

    @property
    def key(self) -> bytes:
        """The key that signs; RuntimeError before `wait_active`."""
        if not isinstance(self._first, Key) or not self._greeted.is_set():
            raise RuntimeError("wait_active() before asking for the key")
        return self._first.secret

    @property
    def is_answered(self) -> bool:
        """Whether a router that leads has answered lately; only those with the same key file answer."""
        return time.monotonic() - self._answered_s < ANSWERED_S

    @property
    def leader(self) -> Claim | None:
        """Who answered lately that it leads; None: nobody, or it does not say where it can be asked."""
        return self._leader if self.is_answered else None

    @property
    def is_blocked(self) -> bool:
        """Whether the broker has an alarm, and reads nothing of ours."""
        return self._link.blocked

    @property
    def hindrance(self) -> str:
        """What lies in front and cannot be moved; "" where nothing does."""
        return self._removal.hindrance

    async def wait_active(self) -> None:
        """Until we are the active consumer and the key is known; for ever, while another is. TopologyError: lost."""
        await self._unless_lost(self._greeted.wait())
        if self._first is None:
            secret = self._remembered or secrets.token_bytes(statemessage.KEY_BYTES)
            new = statemessage.key(secret, self._instance, time.time_ns() // 1_000_000)
            await self._unless_lost(self._channel.keep(self._queue, new))
            await self._unless_lost(self._keyed.wait())
        self.active = not self._lost.done()
        self._spawn(self._renew)

    # -- reading ------------------------------------------------------------------------------------------------

    async def _begin(self) -> None:
        self._channel = StateChannel(self._link, on_reply=self._replied, on_lost=lambda error: self._lose(str(error)))
        await self._channel.open()
        self._removal = Removal(
            self._channel, self._topology.names.quarantine, settle=self._moved, on_moved=self._on_moved
        )
        self._consumer = Consumer(
            self._link,
            self._queue,
            PREFETCH,
            sink=self._read,
            on_lost=lambda _consumer, error, _unsettled: self._lose(str(error)),
        )
        await self._consumer.start()

    def _read(self, delivery: frames.Delivery, _consumer: Consumer) -> None:
        self._heard_s = time.monotonic()
        match message := statemessage.read(delivery.body, self._first):
            case Hello(instance, _, nonce):
                self._settle(delivery.tag)
                if instance == self._instance:
                    self._greeted.set()
                elif self.active and self._shared is not None and message.is_by(self._shared):
                    claim = self._claim(self._link.local_address)
                    self._channel.answer(delivery, statemessage.answer(instance, self._shared, claim, nonce))
            case Key() | Sealed():
                self._hold(message, delivery)
            case Junk(why):
                self._removal.move(delivery, why)

    def _replied(self, body: bytes) -> None:
        if self._shared is not None and statemessage.is_answer(body, self._instance, self._shared):
            self._answered_s = time.monotonic()
            self._leader = statemessage.claimed(body, self._instance, self._nonces, self._shared)

    def _hold(self, message: First, delivery: frames.Delivery) -> None:
        """Keep it; an older copy has had its day."""
        if self._held is not None:
            self._older.append(self._held.tag)
        self._first, self._held = message, delivery
        self._copied.set()
        self._let_older_go()
        if isinstance(message, Sealed) and self._shared is None:
            self._lose(_SEALED)
        else:
            self._keyed.set()

    def _moved(self, tag: int) -> None:
        self._settle(tag)
        self._let_older_go()

    def _let_older_go(self) -> None:
        """What lay between two copies is settled first: it would be the first message if we ended now."""
        if self._held is not None and not self._removal.lies_before(self._held.tag):
            for tag in self._older:
                self._settle(tag)
            self._older.clear()

    def _settle(self, tag: int) -> None:
        self._consumer.settle(tag)
        self._consumer.flush()

    # -- staying ------------------------------------------------------------------------------------------------

    async def _greet(self) -> None:
        """Say hello until it comes back; whoever is active acks it, so it is said again."""
        while not self._greeted.is_set():
            nonce = secrets.token_hex(8) if self._shared is not None else ""
            self._nonces.append(nonce)
            await self._channel.keep(self._queue, statemessage.hello(self._instance, self._shared, nonce), asks=True)
            await _within(self._hello_s, self._greeted)

    async def _renew(self) -> None:
        """Nothing of ours stays unacked for long; copies that do not come back say that we are active no more."""
        while True:
            await asyncio.sleep(self._renew_s)
            began = time.monotonic()
            self._copied.clear()
            while self._held is not None and not self._copied.is_set():
                await self._channel.keep(self._queue, self._held.body)
                await _within(COPY_S, self._copied)
                silent_s = time.monotonic() - max(began, self._heard_s)
                if not self._copied.is_set() and silent_s > WITHIN_S and not self.hindrance:
                    self._lose("a copy of the key did not come back; another router is active")
                    return

    # -- ending -------------------------------------------------------------------------------------------------

    @property
    def _what(self) -> str:
        return f"state queue {self._queue!r} of vhost {self._topology.vhost!r}"

    def _refusal(self, error: Exception) -> TopologyError:
        reason = "no answer in time" if isinstance(error, TimeoutError) else str(error).rstrip(".")
        match error:
            case ChannelClosed(code=403):
                return Forbidden(f"{self._what}: {reason}; `dlx-router permissions` says which rights its user needs")
            case ChannelClosed(code=404):
                return QueueMissing(f"{self._what}: {reason}; it is declared again, unless DECLARE=never")
            case LinkError():
                return Lost(f"{self._what}: {reason}; it is tried again")
        return TopologyError(f"{self._what}: {reason}; it is tried again")

    def _spawn(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        task = asyncio.create_task(self._watched(work))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[None]) -> None:
        """An error of ours ends our part in the queue: nobody would say hello or renew the key."""
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            self._lose(repr(error))

    async def _watched(self, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        try:
            await work()
        except (TopologyError, *_BROKEN) as error:
            self._lose(str(error))

    def _lose(self, why: str) -> None:
        if self._lost.done():
            return
        error = TopologyError(f"{self._what}: {why}")
        was_active, self.active = self.active, False
        self._lost.set_result(error)
        if was_active:
            self._on_lost(error)

    async def _unless_lost(self, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.ensure_future(work)
        try:
            await asyncio.wait({task, self._lost}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            task.cancel()
        if self._lost.done():
            raise self._lost.result()
        task.result()


async def _within(seconds: float, event: asyncio.Event) -> None:
    """Until the event is set, or that time is over."""
    with contextlib.suppress(TimeoutError):
        async with asyncio.timeout(seconds):
            await event.wait()
